//! Resolving suspended calls: by a decision, an answer, a child's status, expiry, or a new message.
//!
//! A resolution, what it grants, and the turn's resumption are one commit.

pub use super::resolved::{ResolvedCalls, TurnEffect};
use super::{SessionHost, resolved::Settled};
use crate::agent::{
    admission::validate_args,
    ending::{Ending, INTERRUPTED},
};
use crate::session::{
    Session,
    kernel::Input,
    suspensions::{Row, child_completed, row},
};
use crate::turn::policy::{self, Verdict};
use crate::types::{
    CallId, Decider, Decision, ErrorCode, EventKind, Grants, Problem, Resolution, ResolvedBy, StopReason,
    Suspension, Timestamp, ToolCall, TurnPhase, TurnStatus, Wait, message::json_weight,
};
use serde_json::Value;
use std::rc::Rc;

/// The reason given for an expired call.
const EXPIRED: &str = "expired: no decision was made on this call in time";

/// Maximum size of an answer, and of the arguments that a call is approved with, in bytes of JSON (1 MiB).
const MAX_ANSWER: usize = 1 << 20;
/// Maximum size of the answers to all calls of a step together (8 MiB).
const MAX_ANSWERS: usize = 8 << 20;

/// A decision on a call that waits for approval.
#[derive(Clone, Debug)]
pub struct ApprovalDecision {
    /// The decision.
    pub decision: Decision,
    /// The reason; the model reads it when the call is declined.
    pub reason: Option<String>,
    /// Arguments that replace those of the model.
    pub args: Option<Value>,
    /// The hash that the call's arguments must have, so that a caller decides on the arguments that it has
    /// seen.
    pub args_hash: Option<String>,
    /// Whether the caller may approve calls about which a rule of the operator asks.
    pub is_approver: bool,
}

/// The answer to a suspended call.
#[derive(Clone, Debug)]
pub enum CallAnswer {
    /// The answer.
    Answer(Value),
    /// The client's own tool failed.
    Failure(String),
}

impl SessionHost {
    /// Decides on a call that waits for approval, without asking the ledger for a slot. Repeating a decision changes
    /// nothing.
    ///
    /// # Errors
    /// See [`SessionHost::check_decision`].
    pub fn decide(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        approval: ApprovalDecision,
        resolved_by: ResolvedBy,
    ) -> Result<TurnEffect, Problem> {
        let resolved = self.check_decision(session, call_id, approval, resolved_by)?;
        resolved.map_or(Ok(TurnEffect::None), |resolved| self.settle(session, resolved))
    }

