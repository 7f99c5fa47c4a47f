//! Calls that wait for a person: decided, answered, past their time, or passed over by a new message.
//!
//! A decision, what it means for the turn, and the turn's going on are one commit.

use super::{RETRY_MS, SessionHost, subagents};
use crate::agent::{
    executor::validate_args,
    finalizer::{Ending, INTERRUPTED},
};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::session::{Session, parked};
use crate::turn::{
    TurnMachine,
    policy::{self, Verdict},
};
use crate::types::{
    Approver, Decision, ErrorCode, EventKind, Grants, Parked, Pending, PendingKind, Problem, Resolution,
    StopReason, Timestamp, ToolCall, TurnStatus, Usage,
};
use serde_json::Value;
use std::rc::Rc;

/// What is said of a call on which nobody decided in time.
const EXPIRED: &str = "expired: nobody decided on this call in time";

/// What somebody decides on a call.
#[derive(Clone, Debug)]
pub struct Ruling {
    /// The decision.
    pub decision: Decision,
    /// Why; the model reads it when the call is declined.
    pub reason: Option<String>,
    /// Arguments in place of the model's.
    pub args: Option<Value>,
    /// What the arguments must hash to, where the caller wants to be sure what is decided on.
    pub args_hash: Option<String>,
}

/// What somebody answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The answer.
    Answer(Value),
    /// The client's own tool failed.
    Failure(String),
}

/// What a decision or an answer changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The turn goes on.
    GoesOn,
    /// The turn waits for others still.
    Waits,
    /// Nothing: it was said before.
    None,
}

/// A call that somebody has resolved, and what is told of it.
pub(super) struct Resolved {
    pub parked: Parked,
    pub told: EventKind,
    /// What a subagent has used for it.
    pub charge: Option<(Usage, Option<f64>)>,
}

impl SessionHost {
    /// Decides on a call that waits for consent. Deciding the same again changes nothing.
    ///
    /// # Errors
    /// 404 for a call that waits for none; 409 for other arguments than the call's, when it was decided
    /// otherwise, and when it does not wait any more; 422 for arguments that do not fit.
    pub fn decide(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &str,
        ruling: Ruling,
        by: Approver,
    ) -> Result<Change, Problem> {
        let parked = self.row(session, PendingKind::Approval, call_id)?;
        let pending = &parked.pending;
        let stale = ruling.args_hash.as_ref().is_some_and(|hash| *hash != pending.args_hash);
        if stale && !fault::active(Fault::ApproveStale) {
            let detail = format!("the call's arguments have the hash {}", pending.args_hash);
            return Err(Problem::new(ErrorCode::StaleArgsHash, detail));
        }
        let declines = ruling.decision == Decision::Decline;
        let args = match ruling.args {
            Some(args) if !declines => Some(self.fitting(pending, args)?),
            _ => None,
        };
        if let Some(before) = parked.resolved.as_ref().filter(|_| !fault::active(Fault::DecideTwice)) {
            let same = match before {
                Resolution::Declined { expired: true, .. } => return Err(over()),
                Resolution::Declined { .. } => declines,
                // Whoever has allowed more has allowed this, too; the other way round it would be forgotten.
                Resolution::Approved { decision, args: own } => {
                    (ruling.decision == *decision || ruling.decision == Decision::Approve)
                        && (args.is_none() || args == *own)
                }
                Resolution::Answered { .. } | Resolution::Failed { .. } => false,
            };
            return if same { Ok(Change::None) } else { Err(decided()) };
        }
        self.must_wait(session, pending)?;
        let told = EventKind::ApprovalDecided {
            call_id: pending.call_id.clone(),
            name: pending.name.clone(),
            decision: ruling.decision,
            reason: ruling.reason.clone(),
            args_hash: args.as_ref().map_or_else(|| pending.args_hash.clone(), policy::args_hash),
            args: args.clone(),
            by: Some(by.clone()),
        };
        let resolution = if declines {
            let reason = ruling.reason.unwrap_or_else(|| "the user declined this call".to_owned());
            Resolution::Declined { reason, expired: false }
        } else {
            Resolution::Approved { decision: ruling.decision, args }
        };
        let mut resolved = vec![Resolved {
            parked: Parked { resolved: Some(resolution), ..parked.clone() },
            told,
            charge: None,
        }];
        if matches!(ruling.decision, Decision::AlwaysAllowTool | Decision::AlwaysAllowCategory) {
            resolved.extend(self.released(session, pending, &granted(ruling.decision, pending), &by)?);
        }
        let granted = granted(ruling.decision, pending);
        self.resolve(session, resolved, granted, "decided")
    }

