//! Keeping what a model is shown of the conversation within its window.

use super::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
};
use crate::fault::{self, Fault};
use crate::ports::{Clock, Models};
use crate::session::{Draft, Permit, Session};
use crate::types::{CompactReason, ContextState, EventKind, Message, ModelRequest, Owner, tokens};
use async_trait::async_trait;
use std::{cell::Ref, rc::Rc};

/// Rounds that a work behind turns may take to see what is about to leave the context.
const MAX_ROUNDS: usize = 100;

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

/// A strategy, and what an agent needs to carry it out.
pub(super) struct ContextManager {
    pub strategy: Rc<dyn ContextStrategy>,
    /// What must have seen messages before they leave the context.
    pub before: Rc<[Rc<dyn FollowUp>]>,
    pub models: Rc<dyn Models>,
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
    session: Rc<Session>,
    /// The turn in which this happens; none behind turns.
    permit: Option<Permit>,
    context_manager: Rc<ContextManager>,
    /// What is known to stand in the request beside the conversation, by our estimate.
    fixed: u64,
    cancel: super::CancelToken,
}

impl ContextHandle {
    /// How full the context is.
    pub fn fill(&self) -> Fill {
        let gauge = self.session.state().gauge.of(&self.model);
        let limits = self.context_manager.models.limits(&self.model);
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

    fn commit(&self, draft: impl FnOnce(&mut Draft, Option<&str>)) -> Result<(), String> {
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

    /// Has all that must see messages before they leave the context see the log up to record `until`.
    ///
    /// # Errors
    /// Which of them could not, and why.
    pub async fn before_drop(&self, until: u64) -> Result<(), String> {
        // Nothing is learned from what a subagent was told.
        let learns = self.session.state().meta.parent.is_none() && !fault::active(Fault::DropUnseen);
        for follow_up in self.context_manager.before.iter().filter(|_| learns) {
            let name = follow_up.name();
            for round in 0.. {
                let seen = self.session.state().handovers.get(name).map_or(0, |handover| handover.seen);
                if seen >= until {
                    break;
                }
                if round == MAX_ROUNDS {
                    return Err(format!("{name} does not come to an end"));
                }
                let cx = self.follow_context(seen, until);
                let (seen, records) =
                    match follow_up.run(&cx).await.map_err(|why| format!("{name}: {why}"))? {
                        Progress::Done(records) => (until, records),
                        Progress::UpTo(seen, records) => (seen, records),
                        Progress::NotBefore(at) => {
                            return Err(format!("{name} waits until {}", at.to_rfc3339()));
                        }
                    };
                self.commit(|draft, turn| {
                    let handover = draft.state.handovers.entry(name.to_owned()).or_default();
                    handover.seen = handover.seen.max(seen);
                    records.into_iter().for_each(|kind| draft.record(turn, kind));
                })?;
            }
        }
        Ok(())
    }

    fn follow_context(&self, seen: u64, until: u64) -> FollowUpContext {
        let state = self.session.state();
        FollowUpContext {
            owner: self.owner.clone(),
            session_id: state.meta.id.clone(),
            created_at: state.meta.created_at,
            model: state.meta.model.clone(),
            seen,
            until,
            urgent: true,
            uncommitted: Vec::new(),
            clock: Rc::clone(&self.clock),
            session: Rc::clone(&self.session),
            cancel: self.cancel.clone(),
        }
    }
}

impl ContextManager {
    /// The context of a session, in a turn or behind turns.
    pub fn handle(
        self: &Rc<Self>,
        session: &Rc<Session>,
        clock: &Rc<dyn Clock>,
        permit: Option<Permit>,
        fixed: u64,
    ) -> ContextHandle {
        let state = session.state();
        let meta = &state.meta;
        ContextHandle {
            owner: Owner { tenant: meta.tenant.clone(), user: meta.user.clone(), agent: meta.agent.clone() },
            clock: Rc::clone(clock),
            model: meta.model.clone().unwrap_or_else(|| self.models.default_model()),
            session: Rc::clone(session),
            permit,
            context_manager: Rc::clone(self),
            fixed,
            cancel: super::CancelToken::default(),
        }
    }

    /// The context of the turn at hand, whose request has so many tokens beside the conversation.
    pub fn in_turn(self: &Rc<Self>, cx: &RuntimeContext, fixed: u64) -> ContextHandle {
        self.handle(&cx.session, &cx.clock, Some(cx.permit.clone()), fixed)
    }
}

/// The tokens of a request beside the conversation, by our estimate.
pub(super) fn fixed_tokens(request: &ModelRequest) -> u64 {
    let texts = [&request.system, &request.volatile, &request.tail];
    texts.into_iter().map(|text| tokens::of_text(text)).sum::<u64>() + tokens::of_tools(&request.tools)
}

/// Lets the strategy look behind each turn.
pub(super) struct Precompact(pub Rc<ContextManager>);

#[async_trait(?Send)]
impl FollowUp for Precompact {
    fn name(&self) -> &'static str {
        "context_ahead"
    }

    fn priority(&self) -> i32 {
        10
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, String> {
        let mut handle = self.0.handle(&cx.session, &cx.clock, None, 0);
        handle.cancel = cx.cancel.clone();
        cx.unless_canceled(self.0.strategy.after_turn(&handle)).await?;
        Ok(Progress::Done(Vec::new()))
    }
}
