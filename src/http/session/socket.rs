//! WebSockets of a session: its events as text frames, and commands from the client. The platform holds the
//! sockets.

use super::{call::Call, call::SessionRequest, checks, events, turns};
use crate::agent::SessionHost;
use crate::http::body;
use crate::http::pattern::Params;
use crate::http::request::{Request, RequestExt, require_upgrade};
use crate::http::response::{self, Body, Response};
use crate::http::upgrade::{SocketState, Upgrade};
use crate::ports::session_store::PAGE_RECORDS;
use crate::session::{Session, frame::Frame};
use crate::types::{Cursor, ErrorCode, Problem, RequestId, Scope};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use std::rc::Rc;

/// Size of the missed frames after which a socket is closed, in bytes. The platform does not report how much of
/// what was sent to a socket is unread. A client that connects again has read it all.
const MAX_MISSED: usize = 4 << 20;

/// `GET /v1/sessions/{id}/ws`.
pub async fn open(call: &Call<'_>) -> Result<Response, Problem> {
    require_upgrade(call.request)?;
    checks::room_for_socket(call.session()?)?;
    let (missed, is_behind) = missed(call, call.session()?)?;
    let state = SocketState { principal: call.principal.clone(), session: call.session_id.clone() };
    let upgrade = Upgrade { missed, is_behind, state };
    Ok(response::new(StatusCode::SWITCHING_PROTOCOLS, Body::WebSocket(Box::new(upgrade))))
}

/// Returns the frames that a new socket has missed, in order: stored records, and the text of the message
/// that is being streamed. Later frames are broadcast to the socket. Once the frames exceed [`MAX_MISSED`], the rest
/// is left out, and `true` is returned as well.
fn missed(call: &Call<'_>, session: &Session) -> Result<(Vec<Frame>, bool), Problem> {
    let request = call.request;
    // Without a cursor, a socket receives later events only.
    let from_now = request.query("after").is_none() && request.header("last-event-id").is_none();
    let mut cursor = match from_now {
        true => Cursor::after(session.last_seq()),
        false => session.resolve_cursor(events::cursor(request)?)?,
    };
    let (mut missed, mut bytes) = (Vec::new(), 0);
    loop {
        let (frames, next) = session.replay(cursor, None, true, PAGE_RECORDS)?;
        bytes += frames.iter().map(|frame| frame.json().len()).sum::<usize>();
        missed.extend(frames);
        match next {
            Some(_) if bytes > MAX_MISSED => return Ok((missed, true)),
            Some(next) => cursor = next,
            None => break,
        }
    }
    missed.extend(session.hub().streamed_after(cursor));
    Ok((missed, false))
}

/// Executes the command in a frame, for a caller whose credential is valid. Returns the frame to send back, if any.
pub async fn command(
    host: &Rc<SessionHost>,
    socket: &SocketState,
    text: &str,
    request_id: &RequestId,
) -> Option<String> {
    let frame = match run(host, socket, text, request_id).await.map(Response::into_body) {
        Ok(Body::Bytes(bytes)) => {
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            json!({"type": "accepted", "answer": body})
        }
        Ok(_) => return None,
        Err(problem) => {
            let problem: Value = serde_json::from_str(&problem.to_json(request_id)).unwrap_or_default();
            json!({"type": "error", "problem": problem})
        }
    };
    Some(frame.to_string())
}

async fn run(
    host: &Rc<SessionHost>,
    socket: &SocketState,
    text: &str,
    request_id: &RequestId,
) -> Result<Response, Problem> {
    body::check_frame(text)?;
    if !socket.principal.scopes.allow(Scope::Chat) {
        return Err(Problem::new(ErrorCode::MissingScope, "this socket may only listen"));
    }
    // The command, with the fields of the body of the same request over HTTP.
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let command = body["type"].as_str().unwrap_or_default();
    if !["message", "steer", "abort"].contains(&command) {
        let detail = "expected a JSON object with `type`: `message`, `steer` or `abort`";
        return Err(Problem::field("/type", detail));
    }
    host.count_request(&socket.principal.tenant).await?;
    let asked = SessionRequest {
        principal: socket.principal.clone(),
        session: socket.session.clone(),
        id: request_id.clone(),
        request: post_request(&body),
    };
    host.read_deletion().await;
    host.load_agent().await?;
    let call = Call::enter(host, &asked, Params::default(), None).await?;
    // A late command must not create a deleted session again.
    call.session()?;
    host.apply_tenant_policy(&socket.principal.tenant, &socket.principal.policy)?;
    match command {
        "message" => turns::post(&call).await,
        "steer" => turns::steer(&call).await,
        _ => turns::abort(&call).await,
    }
}

/// Builds the POST request for a command.
fn post_request(body: &Value) -> Request {
    let mut request = Request::new(body.to_string().into());
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    // The socket receives the events of the turn as broadcasts.
    headers.insert("prefer", HeaderValue::from_static("respond-async"));
    request
}
