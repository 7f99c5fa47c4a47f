//! Turns: posts a message, steers, aborts, removes a message from the queue, compacts.

use super::call::Call;
use super::message::{MessageBody, NewSessionMeta, checked_post};
use super::subscription::{ResponseMode, TurnSubscription, receipt};
use super::{checks, documents, feed};
use crate::agent::{OnBusy, Post, SessionHost};
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{body, idempotency};
use crate::session::{
    Session,
    hub::Interest,
    idempotency::{FirstResponse, StoredResponse},
    view::TurnAnswer,
};
use crate::types::{Cursor, ErrorCode, Problem, RunTurn, TurnId, TurnStatus};
use http::StatusCode;
use serde_json::json;
use std::rc::Rc;

/// `POST /v1/sessions/{id}/messages`. Creates the session if there is none.
pub async fn post(call: &Call<'_>) -> Result<Response, Problem> {
    post_as(call, &ResponseMode::of(call.request), &|| body::json(call.request)).await
}

/// `POST /v1/sessions/{id}/steer`.
pub async fn steer(call: &Call<'_>) -> Result<Response, Problem> {
    let read = || {
        let body: MessageBody = body::json(call.request)?;
        Ok(MessageBody { on_busy: Some(OnBusy::Steer), ..body })
    };
    call.session_of(read()?.user)?;
    post_as(call, &ResponseMode::of(call.request), &read).await
}

/// Accepts a message and responds in this mode.
///
/// # Errors
/// See [`SessionHost::post`](crate::agent::SessionHost::post); also an invalid message.
pub async fn post_as(
    call: &Call<'_>,
    mode: &ResponseMode,
    read: &dyn Fn() -> Result<MessageBody, Problem>,
) -> Result<Response, Problem> {
    let message = match prepare(call, mode, read()?)? {
        Prepared::Replayed(replayed) => return replayed.respond().await,
        Prepared::Message(message) => message,
    };
    let host = call.host;
    if !host.needs_admission() {
        let started = start(call, mode, message)?;
        return respond(call, mode, started).await;
    }
    let (tenant, id, session) = (&call.principal.tenant, call.session_id, message.session.clone());
    // Checked before, so that a refused message costs no call, and again afterwards, because other requests may have
    // changed the session in between.
    let admittance = host.admit(tenant, id, session.as_ref(), &message.post.budget).await?;
    let started = call.again().await.and_then(|call| match prepare(&call, mode, read()?)? {
        Prepared::Replayed(replayed) => Ok(Err(replayed)),
        Prepared::Message(message) if message.session.is_none() && session.is_some() => {
            Err(Problem::not_found("session"))
        }
        Prepared::Message(mut message) => {
            message.post.slot_until = admittance.slot_until;
            start(&call, mode, message).map(Ok)
        }
    });
    match started {
        Ok(Ok(started)) => {
            drop(admittance);
            respond(call, mode, started).await
        }
        unused => {
            host.release(admittance, tenant, id);
            match unused? {
                Err(replayed) => replayed.respond().await,
                Ok(_) => Err(Problem::internal("a started turn was released")),
            }
        }
    }
}

/// A request to post a message, after all checks.
enum Prepared {
    /// It repeats an earlier request.
    Replayed(Replayed),
    Message(Box<PreparedMessage>),
}

/// The response to a repeated request.
enum Replayed {
    Response(Response),
    Turn(TurnSubscription, Rc<Session>),
}

impl Replayed {
    async fn respond(self) -> Result<Response, Problem> {
        let response = match self {
            Self::Response(response) => response,
            Self::Turn(subscription, session) => subscription.respond(&session).await?,
        };
        Ok(response.with("idempotent-replayed", "true"))
    }
}

struct PreparedMessage {
    /// The user that the request names.
    user: Option<String>,
    /// The session, if it exists.
    session: Option<Rc<Session>>,
    post: Post,
    new_session: Option<NewSessionMeta>,
    body_of_receipt: String,
}

