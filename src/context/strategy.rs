//! The interface between an agent and the strategy that keeps a conversation within the model's window.

use crate::model::one_shot::Spent;
use crate::ports::{CancelToken, Clock, Models};
use crate::session::{Draft, Permit, Session, window::ContextState};
use crate::types::{BoxError, CompactReason, EventKind, Message, Owner, TurnId};
use async_trait::async_trait;
use std::time::Duration;
use std::{cell::Ref, rc::Rc};

/// Keeps a conversation within the model's window. An agent has at most one strategy.
///
/// ```
/// use edge_harness::context::{ContextHandle, ContextStrategy};
/// use edge_harness::{testkit::TestSession, types::{BoxError, CompactReason}};
///
/// /// Keeps the whole conversation, and fails a turn whose request is too long.
/// struct KeepAll;
///
/// #[async_trait::async_trait(?Send)]
/// impl ContextStrategy for KeepAll {
///     fn name(&self) -> &'static str { "keep_all" }
///     async fn before_call(&self, _cx: &ContextHandle) {}
///     async fn make_room(&self, _cx: &ContextHandle, _reason: CompactReason) -> Result<bool, BoxError> { Ok(false) }
///     fn has_work(&self, _cx: &ContextHandle) -> bool { false }
///     async fn after_turn(&self, _cx: &ContextHandle) {}
/// }
///
/// let session = TestSession::new(|agent| agent.context_strategy(KeepAll));
/// assert_eq!(session.ask("/say Hello."), "Hello.");
/// ```
#[async_trait(?Send)]
pub trait ContextStrategy {
    /// Returns the name, for logs and toggles.
    fn name(&self) -> &'static str;

    /// Reduces the context before a model call, and before hooks receive it, if it is too large or too
    /// expensive. A failure here does not fail the turn.
    async fn before_call(&self, cx: &ContextHandle);

    /// Reduces the context regardless of its size. Returns whether it is smaller than before.
    ///
    /// # Errors
    /// Returns why the context could not be reduced.
    async fn make_room(&self, cx: &ContextHandle, reason: CompactReason) -> Result<bool, BoxError>;

    /// Returns whether [`ContextStrategy::after_turn`] has work to do. It is called often, so it must be cheap.
    fn has_work(&self, cx: &ContextHandle) -> bool;

    /// Does work after a reply that the next turn would otherwise wait for. Work that fails is retried after
    /// the next reply.
    async fn after_turn(&self, cx: &ContextHandle);
}

/// Work that must process messages before they leave the window.
///
/// ```
/// # use edge_harness::context::{BeforeDrop, ContextHandle};
/// # use edge_harness::types::BoxError;
/// /// Hides the messages up to record `until` if nothing needs them any more.
/// async fn hide(work: &dyn BeforeDrop, cx: &ContextHandle, until: u64) -> Result<(), BoxError> {
///     work.before_drop(cx, until).await?;
///     // Add a cut here, with `cx.cut`.
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait BeforeDrop {
    /// Processes the log up to record `until`.
    ///
    /// # Errors
    /// Returns which work failed, and why. The messages are not processed yet.
    async fn before_drop(&self, cx: &ContextHandle, until: u64) -> Result<(), BoxError>;
}

/// How full a context is, in estimated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Maximum of a request and its response together.
    pub window: u64,
    /// Tokens of a request that are not part of the conversation.
    pub fixed: u64,
    /// Tokens of the conversation.
    pub messages: u64,
}

impl Fill {
    /// Returns the tokens of the next request.
    pub fn total(&self) -> u64 {
        self.fixed + self.messages
    }

    /// Returns the maximum of a request that leaves room for a response.
    pub fn limit(&self) -> u64 {
        self.window - (self.window / 8).min(4_096)
    }
}

