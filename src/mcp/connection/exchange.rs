//! Sends a request to the server and reads its result. Responds to the requests that the server makes before that.

use super::super::elicitation;
use super::super::error::McpError;
use super::super::message::{Incoming, MAX_LIST_BYTES, Reader};
use super::super::oauth::Tokens;
use super::super::protocol::SESSION_HEADER;
use super::{Connection, Outgoing, UNKNOWN_METHOD};
use crate::ports::{HttpRequest, HttpResponse, outbound::Target, within};
use crate::types::{Invalid, ToolProgress, header};
use bytes::Bytes;
use futures::{
    future::{Either, select},
    pin_mut,
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Maximum number of requests of a server that are answered during one request of the client.
const MAX_ASKED: usize = 16;
/// How long a server is given to open the stream of a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long the stream is not opened again if the server does not open it.
const NO_STREAM: Duration = Duration::from_mins(5);
/// How long a server is given to accept a message that is not a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The code of the response to a question that a person has not answered yet.
const NOT_ANSWERED: i64 = -32000;

/// Returns the response to a question of a server, if a person has answered it.
pub(in crate::mcp) type OnQuestion<'a> = &'a dyn Fn(&Value) -> Option<Value>;

impl Connection {
    /// Sends a request to a legacy server with these headers. Also answers what the server asks outside of the response: many
    /// servers send their questions on the stream of the session.
    pub(super) async fn exchange_in_session(
        &self,
        headers: Vec<(String, String)>,
        outgoing: &Outgoing<'_>,
    ) -> Result<Value, McpError> {
        let on_question = outgoing.on_question;
        let work = self.exchange(headers.clone(), outgoing, outgoing.params.clone(), on_question);
        let has_session = headers.iter().any(|(name, _)| name == SESSION_HEADER);
        let clock = self.ports.clock.as_ref();
        if on_question.is_none() || !has_session || clock.now() < self.no_stream_until.get() {
            return work.await;
        }
        // Before the request, because a server drops what it cannot send.
        let (target, response) = match within(clock, OPEN_TIMEOUT, self.open_stream(&headers)).await {
            Ok(Ok(opened)) => opened,
            // The server has no streams, or is slow.
            Ok(Err(McpError::Status { status: 405, .. })) | Err(_) => {
                self.no_stream_until.set(clock.now() + NO_STREAM);
                return work.await;
            }
            // The session may have ended, which the request finds out.
            Ok(Err(_)) => return work.await,
        };
        let listened = async {
            let mut reader = Reader::new(response, &target.redaction, MAX_LIST_BYTES).await?;
            self.result(&mut reader, outgoing.id, None, on_question, &headers).await
        };
        pin_mut!(work, listened);
        match select(work, listened).await {
            Either::Left((result, _)) => result,
            Either::Right((asked @ Err(McpError::Asks(_)), _)) => asked,
            // The stream has ended, or is not of the protocol. The response does not depend on it.
            Either::Right((_, work)) => work.await,
        }
    }

    /// Opens the stream of a legacy session.
    async fn open_stream(&self, own: &[(String, String)]) -> Result<(Target, HttpResponse), McpError> {
        let target = self.target().await?;
        let request =
            HttpRequest { method: "GET", body: None, ..request(&target, own.to_vec(), &Value::Null)? };
        let response = self.ports.http.send(request).await?;
        match response.status {
            200 => Ok((target, response)),
            status => Err(McpError::Status { status, error: None, names_session: false }),
        }
    }

    /// Sends a request with these headers and parameters. Returns its result.
    pub(super) async fn exchange(
        &self,
        headers: Vec<(String, String)>,
        outgoing: &Outgoing<'_>,
        mut params: Map<String, Value>,
        on_question: Option<OnQuestion<'_>>,
    ) -> Result<Value, McpError> {
        let Outgoing { id, method, max_bytes, is_sent, on_progress, .. } = outgoing;
        if on_progress.is_some() {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            meta["progressToken"] = (*id).into();
        }
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let target = self.target().await?;
        let request = request(&target, headers.clone(), &body)?;
        is_sent.set(true);
        let (target, response) = self.send_to(target, request, headers.clone(), &body).await?;
        let mut reader = Reader::new(response, &target.redaction, *max_bytes).await?;
        self.result(&mut reader, *id, *on_progress, on_question, &headers).await
    }

    /// Reads until the result. Requests of the server are refused, except for questions if there is `on_question`.
    pub(super) async fn result(
        &self,
        reader: &mut Reader<'_>,
        id: u64,
        on_progress: Option<&dyn Fn(ToolProgress)>,
        on_question: Option<OnQuestion<'_>>,
        headers: &[(String, String)],
    ) -> Result<Value, McpError> {
        // If one is lost, the server decides what becomes of the client's request.
        let send = async |message: Value| {
            let sent = self.send(headers.to_vec(), &message);
            drop(within(self.ports.clock.as_ref(), SEND_TIMEOUT, sent).await);
        };
        let mut asked = 0;
        while asked <= MAX_ASKED {
            let (theirs, method, params) = match reader.next(id).await? {
                Incoming::Result(result) => return Ok(result),
                Incoming::Progress(progress) => {
                    if let Some(show) = on_progress {
                        show(progress);
                    }
                    continue;
                }
                Incoming::ToolsChanged => {
                    // Only during calls, which can show progress or answer. A server that sends the notice with each list
                    // would be asked again before each turn.
                    if on_progress.is_some() || on_question.is_some() {
                        self.set_outdated(true);
                    }
                    continue;
                }
                Incoming::Asked { id, method, params } => (id, method, params),
            };
            asked += 1;
            match (method.as_str(), on_question) {
                ("ping", _) => send(json!({"jsonrpc": "2.0", "id": theirs, "result": {}})).await,
                (elicitation::METHOD, Some(respond)) => {
                    let request = json!({"method": method, "params": params});
                    let Some(response) = respond(&request) else {
                        send(canceled(id)).await;
                        send(refused(&theirs, NOT_ANSWERED, "the request comes again with the answer")).await;
                        return Err(McpError::Asks(request));
                    };
                    send(json!({"jsonrpc": "2.0", "id": theirs, "result": response})).await;
                }
                _ => send(refused(&theirs, UNKNOWN_METHOD, "unknown method")).await,
            }
        }
        Err(McpError::Malformed("it has too many requests of its own"))
    }

    /// Returns where requests go now.
    async fn target(&self) -> Result<Target, McpError> {
        let endpoint = self.endpoint.as_ref().map_err(Clone::clone)?;
        let mut target =
            endpoint.target(self.ports.secrets.as_ref(), &self.tenant, &self.ports.hosts).await?;
        if let Some(user) = &self.user
            && let Some(token) = Tokens::new(&self.ports, &self.subject(user)?).access().await?
        {
            target.set_token(token);
        }
        Ok(target)
    }

    /// Sends a message with the headers of the definition and the token of the user. Returns where it went, too.
    pub(super) async fn send(
        &self,
        own: Vec<(String, String)>,
        body: &Value,
    ) -> Result<(Target, HttpResponse), McpError> {
        let target = self.target().await?;
        let request = request(&target, own.clone(), body)?;
        self.send_to(target, request, own, body).await
    }

    /// Sends a request. If the server refuses the token of the user, sends the message again with a refreshed one.
    async fn send_to(
        &self,
        target: Target,
        first: HttpRequest,
        own: Vec<(String, String)>,
        body: &Value,
    ) -> Result<(Target, HttpResponse), McpError> {
        let response = self.ports.http.send(first).await?;
        let (Some(user), Some(token), 401) = (&self.user, &target.token, response.status) else {
            return Ok((target, response));
        };
        Tokens::new(&self.ports, &self.subject(user)?).refuse(token).await?;
        let newer = self.target().await?;
        if newer.token.is_none() {
            return Ok((target, response));
        }
        let response = self.ports.http.send(request(&newer, own, body)?).await?;
        Ok((newer, response))
    }
}

/// Returns the request that sends a message with the headers of the definition.
fn request(target: &Target, own: Vec<(String, String)>, body: &Value) -> Result<HttpRequest, Invalid> {
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
    ];
    headers.extend(target.headers.iter().cloned());
    headers.extend(target.token.iter().map(|token| ("authorization".to_owned(), format!("Bearer {token}"))));
    headers.extend(own);
    if header::too_large(&headers) {
        return Err(Invalid(header::too_large_text()));
    }
    let (url, body) = (target.url.clone(), Some(Bytes::from(body.to_string())));
    Ok(HttpRequest { method: "POST", url, headers, body, ..HttpRequest::default() })
}

/// Returns the message that the result of a request is no longer wanted.
pub(super) fn canceled(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "the caller has canceled the request"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// Returns the response that refuses a request of the server.
fn refused(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}
