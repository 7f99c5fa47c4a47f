//! How a caller receives the turn that its request starts or continues.

use super::{call::Call, feed, feed::Feed};
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response, ResponseExt};
use crate::session::{
    Session, encoded,
    frame::Frame,
    hub::{ByteReceiver, Interest, Listener, Projection, TurnPause},
    view::TurnAnswer,
};
use crate::types::{ErrorCode, EventKind, Problem, Record, SessionId, TurnId};
use futures::{channel::oneshot, future::LocalBoxFuture};
use http::StatusCode;
use std::rc::Rc;

/// The form of the response that a caller prefers.
#[derive(Clone)]
pub enum ResponseMode {
    /// One JSON response, when the turn has ended or is suspended.
    Json,
    /// A stream of the turn's events until then.
    Stream,
    /// A receipt, at once.
    Receipt,
    /// The turn in the format of another protocol.
    Face(Rc<dyn TurnFormat>),
}

/// The response to a message in a protocol other than the native one.
pub trait TurnFormat {
    /// Returns the projection of a turn.
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection>;

    /// Returns the projection of a turn that is replayed from its start. The response is the part that follows after this
    /// many waits.
    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection>;

    /// Returns the projection of what a turn still waits for, after this many of the calls of its last wait were decided or
    /// answered.
    fn still_waiting(&self, turn: &TurnId, _resolved: usize) -> Box<dyn Projection> {
        self.projection(turn)
    }

    /// Returns whether a message that is repeated with its Idempotency-Key while its turn runs gets the response to that
    /// turn, and not an error.
    fn joins_running_turn(&self) -> bool {
        false
    }

    /// Builds the response. `written` is what the projection writes.
    fn respond<'a>(
        &'a self,
        turn: &'a TurnId,
        written: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>>;
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
pub struct TurnSubscription {
    turn: TurnId,
    source: Source,
}

enum Source {
    Stream(ByteReceiver),
    Face(FaceSource),
    Pause(oneshot::Receiver<TurnPause>),
    None,
}

struct FaceSource {
    stream: ByteReceiver,
    format: Rc<dyn TurnFormat>,
    /// Distinguishes a session that was erased from one that continues: both end the stream early.
    pause: oneshot::Receiver<TurnPause>,
}

impl Source {
    fn face(session: &Session, turn: &TurnId, stream: ByteReceiver, format: Rc<dyn TurnFormat>) -> Self {
        Self::Face(FaceSource { stream, format, pause: session.hub().pause_of(turn) })
    }
}

impl TurnSubscription {
    /// Subscribes to a turn. Releases the body of the request, which may wait as long as the turn runs.
    pub fn new(call: &Call<'_>, session: &Rc<Session>, turn: &TurnId, mode: ResponseMode) -> Self {
        call.request.body().release();
        let interest = || Interest { turn: Some(turn.clone()), until_idle: false };
        let listen = |listener| {
            session.hub().listen(listener);
            call.host.serve_streams(session);
        };
        let source = match mode {
            ResponseMode::Stream => {
                let (listener, stream) = Listener::new(interest(), call.principal);
                listener.send(feed::PREAMBLE);
                listen(listener);
                Source::Stream(stream)
            }
            ResponseMode::Face(format) => {
                let (listener, stream) = Listener::new(interest(), call.principal);
                let mut projection = format.projection(turn);
                let is_behind = session.current_turn().is_some_and(|current| current != *turn);
                let mut queued = Vec::new();
                if is_behind {
                    projection.queue(&mut queued);
                }
                if !queued.is_empty() {
                    listener.send(queued.into());
                }
                listen(listener.projected(projection));
                Source::face(session, turn, stream, format)
            }
            ResponseMode::Json => Source::Pause(session.hub().pause_of(turn)),
            ResponseMode::Receipt => Source::None,
        };
        Self { turn: turn.clone(), source }
    }

