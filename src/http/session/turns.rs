//! Turns: posts a message, steers, aborts, removes a message from the queue, compacts.

use super::call::Call;
use super::message::{MessageBody, checked_post};
use super::subscription::{ResponseMode, TurnSubscription, receipt};
use super::{checks, documents, feed};
use crate::agent::OnBusy;
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
    let (host, mode) = (call.host, ResponseMode::of(call.request));
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
        return replay(call, session, mode, first);
    }
    if let Some(session) = session {
        checks::not_a_subagent(session)?;
    }
    let turn = host.new_id::<TurnId>();
    let body_of_receipt = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
    let mut post = checked_post(call, body, session, &turn, on_busy)?;
    if let Some(key) = &call.key {
        let response = match mode {
            ResponseMode::Receipt => {
                StoredResponse::Json(StatusCode::ACCEPTED.as_u16(), body_of_receipt.clone())
            }
            _ => StoredResponse::Turn(turn.clone()),
        };
        // Stored in the same commit as the turn's start.
        post.response = Some(documents::document(call, key, response)?);
    }
    // No await between the lookups and the post, so that they stay valid. The subscription comes first, so
    // that no event has to be read back.
    let session = match session {
        Some(session) => Rc::clone(session),
        None => host.blank(call.new_meta(user, None)?),
    };
    let subscription = TurnSubscription::new(call, &session, &turn, mode);
    host.post(&session, post)?;
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
