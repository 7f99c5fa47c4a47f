//! Follow-ups: work that runs after the reply until it is done.

use super::{
    CancelToken, Hook, RuntimeContext,
    hook::{HookEvent, OnError, PostCall, SubStepError},
};
use crate::ports::{Clock, session_store::Select};
use crate::session::{Draft, Session};
use crate::types::{BoxError, EventKind, Owner, Record, SessionId, StorageQuota, Timestamp, WorkspaceOwner};
use async_trait::async_trait;
use futures::{
    future::{Either, select},
    pin_mut,
};
use std::rc::Rc;

/// The progress of a follow-up. Its records are committed together with the progress.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// It is done up to the end of the log.
    Done(Vec<EventKind>),
    /// It is done up to this sequence number, and has more to do.
    UpTo(u64, Vec<EventKind>),
    /// It must not run before this time. Follow-ups after it wait as well.
    NotBefore(Timestamp),
}

/// Work that a turn leaves to be done after the reply, such as indexing its messages.
///
/// A hook of the same name requests it in the commit that ends the turn, so that no request is lost. All
/// requested follow-ups of a session run in one round, one after the other: two seconds after the last turn that
/// ended, but at most ten seconds after the first. A follow-up that fails is retried until it succeeds. One that
/// an eviction interrupted runs again, so it must be idempotent.
///
/// ```
/// use edge_harness::agent::{FollowUp, follow_up::{FollowUpContext, Progress}};
/// use edge_harness::{testkit::TestSession, types::BoxError};
///
/// /// Sends new messages to an archive.
/// struct Archive;
///
/// #[async_trait::async_trait(?Send)]
/// impl FollowUp for Archive {
///     fn name(&self) -> &'static str { "archive" }
///
///     async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
///         let turns = cx.newest(&["turn.started"], 100)?;
///         // Send `turns` here. They have ids, so the archive can ignore those that it already has.
///         Ok(Progress::Done(Vec::new()))
///     }
/// }
///
/// let session = TestSession::new(|agent| agent.follow_up(Archive));
/// assert_eq!(session.ask("/say Hello."), "Hello.");
/// ```
#[async_trait(?Send)]
pub trait FollowUp {
    /// Returns the name, for logs and for
    /// [`HarnessBuilder::without_hook`](super::HarnessBuilder::without_hook).
    fn name(&self) -> &'static str;

    /// Returns the priority of the hook that requests it.
    fn priority(&self) -> i32 {
        0
    }

    /// Returns whether a turn that ends leaves work for it. By default, all turns do but those of subagents, whose messages
    /// come from the parent and not from the user.
    fn is_due(&self, cx: &RuntimeContext) -> bool {
        !cx.is_subagent()
    }

    /// Returns whether it also runs after failed turns.
    fn runs_after_failure(&self) -> bool {
        true
    }

    /// Returns whether it must process messages before they leave the context window. It then also runs when
    /// messages are about to leave, and must not postpone itself; see [`FollowUpContext::urgent`].
    fn before_drop(&self) -> bool {
        false
    }

    /// Returns whether it should run right after the turn that requested it, because the next turn would
    /// otherwise be slower. The other requested follow-ups then run as well.
    fn runs_at_once(&self, _cx: &FollowUpContext) -> bool {
        false
    }

    /// Processes the records that it has not processed yet.
    ///
    /// # Errors
    /// The reason of the failure. The follow-up is retried with growing delays.
    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError>;

    /// Deletes the data that it stored for a session, which worked on this workspace. Returns whether there was any.
    ///
    /// # Errors
    /// The reason of the failure; the erasure is then retried.
    async fn erase(&self, _workspace: &WorkspaceOwner, _session: &SessionId) -> Result<bool, BoxError> {
        Ok(false)
    }
}

/// The hook that requests a follow-up after each turn.
pub(super) struct FollowUpHook(pub Rc<dyn FollowUp>);