    /// Answers a call that waits for an answer. The same answer again changes nothing.
    ///
    /// # Errors
    /// As for [`SessionHost::decide`].
    pub fn answer(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &str,
        reply: Reply,
        by: Approver,
    ) -> Result<Change, Problem> {
        let parked = self.row(session, PendingKind::Question, call_id)?;
        let pending = &parked.pending;
        if pending.kind == PendingKind::Subagent {
            return Err(Problem::new(ErrorCode::NotWaiting, "this call waits for a subagent"));
        }
        let (resolution, answer) = match reply {
            Reply::Answer(answer) => (Resolution::Answered { answer: answer.clone() }, answer),
            Reply::Failure(_) if pending.kind != PendingKind::External => {
                return Err(Problem::field("/error", "only a tool of the client's own can fail"));
            }
            Reply::Failure(reason) => (Resolution::Failed { reason: reason.clone() }, Value::String(reason)),
        };
        if let Some(before) = &parked.resolved {
            return match before {
                Resolution::Declined { expired: true, .. } => Err(over()),
                before if *before == resolution => Ok(Change::None),
                _ => Err(decided()),
            };
        }
        self.must_wait(session, pending)?;
        if let (Resolution::Answered { answer }, Some((_, tool))) =
            (&resolution, self.agent.toolkit.get(&pending.name))
        {
            let checked = tool.check_answer(&pending.args, answer);
            checked.map_err(|detail| Problem::field("/answer", detail))?;
        }
        let (call_id, name) = (pending.call_id.clone(), pending.name.clone());
        let told = EventKind::AnswerGiven { call_id, name, answer, by: Some(by) };
        let parked = Parked { resolved: Some(resolution), ..parked };
        self.resolve(session, vec![Resolved { parked, told, charge: None }], Grants::default(), "answered")
    }

    /// Declines what waits past its time. Returns when the next one's time is over.
    pub(super) fn expire(self: &Rc<Self>, session: &Rc<Session>) -> Result<Option<Timestamp>, Problem> {
        let (late, open): (Vec<_>, Vec<_>) = session
            .pending()?
            .into_iter()
            .partition(|p| p.expires_at <= self.now() && !fault::active(Fault::ForgetExpiry));
        if !late.is_empty() {
            let resolved = late.iter().cloned().map(expired).collect();
            self.resolve(session, resolved, Grants::default(), "expired")?;
            self.recall_later(session, &late);
        }
        Ok(open.iter().map(|pending| pending.expires_at).min())
    }

    /// Ends the turn at hand: the user says something else.
    pub(super) fn interrupt(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let resolutions = session.pending()?.into_iter();
        let resolutions = resolutions.filter(|pending| pending.kind == PendingKind::Approval);
        let resolutions = resolutions.map(|pending| declined(pending, INTERRUPTED)).collect();
        self.end_with(
            session,
            Ending { interrupted: true, resolutions, ..Ending::new(StopReason::Canceled) },
        )?;
        Ok(())
    }

    /// The row of a call.
    fn row(&self, session: &Session, kind: PendingKind, call_id: &str) -> Result<Parked, Problem> {
        if let Some(parked) = session.parked(kind, call_id)? {
            return Ok(parked);
        }
        let (what, other, route) = match kind {
            PendingKind::Approval => ("a decision", PendingKind::Question, "answers"),
            _ => ("an answer", PendingKind::Approval, "approvals"),
        };
        if session.parked(other, call_id)?.is_some() {
            let detail = format!("this call does not wait for {what}: see …/{route}/{call_id}");
            return Err(Problem::new(ErrorCode::NotWaiting, detail));
        }
        Err(Problem::not_found(&format!("call that waits for {what}")))
    }

    /// Refuses what comes too late.
    fn must_wait(self: &Rc<Self>, session: &Rc<Session>, pending: &Pending) -> Result<(), Problem> {
        if pending.expires_at <= self.now() {
            self.expire(session)?;
        }
        let waits = session.pending()?.iter().any(|own| own == pending);
        if waits || fault::active(Fault::DecideLate) || fault::active(Fault::DecideTwice) {
            return Ok(());
        }
        Err(over())
    }

    /// Arguments that somebody gives in place of the model's, in the schema's types.
    fn fitting(&self, pending: &Pending, args: Value) -> Result<Value, Problem> {
        let Some((spec, tool)) = self.agent.toolkit.get(&pending.name) else { return Ok(args) };
        let (call_id, name) = (pending.call_id.clone(), pending.name.clone());
        let mut call = ToolCall { call_id, name, args, invalid: None };
        validate_args(tool.as_ref(), spec, &mut call).map_err(|reason| Problem::field("/args", reason))?;
        Ok(call.args)
    }

