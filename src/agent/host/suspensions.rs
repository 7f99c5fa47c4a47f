//! Resolving suspended calls: by a decision, an answer, a child's status, expiry, or a new message.
//!
//! A resolution, what it grants, and the turn's resumption are one commit.

use super::SessionHost;
use crate::agent::{
    ending::{Ending, INTERRUPTED},
    executor::validate_args,
};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::session::{
    Session,
    suspensions::{Row, child_completed, row},
};
use crate::turn::{
    TurnMachine,
    policy::{self, Verdict},
};
use crate::types::{
    Approver, Decision, ErrorCode, EventKind, Grants, Problem, Resolution, StopReason, Suspension, ToolCall,
    TurnStatus, Usage, Wait,
};
use serde_json::Value;
use std::rc::Rc;

/// The reason of a call whose time ran out.
const EXPIRED: &str = "expired: no decision was made on this call in time";

/// A decision on a call that waits for approval.
#[derive(Clone, Debug)]
pub struct ApprovalDecision {
    /// The decision.
    pub decision: Decision,
    /// The reason; the model reads it when the call is declined.
    pub reason: Option<String>,
    /// Arguments that replace those of the model.
    pub args: Option<Value>,
    /// The hash that the call's arguments must have, for a caller that wants to be sure what it decides on.
    pub args_hash: Option<String>,
}

/// The answer to a call that waits for one.
#[derive(Clone, Debug)]
pub enum CallAnswer {
    /// The answer.
    Answer(Value),
    /// The client's own tool failed.
    Failure(String),
}

/// The effect of a decision or an answer on the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEffect {
    /// The turn continues.
    Continues,
    /// The turn still waits for other calls.
    Waits,
    /// None: it repeats an earlier decision or answer.
    None,
}

/// A suspension that was resolved, and what is recorded of it.
pub(super) struct Settled {
    pub suspension: Suspension,
    pub record: EventKind,
    /// What a child has used.
    pub charge: Option<(Usage, Option<f64>)>,
}

impl SessionHost {
    /// Decides on a call that waits for approval. Repeating a decision changes nothing.
    ///
    /// # Errors
    /// 404 when no call of this id waits for approval; 409 when its arguments have another hash, when it was decided
    /// otherwise, and when it does not wait any more; 422 for arguments that do not fit.
    pub fn decide(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &str,
        ruling: ApprovalDecision,
        by: Approver,
    ) -> Result<TurnEffect, Problem> {
        let suspension = self.suspension(session, Row::Approval, call_id)?;
        let stale = ruling.args_hash.as_ref().is_some_and(|hash| *hash != suspension.args_hash);
        if stale && !fault::active(Fault::ApproveStale) {
            let detail = format!("the call's arguments have the hash {}", suspension.args_hash);
            return Err(Problem::new(ErrorCode::StaleArgsHash, detail));
        }
        let declines = ruling.decision == Decision::Decline;
        let args = match ruling.args {
            Some(args) if !declines => Some(self.fitting(&suspension, args)?),
            _ => None,
        };
        if let Some(before) = suspension.resolution.as_ref().filter(|_| !fault::active(Fault::DecideTwice)) {
            let same = match before {
                Resolution::Declined { expired: true, .. } => return Err(over()),
                Resolution::Declined { .. } => declines,
                // An approval repeats a wider one. A wider one after an approval would be lost.
                Resolution::Approved { decision, args: own } => {
                    (ruling.decision == *decision || ruling.decision == Decision::Approve)
                        && (args.is_none() || args == *own)
                }
                Resolution::Answered { .. } | Resolution::Failed { .. } => false,
            };
            return if same { Ok(TurnEffect::None) } else { Err(decided()) };
        }
        self.must_wait(session, &suspension)?;
        let record = EventKind::ApprovalDecided {
            call_id: suspension.call_id.clone(),
            name: suspension.name.clone(),
            decision: ruling.decision,
            reason: ruling.reason.clone(),
            args_hash: args.as_ref().map_or_else(|| suspension.args_hash.clone(), policy::args_hash),
            args: args.clone(),
            by: Some(by.clone()),
        };
        let resolution = if declines {
            let reason = ruling.reason.unwrap_or_else(|| "the user declined this call".to_owned());
            Resolution::Declined { reason, expired: false }
        } else {
            Resolution::Approved { decision: ruling.decision, args }
        };
        let granted = granted(ruling.decision, &suspension);
        let mut settled =
            vec![Settled { suspension: suspension.clone().resolved(resolution), record, charge: None }];
        if matches!(ruling.decision, Decision::AlwaysAllowTool | Decision::AlwaysAllowCategory) {
            settled.extend(self.released(session, &suspension, &granted, &by)?);
        }
        self.settle(session, settled, granted, "decided")
    }