/// Checks a message, without an effect.
fn prepare(call: &Call<'_>, mode: &ResponseMode, body: MessageBody) -> Result<Prepared, Problem> {
    let user = call.named_user(body.user.clone())?;
    let session = call.find(user.as_deref())?;
    if let (Some(key), Some(session)) = (&call.key, session)
        && let Some(first) = documents::find(call, session, key)?
    {
        if first.body_hash != key.body_hash {
            return Err(idempotency::reused());
        }
        return replay(call, session, mode, first).map(Prepared::Replayed);
    }
    if let Some(session) = session {
        checks::not_a_subagent(session)?;
    }
    if call.session_id.is_run() != body.run.is_some() {
        let detail = "a run takes no messages; post to /v1/runs/{id}/retry to continue it";
        return Err(Problem::new(ErrorCode::RunSession, detail));
    }
    if session.is_some() && matches!(body.run, Some(RunTurn::Start { .. })) {
        let detail = "there is a run with this Idempotency-Key; use another key for another run";
        return Err(Problem::new(ErrorCode::RunSession, detail));
    }
    let new_session = body.new_session.clone();
    let turn = call.host.new_id::<TurnId>();
    let body_of_receipt = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
    let mut post = checked_post(call, body, session, &turn)?;
    if let Some(session) = session {
        call.host.check_busy(session, post.on_busy)?;
    }
    if let Some(key) = &call.key {
        let response = match mode {
            ResponseMode::Receipt => {
                StoredResponse::Json(StatusCode::ACCEPTED.as_u16(), body_of_receipt.clone())
            }
            _ => StoredResponse::Turn(turn),
        };
        // Stored in the same commit as the turn's start.
        post.response = Some(documents::document(call, key, response)?);
    }
    let session = session.cloned();
    Ok(Prepared::Message(Box::new(PreparedMessage { user, session, post, new_session, body_of_receipt })))
}

/// A message that is stored.
struct Started {
    session: Rc<Session>,
    subscription: TurnSubscription,
    turn: TurnId,
    body_of_receipt: String,
}

/// Posts a message. There is no await since the lookups, so that they stay valid.
fn start(call: &Call<'_>, mode: &ResponseMode, message: Box<PreparedMessage>) -> Result<Started, Problem> {
    let PreparedMessage { user, session, post, new_session, body_of_receipt } = *message;
    let session = match session {
        Some(session) => session,
        None => {
            let (agent, new) = match new_session {
                Some(NewSessionMeta { agent, title, model, budget }) => (agent, Some((title, model, budget))),
                None => (None, None),
            };
            let mut meta = call.new_meta(user, agent)?;
            if let Some((title, model, budget)) = new {
                meta.title_pinned = title.is_some();
                meta.title = title;
                meta.model = model.or(meta.model);
                meta.budget = meta.budget.patched(&budget);
            }
            call.host.blank(meta)
        }
    };
    let turn = post.turn.clone();
    // Before the post, so that no event has to be read back.
    let subscription = TurnSubscription::new(call, &session, &turn, mode.clone());
    call.host.post(&session, post)?;
    Ok(Started { session, subscription, turn, body_of_receipt })
}

async fn respond(call: &Call<'_>, mode: &ResponseMode, started: Started) -> Result<Response, Problem> {
    let Started { session, subscription, turn, body_of_receipt } = started;
    if matches!(mode, ResponseMode::Receipt) {
        return Ok(receipt(call.session_id, &turn, body_of_receipt));
    }
    subscription.respond(&session).await
}