/// Access to a session's context, to inspect and reduce it.
#[derive(Clone)]
pub struct ContextHandle {
    /// Owner of the session.
    pub owner: Owner,
    /// Clock for deadlines and records.
    pub clock: Rc<dyn Clock>,
    /// Model of the session, as `provider/model`.
    pub model: String,
    pub(crate) session: Rc<Session>,
    /// Permit of the current turn; `None` after turns.
    pub(crate) permit: Option<Permit>,
    pub(crate) models: Rc<dyn Models>,
    pub(crate) before: Rc<dyn BeforeDrop>,
    /// Known part of the request that is not part of the conversation, in estimated tokens.
    pub(crate) fixed: u64,
    pub(crate) cancel: CancelToken,
    /// The name of the strategy, for records of usage.
    pub(crate) purpose: &'static str,
    /// What the strategy's model calls consumed since the last commit, which records it.
    pub(crate) spent: Rc<Spent>,
}

impl ContextHandle {
    /// Returns how full the context is.
    pub fn fill(&self) -> Fill {
        let gauge = self.session.state().activity.gauge.of(&self.model);
        let limits = self.models.limits(&self.model);
        let window =
            if gauge.permille == 0 { limits.estimated_window() } else { gauge.estimated(limits.window) };
        // A size that overflowed once exceeds the window, regardless of the configured size.
        let window = if gauge.too_much == 0 { window } else { window.min(gauge.too_much) };
        Fill { window, fixed: self.fixed.max(gauge.fixed), messages: self.session.context().tokens() }
    }

    /// Returns the state that determines which messages are shown.
    pub fn state(&self) -> Ref<'_, ContextState> {
        Ref::map(self.session.context(), |window| window.state())
    }

    /// Returns the shown messages, oldest first, with their estimated tokens. The summary or notes that replace
    /// earlier messages are not included.
    pub fn messages(&self) -> Vec<(Rc<Message>, u64)> {
        self.session.context().measured()
    }

    /// Returns the session's log and state.
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Returns the id of the running turn, which may be another one than the turn of this handle.
    pub fn running_turn(&self) -> Option<TurnId> {
        self.session.current_turn()
    }

    /// Returns the remaining time of the turn; `None` after turns.
    pub fn time_left(&self) -> Option<Duration> {
        self.permit.as_ref()?;
        let deadline = self.session.state().activity.turn.as_ref()?.deadline;
        Some(deadline.since(self.clock.now()))
    }

    /// Appends records to the log. Their effect on the context is visible immediately.
    ///
    /// # Errors
    /// Returns an error when the turn has ended, the session was retired, or the store fails.
    pub fn record(&self, kinds: Vec<EventKind>) -> Result<(), BoxError> {
        self.commit(|draft, turn| kinds.into_iter().for_each(|kind| draft.record(turn, kind)))
    }

    /// Appends `cut` to the log if it still applies to the current context and no other cut is deferred. Returns
    /// whether it was appended. While a message is streamed, the record takes effect at the end of the message.
    ///
    /// # Errors
    /// See [`ContextHandle::record`].
    pub fn cut(&self, cut: EventKind) -> Result<bool, BoxError> {
        let waits =
            self.session.state().activity.deferred.iter().any(|(_, kind)| ContextState::is_about(kind));
        let follows = self.state().clone().fold(&cut);
        if !waits && follows {
            self.record(vec![cut])?;
        }
        Ok(!waits && follows)
    }

    /// Commits a change of the session: within the turn of this handle, or outside turns.
    ///
    /// # Errors
    /// See [`ContextHandle::record`].
    pub(crate) fn commit(&self, draft: impl FnOnce(&mut Draft, Option<&TurnId>)) -> Result<(), BoxError> {
        if self.cancel.is_canceled() {
            return Err("the session was retired".into());
        }
        let now = self.clock.now();
        let spent = self.spent.take();
        let draft = |change: &mut Draft, turn: Option<&TurnId>| {
            draft(change, turn);
            spent.into_iter().for_each(|call| change.record(turn, call.event(self.purpose)));
        };
        match &self.permit {
            Some(permit) => {
                self.session.commit_turn(permit, now, |change, _| draft(change, Some(&permit.turn)))?;
            }
            None => self.session.commit(now, |change| draft(change, None))?,
        }
        Ok(())
    }

    /// Runs the work that must process messages before they leave the window, up to record `until`.
    ///
    /// # Errors
    /// Returns which work failed, and why.
    pub async fn before_drop(&self, until: u64) -> Result<(), BoxError> {
        self.before.before_drop(self, until).await
    }
}
