//! Reads the response to a message: one JSON text, or a stream of events.

use super::content::remove_secret_files;
use super::error::{McpError, RpcError};
use super::oauth::Challenge;
use super::protocol::MODERN;
use crate::ports::{HttpResponse, json_messages::JsonMessages, outbound::Redaction};
use crate::types::ToolProgress;
use futures::StreamExt;
use serde_json::Value;

/// Maximum size of the response to a call, in bytes. Parsed, it takes many times this memory.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Maximum size of any other response, in bytes. Several servers are asked at once.
pub(super) const MAX_LIST_BYTES: usize = 1 << 20;
/// Maximum size of the body of an error, in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Maximum length of a server's error message, in characters.
const MAX_MESSAGE: usize = 1_000;

/// A message of the server.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// The result of the request.
    Result(Value),
    /// A request of the server.
    Asked { id: Value, method: String, params: Value },
    /// How far the request is.
    Progress(ToolProgress),
    /// The notice that the server has other tools now.
    ToolsChanged,
}

/// Reads the messages of a response, without the secrets of the request.
pub(super) struct Reader<'a> {
    redaction: &'a Redaction,
    messages: JsonMessages,
}

impl<'a> Reader<'a> {
    /// Checks the head of a response.
    ///
    /// # Errors
    /// The status is no success.
    pub async fn new(
        mut response: HttpResponse,
        redaction: &'a Redaction,
        max_bytes: usize,
    ) -> Result<Self, McpError> {
        match response.status {
            200..=299 => {}
            300..=399 => return Err(McpError::Redirect),
            status @ (401 | 403) => {
                let challenge = response.header("www-authenticate").map(Challenge::parse);
                return Err(McpError::Unauthorized(status, challenge.unwrap_or_default()));
            }
            status => {
                let mut text = Vec::new();
                while let Some(Ok(chunk)) = response.body.next().await {
                    text.extend_from_slice(&chunk);
                    if text.len() > MAX_ERROR_BYTES {
                        break;
                    }
                }
                let body = serde_json::from_slice(&text).ok().map(|body| redaction.value(body));
                let error = body.as_ref().and_then(|body| body.get("error")).and_then(rpc_error);
                let names_session = String::from_utf8_lossy(&text).to_lowercase().contains("session");
                return Err(McpError::Status { status, error, names_session });
            }
        }
        Ok(Self { redaction, messages: JsonMessages::new(response, max_bytes) })
    }

    /// Returns the next message that is a request of the server, or the response to the request with this id.
    /// Also returns its progress, and the notice of other tools. Other notifications, and responses to other requests, are
    /// skipped.
    ///
    /// # Errors
    /// The server's error, or a response that ends too early, is too large, or is not of the protocol.
    pub async fn next(&mut self, id: u64) -> Result<Incoming, McpError> {
        while let Some(message) = self.messages.next().await? {
            let mut message = self.redaction.value(message);
            remove_secret_files(self.redaction, &mut message);
            if let Some(incoming) = incoming(message, id)? {
                return Ok(incoming);
            }
        }
        Err(McpError::Malformed("it has no response to the request"))
    }
}

fn incoming(mut message: Value, own: u64) -> Result<Option<Incoming>, McpError> {
    let id = message.get("id").cloned().filter(|id| !id.is_null());
    if let Some(method) = message.get("method") {
        let method = method.as_str().unwrap_or_default().to_owned();
        if method == "notifications/progress" && message.pointer("/params/progressToken") == Some(&own.into())
        {
            return Ok(Some(Incoming::Progress(progress(&message["params"]))));
        }
        if method == "notifications/tools/list_changed" {
            return Ok(Some(Incoming::ToolsChanged));
        }
        let params = message.get_mut("params").map(Value::take).unwrap_or_default();
        return Ok(id.map(|id| Incoming::Asked { id, method, params }));
    }
    let is_own = id.as_ref().and_then(Value::as_u64) == Some(own);
    // A server that could not read the request does not know its id.
    if let Some(error) = message.get("error").filter(|_| is_own || id.is_none()) {
        return Err(match rpc_error(error) {
            Some(error) => McpError::Rpc(error),
            None => McpError::Malformed("its error has no code"),
        });
    }
    match message.get_mut("result").filter(|_| is_own) {
        Some(result) if result.is_object() => Ok(Some(Incoming::Result(result.take()))),
        Some(_) => Err(McpError::Malformed("its result is not an object")),
        None => Ok(None),
    }
}

fn progress(params: &Value) -> ToolProgress {
    let message = params.get("message").and_then(Value::as_str);
    ToolProgress {
        message: message.map(|message| message.chars().take(MAX_MESSAGE).collect()),
        progress: params.get("progress").and_then(Value::as_f64),
        total: params.get("total").and_then(Value::as_f64),
        ..ToolProgress::default()
    }
}

fn rpc_error(error: &Value) -> Option<RpcError> {
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let message = message.chars().take(MAX_MESSAGE).collect();
    let supported = error.pointer("/data/supported").and_then(Value::as_array);
    let supports_modern = supported.is_some_and(|versions| versions.iter().any(|version| version == MODERN));
    Some(RpcError { code: error.get("code")?.as_i64()?, message, supports_modern })
}
