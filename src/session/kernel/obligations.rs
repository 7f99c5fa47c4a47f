//! What follows from a session's state: the jobs that it owes, and when each is due.

use super::{Durable, Job, LISTING_MS, MAX_RETRY_MS, SessionKernel, WATCHDOG_MS};
use crate::types::{ChildStatus, Timestamp, TurnStatus};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A job, when it is due, and the version of the obligation: when that changes, the job has made progress, and earlier
/// failures do not delay it.
pub(super) type Obligation = (Job, Timestamp, u64);

/// Due at once.
const NOW: Timestamp = Timestamp(0);

impl SessionKernel {
    /// All jobs that the session owes, due or not.
    pub(super) fn obligations(&self, durable: &Durable<'_>, now: Timestamp) -> Vec<Obligation> {
        let state = durable.state;
        let mut owed: Vec<Obligation> = Vec::new();
        if let (None, Some(next)) = (&state.turn, state.queue.first()) {
            owed.push((Job::StartQueued, NOW, hash(next)));
        }
        owed.extend(self.orphan.as_ref().map(|orphan| (Job::RecoverTurn, NOW, u64::from(orphan.epoch))));
        owed.extend(durable.expires_at.map(|at| (Job::ExpireCalls, at, at.0)));
        owed.extend(self.to_cancel.iter().map(|child| (Job::CancelChild(child.clone()), NOW, 0)));
        owed.extend(durable.status.as_ref().map(|status| {
            let version = hash(&(format!("{:?}", status.status), status.pending.len()));
            (Job::NotifyParent, self.status_due(durable, status, now), version)
        }));
        owed.extend(self.follow_ups_due(durable));
        for name in &self.schedule.intervals {
            let interval = state.intervals.get(*name).copied().unwrap_or_default();
            if !interval.stopped {
                owed.push((Job::Tick(name), interval.next_at, interval.next_at.0));
            }
        }
        let out_of_date = state.turn.is_none() && state.meta.updated_at.since(state.listed_at) > LISTING_MS;
        if state.listed_at == Timestamp(0) || out_of_date {
            owed.push((Job::List, NOW, state.listed_at.0));
        }
        owed.extend(state.purge_at.map(|at| (Job::Purge, at, at.0)));
        // While an abort cancels the children, none of them gets its task again.
        for child in durable.children.iter().filter(|_| !self.canceling) {
            // Each process notifies each child once, also one that has acknowledged: it may have lost its session.
            let version = hash(&child.rules);
            let notified = self.notified.get(&child.session) == Some(&version);
            if !child.knows || !notified {
                owed.push((Job::NotifyChild(child.session.clone()), NOW, version));
            }
        }
        owed
    }

    /// The follow-up that is due first; those behind it in the order wait for it.
    fn follow_ups_due(&self, durable: &Durable<'_>) -> Option<Obligation> {
        let requested = self.schedule.follow_ups.iter();
        let requested = requested.filter_map(|name| Some((name, durable.state.follow_ups.get(*name)?)));
        let (name, first) = requested.into_iter().find(|(_, progress)| progress.is_due())?;
        let version = hash(&(name, first.asked, first.answered, first.seen, first.not_before.0));
        Some((Job::FollowUps, first.not_before, version))
    }

    /// When the parent has to be notified of the status.
    ///
    /// News at once. A status that it knows is repeated at growing intervals: so a child learns that nothing waits
    /// for it any more, should the message that cancels it be lost.
    fn status_due(&self, durable: &Durable<'_>, status: &ChildStatus, now: Timestamp) -> Timestamp {
        let turn = durable.state.turn.as_ref();
        let repeat = |since: Timestamp| {
            let waiting = turn.and_then(|turn| turn.waiting_since).map_or(0, |at| now.since(at));
            since.plus(waiting.clamp(WATCHDOG_MS, MAX_RETRY_MS))
        };
        match (&self.acknowledged, turn) {
            (Some((known, at)), _) if known == status => repeat(*at),
            // That the task was begun is known to the parent from the answer to its own message.
            (None, Some(turn)) if status.status == TurnStatus::Running && turn.epoch == 1 => {
                repeat(turn.started_at)
            }
            _ => NOW,
        }
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
