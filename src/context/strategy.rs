//! Keeping what a model is shown of the conversation within its window.

use crate::ports::{CancelToken, Clock, Models};
use crate::session::{Draft, Permit, Session, tokens};
use crate::types::{CompactReason, ContextState, EventKind, Message, ModelRequest, Owner};
use async_trait::async_trait;
use std::{cell::Ref, rc::Rc};

/// How the context of a conversation is kept within bounds. An agent has one, or none.
#[async_trait(?Send)]
pub trait ContextStrategy {
    /// The name, for logs and toggles.
    fn name(&self) -> &'static str;

    /// Before a model call, and before hooks see it: makes the context smaller where the call would have to
    /// do without, or costs too much. Nothing that fails here fails the turn.
    async fn before_call(&self, cx: &ContextHandle);

    /// Makes the context smaller, large or not. Returns whether it is smaller now.
    ///
    /// # Errors
    /// Why it could not.
    async fn make_room(&self, cx: &ContextHandle, reason: CompactReason) -> Result<bool, String>;

    /// Behind a reply: does what the next turn would have to wait for. What fails is tried again behind
    /// the next one.
    async fn after_turn(&self, cx: &ContextHandle);
}

/// What must process messages before they leave the window.
#[async_trait(?Send)]
pub trait BeforeDrop {
    /// Processes the log up to record `until`.
    ///
    /// # Errors
    /// Which work failed, and why; the messages are not processed yet.
    async fn before_drop(&self, cx: &ContextHandle, until: u64) -> Result<(), String>;
}

/// How full a context is, all in tokens by our estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// What a request may have, together with its answer.
    pub window: u64,
    /// What requests have beside the conversation.
    pub fixed: u64,
    /// The conversation.
    pub messages: u64,
}

impl Fill {
    /// What the next request will have.
    pub fn total(&self) -> u64 {
        self.fixed + self.messages
    }

    /// The most that a request may have, so that an answer still fits.
    pub fn limit(&self) -> u64 {
        self.window - (self.window / 8).min(4_096)
    }
}

/// A session's context, to be looked at and made smaller.
#[derive(Clone)]
pub struct ContextHandle {
    /// Whose session it is.
    pub owner: Owner,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// The session's model, as `provider/model`.
    pub model: String,
    pub(crate) session: Rc<Session>,
    /// The turn in which this happens; none behind turns.
    pub(crate) permit: Option<Permit>,
    pub(crate) models: Rc<dyn Models>,
    pub(crate) before: Rc<dyn BeforeDrop>,
    /// What is known to stand in the request beside the conversation, by our estimate.
    pub(crate) fixed: u64,
    pub(crate) cancel: CancelToken,
}

impl ContextHandle {
    /// How full the context is.
    pub fn fill(&self) -> Fill {
        let gauge = self.session.state().gauge.of(&self.model);
        let limits = self.models.limits(&self.model);
        let window =
            if gauge.permille == 0 { limits.estimated_window() } else { gauge.estimated(limits.window) };
        // What overflowed once is beyond the window, whatever is said of it.
        let window = if gauge.too_much == 0 { window } else { window.min(gauge.too_much) };
        Fill { window, fixed: self.fixed.max(gauge.fixed), messages: self.session.context().tokens() }
    }

    /// What decides on what is shown.
    pub fn state(&self) -> Ref<'_, ContextState> {
        Ref::map(self.session.context(), |window| window.state())
    }

    /// The messages that are shown, oldest first, with their tokens by our estimate; what stands for those
    /// before is not among them.
    pub fn messages(&self) -> Vec<(Rc<Message>, u64)> {
        self.session.context().measured()
    }

    /// The session's log and state.
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// The turn that runs, whether this happens in it or beside it.
    pub fn running_turn(&self) -> Option<String> {
        self.session.state().turn.as_ref().map(|turn| turn.id.clone())
    }

    /// How long the turn in which this happens may still take, in milliseconds; none behind turns.
    pub fn left_ms(&self) -> Option<u64> {
        self.permit.as_ref()?;
        let deadline = self.session.state().turn.as_ref()?.deadline;
        Some(deadline.since(self.clock.now()))
    }

    /// Writes records to the log. What they change of the context is seen at once.
    ///
    /// # Errors
    /// When the turn in which this happens is over, the session is gone, or the store breaks.
    pub fn record(&self, kinds: Vec<EventKind>) -> Result<(), String> {
        self.commit(|draft, turn| kinds.into_iter().for_each(|kind| draft.record(turn, kind)))
    }

    /// Writes `cut` to the log, if it follows what is shown: one that was made for a context that is gone is
    /// not written. Returns whether it was. Beside a message that is being streamed it holds from its end on.
    ///
    /// # Errors
    /// See [`ContextHandle::record`].
    pub fn cut(&self, cut: EventKind) -> Result<bool, String> {
        let waits = self.session.state().deferred.iter().any(|(_, kind)| ContextState::is_about(kind));
        let follows = self.state().clone().fold(&cut);
        if !waits && follows {
            self.record(vec![cut])?;
        }
        Ok(!waits && follows)
    }

    /// Changes the session: in the turn in which this happens, or beside turns.
    ///
    /// # Errors
    /// See [`ContextHandle::record`].
    pub(crate) fn commit(&self, draft: impl FnOnce(&mut Draft, Option<&str>)) -> Result<(), String> {
        if self.cancel.is_canceled() {
            return Err("the session is gone".into());
        }
        let now = self.clock.now();
        match &self.permit {
            Some(permit) => {
                let written =
                    self.session.commit_turn(permit, now, |change, _| draft(change, Some(&permit.turn)));
                written.map_err(|error| error.to_string())
            }
            None => self.session.commit(now, |change| draft(change, None)).map_err(|error| error.to_string()),
        }
    }

    /// Has all work that must process messages before they leave the window process the log up to record `until`.
    ///
    /// # Errors
    /// Which work failed, and why.
    pub async fn before_drop(&self, until: u64) -> Result<(), String> {
        self.before.before_drop(self, until).await
    }
}

/// The tokens of a request beside the conversation, by our estimate.
pub fn fixed_tokens(request: &ModelRequest) -> u64 {
    let texts = [&request.system, &request.volatile, &request.tail];
    texts.into_iter().map(|text| tokens::of_text(text)).sum::<u64>() + tokens::of_tools(&request.tools)
}
