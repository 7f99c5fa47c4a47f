//! The routes of one run, in the object of its session.

use super::call::Call;
use super::decisions::{self, ApprovalDecision};
use super::message::{MessageBody, NewSessionMeta};
use super::subscription::ResponseMode;
use super::{checks, turns};
use crate::agent::{OnBusy, run::read_run};
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{body, idempotency::body_hash};
use crate::runs::{About, Run, RunStatus};
use crate::session::Session;
use crate::types::{BudgetPatch, Decision, ErrorCode, OnDecline, Problem, RunApprovals, RunSpec, RunTurn};
use http::StatusCode;
use serde::Deserialize;
use std::rc::Rc;

/// Limits of a run whose request names none: a run makes more calls than a reply.
const STEPS: u32 = 500;
const TOOL_CALLS: u32 = 1_000;
const TIMEOUT_S: u32 = 6 * 60 * 60;

/// The body of `POST /v1/runs`.
#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewRun {
    /// The agent.
    pub agent: Option<String>,
    /// The user, if you authenticate with a key.
    pub user: Option<String>,
    /// What the run is to reach.
    goal: Option<String>,
    /// The name of a spec, in place of the goal.
    pub spec: Option<String>,
    /// The text of the spec, which the gateway reads.
    #[serde(default)]
    #[schemars(skip)]
    spec_text: Option<String>,
    /// The title; taken from the goal if absent.
    #[schemars(length(max = 200))]
    title: Option<String>,
    /// The model, as `provider/model`.
    model: Option<String>,
    /// Which steps need an approval: those for which the plan says so, or all.
    #[serde(default)]
    approvals: RunApprovals,
    /// What happens when a person declines a step.
    #[serde(default)]
    on_decline: OnDecline,
    /// Limits of the run, and of each retry.
    #[serde(default)]
    budget: Option<BudgetPatch>,
}

/// The body of `POST /v1/runs/{id}/steps/{step}/approval`.
#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct StepApproval {
    /// The decision.
    #[schemars(required)]
    decision: Option<Decision>,
    /// The `args_hash` of the step that you saw.
    args_hash: Option<String>,
    /// The reason.
    #[schemars(length(max = 2000))]
    reason: Option<String>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
}

/// The body of `POST /v1/runs/{id}/retry`.
#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct RunRetry {
    /// The step from which the run starts again, with those that depend on it; the steps that did not succeed if absent.
    from: Option<String>,
    /// Limits of the retry, in place of those of the run.
    #[serde(default)]
    budget: Option<BudgetPatch>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
}

/// `POST /v1/runs`.
pub async fn create(call: &Call<'_>) -> Result<Response, Problem> {
    let read = || {
        let new: NewRun = body::json(call.request)?;
        let (content, spec) = match (new.goal, new.spec) {
            (Some(goal), None) => (goal, None),
            (None, Some(name)) => {
                let text =
                    new.spec_text.ok_or_else(|| Problem::internal("the gateway has not read the spec"))?;
                let hash = body_hash(text.as_bytes());
                (text, Some(RunSpec { name, hash }))
            }
            (Some(_), Some(_)) => return Err(Problem::field("/spec", "send either `goal` or `spec`")),
            (None, None) => {
                return Err(Problem::field("/goal", "missing: the goal, or the name of a `spec`"));
            }
        };
        if content.trim().is_empty() {
            return Err(Problem::field("/goal", "it has no text"));
        }
        let budget = new.budget.unwrap_or_default();
        checks::budget(call.host, &budget)?;
        let ceiling = call.host.tenant_limits().ceiling();
        let budget = BudgetPatch {
            max_steps: budget.max_steps.or(Some(STEPS.min(ceiling.max_steps))),
            max_tool_calls: budget.max_tool_calls.or(Some(TOOL_CALLS.min(ceiling.max_tool_calls))),
            timeout_s: budget.timeout_s.or(Some(TIMEOUT_S.min(ceiling.timeout_s))),
            ..budget
        };
        let meta = NewSessionMeta {
            agent: new.agent,
            title: checks::title(new.title)?,
            model: checks::model(call.host, new.model)?,
            budget,
        };
        let run = RunTurn::Start { spec, approvals: new.approvals, on_decline: new.on_decline };
        Ok(MessageBody {
            content: Some(content),
            user: new.user,
            budget: Some(budget),
            on_busy: Some(OnBusy::Reject),
            run: Some(run),
            new_session: Some(meta),
            ..MessageBody::default()
        })
    };
    let accepted = post(call, &read).await?;
    Ok(accepted.with("location", &format!("/v1/runs/{}", call.session_id)))
}

