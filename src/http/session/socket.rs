//! The WebSocket face of a session: the same records as text frames, and commands from the client.
//!
//! The platform keeps the socket; this decides what a frame from the client means.

use super::{Handler, SessionRequest, events};
use crate::agent::OnBusy;
use crate::http::{ApiBody, ApiRequest, ApiResponse, routes::SessionRoute};
use crate::session::{frame::Frame, replay::PAGE};
use crate::types::{ErrorCode, Principal, Problem, Rules, Scope, json::parse};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What a socket remembers while its object sleeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketState {
    /// Who opened it.
    pub principal: Principal,
    /// The session.
    pub session: String,
}

impl SocketState {
    /// Whoever opens a socket by this request. The tenant's rules stay out, for which there is no room: the
    /// session has learnt them.
    pub fn new(call: &SessionRequest) -> Self {
        let principal = Principal { rules: Rules::default(), ..call.principal.clone() };
        Self { principal, session: call.session.clone() }
    }
}

impl Handler {
    /// What a new socket missed, in order: stored records and the text being written. What comes
    /// after is broadcast to it.
    ///
    /// # Errors
    /// 404 for a session that is not the caller's.
    pub fn catch_up(&self, call: &SessionRequest) -> Result<Vec<Frame>, Problem> {
        self.host.recover()?;
        self.govern(call)?;
        let session = self.session(call)?;
        // Without a place to start from, a socket hears what comes from now on.
        let from_now =
            call.request.query("after").is_none() && call.request.header("last-event-id").is_none();
        let mut cursor = match from_now {
            true => crate::types::Cursor::after(session.last_seq()),
            false => session.resolve_cursor(events::cursor(&call.request)?)?,
        };
        let mut missed = Vec::new();
        loop {
            let (frames, next) = session.replay(cursor, None, true, PAGE)?;
            missed.extend(frames);
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        missed.extend(session.hub().streamed_after(cursor));
        Ok(missed)
    }

    /// Does what a frame asks for. The answer, where there is one, is a frame of its own.
    pub async fn command(&self, socket: &SocketState, text: &str, request_id: String) -> Option<String> {
        let answer = match self.run_command(socket, text, &request_id).await {
            Ok(ApiResponse { body: ApiBody::Bytes(bytes), .. }) => {
                let body = parse(&bytes).unwrap_or_default();
                json!({"type": "accepted", "answer": body})
            }
            Ok(_) => return None,
            Err(problem) => {
                let problem = parse(problem.to_json(&request_id).as_bytes()).unwrap_or_default();
                json!({"type": "error", "problem": problem})
            }
        };
        Some(answer.to_string())
    }

    async fn run_command(
        &self,
        socket: &SocketState,
        text: &str,
        request_id: &str,
    ) -> Result<ApiResponse, Problem> {
        if text.len() > ApiRequest::MAX_BODY {
            return Err(Problem::new(ErrorCode::PayloadTooLarge, "the frame is larger than 4 MiB"));
        }
        // A command, and beside it the fields of the HTTP body that does the same.
        let command = parse(text.as_bytes()).unwrap_or_default();
        if !socket.principal.scopes.allow(Scope::Chat) {
            return Err(Problem::new(ErrorCode::MissingScope, "this socket may only listen"));
        }
        let (route, on_busy) = match command["type"].as_str().unwrap_or_default() {
            "message" => (SessionRoute::PostMessage, None),
            "steer" => (SessionRoute::Steer, Some(OnBusy::Steer)),
            "abort" => (SessionRoute::Abort, None),
            _ => {
                let detail = "expected a JSON object with `type`: `message`, `steer` or `abort`";
                return Err(Problem::field("/type", detail));
            }
        };
        let call = SessionRequest {
            principal: socket.principal.clone(),
            session: socket.session.clone(),
            route,
            item: String::new(),
            request: ApiRequest {
                method: "POST".into(),
                // The records of the turn come over this socket anyway.
                headers: vec![
                    ("content-type".into(), "application/json".into()),
                    ("prefer".into(), "respond-async".into()),
                ],
                body: command.to_string().into(),
                id: request_id.to_owned(),
                ..ApiRequest::default()
            },
        };
        // A socket belongs to a session that is there: what comes late must not make an erased one anew.
        self.session(&call)?;
        match route {
            SessionRoute::Abort => self.abort(&call).await,
            _ => self.post_message(&call, on_busy).await,
        }
    }
}
