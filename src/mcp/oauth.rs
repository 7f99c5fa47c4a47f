//! OAuth 2.1: the consent of a user at a server, and the tokens that follow from it.
//!
//! A server that needs a token answers with 401. The client reads who issues tokens (`discovery`), gets an id
//! (`client`), and makes the URL where the user gives consent (`request`); the call waits. The authorization server
//! then sends the user's browser to the Worker, which shows a confirmation code. With it as its answer, the call exchanges
//! the code of the authorization server for a token (`reply`) and continues. A token belongs to a tenant, a user and a
//! server. It is sent to that server only, refreshed at the authorization server that has issued it only, and stored
//! encrypted.

mod challenge;
mod client;
mod confirmation;
mod discovery;
mod pending;
mod reply;
mod request;
mod token;
mod vault;

#[cfg(test)]
mod tests;

pub use challenge::Challenge;
pub(super) use client::metadata;
pub(super) use reply::{confirm, park};
pub(super) use request::{Asked, begin};
pub(super) use token::Tokens;

use super::error::McpError;
use super::ports::Ports;
use crate::ports::{HttpRequest, within};
use crate::types::{TenantId, UserId};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use std::time::Duration;

/// The path to which authorization servers send the browser of the user.
pub const CALLBACK: &str = "/v1/oauth/callback";
/// The path of the metadata that is the id of the client.
pub const CLIENT_METADATA: &str = "/client-metadata.json";

/// Maximum size of a response of an authorization server, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// How long an authorization server may take for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whose consent at which server.
#[derive(Clone)]
pub(super) struct Subject {
    pub tenant: TenantId,
    pub user: UserId,
    /// The URL of the server, in WHATWG form.
    pub resource: String,
}

/// The response of an authorization server.
struct Answer {
    status: u16,
    /// The JSON of the body; null if it has none.
    body: Value,
}

/// Sends a request to an authorization server.
async fn send(ports: &Ports, mut request: HttpRequest) -> Result<Answer, McpError> {
    request.url = ports.hosts.receiver(&request.url)?;
    request.headers.push(("accept".into(), "application/json".into()));
    let work = async {
        let mut response = ports.http.send(request).await?;
        let mut text = Vec::new();
        while let Some(chunk) = response.body.next().await {
            text.extend_from_slice(&chunk?);
            if text.len() > MAX_BYTES {
                return Err(McpError::Consent("a response of its authorization server is too large".into()));
            }
        }
        let body = serde_json::from_slice(&text).unwrap_or_default();
        Ok(Answer { status: response.status, body })
    };
    within(ports.clock.as_ref(), TIMEOUT, work).await.unwrap_or(Err(McpError::Slow(TIMEOUT)))
}

/// Reads a document; `None` if it does not exist.
async fn read(ports: &Ports, url: &str) -> Result<Option<Value>, McpError> {
    let request = HttpRequest { method: "GET", url: url.to_owned(), ..HttpRequest::default() };
    let answer = send(ports, request).await?;
    match answer.status {
        200 if answer.body.is_object() => Ok(Some(answer.body)),
        200..=399 => {
            Err(McpError::Consent("the response to a request for metadata is something else".into()))
        }
        400..=499 => Ok(None),
        status => Err(McpError::Consent(format!("a request for metadata was answered with status {status}"))),
    }
}

fn post(url: &str, kind: &str, body: String) -> HttpRequest {
    let headers = vec![("content-type".to_owned(), kind.to_owned())];
    let body = Some(Bytes::from(body));
    HttpRequest { method: "POST", url: url.to_owned(), headers, body, ..HttpRequest::default() }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn list(value: &Value, name: &str) -> Option<Vec<String>> {
    let items = value.get(name)?.as_array()?;
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