impl FollowUpHook {
    fn draft(&self, draft: &mut Draft, cx: &RuntimeContext) -> Result<(), SubStepError> {
        if self.0.is_due(cx) {
            draft.request_follow_up(self.0.name(), cx.clock.now());
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

    fn post_call(&self, event: &mut PostCall<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.draft(event.draft.whole(), cx)
    }

    fn on_error(&self, event: &mut OnError<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.draft(event.draft.whole(), cx)
    }
}

/// The session as a follow-up sees it.
pub struct FollowUpContext {
    /// The tenant, user and agent of the session.
    pub owner: Owner,
    /// The workspace that the session works on.
    pub workspace: WorkspaceOwner,
    /// The session's id.
    pub session_id: SessionId,
    /// When the session was created.
    pub created_at: Timestamp,
    /// The session's model, if it overrides the default.
    pub model: Option<String>,
    /// Sequence number of the last record that was processed.
    pub seen: u64,
    /// Sequence number of the last record to process: those of the current turn are not included.
    pub until: u64,
    /// Whether messages are about to leave the context window.
    pub urgent: bool,
    /// Records of earlier follow-ups of the same round, not committed yet.
    pub uncommitted: Vec<EventKind>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    pub(super) session: Rc<Session>,
    pub(super) cancel: CancelToken,
}

impl FollowUpContext {
    /// Returns the newest unprocessed records of these kinds, oldest first: at most `limit`, and at most a page
    /// ([`PAGE_BYTES`](crate::ports::session_store::PAGE_BYTES)).
    ///
    /// # Errors
    /// If the store fails.
    pub fn newest(&self, kinds: &[&str], limit: usize) -> Result<Vec<Record>, BoxError> {
        let (mut records, _) = self.select(self.seen, kinds, limit, true)?;
        records.reverse();
        Ok(records)
    }

    /// Returns the oldest unprocessed records of these kinds with a sequence number above `after`: at most `limit`,
    /// and at most a page ([`PAGE_BYTES`](crate::ports::session_store::PAGE_BYTES)). Also returns whether there are more.
    ///
    /// # Errors
    /// If the store fails.
    pub fn oldest(&self, after: u64, kinds: &[&str], limit: usize) -> Result<(Vec<Record>, bool), BoxError> {
        self.select(after.max(self.seen), kinds, limit, false)
    }

    fn select(
        &self,
        after: u64,
        kinds: &[&str],
        limit: usize,
        newest_first: bool,
    ) -> Result<(Vec<Record>, bool), BoxError> {
        let before = Some(self.until.saturating_add(1));
        let select = Select { after, before, kinds, limit, newest_first, turn: None };
        Ok(self.session.page(select)?)
    }

    /// Returns the time of the last record of this kind.
    ///
    /// # Errors
    /// If the store fails.
    pub fn last_of(&self, kind: &str) -> Result<Option<Timestamp>, BoxError> {
        let select = Select { kinds: &[kind], newest_first: true, ..Select::default() };
        Ok(self.session.first(select)?.map(|record| record.at))
    }

    /// Returns the progress of a follow-up that cannot store what it should, because the tenant has reached a limit. It
    /// skips the records, and adds a record of it unless one of the last has the same reason.
    ///
    /// # Errors
    /// If the store fails.
    pub fn skipped(&self, follow_up: &str, quota: StorageQuota) -> Result<Progress, BoxError> {
        let reason = quota.to_string();
        let select = Select { kinds: &["turn.sub_step_failed"], newest_first: true, ..Select::default() };
        let is_same = |record: &Record| match &record.kind {
            EventKind::SubStepFailed { step, reason: known } => step == follow_up && *known == reason,
            _ => false,
        };
        let last: Vec<Record> = self.session.records(select).take(10).collect::<Result<_, _>>()?;
        if last.iter().any(is_same) {
            return Ok(Progress::Done(Vec::new()));
        }
        Ok(Progress::Done(vec![EventKind::SubStepFailed { step: follow_up.to_owned(), reason }]))
    }

    /// Checks that the session still exists. Call it right before each write to another store.
    ///
    /// # Errors
    /// If the session was erased or this copy of it is retired.
    pub fn ensure_active(&self) -> Result<(), BoxError> {
        if self.cancel.is_canceled() || self.session.is_retired() { Err(GONE.into()) } else { Ok(()) }
    }

    /// Runs `work`, and drops it if the session is erased. The work must be safe to drop at any await.
    ///
    /// # Errors
    /// If the session was erased first.
    pub async fn unless_canceled<T>(&self, work: impl Future<Output = T>) -> Result<T, BoxError> {
        let over = self.cancel.canceled();
        pin_mut!(work, over);
        match select(work, over).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(GONE.into()),
        }
    }
}

const GONE: &str = "the session was erased";
