//! How a caller hears of the turn that it has started, or that goes on by its word.

use super::feed;
use crate::agent::SessionHost;
use crate::http::{ApiRequest, ApiResponse};
use crate::session::{
    Session,
    hub::{ByteReceiver, Interest, Listener, TurnPause},
    view::TurnAnswer,
};
use crate::types::{ErrorCode, Problem};
use futures::channel::oneshot;
use std::rc::Rc;

/// How the caller wants its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// One, when the turn has ended or waits.
    Json,
    /// Every event until then.
    Stream,
    /// At once.
    Receipt,
}

impl Wants {
    /// What the request's headers say.
    pub fn of(request: &ApiRequest) -> Self {
        let prefers = |name: &str, word: &str| {
            let says = |part: &str| part.trim().eq_ignore_ascii_case(word);
            request.header(name).is_some_and(|value| value.split([',', ';']).any(says))
        };
        if prefers("prefer", "respond-async") {
            Self::Receipt
        } else if prefers("accept", "text/event-stream") {
            Self::Stream
        } else {
            Self::Json
        }
    }
}

/// A caller that listens to a turn. It begins before the turn goes on, so that nothing needs to be read back.
pub(super) struct Follow {
    turn: String,
    heard: Heard,
}

enum Heard {
    Stream(ByteReceiver),
    Halt(oneshot::Receiver<TurnPause>),
    Nothing,
}

impl Follow {
    /// Begins to listen.
    pub fn new(host: &Rc<SessionHost>, session: &Rc<Session>, turn: &str, wants: Wants) -> Self {
        let heard = match wants {
            Wants::Stream => {
                let interest = Interest { turn: Some(turn.to_owned()), until_idle: false };
                let (listener, stream) = Listener::new(interest);
                listener.send(feed::PREAMBLE);
                session.hub().listen(listener);
                host.ping(session);
                Heard::Stream(stream)
            }
            Wants::Json => Heard::Halt(session.hub().pause_of(turn)),
            Wants::Receipt => Heard::Nothing,
        };
        Self { turn: turn.to_owned(), heard }
    }

    /// The answer: the stream, or how the turn ended or what it waits for, once it does.
    pub async fn answer(self, session: &Rc<Session>) -> Result<ApiResponse, Problem> {
        let Self { turn, heard } = self;
        match heard {
            Heard::Stream(stream) => Ok(feed::response(stream, "text/event-stream").with("x-turn-id", &turn)),
            Heard::Halt(halt) => match halt.await {
                Ok(TurnPause::Ended(end)) => ApiResponse::json(200, &TurnAnswer::new(&turn, *end)),
                Ok(TurnPause::Waiting) => stands(session, &turn),
                Err(_) => {
                    let id = session.state().meta.id.clone();
                    let detail = format!(
                        "turn {turn} was interrupted and goes on; read it at /v1/sessions/{id}/turns/{turn}"
                    );
                    Err(Problem::new(ErrorCode::Unavailable, detail))
                }
            },
            Heard::Nothing => stands(session, &turn),
        }
    }
}

/// The answer that tells how a turn stands now.
pub(super) fn stands(session: &Session, turn: &str) -> Result<ApiResponse, Problem> {
    let view = session.turn(turn)?.ok_or_else(|| Problem::not_found("turn"))?;
    ApiResponse::json(200, &TurnAnswer::from(view))
}

/// The answer to whoever does not wait.
pub(super) fn receipt(session: &str, turn: &str, body: String) -> ApiResponse {
    ApiResponse::bytes(202, "application/json", body)
        .with("preference-applied", "respond-async")
        .with("location", &format!("/v1/sessions/{session}/turns/{turn}"))
}