/// Responds to a repeated request: with the stored receipt, or with the turn that the first request started.
fn replay(
    call: &Call<'_>,
    session: &Rc<Session>,
    mode: &ResponseMode,
    first: FirstResponse,
) -> Result<Replayed, Problem> {
    let turn = match first.response {
        StoredResponse::Json(status, body) => {
            return Ok(Replayed::Response(idempotency::replayed(status, body)));
        }
        StoredResponse::Turn(turn) => turn,
    };
    let Some(view) = session.turn(&turn)? else { return Err(idempotency::in_progress()) };
    if view.status == TurnStatus::Running && !joins(session, mode, &turn)? {
        return Err(idempotency::in_progress());
    }
    let response = match mode {
        ResponseMode::Stream => {
            let interest = Interest { turn: Some(turn), until_idle: false };
            feed::response(feed::sse(call, session, Cursor::default(), interest)?, "text/event-stream")
        }
        ResponseMode::Face(format) => {
            let subscription = TurnSubscription::replay(call, session, &turn, Rc::clone(format), 0)?;
            return Ok(Replayed::Turn(subscription, Rc::clone(session)));
        }
        _ => response::json(StatusCode::OK, &TurnAnswer::from(view))?,
    };
    Ok(Replayed::Response(response))
}

/// Returns whether a repeated message gets the response to this turn, which has not ended: only while the turn runs for
/// the first time, because the first response has ended at the first wait.
fn joins(session: &Session, mode: &ResponseMode, turn: &TurnId) -> Result<bool, Problem> {
    let ResponseMode::Face(format) = mode else { return Ok(false) };
    Ok(format.joins_running_turn() && session.is_current_turn(turn) && session.waits(turn)? == 0)
}

/// Returns whether a request repeats an earlier one with the same Idempotency-Key.
///
/// # Errors
/// A failed store.
pub fn is_repeated(call: &Call<'_>, session: &Session) -> Result<bool, Problem> {
    match &call.key {
        Some(key) => Ok(documents::find(call, session, key)?.is_some()),
        None => Ok(false),
    }
}

/// Ends a turn, or removes its message from the queue. Returns whether there was such a turn.
///
/// # Errors
/// A failed store.
pub async fn end(host: &Rc<SessionHost>, turn: &TurnId) -> Result<bool, Problem> {
    let Some(session) = host.open()? else { return Ok(false) };
    if !session.is_current_turn(turn) {
        return host.remove_queued(&session, turn);
    }
    let statuses = host.cancel_children(&session).await;
    // Do not abort a turn that started while the children were being canceled.
    Ok(session.is_current_turn(turn) && host.abort(&session, statuses)?)
}

/// Like [`end`], but a turn that waits for a person continues to wait.
///
/// # Errors
/// A failed store.
pub async fn end_running(host: &Rc<SessionHost>, turn: &TurnId) -> Result<bool, Problem> {
    let waits = host.open()?.is_some_and(|session| session.is_waiting(turn));
    if waits { Ok(false) } else { end(host, turn).await }
}

/// `POST /v1/sessions/{id}/abort`.
pub async fn abort(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    let turn = session.current_turn();
    let has_canceled = call.host.cancel_background_tasks(session)?;
    let has_ended = match &turn {
        Some(turn) => end(call.host, turn).await?,
        None => false,
    };
    // A subagent may have gone on in the background during the await.
    let aborted = call.host.cancel_background_tasks(session)? || has_ended || has_canceled;
    let status = session.state().status();
    response::json(StatusCode::OK, &json!({"aborted": aborted, "turn_id": turn, "status": status}))
}

/// `POST /v1/sessions/{id}/compact`.
pub async fn compact(call: &Call<'_>) -> Result<Response, Problem> {
    response::json(StatusCode::OK, &call.host.compact(call.session()?).await?)
}

/// `DELETE /v1/sessions/{id}/queue/{item}`.
pub async fn dequeue(call: &Call<'_>) -> Result<Response, Problem> {
    if call.host.remove_queued(call.session()?, &call.params.id("item"))? {
        Ok(response::empty(StatusCode::NO_CONTENT))
    } else {
        Err(Problem::not_found("queued message"))
    }
}