    /// Returns the calls that a decision resolves; `None` if it repeats an earlier one.
    ///
    /// # Errors
    /// `not_found` for an unknown call, `stale_args_hash` when its arguments have another hash, `already_decided` after a
    /// different decision, `not_waiting` after it expired or its turn ended, `validation_failed` for invalid
    /// arguments, `missing_scope` if the caller may not approve the call.
    pub fn check_decision(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        approval: ApprovalDecision,
        resolved_by: ResolvedBy,
    ) -> Result<Option<ResolvedCalls>, Problem> {
        let suspension = self.suspension(session, Row::Approval, call_id)?;
        if approval.args_hash.as_ref().is_some_and(|hash| *hash != suspension.args_hash) {
            return Err(stale(&suspension));
        }
        let declines = approval.decision == Decision::Decline;
        let args = match approval.args {
            Some(args) if !declines => Some(self.coerce_args(session, &suspension, args)?),
            _ => None,
        };
        if let Some(before) = &suspension.resolution {
            let same = match before {
                Resolution::Declined { expired: true, .. } => return Err(over()),
                Resolution::Declined { .. } => declines,
                // A plain approval repeats any approval. A wider one adds a grant, so it repeats only itself.
                Resolution::Approved { decision, args: own } => {
                    (approval.decision == *decision || approval.decision == Decision::Approve)
                        && (args.is_none() || args == *own)
                }
                Resolution::Answered { .. } | Resolution::Failed { .. } | Resolution::Unknown { .. } => false,
            };
            return if same { Ok(None) } else { Err(decided()) };
        }
        if !declines && !approval.is_approver {
            let run_with = args.as_ref().unwrap_or(&suspension.args);
            if self.decider(session, &suspension, run_with) == Decider::Approver {
                let detail =
                    "a rule of the operator asks about this call: approving it needs the scope `approve`";
                return Err(Problem::new(ErrorCode::MissingScope, detail));
            }
        }
        self.ensure_waiting(session, &suspension)?;
        if let Some(args) = &args {
            check_room(session, "/args", args)?;
        }
        let record = EventKind::ApprovalDecided {
            call_id: suspension.call_id.clone(),
            name: suspension.name.clone(),
            decision: approval.decision,
            reason: approval.reason.clone(),
            args_hash: args.as_ref().map_or_else(|| suspension.args_hash.clone(), policy::args_hash),
            args: args.clone(),
            by: Some(resolved_by.approver.clone()),
            request_id: resolved_by.request_id.clone(),
        };
        let resolution = if declines {
            let reason = approval.reason.unwrap_or_else(|| "the user declined this call".to_owned());
            Resolution::Declined { reason, expired: false }
        } else {
            Resolution::Approved { decision: approval.decision, args }
        };
        let granted = granted(approval.decision, &suspension);
        let as_decider = if approval.is_approver { Decider::Approver } else { Decider::User };
        let resolved = Suspension {
            by: as_decider,
            address: resolved_by.address,
            ..suspension.clone().resolved(resolution)
        };
        let mut settled = vec![Settled::new(resolved, record)];
        if matches!(approval.decision, Decision::AlwaysAllowTool | Decision::AlwaysAllowCategory) {
            settled.extend(self.approvals_covered_by(
                session,
                &suspension,
                &granted,
                as_decider,
                &resolved_by,
            )?);
        }
        Ok(Some(ResolvedCalls { settled, granted, reason: "decided", slot_until: None }))
    }

    /// Checks that the payload of a call that waits for an answer is still what the person was shown. If it is not,
    /// stores and announces the new one, under another hash. `args_hash` is the hash that the call must have, so that a
    /// refused answer is not accepted when it is sent again.
    ///
    /// # Errors
    /// `stale_args_hash` for another hash, `stale_plan` for a plan that has changed, `unavailable` when the payload
    /// cannot be read.
    pub async fn ensure_current(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        answer: &CallAnswer,
        args_hash: Option<&str>,
    ) -> Result<(), Problem> {
        let waiting = || {
            let waits = |own: &Suspension| session.is_open(own) && own.expires_at > self.now();
            session.suspension(Row::Answer, call_id).map(|row| row.filter(waits))
        };
        let (CallAnswer::Answer(answer), Some(suspension)) = (answer, waiting()?) else { return Ok(()) };
        if args_hash.is_some_and(|hash| hash != suspension.args_hash) {
            return Err(stale(&suspension));
        }
        let found = self.agent().tool(session.state().client_tools(), &suspension.name).map(|(_, tool)| tool);
        let Some(tool) = found else { return Ok(()) };
        let owner = session.state().meta.owner();
        let changed = tool.changed_payload(answer, &suspension.wait.payload(), &owner).await;
        let changed = changed
            .map_err(|error| Problem::unavailable("the call's payload cannot be read; try again", error))?;
        // The call may have been resolved during the await.
        let (Some(payload), Some(mut suspension)) = (changed, waiting()?) else { return Ok(()) };
        if let Wait::Question(shown) | Wait::Plan(shown) | Wait::External(shown) | Wait::Auth(shown) =
            &mut suspension.wait
        {
            *shown = payload;
        }
        suspension.args_hash = policy::args_hash(&suspension.wait.payload());
        let Suspension { call_id, name, expires_at, .. } = suspension.clone();
        let (kind, payload) = (suspension.wait.kind(), suspension.wait.payload());
        let (key, json) = row(&suspension)?;
        session.commit_from_outside(self.now(), |draft| {
            draft.put(key, json);
            let shown = EventKind::ToolSuspended { call_id, name, kind, payload, expires_at };
            draft.record(Some(&suspension.turn), shown);
        })?;
        let detail = "the plan has changed since it was shown; `pending` has the new one";
        Err(Problem::new(ErrorCode::StalePlan, detail))
    }