/// Posts the message of a turn of the run, and responds with the run.
async fn post(call: &Call<'_>, read: &dyn Fn() -> Result<MessageBody, Problem>) -> Result<Response, Problem> {
    let user = read()?.user;
    let posted = turns::post_as(call, &ResponseMode::Receipt, read).await?;
    let is_replayed = posted.headers().contains_key("idempotent-replayed");
    let call = call.again().await?;
    // Before the await, so that the run has not begun yet.
    let response = shown(StatusCode::ACCEPTED, call.session_of(user)?)?;
    // A new run is in the list when the client gets the response, unless the list cannot be reached.
    call.host.await_list_update().await;
    Ok(if is_replayed { response.with("idempotent-replayed", "true") } else { response })
}

/// `GET /v1/runs/{id}`.
pub async fn show(call: &Call<'_>) -> Result<Response, Problem> {
    shown(StatusCode::OK, of(call, None)?)
}

/// `POST /v1/runs/{id}/steps/{step}/approval`.
pub async fn approve(call: &Call<'_>) -> Result<Response, Problem> {
    let body: StepApproval = body::json(call.request)?;
    let decision = body.decision.ok_or_else(|| Problem::field("/decision", "missing"))?;
    let session = of(call, body.user)?;
    let (run, step) = (read_run(session)?, call.params.get("step"));
    if !run.has_step(step) {
        return Err(Problem::not_found("step"));
    }
    let not_waiting = || Problem::new(ErrorCode::NotWaiting, "the step does not wait for an approval");
    let call_id = run.call_of(step).ok_or_else(not_waiting)?;
    let decision = ApprovalDecision {
        args_hash: body.args_hash,
        ..decisions::decision_of(call, decision, body.reason)?
    };
    let decided = decisions::decide(call, session, call_id, decision, ResponseMode::Receipt).await;
    // The call of a step without an approval never waited.
    decided.map_err(|problem| if problem.code == ErrorCode::NotFound { not_waiting() } else { problem })?;
    let call = call.again().await?;
    shown(StatusCode::OK, call.session()?)
}

/// `POST /v1/runs/{id}/cancel`. A run that has ended stays as it is.
pub async fn cancel(call: &Call<'_>) -> Result<Response, Problem> {
    let session = of(call, None)?;
    call.host.cancel_background_tasks(session)?;
    if let Some(turn) = session.current_turn() {
        turns::end(call.host, &turn).await?;
    }
    let call = call.again().await?;
    shown(StatusCode::OK, call.session()?)
}

/// `POST /v1/runs/{id}/retry`.
pub async fn retry(call: &Call<'_>) -> Result<Response, Problem> {
    let retry = || body::json_or_empty::<RunRetry>(call.request);
    let RunRetry { from, user, .. } = retry()?;
    let session = of(call, user)?;
    if !turns::is_repeated(call, session)? {
        check_retry(&read_run(session)?, from.as_deref())?;
    }
    let read = || {
        let RunRetry { from, budget, user } = retry()?;
        let content = match &from {
            Some(step) => format!("Retry the run from the step {step:?}."),
            None => "Retry what did not succeed.".to_owned(),
        };
        Ok(MessageBody {
            content: Some(content),
            user,
            budget,
            on_busy: Some(OnBusy::Reject),
            run: Some(RunTurn::Retry { from }),
            ..MessageBody::default()
        })
    };
    post(call, &read).await
}

fn check_retry(run: &Run, from: Option<&str>) -> Result<(), Problem> {
    if !run.has_ended() {
        return Err(Problem::new(ErrorCode::SessionBusy, "the run has not ended; cancel it first"));
    }
    match from {
        Some(step) if !run.has_step(step) => {
            Err(Problem::field("/from", format!("the run has no step {step:?}")))
        }
        None if run.view(About::default()).status == RunStatus::Succeeded => {
            Err(Problem::field("/from", "the run has succeeded; name the step from which to start again"))
        }
        _ => Ok(()),
    }
}

/// Returns the session of the run.
fn of<'a>(call: &'a Call<'_>, user: Option<String>) -> Result<&'a Rc<Session>, Problem> {
    match call.session_of(user) {
        Ok(session) if call.session_id.is_run() => Ok(session),
        Ok(_) => Err(Problem::not_found("run")),
        Err(problem) if problem.code == ErrorCode::NotFound => Err(Problem::not_found("run")),
        Err(problem) => Err(problem),
    }
}

fn shown(status: StatusCode, session: &Session) -> Result<Response, Problem> {
    let run = read_run(session)?;
    let state = session.state();
    let (meta, totals) = (&state.meta, &state.activity.totals);
    let (mut usage, mut cost_usd) = (totals.usage, totals.cost_usd);
    if let Some(turn) = &state.activity.turn {
        usage += turn.usage;
        cost_usd = turn.cost_usd.map(|cost| cost + cost_usd.unwrap_or_default()).or(cost_usd);
    }
    let about = About {
        agent: Some(meta.agent.clone()),
        user: Some(meta.user.clone()),
        title: meta.title.clone(),
        usage,
        cost_usd,
        times: (meta.created_at, totals.updated_at),
    };
    response::json(status, &run.view(about))
}
