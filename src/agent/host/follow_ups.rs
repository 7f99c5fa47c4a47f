//! Runs the follow-ups that turns have requested, until they are done.

use super::SessionHost;
use crate::agent::{
    CancelToken,
    follow_up::{FollowUpContext, Progress},
};
use crate::ports::{StoreError, within};
use crate::session::{
    Draft, Session,
    kernel::{RETRY, backoff},
};
use crate::types::{BoxError, EventKind, FollowUpProgress, Owner, Timestamp};
use std::rc::Rc;
use std::time::Duration;

/// Timeout of one follow-up.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum delay between retries.
const MAX_WAIT: Duration = Duration::from_hours(24);

impl SessionHost {
    /// Runs follow-ups until none is due.
    pub(super) async fn run_follow_ups(
        &self,
        session: &Rc<Session>,
        cancel: &CancelToken,
    ) -> Result<(), StoreError> {
        while self.run_follow_up_round(session, cancel).await? {}
        Ok(())
    }

    /// Runs each follow-up that is due, in the agent's order, and stores their progress in one commit.
    /// Returns whether any was due.
    async fn run_follow_up_round(
        &self,
        session: &Rc<Session>,
        cancel: &CancelToken,
    ) -> Result<bool, StoreError> {
        let mut cx = self.follow_up_context(session, cancel);
        // A turn that ends during the round requests another one, because its records come after `cx.until`.
        let requested = session.state().activity.follow_ups.clone();
        let mut done = Vec::new();
        for follow_up in &self.agent.follow_ups {
            let Some(before) = requested.get(follow_up.name()).filter(|before| before.is_due()) else {
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
                return Ok(false);
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
        let (now, any) = (self.now(), !done.is_empty());
        if any {
            session.commit(now, |draft| {
                done.into_iter()
                    .for_each(|(name, served, result)| progress(draft, name, served, cx.until, result, now));
            })?;
        }
        Ok(any)
    }

    fn follow_up_context(&self, session: &Rc<Session>, cancel: &CancelToken) -> FollowUpContext {
        let state = session.state();
        let meta = &state.meta;
        FollowUpContext {
            owner: Owner { tenant: meta.tenant.clone(), user: meta.user.clone(), agent: meta.agent.clone() },
            session_id: meta.id.clone(),
            created_at: meta.created_at,
            model: meta.model.clone(),
            seen: 0,
            until: session.last_seq(),
            urgent: false,
            uncommitted: Vec::new(),
            clock: Rc::clone(&self.ports.clock),
            session: Rc::clone(session),
            cancel: cancel.clone(),
        }
    }
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
