//! The tool that asks the user for consent at a server.

use super::connection::Connection;
use super::progress::Progress;
use super::server::tool_prefix;
use crate::agent::{DynTool, ToolContext};
use crate::types::{Category, Effect, Invalid, ToolOutcome, ToolSpec};
use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::{Map, Value, json};
use std::{fmt::Display, rc::Rc};

/// Returns the name of the tool.
pub(super) fn name(server: &str) -> String {
    format!("{}connect", tool_prefix(server))
}

/// The tool that connects the user with a server.
pub(super) struct ConnectTool(pub Rc<Connection>);

impl ConnectTool {
    fn failure(&self, why: impl Display) -> ToolOutcome {
        ToolOutcome::failure(format!("the MCP server {:?} {why}", self.0.name()))
    }
}

impl DynTool for ConnectTool {
    fn spec(&self) -> ToolSpec {
        let server = self.0.name();
        ToolSpec {
            name: name(server),
            description: format!(
                "Connects the user's account with the MCP server {server:?}, whose tools you then have from the next \
                 message on. The call waits until the user has given consent. Call it when the user wants something \
                 that needs this server and you do not have its tools."
            ),
            effect: Effect::NetworkRead,
            idempotent: true,
            retry_on_timeout: true,
            varies: true,
            category: Category::Mcp,
            control: false,
            suspends: None,
            client_may_repeat: false,
            parameters: json!({"type": "object", "properties": {}}).into(),
        }
    }

    fn check(&self, _args: &Value) -> Result<Vec<String>, Invalid> {
        Ok(vec![self.spec().name])
    }

    fn check_answer(&self, _args: &Value, shown: &Value, answer: &Value) -> Result<(), Invalid> {
        Progress::check_answer(shown, answer)
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        async move {
            let connection = self.0.as_ref();
            if !connection.serves(&cx.user) {
                return self.failure("is connected for another user");
            }
            let progress = match Progress::continued(connection, &cx).await {
                Ok(progress) => progress,
                Err(outcome) => return outcome,
            };
            let error = match connection.list("tools/list", Map::new()).await {
                Ok(_) => {
                    connection.set_outdated(true);
                    let text = "Connected. You have the tools of the server from the next message on.";
                    return ToolOutcome::Result { result: text.into() };
                }
                Err(error) => error,
            };
            match connection.needs_consent(&error) {
                Some(challenge) => progress.wait_for_consent(connection, challenge, &cx).await,
                None => self.failure(error),
            }
        }
        .boxed_local()
    }
}