    /// The other calls that wait and that a grant allows, too.
    fn released(
        &self,
        session: &Session,
        decided: &Pending,
        granted: &Grants,
        by: &Approver,
    ) -> Result<Vec<Resolved>, Problem> {
        let mut state = session.state().clone();
        state.meta.permissions.grant(granted);
        let permissions = self.agent.permissions(&state);
        let allowed = |pending: &Pending| {
            let spec = self.agent.toolkit.get(&pending.name).map(|(spec, _)| spec);
            spec.is_some_and(|spec| permissions.decide(spec, &pending.args) == Verdict::Allow)
        };
        let others = session.pending()?.into_iter().filter(|pending| {
            pending.kind == PendingKind::Approval && pending.call_id != decided.call_id && allowed(pending)
        });
        let release = |pending: Pending| Resolved {
            told: EventKind::ApprovalDecided {
                call_id: pending.call_id.clone(),
                name: pending.name.clone(),
                decision: Decision::Approve,
                reason: None,
                args_hash: pending.args_hash.clone(),
                args: None,
                by: Some(by.clone()),
            },
            parked: Parked {
                pending,
                resolved: Some(Resolution::Approved { decision: Decision::Approve, args: None }),
                told: None,
            },
            charge: None,
        };
        Ok(others.map(release).collect())
    }

    /// Stores what became of calls. When none waits any more the turn goes on.
    pub(super) fn resolve(
        self: &Rc<Self>,
        session: &Rc<Session>,
        resolved: Vec<Resolved>,
        granted: Grants,
        reason: &str,
    ) -> Result<Change, Problem> {
        let now = self.now();
        let rows = resolved.iter().map(|resolved| parked::row(&resolved.parked));
        let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
        let mut left = session.pending()?;
        left.retain(|own| resolved.iter().all(|resolved| resolved.parked.pending.call_id != own.call_id));
        let delegated = left.iter().all(Pending::is_delegated);
        let goes_on = session.commit(now, |draft| {
            rows.into_iter().for_each(|(key, json)| draft.put(key, json));
            draft.state.meta.permissions.grant(&granted);
            if draft.state.meta.parent.is_some() {
                draft.state.granted.join(&granted);
            }
            let mut goes_on = false;
            for Resolved { parked, told, charge } in resolved {
                draft.record(Some(&parked.pending.turn), told);
                let turn = draft.state.turn.as_mut().filter(|turn| turn.id == parked.pending.turn);
                let Some(turn) = turn else { continue };
                turn.delegated = delegated;
                let charged = charge.map(|(usage, cost)| TurnMachine(turn).charge(usage, cost));
                goes_on |= TurnMachine(turn).call_resolved(&parked.pending.call_id, now);
                charged.into_iter().for_each(|told| draft.record(Some(&parked.pending.turn), told));
            }
            if let Some(turn) = draft.state.turn.as_ref().filter(|_| goes_on) {
                let (id, epoch) = (turn.id.clone(), turn.epoch);
                draft.record(Some(&id), EventKind::TurnResumed { epoch, reason: reason.to_owned() });
            }
            goes_on
        })?;
        self.send_out(session);
        if !goes_on {
            self.report(session);
            // What waits for subagents only is at work.
            return Ok(if delegated { Change::GoesOn } else { Change::Waits });
        }
        // What was decided is stored: if it cannot go on now, it does soon.
        self.run_on(session).inspect_err(|_| self.wake_after(RETRY_MS))?;
        self.report(session);
        Ok(Change::GoesOn)
    }
}

/// What somebody who decides so allows from now on.
fn granted(decision: Decision, pending: &Pending) -> Grants {
    let mut grants = Grants::default();
    match decision {
        Decision::AlwaysAllowTool => drop(grants.tools.insert(pending.name.clone())),
        Decision::AlwaysAllowCategory => drop(grants.categories.insert(pending.category)),
        Decision::Approve | Decision::Decline => {}
    }
    grants
}

/// The record of a refusal that is nobody's decision.
fn declined(pending: Pending, reason: &str) -> EventKind {
    let Pending { call_id, name, args_hash, .. } = pending;
    let (decision, reason) = (Decision::Decline, Some(reason.to_owned()));
    EventKind::ApprovalDecided { call_id, name, decision, reason, args_hash, args: None, by: None }
}

fn expired(pending: Pending) -> Resolved {
    let resolved = Some(Resolution::Declined { reason: EXPIRED.to_owned(), expired: true });
    let told = match pending.kind {
        PendingKind::Approval => declined(pending.clone(), EXPIRED),
        PendingKind::Question | PendingKind::Plan | PendingKind::External => {
            let (call_id, name) = (pending.call_id.clone(), pending.name.clone());
            EventKind::AnswerGiven { call_id, name, answer: Value::Null, by: None }
        }
        PendingKind::Subagent => subagents::ended(&pending, TurnStatus::Canceled, None),
    };
    Resolved { parked: Parked { pending, resolved, told: None }, told, charge: None }
}

fn over() -> Problem {
    Problem::new(ErrorCode::NotWaiting, "the call does not wait any more: its turn or its time is over")
}

fn decided() -> Problem {
    Problem::new(ErrorCode::AlreadyDecided, "the call was decided otherwise")
}
