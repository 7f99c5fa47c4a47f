//! How a caller receives the turn that its request starts or continues.

use super::{call::Call, feed};
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response, ResponseExt};
use crate::session::{
    Session,
    hub::{ByteReceiver, Interest, Listener, TurnPause},
    view::TurnAnswer,
};
use crate::types::{ErrorCode, Problem, SessionId, TurnId};
use futures::channel::oneshot;
use http::StatusCode;
use std::rc::Rc;

/// The form of the response that a caller prefers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseMode {
    /// One JSON response, when the turn has ended or is suspended.
    Json,
    /// A stream of the turn's events until then.
    Stream,
    /// A receipt, at once.
    Receipt,
}

impl ResponseMode {
    /// Reads the mode from `prefer` and `accept`.
    pub fn of(request: &Request) -> Self {
        let preferences = request.header("prefer").unwrap_or_default();
        if preferences.split([',', ';']).any(|part| part.trim().eq_ignore_ascii_case("respond-async")) {
            Self::Receipt
        } else if request.prefers("text/event-stream", "application/json") {
            Self::Stream
        } else {
            Self::Json
        }
    }
}

/// A request's view of the events of one turn. It is created before the turn starts or continues, so that no
/// event has to be read back from the log.
pub(super) struct TurnSubscription {
    turn: TurnId,
    source: Source,
}

enum Source {
    Stream(ByteReceiver),
    Pause(oneshot::Receiver<TurnPause>),
    None,
}

impl TurnSubscription {
    /// Subscribes to a turn.
    pub fn new(call: &Call<'_>, session: &Rc<Session>, turn: &TurnId, mode: ResponseMode) -> Self {
        let source = match mode {
            ResponseMode::Stream => {
                let interest = Interest { turn: Some(turn.clone()), until_idle: false };
                let (listener, stream) = Listener::new(interest, call.principal);
                listener.send(feed::PREAMBLE);
                session.hub().listen(listener);
                call.host.serve_streams(session);
                Source::Stream(stream)
            }
            ResponseMode::Json => Source::Pause(session.hub().pause_of(turn)),
            ResponseMode::Receipt => Source::None,
        };
        Self { turn: turn.clone(), source }
    }

    /// Returns the response: the stream, or the turn when it has ended or is suspended.
    ///
    /// # Errors
    /// `unavailable` when the turn was interrupted and will be recovered; `not_found` when the session was deleted.
    pub async fn respond(self, session: &Rc<Session>) -> Result<Response, Problem> {
        let Self { turn, source } = self;
        match source {
            Source::Stream(stream) => {
                Ok(feed::response(stream, "text/event-stream").with("x-turn-id", &turn))
            }
            Source::Pause(pause) => match pause.await {
                Ok(TurnPause::Ended(end)) => response::json(StatusCode::OK, &TurnAnswer::new(&turn, *end)),
                Ok(TurnPause::Waiting) => turn_response(session, &turn),
                Ok(TurnPause::Erased) => Err(Problem::not_found("session")),
                Err(_) => {
                    let id = session.state().meta.id.clone();
                    let detail = format!(
                        "turn {turn} was interrupted and will continue; read it at /v1/sessions/{id}/turns/{turn}"
                    );
                    Err(Problem::new(ErrorCode::Unavailable, detail))
                }
            },
            Source::None => turn_response(session, &turn),
        }
    }
}

/// Builds the response with the current state of a turn.
pub(super) fn turn_response(session: &Session, turn: &TurnId) -> Result<Response, Problem> {
    let view = session.turn(turn)?.ok_or_else(|| Problem::not_found("turn"))?;
    response::json(StatusCode::OK, &TurnAnswer::from(view))
}

/// Builds the response for a caller that does not wait.
pub(super) fn receipt(session: &SessionId, turn: &TurnId, body: String) -> Response {
    response::bytes(StatusCode::ACCEPTED, "application/json", body)
        .with("preference-applied", "respond-async")
        .with("location", &format!("/v1/sessions/{session}/turns/{turn}"))
}