    /// Subscribes to a turn from its start, in the format of another protocol. The response is the part after this many
    /// waits.
    ///
    /// # Errors
    /// A failed store.
    pub fn replay(
        call: &Call<'_>,
        session: &Rc<Session>,
        turn: &TurnId,
        format: Rc<dyn TurnFormat>,
        waits: u32,
    ) -> Result<Self, Problem> {
        call.request.body().release();
        let interest = Interest { turn: Some(turn.clone()), until_idle: false };
        let (listener, stream) = Listener::new(interest, call.principal);
        feed::start(call.host, session, Feed::from_start(listener.projected(format.replay(turn, waits))))?;
        Ok(Self { turn: turn.clone(), source: Source::face(session, turn, stream, format) })
    }

    /// Subscribes to what follows in a turn, in the format of another protocol. The projection knows the turn so far, and
    /// writes what its [`Projection::queue`] writes at once.
    ///
    /// # Errors
    /// A failed store.
    pub fn following(
        call: &Call<'_>,
        session: &Rc<Session>,
        turn: &TurnId,
        mut projection: Box<dyn Projection>,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Self, Problem> {
        let interest = Interest { turn: Some(turn.clone()), until_idle: false };
        let (listener, stream) = Listener::new(interest, call.principal);
        let mut first = Vec::new();
        projection.queue(&mut first);
        listener.send(first.into());
        feed::start(call.host, session, Feed::from_now(listener.projected(projection), session))?;
        Ok(Self { turn: turn.clone(), source: Source::face(session, turn, stream, format) })
    }

    /// Subscribes to a turn that waits for further calls, in the format of another protocol.
    ///
    /// # Errors
    /// A failed store.
    pub fn waiting(
        call: &Call<'_>,
        session: &Session,
        turn: &TurnId,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Self, Problem> {
        let (listener, stream) = Listener::new(Interest::default(), call.principal);
        let kind = EventKind::TurnWaiting { pending: session.pending()? };
        let at = session.waiting_since(turn)?.unwrap_or_else(|| call.host.now());
        let record = Record { seq: session.last_seq(), at, turn: Some(turn.clone()), kind };
        let encoded = encoded(&record)?;
        let projection = format.still_waiting(turn, session.resolved_since_wait(turn)?.len());
        listener.projected(projection).write(&Frame::record(Rc::new(record), encoded));
        Ok(Self { turn: turn.clone(), source: Source::face(session, turn, stream, format) })
    }

    /// Subscribes to a turn as it is: to what it waits for, or else to what follows its last wait.
    ///
    /// # Errors
    /// `not_found` for an unknown turn, and a failed store.
    pub fn current(
        call: &Call<'_>,
        session: &Rc<Session>,
        turn: &TurnId,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Self, Problem> {
        if session.is_waiting(turn) {
            return Self::waiting(call, session, turn, format);
        }
        session.turn(turn)?.ok_or_else(|| Problem::not_found("turn"))?;
        let waits = session.waits(turn)?;
        Self::replay(call, session, turn, format, waits)
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
            Source::Face(FaceSource { stream, format, mut pause }) => {
                let problem = match format.respond(&turn, stream).await {
                    Ok(response) => return Ok(response),
                    Err(problem) => problem,
                };
                let is_erased = matches!(pause.try_recv(), Ok(Some(TurnPause::Erased)));
                let problem = if is_erased { Problem::not_found("session") } else { problem };
                Err(Problem { started_turn: true, ..problem })
            }
            Source::Pause(pause) => match pause.await {
                Ok(TurnPause::Ended(end)) => response::json(StatusCode::OK, &TurnAnswer::new(&turn, *end)),
                Ok(TurnPause::Waiting) => turn_response(session, &turn),
                Ok(TurnPause::Erased) => Err(Problem::not_found("session")),
                Err(_) => Err(interrupted(&session.state().meta.id, &turn)),
            },
            Source::None => turn_response(session, &turn),
        }
    }
}

/// Returns the problem for a response that ended before its turn.
fn interrupted(session: &SessionId, turn: &TurnId) -> Problem {
    let detail = format!(
        "turn {turn} was interrupted and will continue; read it at /v1/sessions/{session}/turns/{turn}"
    );
    Problem::new(ErrorCode::Unavailable, detail)
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
