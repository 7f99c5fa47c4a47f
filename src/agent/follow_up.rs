//! Work behind turns: nobody waits for it, and in the end it is done.

use super::{
    CancelToken, Hook, RuntimeContext,
    hook::{HookEvent, OnError, PostCall, SubStepError},
};
use crate::ports::{Clock, session_store::Select};
use crate::session::{Draft, Session};
use crate::types::{EventKind, Owner, Record, Timestamp};
use async_trait::async_trait;
use futures::{
    future::{Either, select},
    pin_mut,
};
use std::rc::Rc;

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// It is done for all that the log held. These go to the log, in the commit that says so.
    Done(Vec<EventKind>),
    /// It is done up to the record of this number, and goes on. These go to the log.
    UpTo(u64, Vec<EventKind>),
    /// It is not to be done before this. What stands behind it in the order waits as well.
    NotBefore(Timestamp),
}

/// What is left to do when a turn is over, such as keeping what was said where it can be found.
///
/// A hook of the same name asks for it in the commit that ends the turn; so it is not forgotten. It is
/// tried until it succeeds, one session's works one after the other, each also
/// again when the machine went away in the middle: doing it twice must be as good as once.
#[async_trait(?Send)]
pub trait FollowUp {
    /// The name, for logs and toggles.
    fn name(&self) -> &'static str;

    /// The priority of the hook that asks for it.
    fn priority(&self) -> i32 {
        0
    }

    /// Whether it follows turns that failed, too.
    fn runs_after_failure(&self) -> bool {
        true
    }

    /// Whether it must have seen messages before they leave the context. It is then also done when they are
    /// about to, and does not wait for anything ([`FollowUpContext::urgent`]).
    fn before_drop(&self) -> bool {
        false
    }

    /// Does it for the records of the log that it has not seen.
    ///
    /// # Errors
    /// Why it could not be done now. It is tried again, less and less often.
    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, String>;

    /// Removes what it has kept of a session, and tells whether there was anything.
    ///
    /// # Errors
    /// Why it could not; the erasure is tried again then.
    async fn erase(&self, _owner: &Owner, _session: &str) -> Result<bool, String> {
        Ok(false)
    }
}

/// The hook that asks for a work behind each turn.
pub(super) struct FollowUpHook(pub Rc<dyn FollowUp>);

impl FollowUpHook {
    fn draft(&self, draft: &mut Draft) -> Result<(), SubStepError> {
        // What a subagent was told is nothing that the user has said.
        if draft.state.meta.parent.is_none() {
            draft.request_follow_up(self.0.name());
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl Hook for FollowUpHook {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn events(&self) -> &'static [HookEvent] {
        if self.0.runs_after_failure() {
            &[HookEvent::PostCall, HookEvent::Error]
        } else {
            &[HookEvent::PostCall]
        }
    }

    fn priority(&self) -> i32 {
        self.0.priority()
    }

    fn post_call(&self, event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.draft(event.draft)
    }

    fn on_error(&self, event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.draft(event.draft)
    }
}

/// What work behind a turn knows.
pub struct FollowUpContext {
    /// Whose session it is.
    pub owner: Owner,
    /// The session's id.
    pub session_id: String,
    /// When the session was made.
    pub created_at: Timestamp,
    /// The session's model, where it has one of its own.
    pub model: Option<String>,
    /// The number of the last record that was seen.
    pub seen: u64,
    /// The number of the last record that is to be seen.
    pub until: u64,
    /// Whether messages wait to leave the context.
    pub urgent: bool,
    /// What works before this one have to tell, of the same round: the log does not hold it yet.
    pub uncommitted: Vec<EventKind>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    pub(super) session: Rc<Session>,
    pub(super) cancel: CancelToken,
}

impl FollowUpContext {
    /// The records that are to be seen, of these kinds; the newest `limit` of them, oldest first.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn newest(&self, kinds: &[&str], limit: usize) -> Result<Vec<Record>, String> {
        let mut records = self.select(self.seen, kinds, limit, true)?;
        records.reverse();
        Ok(records)
    }

    /// The records that are to be seen behind the number `after`, of these kinds; the oldest `limit` of
    /// them.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn oldest(&self, after: u64, kinds: &[&str], limit: usize) -> Result<Vec<Record>, String> {
        self.select(after.max(self.seen), kinds, limit, false)
    }

    fn select(
        &self,
        after: u64,
        kinds: &[&str],
        limit: usize,
        newest_first: bool,
    ) -> Result<Vec<Record>, String> {
        let before = Some(self.until.saturating_add(1));
        let select = Select { after, before, kinds, limit, newest_first, turn: None };
        self.session.records(select).map_err(|error| error.to_string())
    }

    /// When a record of this kind was last written.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn last_of(&self, kind: &str) -> Result<Option<Timestamp>, String> {
        let select = Select { kinds: &[kind], limit: 1, newest_first: true, ..Select::default() };
        let records = self.session.records(select).map_err(|error| error.to_string())?;
        Ok(records.first().map(|record| record.at))
    }

    /// Whether the session is still there. Ask right before each write to another store.
    ///
    /// # Errors
    /// When it is not.
    pub fn ensure_active(&self) -> Result<(), String> {
        if self.cancel.is_canceled() || self.session.is_retired() { Err(GONE.into()) } else { Ok(()) }
    }

    /// Runs work that leaves nothing half done: dropped when the session goes.
    ///
    /// # Errors
    /// When the session went first.
    pub async fn unless_canceled<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        let over = self.cancel.canceled();
        pin_mut!(work, over);
        match select(work, over).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(GONE.into()),
        }
    }
}

const GONE: &str = "the session is gone";