    /// Returns who may approve a call that runs with these arguments: under the rules when it was suspended, and under
    /// the current ones.
    fn decider(&self, session: &Session, suspension: &Suspension, args: &Value) -> Decider {
        let state = session.state();
        let agent = self.agent();
        let spec = agent.spec(state.client_tools(), &suspension.name);
        match spec.map(|spec| agent.verdict(&state, spec, args)) {
            Some(Verdict::Ask(now)) => now.max(suspension.by),
            Some(Verdict::Allow | Verdict::Deny(_)) | None => suspension.by,
        }
    }

    /// Answers a suspended call, without asking the ledger for a slot. Repeating an answer changes nothing.
    ///
    /// # Errors
    /// As for [`SessionHost::check_decision`].
    pub fn answer(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        answer: CallAnswer,
        resolved_by: ResolvedBy,
    ) -> Result<TurnEffect, Problem> {
        let resolved = self.check_answer(session, call_id, answer, resolved_by)?;
        resolved.map_or(Ok(TurnEffect::None), |resolved| self.settle(session, resolved))
    }

    /// Returns the call that an answer resolves; `None` if it repeats an earlier one.
    ///
    /// # Errors
    /// As for [`SessionHost::check_decision`].
    pub fn check_answer(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        answer: CallAnswer,
        resolved_by: ResolvedBy,
    ) -> Result<Option<ResolvedCalls>, Problem> {
        let suspension = self.suspension(session, Row::Answer, call_id)?;
        if suspension.child().is_some() {
            return Err(Problem::new(ErrorCode::NotWaiting, "this call waits for a subagent"));
        }
        let (resolution, answer) = match answer {
            CallAnswer::Answer(answer) => (Resolution::Answered { answer: answer.clone() }, answer),
            CallAnswer::Failure(reason) if matches!(suspension.wait, Wait::External(_)) => {
                (Resolution::Failed { reason: reason.clone() }, Value::String(reason))
            }
            CallAnswer::Failure(_) => {
                return Err(Problem::field("/error", "only the call of an external tool accepts an error"));
            }
        };
        if let Some(before) = &suspension.resolution {
            return match before {
                Resolution::Declined { expired: true, .. } | Resolution::Unknown { .. } => Err(over()),
                before if *before == resolution => Ok(None),
                _ => Err(decided()),
            };
        }
        self.ensure_waiting(session, &suspension)?;
        check_room(session, "/answer", &answer)?;
        check_runner(&suspension, resolved_by.runner.as_deref(), self.now())?;
        if let Resolution::Answered { answer } = &resolution
            && let Some((_, tool)) = self.agent().tool(session.state().client_tools(), &suspension.name)
        {
            let checked = tool.check_answer(&suspension.args, &suspension.wait.payload(), answer);
            checked.map_err(|detail| Problem::field("/answer", detail))?;
        }
        let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
        let ResolvedBy { approver, address, request_id, .. } = resolved_by;
        let record = EventKind::AnswerGiven { call_id, name, answer, by: Some(approver), request_id };
        let suspension = Suspension { address, ..suspension.resolved(resolution) };
        let settled = Settled::new(suspension, record);
        Ok(Some(ResolvedCalls::new(vec![settled], "answered")))
    }