    /// Answers a call that waits for an answer. Repeating an answer changes nothing.
    ///
    /// # Errors
    /// As for [`SessionHost::decide`].
    pub fn answer(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &str,
        answer: CallAnswer,
        by: Approver,
    ) -> Result<TurnEffect, Problem> {
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
                return Err(Problem::field("/error", "only a tool of the client's own can fail"));
            }
        };
        if let Some(before) = &suspension.resolution {
            return match before {
                Resolution::Declined { expired: true, .. } => Err(over()),
                before if *before == resolution => Ok(TurnEffect::None),
                _ => Err(decided()),
            };
        }
        self.must_wait(session, &suspension)?;
        if let (Resolution::Answered { answer }, Some((_, tool))) =
            (&resolution, self.agent.toolkit.get(&suspension.name))
        {
            let checked = tool.check_answer(&suspension.args, answer);
            checked.map_err(|detail| Problem::field("/answer", detail))?;
        }
        let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
        let record = EventKind::AnswerGiven { call_id, name, answer, by: Some(by) };
        let settled = Settled { suspension: suspension.resolved(resolution), record, charge: None };
        self.settle(session, vec![settled], Grants::default(), "answered")
    }

    /// Declines the calls whose time is over.
    pub(super) fn expire(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let now = self.now();
        let is_late = |own: &Suspension| own.expires_at <= now && !fault::active(Fault::ForgetExpiry);
        let late: Vec<_> = session.suspensions()?.into_iter().filter(is_late).collect();
        if !late.is_empty() {
            let settled = late.iter().cloned().map(expired).collect();
            self.settle(session, settled, Grants::default(), "expired")?;
            self.cancel_later(&late);
        }
        Ok(())
    }

    /// Ends the turn at hand in favor of a new message.
    pub(super) fn interrupt(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let open = session.suspensions()?.into_iter();
        let approvals = open.filter(|own| own.wait == Wait::Approval);
        let records = approvals.map(|own| declined(&own, INTERRUPTED)).collect();
        self.end_with(session, Ending { interrupted: true, records, ..Ending::new(StopReason::Canceled) })?;
        Ok(())
    }

    /// The suspension of a call.
    fn suspension(&self, session: &Session, row: Row, call_id: &str) -> Result<Suspension, Problem> {
        if let Some(suspension) = session.suspension(row, call_id)? {
            return Ok(suspension);
        }
        let (what, other, route) = match row {
            Row::Approval => ("a decision", Row::Answer, "answers"),
            Row::Answer => ("an answer", Row::Approval, "approvals"),
        };
        if session.suspension(other, call_id)?.is_some() {
            let detail = format!("this call does not wait for {what}: see …/{route}/{call_id}");
            return Err(Problem::new(ErrorCode::NotWaiting, detail));
        }
        Err(Problem::not_found(&format!("call that waits for {what}")))
    }

    /// Refuses a decision or answer that comes too late.
    fn must_wait(self: &Rc<Self>, session: &Rc<Session>, suspension: &Suspension) -> Result<(), Problem> {
        if suspension.expires_at <= self.now() {
            self.expire(session)?;
        }
        let waits = session.suspensions()?.iter().any(|own| own == suspension);
        if waits || fault::active(Fault::DecideLate) || fault::active(Fault::DecideTwice) {
            return Ok(());
        }
        Err(over())
    }

    /// Coerces the arguments of a decision into the types of the tool's schema.
    fn fitting(&self, suspension: &Suspension, args: Value) -> Result<Value, Problem> {
        let Some((spec, tool)) = self.agent.toolkit.get(&suspension.name) else { return Ok(args) };
        let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
        let mut call = ToolCall { call_id, name, args, invalid: None };
        validate_args(tool.as_ref(), spec, &mut call).map_err(|reason| Problem::field("/args", reason))?;
        Ok(call.args)
    }

    /// The other open approvals that a grant allows, too.
    fn released(
        &self,
        session: &Session,
        decided: &Suspension,
        granted: &Grants,
        by: &Approver,
    ) -> Result<Vec<Settled>, Problem> {
        let mut state = session.state().clone();
        state.meta.permissions.grant(granted);
        let permissions = self.agent.permissions(&state);
        let allowed = |own: &Suspension| {
            let spec = self.agent.toolkit.get(&own.name).map(|(spec, _)| spec);
            spec.is_some_and(|spec| permissions.decide(spec, &own.args) == Verdict::Allow)
        };
        let others = session
            .suspensions()?
            .into_iter()
            .filter(|own| own.wait == Wait::Approval && own.call_id != decided.call_id && allowed(own));
        let release = |own: Suspension| Settled {
            record: EventKind::ApprovalDecided {
                call_id: own.call_id.clone(),
                name: own.name.clone(),
                decision: Decision::Approve,
                reason: None,
                args_hash: own.args_hash.clone(),
                args: None,
                by: Some(by.clone()),
            },
            suspension: own.resolved(Resolution::Approved { decision: Decision::Approve, args: None }),
            charge: None,
        };
        Ok(others.map(release).collect())
    }

    /// Stores how suspensions ended. When no call waits any more the turn continues.
    pub(super) fn settle(
        self: &Rc<Self>,
        session: &Rc<Session>,
        settled: Vec<Settled>,
        granted: Grants,
        reason: &str,
    ) -> Result<TurnEffect, Problem> {
        let now = self.now();
        let rows = settled.iter().map(|settled| row(&settled.suspension));
        let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
        let mut left = session.suspensions()?;
        left.retain(|own| settled.iter().all(|settled| settled.suspension.call_id != own.call_id));
        let delegated = left.iter().all(Suspension::is_delegated);
        let continues = session.commit(now, |draft| {
            rows.into_iter().for_each(|(key, json)| draft.put(key, json));
            draft.state.meta.permissions.grant(&granted);
            if draft.state.meta.parent.is_some() {
                draft.state.granted.join(&granted);
            }
            let mut continues = false;
            for Settled { suspension, record, charge } in settled {
                draft.record(Some(&suspension.turn), record);
                let turn = draft.state.turn.as_mut().filter(|turn| turn.id == suspension.turn);
                let Some(turn) = turn else { continue };
                turn.delegated = delegated;
                let charged = charge.map(|(usage, cost)| TurnMachine(turn).add_subagent_usage(usage, cost));
                continues |= TurnMachine(turn).call_resolved(&suspension.call_id, now);
                charged.into_iter().for_each(|record| draft.record(Some(&suspension.turn), record));
            }
            if let Some(turn) = draft.state.turn.as_ref().filter(|_| continues) {
                let (id, epoch) = (turn.id.clone(), turn.epoch);
                draft.record(Some(&id), EventKind::TurnResumed { epoch, reason: reason.to_owned() });
            }
            continues
        })?;
        // A turn that waits for children only is at work.
        Ok(if continues || delegated { TurnEffect::Continues } else { TurnEffect::Waits })
    }
}

