//! `agentctl mcp`: a bridge between standard input and output and the server's `/mcp`.

use crate::{
    api::Api,
    context::Context,
    error::{Error, Result},
};
use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinSet,
};

const EXAMPLES: &str = "\
Example of an entry in the configuration of an MCP host:
  {\"mcpServers\": {\"agents\": {\"command\": \"agentctl\", \"args\": [\"mcp\", \"--profile\", \"work\"]}}}";

/// Connects a host of the Model Context Protocol, such as an editor, to the server's agents
///
/// The host starts this command and speaks MCP over its standard input and output. Each message goes to the server's
/// route /mcp, so the host needs neither the URL nor the key.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {}

impl Mcp {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let bridge = Bridge { api: context.api()?, version: Arc::default(), session: Arc::default() };
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) if line.trim().is_empty() => {}
                    // The messages of a host are concurrent: one cancels another.
                    Some(line) => {
                        let bridge = bridge.clone();
                        // The order of `initialize` and the next message matters, so only requests run side by side.
                        if is_initialize(&line) { bridge.relay(line).await } else { requests.spawn(bridge.relay(line)); }
                    }
                    None => break,
                },
                Some(_) = requests.join_next(), if !requests.is_empty() => {}
            }
        }
        // The host has said all, and still waits for these.
        while requests.join_next().await.is_some() {}
        Ok(())
    }
}

fn is_initialize(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|message| message["method"] == "initialize")
}

#[derive(Clone)]
struct Bridge {
    api: Api,
    /// The version that `initialize` has chosen, which later requests name in a header.
    version: Arc<Mutex<Option<String>>>,
    /// The session of a server that assigns one.
    session: Arc<Mutex<Option<String>>>,
}

impl Bridge {
    /// Sends a message, and prints the messages of the response. A failure becomes the response of the request.
    async fn relay(self, line: String) {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        let id = message.get("id").cloned();
        if let Err(error) = self.exchange(&message, line).await
            && let (Some(id), true) = (id, message.get("method").is_some())
        {
            let error = json!({"code": -32000, "message": error.to_string()});
            print(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    }

    async fn exchange(&self, message: &Value, line: String) -> Result<()> {
        let mut request = self.api.post("/mcp").body(line.into_bytes());
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in headers(message, stored(&self.version), stored(&self.session)) {
            request = request.header(name, &value);
        }
        // A call is not repeated: the server cannot tell it from a second one.
        let response = request.once().await?;
        if let Some(session) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            store(&self.session, session);
        }
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream {
            let body = response.bytes().await.map_err(|e| crate::api::lost(self.api.url(), &e))?;
            return if body.is_empty() {
                Ok(())
            } else {
                self.receive(message, &String::from_utf8_lossy(&body))
            };
        }
        self.stream(message, response).await
    }

    /// Prints the messages of a stream. One that breaks off continues after its last event, if the protocol allows it.
    async fn stream(&self, message: &Value, mut response: reqwest::Response) -> Result<()> {
        let mut last = String::new();
        let mut failures = 0;
        loop {
            let mut is_answered = false;
            let mut events = response.bytes_stream().eventsource();
            while let Some(Ok(event)) = events.next().await {
                failures = 0;
                last.clone_from(&event.id);
                if !event.data.is_empty() {
                    is_answered |= answers(message, &event.data);
                    self.receive(message, &event.data)?;
                }
            }
            if is_answered || message.get("id").is_none() {
                return Ok(());
            }
            if last.is_empty() {
                return Err(Error::Connection { host: "/mcp".into(), cause: "the stream broke off".into() });
            }
            response = loop {
                let mut request =
                    self.api.get("/mcp").header("accept", "text/event-stream").header("last-event-id", &last);
                for (name, value) in headers(&Value::Null, stored(&self.version), stored(&self.session)) {
                    request = request.header(name, &value);
                }
                match request.once().await {
                    Ok(response) => break response,
                    Err(error) if error.is_transient() && failures < 8 => {
                        failures += 1;
                        crate::backoff::back_off(failures, &error).await;
                    }
                    Err(error) => return Err(error),
                }
            };
        }
    }

    /// Prints a message of the server.
    fn receive(&self, request: &Value, data: &str) -> Result<()> {
        let message: Value = serde_json::from_str(data).map_err(|e| Error::Response(e.to_string()))?;
        if request["method"] == "initialize"
            && let Some(version) = message["result"]["protocolVersion"].as_str()
        {
            store(&self.version, version);
        }
        print(&message);
        Ok(())
    }
}

/// Returns whether a message of the server is the response to this request.
fn answers(request: &Value, data: &str) -> bool {
    serde_json::from_str::<Value>(data).is_ok_and(|message| {
        message.get("id") == request.get("id")
            && (message.get("result").is_some() || message.get("error").is_some())
    })
}

/// Returns the headers that repeat what is in a message, as the protocol requires it.
fn headers(message: &Value, version: Option<String>, session: Option<String>) -> Vec<(&'static str, String)> {
    let meta = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    let own = meta.as_str().map(str::to_owned);
    let is_stateless = own.is_some();
    let mut headers = Vec::new();
    headers.extend(own.or(version).map(|version| ("mcp-protocol-version", version)));
    headers.extend(session.map(|session| ("mcp-session-id", session)));
    if is_stateless && let Some(method) = message["method"].as_str() {
        headers.push(("mcp-method", method.to_owned()));
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str());
        headers.extend(name.filter(|name| name.is_ascii()).map(|name| ("mcp-name", name.to_owned())));
    }
    headers
}

/// Prints a message as a line. A host that has closed the pipe reads no more.
fn print(message: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}

fn stored(cell: &Mutex<Option<String>>) -> Option<String> {
    cell.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn store(cell: &Mutex<Option<String>>, value: &str) {
    *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(value.to_owned());
}
