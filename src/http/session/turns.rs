//! Turns: posts a message, steers, aborts, removes a message from the queue, compacts.

use super::call::Call;
use super::message::{MessageBody, checked_post};
use super::subscription::{ResponseMode, TurnSubscription, receipt};
use super::{checks, documents, feed};
use crate::agent::{OnBusy, Post};
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{body, idempotency};
use crate::session::{
    Session,
    hub::Interest,
    idempotency::{FirstResponse, StoredResponse},
    view::TurnAnswer,
};
use crate::types::{Cursor, Problem, TurnId, TurnStatus};
use http::StatusCode;
use serde_json::json;
use std::rc::Rc;

/// `POST /v1/sessions/{id}/messages`. Creates the session if there is none.
pub async fn post(call: &Call<'_>) -> Result<Response, Problem> {
    post_message(call, None).await
}

/// `POST /v1/sessions/{id}/steer`.
pub async fn steer(call: &Call<'_>) -> Result<Response, Problem> {
    post_message(call, Some(OnBusy::Steer)).await
}

/// Accepts a message and responds in the mode that the caller prefers. `on_busy` overrides the body.
async fn post_message(call: &Call<'_>, on_busy: Option<OnBusy>) -> Result<Response, Problem> {
    let message = match prepare(call, on_busy)? {
        Prepared::Replayed(response) => return Ok(response),
        Prepared::Message(message) => message,
    };
    let (host, mode) = (call.host, message.mode);
    if !host.needs_admission() {
        let started = start(call, message)?;
        return respond(call, mode, started).await;
    }
    let (tenant, id, session) = (&call.principal.tenant, call.session_id, message.session);
    // Checked before, so that a refused message costs no call, and again afterwards, because other requests may have
    // changed the session in between.
    let admittance = host.admit(tenant, id, session.as_ref()).await?;
    let started = call.again().and_then(|call| match prepare(&call, on_busy)? {
        Prepared::Replayed(response) => Ok(Err(response)),
        Prepared::Message(message) if message.session.is_none() && session.is_some() => {
            Err(Problem::not_found("session"))
        }
        Prepared::Message(mut message) => {
            message.post.slot_until = admittance.slot_until;
            start(&call, message).map(Ok)
        }
    });
    match started {
        Ok(Ok(started)) => {
            drop(admittance);
            respond(call, mode, started).await
        }
        unused => {
            host.release(admittance, tenant, id);
            unused?.map_or_else(Ok, |_| Err(Problem::internal("a started turn was released")))
        }
    }
}

/// A request to post a message, after all checks.
enum Prepared {
    /// It repeats an earlier request.
    Replayed(Response),
    Message(Box<PreparedMessage>),
}

struct PreparedMessage {
    mode: ResponseMode,
    /// The user that the request names.
    user: Option<String>,
    /// The session, if it exists.
    session: Option<Rc<Session>>,
    post: Post,
    body_of_receipt: String,
}

/// Checks a message, without an effect.
fn prepare(call: &Call<'_>, on_busy: Option<OnBusy>) -> Result<Prepared, Problem> {
    let mode = ResponseMode::of(call.request);
    let body: MessageBody = body::json(call.request)?;
    let user = call.named_user(body.user.clone())?;
    let session = call.find(user.as_deref())?;
    if session.is_none() && on_busy == Some(OnBusy::Steer) {
        return Err(Problem::not_found("session"));
    }
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
    let turn = call.host.new_id::<TurnId>();
    let body_of_receipt = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
    let mut post = checked_post(call, body, session, &turn, on_busy)?;
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
    Ok(Prepared::Message(Box::new(PreparedMessage { mode, user, session, post, body_of_receipt })))
}

/// A message that is stored.
struct Started {
    session: Rc<Session>,
    subscription: TurnSubscription,
    turn: TurnId,
    body_of_receipt: String,
}

/// Posts a message. There is no await since the lookups, so that they stay valid.
fn start(call: &Call<'_>, message: Box<PreparedMessage>) -> Result<Started, Problem> {
    let PreparedMessage { mode, user, session, post, body_of_receipt } = *message;
    let session = match session {
        Some(session) => session,
        None => call.host.blank(call.new_meta(user, None)?),
    };
    let turn = post.turn.clone();
    // Before the post, so that no event has to be read back.
    let subscription = TurnSubscription::new(call, &session, &turn, mode);
    call.host.post(&session, post)?;
    Ok(Started { session, subscription, turn, body_of_receipt })
}

async fn respond(call: &Call<'_>, mode: ResponseMode, started: Started) -> Result<Response, Problem> {
    let Started { session, subscription, turn, body_of_receipt } = started;
    if mode == ResponseMode::Receipt {
        return Ok(receipt(call.session_id, &turn, body_of_receipt));
    }
    subscription.respond(&session).await
}

/// Responds to a repeated request: with the stored receipt, or with the turn that the first request started.
fn replay(
    call: &Call<'_>,
    session: &Rc<Session>,
    mode: ResponseMode,
    first: FirstResponse,
) -> Result<Response, Problem> {
    let turn = match first.response {
        StoredResponse::Json(status, body) => return Ok(idempotency::replayed(status, body)),
        StoredResponse::Turn(turn) => turn,
    };
    let view = session.turn(&turn)?.filter(|turn| turn.status != TurnStatus::Running);
    let Some(view) = view else { return Err(idempotency::in_progress()) };
    let response = match mode {
        ResponseMode::Stream => {
            let interest = Interest { turn: Some(turn), until_idle: false };
            feed::sse(call, session, Cursor::default(), interest)?
        }
        _ => response::json(StatusCode::OK, &TurnAnswer::from(view))?,
    };
    Ok(response.with("idempotent-replayed", "true"))
}

/// `POST /v1/sessions/{id}/abort`.
pub async fn abort(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    let turn = session.state().activity.turn.as_ref().map(|turn| turn.id.clone());
    let statuses = call.host.cancel_children(session).await;
    // Do not abort a turn that started while the children were being canceled.
    let is_same = turn.as_ref().is_none_or(|turn| session.is_current_turn(turn));
    let aborted = is_same && call.host.abort(session, statuses)?;
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