/// What a decision allows from now on.
fn granted(decision: Decision, suspension: &Suspension) -> Grants {
    let mut grants = Grants::default();
    match decision {
        Decision::AlwaysAllowTool => drop(grants.tools.insert(suspension.name.clone())),
        Decision::AlwaysAllowCategory => drop(grants.categories.insert(suspension.category)),
        Decision::Approve | Decision::Decline => {}
    }
    grants
}

/// The record of a refusal without a person's decision.
fn declined(suspension: &Suspension, reason: &str) -> EventKind {
    EventKind::ApprovalDecided {
        call_id: suspension.call_id.clone(),
        name: suspension.name.clone(),
        decision: Decision::Decline,
        reason: Some(reason.to_owned()),
        args_hash: suspension.args_hash.clone(),
        args: None,
        by: None,
    }
}

fn expired(suspension: Suspension) -> Settled {
    let record = match &suspension.wait {
        Wait::Approval => declined(&suspension, EXPIRED),
        Wait::Question(_) | Wait::Plan(_) | Wait::External(_) => {
            let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
            EventKind::AnswerGiven { call_id, name, answer: Value::Null, by: None }
        }
        Wait::Child(child) => child_completed(&suspension.call_id, child, TurnStatus::Canceled, None),
    };
    let resolution = Resolution::Declined { reason: EXPIRED.to_owned(), expired: true };
    Settled { suspension: suspension.resolved(resolution), record, charge: None }
}

fn over() -> Problem {
    Problem::new(ErrorCode::NotWaiting, "the call does not wait any more: its turn or its time is over")
}

fn decided() -> Problem {
    Problem::new(ErrorCode::AlreadyDecided, "the call was decided otherwise")
}
