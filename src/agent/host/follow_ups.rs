//! Runs the follow-ups that turns have requested, until they are done.

use super::SessionHost;
use crate::agent::{
    CancelToken, FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use crate::ports::{StoreError, within};
use crate::session::{
    Draft, Session,
    kernel::{Input, Job, RETRY, backoff},
};
use crate::types::{BoxError, EventKind, FollowUpProgress, RequestTimes, Timestamp};
use std::rc::Rc;
use std::time::Duration;

/// Timeout of one follow-up.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum delay between retries.
const MAX_WAIT: Duration = Duration::from_hours(24);

impl SessionHost {
    /// Returns whether a requested follow-up should run at once. None should during a turn, which
    /// has begun without it.
    pub(super) fn has_follow_up_at_once(&self, session: &Rc<Session>) -> bool {
        if session.state().activity.turn.is_some() {
            return false;
        }
        let is_requested = |follow_up: &&Rc<dyn FollowUp>| {
            let state = session.state();
            state.activity.follow_ups.get(follow_up.name()).is_some_and(FollowUpProgress::is_requested)
        };
        let agent = self.agent();
        let mut requested = agent.follow_ups.iter().filter(is_requested).peekable();
        if requested.peek().is_none() {
            return false;
        }
        let cx = self.follow_up_context(session, &CancelToken::default());
        requested.any(|follow_up| follow_up.runs_at_once(&cx))
    }

    /// Runs the follow-ups requested so far without waiting for more turns. Returns when they are done, have
    /// failed, or have postponed themselves.
    pub async fn finish_follow_ups(self: &Rc<Self>, session: &Rc<Session>) {
        let requested = |progress: &FollowUpProgress| progress.is_requested().then_some(progress.requested);
        let wanted: Vec<(String, u64)> = {
            let state = session.state();
            let progress = state.activity.follow_ups.iter();
            progress.filter_map(|(name, progress)| Some((name.clone(), requested(progress)?))).collect()
        };
        let is_outstanding = || {
            let state = session.state();
            let served =
                |name: &String| state.activity.follow_ups.get(name).map_or(0, |progress| progress.served);
            wanted.iter().any(|(name, requested)| served(name) < *requested)
        };
        if !wanted.is_empty() {
            self.handle(Input::NeedFollowUps);
        }
        // A round that was already running may not include them all.
        while is_outstanding() && self.await_job(&Job::FollowUps).await {}
    }

    /// Runs each requested follow-up, in the agent's order, and stores their progress in one commit.
    pub(super) async fn run_follow_ups(
        &self,
        session: &Rc<Session>,
        cancel: &CancelToken,
    ) -> Result<(), StoreError> {
        let mut cx = self.follow_up_context(session, cancel);
        // A turn that ends during the round requests another one: its records come after `cx.until`.
        let requested = session.state().activity.follow_ups.clone();
        let mut done = Vec::new();
        for follow_up in &self.agent().follow_ups {
            let Some(before) = requested.get(follow_up.name()).filter(|before| before.is_requested()) else {
                continue;
            };
            if before.not_before > self.now() {
                break;
            }
            // A compaction may have advanced it during the round.
            cx.seen =
                session.state().activity.follow_ups.get(follow_up.name()).map_or(0, |progress| progress.seen);
            let result = within(self.ports.clock.as_ref(), TIMEOUT, follow_up.run(&cx)).await;
            let result = result.unwrap_or_else(|unfinished| Err(unfinished.into()));
            if cancel.is_canceled() {
                return Ok(());
            }
            if let Ok(Progress::Done(records) | Progress::UpTo(_, records)) = &result {
                cx.uncommitted.extend_from_slice(records);
            }
            // Later follow-ups rely on its result.
            let is_done = matches!(result, Ok(Progress::Done(_)));
            done.push((follow_up.name(), before.requested, result));
            if !is_done {
                break;
            }
        }
        let now = self.now();
        session.commit(now, |draft| {
            done.into_iter()
                .for_each(|(name, served, result)| progress(draft, name, served, cx.until, result, now));
        })
    }

    fn follow_up_context(&self, session: &Rc<Session>, cancel: &CancelToken) -> FollowUpContext {
        let state = session.state();
        let meta = &state.meta;
        FollowUpContext {
            owner: meta.owner(),
            workspace: meta.workspace(),
            session_id: meta.id.clone(),
            created_at: meta.created_at,
            model: meta.model.clone(),
            seen: 0,
            until: last_completed(session),
            urgent: false,
            uncommitted: Vec::new(),
            clock: Rc::clone(&self.ports.clock),
            session: Rc::clone(session),
            cancel: cancel.clone(),
        }
    }
}

/// Returns the sequence number of the last record before the current turn, or of the log.
fn last_completed(session: &Session) -> u64 {
    let turn = session.current_turn();
    let started = turn.and_then(|turn| {
        let messages = session.messages();
        let own = messages.iter().filter(|message| message.turn == turn);
        own.map(|message| message.seq).min()
    });
    started.map_or_else(|| session.last_seq(), |started| started.saturating_sub(1))
}

/// Drafts the progress of a follow-up.
fn progress(
    draft: &mut Draft,
    name: &str,
    served: u64,
    until: u64,
    result: Result<Progress, BoxError>,
    now: Timestamp,
) {
    let state = draft.follow_up_mut(name);
    match result {
        Ok(Progress::Done(records)) => {
            *state = FollowUpProgress {
                requested: state.requested,
                served,
                // Turns that ended during the round have requested it again.
                waiting: state
                    .waiting
                    .filter(|_| state.requested > served)
                    .map(|RequestTimes { last, .. }| RequestTimes { first: last, last }),
                seen: until.max(state.seen),
                ..FollowUpProgress::default()
            };
            records.into_iter().for_each(|kind| draft.record(None, kind));
        }
        Ok(Progress::UpTo(seen, records)) => {
            *state = FollowUpProgress {
                seen: seen.max(state.seen),
                failed: 0,
                not_before: Timestamp(0),
                ..*state
            };
            records.into_iter().for_each(|kind| draft.record(None, kind));
        }
        Ok(Progress::NotBefore(at)) => state.not_before = at.max(now + RETRY),
        Err(error) => {
            state.failed += 1;
            state.not_before = now + backoff(state.failed, MAX_WAIT);
            if state.failed == 1 {
                // Only the first failure in a row is recorded.
                draft.record(
                    None,
                    EventKind::SubStepFailed { step: name.to_owned(), reason: error.to_string() },
                );
            }
        }
    }
}
