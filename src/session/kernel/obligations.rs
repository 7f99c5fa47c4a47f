//! Computes the jobs that follow from a session's state, and when each is due.

use super::{
    AFTER_REPLY, CHECK_CHILD, DISCARD_AFTER, Durable, Job, LISTING, LONG_TURN, LedgerDues, MAX_QUIET,
    MAX_RETRY, QUIET, RENEW_BEFORE, SessionKernel, WATCHDOG,
};
use crate::types::{
    BackgroundTask, ChildStatus, RequestTimes, SessionState, SessionStatus, Timestamp, TurnState, TurnStatus,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A job that the session's state requires.
pub(super) struct Obligation {
    pub(super) job: Job,
    pub(super) due: Timestamp,
    /// A new version means progress, so failures of earlier versions do not delay the job.
    pub(super) version: u64,
}

impl Obligation {
    fn now(job: Job, version: u64) -> Self {
        Self { job, due: NOW, version }
    }

    fn at(due: Timestamp, job: Job) -> Self {
        Self { job, due, version: due.0 }
    }
}

/// Returns the time from which the session is listed as running; `None` if no turn runs, or the turn waits for people.
pub fn runs_long_from(state: &SessionState) -> Option<Timestamp> {
    let turn = state.activity.turn.as_ref().filter(|turn| !turn.waits_for_people())?;
    Some(turn.started_at + LONG_TURN)
}

/// Returns when the entry of a listed session must say that a turn runs.
pub(super) fn listed_as_running_at(state: &SessionState) -> Option<Timestamp> {
    runs_long_from(state).filter(|_| !state.meta.ephemeral && !state.background.listed_running)
}

/// Returns when the session's entry in the list of sessions must be written.
fn listing_due(state: &SessionState) -> Option<Timestamp> {
    let (turn, listed) = (&state.activity.turn, &state.background);
    let out_of_date = turn.is_none() && state.activity.totals.updated_at.since(listed.listed_at) > LISTING;
    match runs_long_from(state) {
        _ if listed.listed_at == Timestamp(0) || out_of_date => Some(NOW),
        Some(at) if !listed.listed_running => Some(at),
        None if listed.listed_running => Some(NOW),
        _ => None,
    }
}

/// Due at once.
const NOW: Timestamp = Timestamp(0);

impl SessionKernel {
    /// Returns all obligations of the session, due or not.
    pub(super) fn obligations(&self, durable: &Durable<'_>, now: Timestamp) -> Vec<Obligation> {
        let state = durable.state;
        let mut obligations: Vec<Obligation> = Vec::new();
        if let (None, Some(next)) = (&state.activity.turn, state.activity.queue.first()) {
            obligations.push(Obligation::now(Job::StartQueued, hash(next)));
        }
        if let Some(orphan) = &self.orphan {
            obligations.push(Obligation::now(Job::RecoverTurn, u64::from(orphan.epoch)));
        }
        obligations.extend(durable.expires_at.map(|at| Obligation::at(at, Job::ExpireCalls)));
        let promote_at = durable.promote_at.filter(|_| !self.canceling);
        obligations.extend(promote_at.map(|at| Obligation::at(at, Job::Promote)));
        if wakes(state) {
            obligations.push(Obligation::now(Job::StartWoken, u64::from(state.subagents.wakes)));
        }
        for task in state.subagents.open() {
            let canceled = task.canceled_at.map(|at| (at, Job::CancelChild(task.key())));
            obligations.extend(canceled.map(|(at, job)| Obligation { job, due: NOW, version: at.0 }));
        }
        // A canceled background task is an obligation of its own.
        let to_cancel = self.to_cancel.iter().filter(|task| state.subagents.open_of(task).is_none()).cloned();
        obligations.extend(to_cancel.map(|task| Obligation::now(Job::CancelChild(task), 0)));
        obligations.extend(durable.status.as_ref().map(|status| {
            let version = hash(&(format!("{:?}", status.status), status.pending.len()));
            Obligation { job: Job::NotifyParent, due: self.status_due(durable, status, now), version }
        }));
        obligations.extend(state.next_webhook().map(|(due, webhook)| {
            let version = hash(&(&webhook.key.turn, &webhook.key.id, webhook.due, due.0));
            Obligation { job: Job::NotifyWebhook, due, version }
        }));
        obligations.extend(self.follow_ups_due(durable));
        obligations.extend(report_due(state, durable.ledger));
        if state.meta.ephemeral && state.status() == SessionStatus::Idle {
            obligations.push(Obligation::at(state.activity.totals.updated_at + DISCARD_AFTER, Job::Discard));
        }
        for name in self.schedule.intervals.iter().filter(|_| !state.meta.ephemeral) {
            let interval = state.background.intervals.get(*name).copied().unwrap_or_default();
            if !interval.stopped {
                obligations.push(Obligation::at(interval.next_at, Job::Tick(name)));
            }
        }
        let is_listed = !state.meta.ephemeral || state.status() == SessionStatus::Waiting;
        let version = state.background.listed_at.0;
        let due = listing_due(state).filter(|_| is_listed);
        obligations.extend(due.map(|due| Obligation { job: Job::List, due, version }));
        obligations
            .extend(durable.inbox.as_ref().map(|calls| Obligation::now(Job::NotifyInbox, hash(calls))));
        obligations.extend(state.background.purge_at.map(|at| Obligation::at(at, Job::Purge)));
        obligations.extend(durable.socket_expires_at.map(|at| Obligation::at(at, Job::CloseSockets)));
        // While an abort cancels the children, their tasks are not sent again.
        for child in durable.children.iter().filter(|_| !self.canceling) {
            // Each process notifies each child at least once, because a child that acknowledged may have lost
            // its session.
            let version = hash(&(&child.call_id, &child.rules));
            let notified = self.notified.get(&child.session).filter(|(own, _)| *own == version);
            let due = match notified {
                Some((_, at)) if child.acknowledged => child.in_background.then(|| *at + CHECK_CHILD),
                _ => Some(NOW),
            };
            let job = Job::NotifyChild(child.session.clone());
            obligations.extend(due.map(|due| Obligation { job, due, version }));
        }
        obligations
    }

    /// Returns the round of follow-ups. It begins with the first one that is requested.
    fn follow_ups_due(&self, durable: &Durable<'_>) -> Option<Obligation> {
        // What an ephemeral session holds is not to be remembered.
        let requested = self.schedule.follow_ups.iter().filter(|_| !durable.state.meta.ephemeral);
        let requested =
            requested.filter_map(|name| Some((name, durable.state.activity.follow_ups.get(*name)?)));
        let (name, first) = requested.into_iter().find(|(_, progress)| progress.is_requested())?;
        let version = hash(&(name, first.requested, first.served, first.seen, first.not_before.0));
        let paced = match first.waiting {
            // From the first request, so that turns in quick succession cannot delay it again and again.
            Some(RequestTimes { first, .. }) if durable.follow_up_at_once => first + AFTER_REPLY,
            Some(RequestTimes { first, last }) => (last + QUIET).min(first + MAX_QUIET),
            None => NOW,
        };
        let paced = if self.needs_follow_ups { NOW } else { paced };
        Some(Obligation { job: Job::FollowUps, due: paced.max(first.not_before), version })
    }

    /// Returns when to notify the parent of the status.
    ///
    /// A new status is sent at once. An acknowledged status is repeated at growing intervals, so that the
    /// child learns that nothing waits for it even if the cancellation was lost.
    fn status_due(&self, durable: &Durable<'_>, status: &ChildStatus, now: Timestamp) -> Timestamp {
        let turn = durable.state.activity.turn.as_ref();
        let repeat = |since: Timestamp| {
            let waiting = turn.and_then(|turn| turn.waiting_since).map_or(Duration::ZERO, |at| now.since(at));
            since + waiting.clamp(WATCHDOG, MAX_RETRY)
        };
        match (&self.acknowledged, turn) {
            (Some((known, at)), _) if known == status => repeat(*at),
            // The response to the parent's message already confirmed that the task started.
            (None, Some(turn)) if status.status == TurnStatus::Running && turn.epoch == 1 => {
                repeat(turn.started_at)
            }
            // The task has not started; the parent sends it again.
            (None, None) if status.status == TurnStatus::Running => repeat(durable.state.meta.created_at),
            _ => NOW,
        }
    }
}

/// Returns the report to the ledger. A slot follows from the state; see [`holds_slot`].
fn report_due(state: &SessionState, dues: LedgerDues) -> Option<Obligation> {
    let LedgerDues { is_starting, unreported, at_once, needs_slots } = dues;
    if is_starting {
        return None;
    }
    let holds = holds_slot(state, needs_slots);
    let slot = match (holds, state.account.slot_until) {
        (true, Some(until)) => Some(until - RENEW_BEFORE),
        (true, None) | (false, Some(_)) => Some(NOW),
        (false, None) => None,
    };
    let usage = unreported.map(|first| match at_once {
        true => NOW,
        false => (state.activity.totals.updated_at + QUIET).min(first + MAX_QUIET),
    });
    let due = slot.into_iter().chain(usage).min()?;
    let version = hash(&(holds, state.account.reported, state.account.slot_until));
    Some(Obligation { job: Job::Report, due, version })
}

/// Returns whether the session must hold a slot: while it runs, and while a subagent of it does. A child runs in the slot
/// of its parent, which therefore keeps it even if it also waits for a person.
pub fn holds_slot(state: &SessionState, needs_slots: bool) -> bool {
    needs_slots && state.child.is_none() && works(state)
}

/// Returns whether a turn of the session, or a subagent of it, works or is about to.
pub fn works(state: &SessionState) -> bool {
    let in_turn = state.activity.turn.as_ref().map_or(!state.activity.queue.is_empty(), TurnState::works);
    in_turn || wakes(state) || state.subagents.open().any(BackgroundTask::works)
}

/// Returns whether finished background tasks start a turn now.
pub fn wakes(state: &SessionState) -> bool {
    let is_idle = state.activity.turn.is_none() && state.activity.queue.is_empty();
    is_idle && !state.meta.ephemeral && state.subagents.wants_turn()
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
