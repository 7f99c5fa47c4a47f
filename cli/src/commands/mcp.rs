//! `agentctl mcp`: a bridge between standard input and output and the server's `/mcp`.

mod bridge;
mod headers;

use crate::{context::Context, error::Result};
use bridge::Bridge;
use headers::is_modern;
use serde_json::Value;
use std::collections::HashMap;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::{AbortHandle, JoinSet},
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
        let bridge = Bridge::new(context.api()?);
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut requests = Requests::default();
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => requests.receive(&bridge, &line).await,
                    None => break,
                },
                Some(_) = requests.tasks.join_next(), if !requests.tasks.is_empty() => {}
            }
        }
        // The host has said all, and still waits for these responses.
        while requests.tasks.join_next().await.is_some() {}
        Ok(())
    }
}

/// The requests that run.
#[derive(Default)]
struct Requests {
    tasks: JoinSet<()>,
    /// Those of modern clients by their id, as JSON.
    modern: HashMap<String, AbortHandle>,
}

impl Requests {
    /// Handles a line of the host. A line that is not JSON has no id to respond to.
    async fn receive(&mut self, bridge: &Bridge, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        match message["method"].as_str() {
            // The messages after it need the version and the session of its response.
            Some("initialize") => bridge.relay(message).await,
            // Over HTTP, a modern client cancels by closing the stream.
            Some("notifications/cancelled") if self.cancel(&message["params"]["requestId"]) => {}
            _ => {
                let id = message.get("id").filter(|_| is_modern(&message)).map(Value::to_string);
                let task = self.tasks.spawn(bridge.clone().relay_owned(message));
                self.modern.extend(id.map(|id| (id, task)));
                self.modern.retain(|_, task| !task.is_finished());
            }
        }
    }

    /// Ends a request of a modern client. Returns whether it was one.
    fn cancel(&mut self, id: &Value) -> bool {
        self.modern.remove(&id.to_string()).is_some_and(|task| {
            task.abort();
            true
        })
    }
}