    /// Declines expired calls, ends expired claims, and gives up expired background tasks.
    pub(super) fn expire(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let given_up = self.expire_tasks(session)?;
        if !given_up.is_empty() {
            self.handle(Input::Cancel(given_up));
        }
        let now = self.now();
        let is_late = |own: &Suspension| own.expires_at <= now;
        let late: Vec<_> = session.suspensions()?.into_iter().filter(is_late).collect();
        if !late.is_empty() {
            let settled = late.iter().cloned().map(expired).collect();
            self.settle(session, ResolvedCalls::new(settled, "expired"))?;
            self.cancel_later(&late);
        }
        self.end_claims(session)
    }

    /// Ends the current turn because a new message arrived.
    pub(super) fn interrupt(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let open = session.suspensions()?.into_iter();
        let approvals = open.filter(|own| own.wait == Wait::Approval);
        let records = approvals.map(|own| declined(&own, INTERRUPTED)).collect();
        self.end_with(session, Ending { interrupted: true, records, ..Ending::new(StopReason::Canceled) })?;
        Ok(())
    }

    /// Returns the suspension of a call.
    pub(super) fn suspension(
        &self,
        session: &Session,
        row: Row,
        call_id: &CallId,
    ) -> Result<Suspension, Problem> {
        if let Some(suspension) = session.suspension(row, call_id)? {
            return Ok(suspension);
        }
        let (what, other, route) = match row {
            Row::Approval => ("a decision", Row::Answer, "answers"),
            Row::Answer => ("an answer", Row::Approval, "approvals"),
        };
        if session.suspension(other, call_id)?.is_some() {
            let detail = format!("this call does not wait for {what}: use …/{route}/{call_id}");
            return Err(Problem::new(ErrorCode::NotWaiting, detail));
        }
        Err(Problem::not_found(&format!("call that waits for {what}")))
    }

    /// Returns an error if the call is no longer suspended.
    fn ensure_waiting(
        self: &Rc<Self>,
        session: &Rc<Session>,
        suspension: &Suspension,
    ) -> Result<(), Problem> {
        if suspension.changes_at() <= self.now() {
            self.expire(session)?;
        }
        let waits = session.suspensions()?.iter().any(|own| own == suspension);
        if waits {
            return Ok(());
        }
        Err(over())
    }

    /// Coerces the arguments of a decision into the types of the tool's schema.
    fn coerce_args(&self, session: &Session, suspension: &Suspension, args: Value) -> Result<Value, Problem> {
        let state = session.state();
        let agent = self.agent();
        let found = agent.tool(state.client_tools(), &suspension.name);
        let Some((spec, tool)) = found else { return Ok(args) };
        let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
        let mut call = ToolCall { call_id, name, args, invalid: None };
        validate_args(tool.as_ref(), spec, &mut call).map_err(|reason| Problem::field("/args", reason))?;
        Ok(call.args)
    }

    /// Approves the other open approvals that the new grant covers and that the caller may decide.
    fn approvals_covered_by(
        &self,
        session: &Session,
        decided: &Suspension,
        granted: &Grants,
        as_decider: Decider,
        resolved_by: &ResolvedBy,
    ) -> Result<Vec<Settled>, Problem> {
        let mut state = session.state().clone();
        if state.meta.id.is_run() {
            // A run asks for its steps whatever the rules allow.
            return Ok(Vec::new());
        }
        Rc::make_mut(&mut state.meta).permissions.grant(granted);
        let agent = self.agent();
        let allowed = |own: &Suspension| {
            let spec = agent.spec(state.client_tools(), &own.name);
            spec.is_some_and(|spec| agent.verdict(&state, spec, &own.args) == Verdict::Allow)
        };
        let others = session.suspensions()?.into_iter().filter(|own| {
            let is_other = own.wait == Wait::Approval && own.call_id != decided.call_id;
            is_other && own.by <= as_decider && allowed(own)
        });
        let release = |own: Suspension| {
            let record = EventKind::ApprovalDecided {
                call_id: own.call_id.clone(),
                name: own.name.clone(),
                decision: Decision::Approve,
                reason: None,
                args_hash: own.args_hash.clone(),
                args: None,
                by: Some(resolved_by.approver.clone()),
                request_id: resolved_by.request_id.clone(),
            };
            let resolution = Resolution::Approved { decision: Decision::Approve, args: None };
            let (by, address) = (as_decider, resolved_by.address);
            Settled::new(Suspension { by, address, ..own.resolved(resolution) }, record)
        };
        Ok(others.map(release).collect())
    }
}

