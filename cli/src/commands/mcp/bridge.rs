//! Sends the messages of the host to the server, and prints those of the server.

use super::headers::{is_modern, modern};
use crate::{
    api::{Api, lost},
    backoff::back_off,
    error::{Error, Result},
};
use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use reqwest::{Response, header::CONTENT_TYPE};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

/// Attempts to continue a stream until the next message.
const MAX_ATTEMPTS: u32 = 8;

/// The code of an error that is not the server's.
const FAILED: i32 = -32000;

/// The connection to the server.
#[derive(Clone)]
pub(super) struct Bridge {
    api: Api,
    handshake: Arc<Mutex<Handshake>>,
}

/// What `initialize` has agreed on, which later messages of the same client name in headers.
#[derive(Clone, Default)]
struct Handshake {
    version: Option<String>,
    session: Option<String>,
}

impl Bridge {
    pub(super) fn new(api: Api) -> Self {
        Self { api, handshake: Arc::default() }
    }

    /// As [`Bridge::relay`], for a task.
    pub(super) async fn relay_owned(self, message: Value) {
        self.relay(message).await;
    }

    /// Sends a message, and prints the messages of the response. A failure becomes the response of the request.
    pub(super) async fn relay(&self, message: Value) {
        let is_request = message.get("method").is_some();
        if let Err(error) = self.exchange(&message).await
            && let Some(id) = message.get("id").filter(|_| is_request)
        {
            print(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": FAILED, "message": error.to_string()}}),
            );
        }
    }

    async fn exchange(&self, message: &Value) -> Result<()> {
        let mut request = self.api.post("/mcp").body_json(message);
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in self.headers(message) {
            request = request.header(name, &value);
        }
        // A call is not repeated: the server cannot tell it from a second one.
        let response = request.once().await?;
        if let Some(session) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            self.handshake.lock().unwrap_or_else(PoisonError::into_inner).session = Some(session.to_owned());
        }
        let kind =
            response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_owned()).unwrap_or_default();
        if kind.starts_with(b"text/event-stream") {
            return self.stream(message, response).await;
        }
        let body = response.bytes().await.map_err(|e| lost(self.api.url(), &e))?;
        if body.is_empty() {
            Ok(())
        } else {
            self.receive(message, &String::from_utf8_lossy(&body)).map(drop)
        }
    }

    /// Prints the messages of a stream. One that breaks off continues after its last event, if the protocol allows it.
    async fn stream(&self, message: &Value, mut response: Response) -> Result<()> {
        let (mut last, mut failures) = (String::new(), 0);
        loop {
            let mut is_answered = false;
            let mut events = response.bytes_stream().eventsource();
            while let Some(Ok(event)) = events.next().await {
                last.clone_from(&event.id);
                if !event.data.is_empty() {
                    failures = 0;
                    is_answered |= self.receive(message, &event.data)?;
                }
            }
            if is_answered || message.get("id").is_none() {
                return Ok(());
            }
            if last.is_empty() || is_modern(message) {
                return Err(self.broken());
            }
            response = self.resume(&last, &mut failures).await?;
        }
    }

    fn broken(&self) -> Error {
        let host = self.api.url().host_str().unwrap_or_default().to_owned();
        Error::Connection { host, cause: "the stream broke off".into() }
    }

    /// Requests the rest of a stream. Connections without a message in between are limited.
    async fn resume(&self, last: &str, failures: &mut u32) -> Result<Response> {
        let mut cause = self.broken();
        loop {
            if *failures >= MAX_ATTEMPTS {
                return Err(cause);
            }
            *failures += 1;
            if *failures > 1 {
                back_off(*failures - 1, &cause).await;
            }
            let mut request =
                self.api.get("/mcp").header("accept", "text/event-stream").header("last-event-id", last);
            for (name, value) in self.headers(&Value::Null) {
                request = request.header(name, &value);
            }
            match request.once().await {
                Err(error) if error.is_transient() || error.is_failure_of_server() => cause = error,
                result => return result,
            }
        }
    }

    /// Returns the headers of a message.
    fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        if is_modern(message) {
            return modern(message);
        }
        let Handshake { version, session } =
            self.handshake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let version = version.map(|version| ("mcp-protocol-version", version));
        version.into_iter().chain(session.map(|session| ("mcp-session-id", session))).collect()
    }

    /// Prints a message of the server. Returns whether it is the response to the request.
    fn receive(&self, request: &Value, data: &str) -> Result<bool> {
        let message: Value = serde_json::from_str(data).map_err(|e| Error::Response(e.to_string()))?;
        if request["method"] == "initialize"
            && let Some(version) = message["result"]["protocolVersion"].as_str()
        {
            self.handshake.lock().unwrap_or_else(PoisonError::into_inner).version = Some(version.to_owned());
        }
        print(&message);
        let is_response = message.get("result").is_some() || message.get("error").is_some();
        Ok(is_response && message.get("id") == request.get("id"))
    }
}

/// Prints a message as a line. A host that has closed the pipe reads no more.
fn print(message: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}
