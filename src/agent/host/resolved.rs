//! Stores calls as resolved, and the turn as continued when it waits for no other call.

use super::SessionHost;
use crate::ports::StoreError;
use crate::session::{Session, suspensions::row};
use crate::turn::TurnMachine;
use crate::types::{BackgroundTask, ChildStatus, EventKind, Grants, Problem, Suspension, Timestamp};
use std::rc::Rc;

/// The effect of a decision or an answer on the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEffect {
    /// The turn continues.
    Continues,
    /// The turn still waits for other calls.
    Waits,
    /// No effect: it repeats an earlier decision or answer.
    None,
}

/// A resolved suspension and its record.
pub(super) struct Settled {
    pub suspension: Suspension,
    /// Its record; `None` if that of the task that takes its place suffices.
    pub record: Option<EventKind>,
    /// The final status of a child, whose use is deducted from the turn's budget.
    pub charge: Option<ChildStatus>,
    /// The background task that takes the place of the call.
    pub promotes: Option<Box<NewTask>>,
}

/// A task that takes the place of a suspended call.
pub(super) struct NewTask {
    pub task: BackgroundTask,
    /// Its details, in JSON.
    pub details: String,
}

impl Settled {
    pub fn new(suspension: Suspension, record: EventKind) -> Self {
        Self { suspension, record: Some(record), charge: None, promotes: None }
    }
}

/// Calls that are resolved together, before this is stored.
pub struct ResolvedCalls {
    pub(super) settled: Vec<Settled>,
    pub(super) granted: Grants,
    /// Why the turn continues.
    pub(super) reason: &'static str,
    /// Until when the session holds the slot that it was admitted to, if it was.
    pub(super) slot_until: Option<Timestamp>,
}

impl ResolvedCalls {
    pub(super) fn new(settled: Vec<Settled>, reason: &'static str) -> Self {
        Self { settled, granted: Grants::default(), reason, slot_until: None }
    }

    pub(super) fn include(&self, own: &Suspension) -> bool {
        self.settled.iter().any(|settled| settled.suspension.call_id == own.call_id)
    }
}

impl SessionHost {
    /// Stores resolved suspensions. The turn continues when none is left open.
    pub(super) fn settle(
        self: &Rc<Self>,
        session: &Rc<Session>,
        resolved: ResolvedCalls,
    ) -> Result<TurnEffect, Problem> {
        let now = self.now();
        let rows = resolved.settled.iter().map(|settled| row(&settled.suspension));
        let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
        let mut left = session.suspensions()?;
        left.retain(|own| !resolved.include(own));
        let delegated = left.iter().all(Suspension::is_delegated);
        let ResolvedCalls { settled, granted, reason, slot_until } = resolved;
        let continues = session.commit(now, |draft| {
            rows.into_iter().for_each(|(key, json)| draft.put(key, json));
            draft.grant(&granted);
            draft.hold_slot(slot_until);
            let mut continues = false;
            for Settled { suspension, record, charge, promotes } in settled {
                record.into_iter().for_each(|record| draft.record(Some(&suspension.turn), record));
                let share = promotes.map(|new| {
                    let budget = new.task.budget;
                    draft.start_task(new.task, new.details);
                    budget
                });
                let turn = draft.turn_mut().filter(|turn| turn.id == suspension.turn);
                let Some(turn) = turn else { continue };
                turn.set_waits(left.iter());
                share.iter().for_each(|share| TurnMachine(turn).set_aside(share));
                let charged = charge.map(|ended| TurnMachine(turn).charge_subagent(&ended));
                continues |= TurnMachine(turn).call_resolved(&suspension.call_id, now);
                charged.into_iter().for_each(|record| draft.record(Some(&suspension.turn), record));
            }
            if let Some(turn) = draft.state().activity.turn.as_ref().filter(|_| continues) {
                let (id, epoch) = (turn.id.clone(), turn.epoch);
                draft.record(Some(&id), EventKind::TurnResumed { epoch, reason: reason.to_owned() });
            }
            continues
        })?;
        // A turn that waits only for children counts as running.
        Ok(if continues || delegated { TurnEffect::Continues } else { TurnEffect::Waits })
    }
}
