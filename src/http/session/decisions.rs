//! Approvals of, and answers to, suspended calls.

use super::call::Call;
use super::subscription::{ResponseMode, TurnSubscription, receipt, turn_response};
pub use crate::agent::host::suspensions::ApprovalDecision;
use crate::agent::host::suspensions::{CallAnswer, ResolvedCalls, TurnEffect};
use crate::http::response::Response;
use crate::http::{body, pending::check_runner};
use crate::session::{Session, suspensions::Row};
use crate::types::{Approver, CallId, Decision, Principal, Problem, ResolvedBy, Scope, TurnStatus};
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// Longest reason, in characters.
const MAX_REASON: usize = 2_000;
/// Longest error of an answer, in characters: the output of a command that has failed, as far as a model reads it.
const MAX_ERROR: usize = 12_000;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Approval")]
pub(in crate::http) struct ApprovalBody {
    /// The decision.
    #[schemars(required)]
    decision: Option<Decision>,
    /// The reason, which the model reads if the call is declined.
    #[schemars(length(max = 2000))]
    reason: Option<String>,
    /// Arguments that replace those of the model.
    args: Option<Value>,
    /// The `args_hash` of the call that you saw.
    args_hash: Option<String>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Answer")]
pub(in crate::http) struct AnswerBody {
    /// The answer; its form depends on the call.
    #[serde(default)]
    answer: Value,
    /// Why there is no answer, in its place.
    #[schemars(length(max = 12000))]
    error: Option<String>,
    /// The `args_hash` of the call that you saw.
    args_hash: Option<String>,
    /// The name with which you have claimed the call, if you have.
    #[schemars(length(max = 128))]
    runner: Option<String>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
}

/// `POST /v1/sessions/{id}/approvals/{call_id}`. Responds with the turn as it continues.
pub async fn approve(call: &Call<'_>) -> Result<Response, Problem> {
    let body: ApprovalBody = body::json(call.request)?;
    let decision = body.decision.ok_or_else(|| Problem::field("/decision", "missing"))?;
    let session = call.session_of(body.user)?;
    let decision = ApprovalDecision {
        args: body.args,
        args_hash: body.args_hash,
        ..decision_of(call, decision, body.reason)?
    };
    decide(call, session, &call.params.id("call_id"), decision, ResponseMode::of(call.request)).await
}

/// `POST /v1/sessions/{id}/answers/{call_id}`. Responds with the turn as it continues.
pub async fn answer(call: &Call<'_>) -> Result<Response, Problem> {
    let body: AnswerBody = body::json(call.request)?;
    check_length("/error", body.error.as_deref(), MAX_ERROR)?;
    body.runner.as_deref().map(check_runner).transpose()?;
    let session = call.session_of(body.user)?;
    let given = match (body.error, body.answer) {
        (Some(error), Value::Null) => CallAnswer::Failure(error),
        (Some(_), _) => return Err(Problem::field("/error", "send either `answer` or `error`")),
        (None, Value::Null) => return Err(Problem::field("/answer", "missing")),
        (None, answer) => CallAnswer::Answer(answer),
    };
    let call_id = call.params.id("call_id");
    call.host.ensure_current(session, &call_id, &given, body.args_hash.as_deref()).await?;
    let resolved_by = ResolvedBy { runner: body.runner, ..resolved_by(call) };
    store_answer(call, session, &call_id, given, resolved_by, ResponseMode::of(call.request)).await
}

/// Decides on a call, for a reason, and responds in this mode with the turn as it continues.
///
/// # Errors
/// See [`SessionHost::check_decision`](crate::agent::SessionHost::check_decision) and
/// [`SessionHost::admit_continuation`](crate::agent::SessionHost::admit_continuation).
pub async fn decide_as(
    call: &Call<'_>,
    session: &Rc<Session>,
    call_id: &CallId,
    (decision, reason): (Decision, Option<String>),
    mode: ResponseMode,
) -> Result<Response, Problem> {
    decide(call, session, call_id, decision_of(call, decision, reason)?, mode).await
}

/// Returns the decision of the caller, on the arguments as they are.
///
/// # Errors
/// `validation_failed` if the reason is too long.
pub fn decision_of(
    call: &Call<'_>,
    decision: Decision,
    reason: Option<String>,
) -> Result<ApprovalDecision, Problem> {
    check_length("/reason", reason.as_deref(), MAX_REASON)?;
    Ok(ApprovalDecision {
        decision,
        reason: reason.filter(|reason| !reason.trim().is_empty()),
        args: None,
        args_hash: None,
        is_approver: call.principal.scopes.allow(Scope::Approve),
    })
}

/// Decides on a call, and responds in this mode with the turn as it continues.
///
/// # Errors
/// As for [`decide_as`].
pub async fn decide(
    call: &Call<'_>,
    session: &Rc<Session>,
    call_id: &CallId,
    decision: ApprovalDecision,
    mode: ResponseMode,
) -> Result<Response, Problem> {
    let check = || call.host.check_decision(session, call_id, decision.clone(), resolved_by(call));
    resolve(call, session, (Row::Approval, call_id), mode, &check).await
}

/// Answers a call and responds in this mode with the turn as it continues.
///
/// # Errors
/// As for [`decide_as`].
pub async fn answer_as(
    call: &Call<'_>,
    session: &Rc<Session>,
    call_id: &CallId,
    given: CallAnswer,
    mode: ResponseMode,
) -> Result<Response, Problem> {
    store_answer(call, session, call_id, given, resolved_by(call), mode).await
}

async fn store_answer(
    call: &Call<'_>,
    session: &Rc<Session>,
    call_id: &CallId,
    given: CallAnswer,
    resolved_by: ResolvedBy,
    mode: ResponseMode,
) -> Result<Response, Problem> {
    let check = || call.host.check_answer(session, call_id, given.clone(), resolved_by.clone());
    resolve(call, session, (Row::Answer, call_id), mode, &check).await
}

/// Stores what `check` returns, once the turn has the slot that it needs to continue, and responds with the turn.
async fn resolve(
    call: &Call<'_>,
    session: &Rc<Session>,
    (row, call_id): (Row, &CallId),
    mode: ResponseMode,
    check: &dyn Fn() -> Result<Option<ResolvedCalls>, Problem>,
) -> Result<Response, Problem> {
    let host = call.host;
    let mut admittance = None;
    if host.needs_admission()
        && let Some(resolved) = check()?
    {
        admittance = host.admit_continuation(session, &resolved).await?;
    }
    // No await between the subscription and the change, so that the client misses no event.
    let change = || {
        // Other requests may have changed the session during the await.
        if session.is_retired() {
            return Err(Problem::unavailable("the session is being opened again; try again", "retired"));
        }
        let resolved = check()?;
        let suspension = session.suspension(row, call_id)?.ok_or_else(|| Problem::not_found("call"))?;
        let subscription = TurnSubscription::new(call, session, &suspension.turn, mode.clone());
        let effect = match resolved {
            Some(resolved) => host.resolve(session, resolved, admittance.as_ref())?,
            None => TurnEffect::None,
        };
        Ok((suspension.turn, subscription, effect))
    };
    let changed = change();
    let is_used = matches!(changed, Ok((_, _, TurnEffect::Continues)));
    host.settle_admittance(session, admittance, is_used);
    let (turn, subscription, effect) = changed?;
    match effect {
        TurnEffect::Continues if matches!(mode, ResponseMode::Receipt) => {
            let body = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
            Ok(receipt(call.session_id, &turn, body))
        }
        TurnEffect::Continues => subscription.respond(session).await,
        TurnEffect::Waits if let ResponseMode::Face(format) = mode => {
            TurnSubscription::waiting(call, session, &turn, format)?.respond(session).await
        }
        TurnEffect::None if let ResponseMode::Face(format) = mode => {
            let (before, waits) = (session.waits_before(&turn, call_id)?, session.waits(&turn)?);
            let subscription = match before {
                // The turn has continued since: the repeated request gets the same response.
                Some(before) if before < waits || !session.is_waiting(&turn) => {
                    TurnSubscription::replay(call, session, &turn, format, before)?
                }
                _ => TurnSubscription::current(call, session, &turn, format)?,
            };
            subscription.respond(session).await
        }
        // A repeated request gets the stream, too: the connection of the first may have been lost.
        TurnEffect::Waits | TurnEffect::None
            if matches!(mode, ResponseMode::Stream) && session.is_current_turn(&turn) =>
        {
            subscription.respond(session).await
        }
        TurnEffect::Waits | TurnEffect::None => turn_response(session, &turn),
    }
}

/// Returns who decides, and from where. Only the credential counts, because any caller can name a user in the body.
fn resolved_by(call: &Call<'_>) -> ResolvedBy {
    let Principal { user, key, address, .. } = call.principal;
    let approver = Approver { user: user.clone(), key: key.clone() };
    ResolvedBy { approver, address: *address, request_id: Some(call.request_id.clone()), runner: None }
}

fn check_length(pointer: &str, text: Option<&str>, most: usize) -> Result<(), Problem> {
    match text {
        Some(text) if text.chars().count() > most => {
            Err(Problem::field(pointer, format!("longer than {most} characters")))
        }
        _ => Ok(()),
    }
}