/// Checks the size of an answer to a call, or of arguments that it was approved with. A step holds those of all its calls
/// at once.
fn check_room(session: &Session, place: &str, value: &Value) -> Result<(), Problem> {
    let bytes = json_weight(value);
    if bytes > MAX_ANSWER {
        let detail =
            format!("about {bytes} bytes; expected at most {MAX_ANSWER} (1 MiB); attach a file instead");
        return Err(Problem::field(place, detail));
    }
    let state = session.state();
    let Some(TurnPhase::Tools { calls }) = state.activity.turn.as_ref().map(|turn| &turn.phase) else {
        return Ok(());
    };
    let mut held = bytes;
    for call in calls.iter().filter(|call| call.asked) {
        let resolved = session.resolved(&call.call_id)?;
        held += [&resolved.answer, &resolved.args].into_iter().flatten().map(json_weight).sum::<usize>();
    }
    if held > MAX_ANSWERS {
        let detail =
            format!("the answers to the calls of a step have more than {MAX_ANSWERS} bytes (8 MiB) together");
        return Err(Problem::field(place, detail));
    }
    Ok(())
}

/// Checks that no other runner works on a call.
///
/// # Errors
/// `claimed`.
pub(super) fn check_runner(
    suspension: &Suspension,
    runner: Option<&str>,
    now: Timestamp,
) -> Result<(), Problem> {
    match &suspension.claim {
        Some(claim) if claim.until > now && runner != Some(claim.runner.as_str()) => {
            let detail =
                format!("the runner {:?} works on the call until {}", claim.runner, claim.until.to_rfc3339());
            Err(Problem::new(ErrorCode::Claimed, detail))
        }
        _ => Ok(()),
    }
}

/// Returns the grants that a decision adds.
fn granted(decision: Decision, suspension: &Suspension) -> Grants {
    let mut grants = Grants::default();
    match decision {
        Decision::AlwaysAllowTool => drop(grants.tools.insert(suspension.name.clone())),
        Decision::AlwaysAllowCategory => drop(grants.categories.insert(suspension.category)),
        Decision::Approve | Decision::Decline => {}
    }
    grants
}

/// Returns the record of a refusal that no person decided.
fn declined(suspension: &Suspension, reason: &str) -> EventKind {
    EventKind::ApprovalDecided {
        call_id: suspension.call_id.clone(),
        name: suspension.name.clone(),
        decision: Decision::Decline,
        reason: Some(reason.to_owned()),
        args_hash: suspension.args_hash.clone(),
        args: None,
        by: None,
        request_id: None,
    }
}

fn expired(suspension: Suspension) -> Settled {
    let record = match &suspension.wait {
        Wait::Approval => declined(&suspension, EXPIRED),
        Wait::Question(_) | Wait::Plan(_) | Wait::External(_) | Wait::Auth(_) => {
            let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
            EventKind::AnswerGiven { call_id, name, answer: Value::Null, by: None, request_id: None }
        }
        Wait::Child(child) => child_completed(&suspension.call_id, child, TurnStatus::Canceled, None),
    };
    let resolution = Resolution::Declined { reason: EXPIRED.to_owned(), expired: true };
    Settled::new(suspension.resolved(resolution), record)
}

fn stale(suspension: &Suspension) -> Problem {
    let detail = format!("what the call waits for has the hash {}", suspension.args_hash);
    Problem::new(ErrorCode::StaleArgsHash, detail)
}

pub(super) fn over() -> Problem {
    Problem::new(ErrorCode::NotWaiting, "the call no longer waits: its turn ended or it expired")
}

fn decided() -> Problem {
    Problem::new(ErrorCode::AlreadyDecided, "the call already has a different decision or answer")
}
