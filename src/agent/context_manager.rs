//! Connects an agent to its context strategy.

use super::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
};
use crate::context::{BeforeDrop, ContextHandle, ContextStrategy};
use crate::ports::{CancelToken, Clock, Models};
use crate::session::{Permit, Session};
use crate::types::BoxError;
use async_trait::async_trait;
use std::rc::Rc;

/// Maximum number of rounds in which one follow-up may process messages that are about to leave the context.
const MAX_ROUNDS: usize = 100;

/// A context strategy, the follow-ups that run before it drops messages, and the models that it uses.
pub(super) struct ContextManager {
    pub strategy: Rc<dyn ContextStrategy>,
    /// The follow-ups that must process messages before they leave the context.
    pub before: Rc<[Rc<dyn FollowUp>]>,
    pub models: Rc<dyn Models>,
}

#[async_trait(?Send)]
impl BeforeDrop for ContextManager {
    async fn before_drop(&self, cx: &ContextHandle, until: u64) -> Result<(), BoxError> {
        // No follow-up processes a subagent's messages, because they come from its parent.
        let learns = cx.session.state().meta.parent.is_none();
        for follow_up in self.before.iter().filter(|_| learns) {
            let name = follow_up.name();
            for round in 0.. {
                let seen =
                    cx.session.state().activity.follow_ups.get(name).map_or(0, |progress| progress.seen);
                if seen >= until {
                    break;
                }
                if round == MAX_ROUNDS {
                    return Err(format!("{name} has not finished after {MAX_ROUNDS} rounds").into());
                }
                let work = follow_up_context(cx, seen, until);
                let (seen, records) =
                    match follow_up.run(&work).await.map_err(|why| format!("{name}: {why}"))? {
                        Progress::Done(records) => (until, records),
                        Progress::UpTo(seen, records) => (seen, records),
                        Progress::NotBefore(at) => {
                            return Err(format!("{name} waits until {}", at.to_rfc3339()).into());
                        }
                    };
                cx.commit(|draft, turn| {
                    let progress = draft.follow_up_mut(name);
                    progress.seen = progress.seen.max(seen);
                    records.into_iter().for_each(|kind| draft.record(turn, kind));
                })?;
            }
        }
        Ok(())
    }
}

fn follow_up_context(cx: &ContextHandle, seen: u64, until: u64) -> FollowUpContext {
    let state = cx.session.state();
    FollowUpContext {
        owner: cx.owner.clone(),
        workspace: state.meta.workspace(),
        session_id: state.meta.id.clone(),
        created_at: state.meta.created_at,
        model: state.meta.model.clone(),
        seen,
        until,
        urgent: true,
        uncommitted: Vec::new(),
        clock: Rc::clone(&cx.clock),
        session: Rc::clone(&cx.session),
        cancel: cx.cancel.clone(),
    }
}

impl ContextManager {
    /// Returns a handle to the context of a session, during or after a turn.
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
            owner: meta.owner(),
            clock: Rc::clone(clock),
            model: meta.model.clone().unwrap_or_else(|| self.models.default_model()),
            session: Rc::clone(session),
            permit,
            models: Rc::clone(&self.models),
            before: Rc::clone(self) as Rc<dyn BeforeDrop>,
            fixed,
            cancel: CancelToken::default(),
            purpose: self.strategy.name(),
            spent: Rc::default(),
        }
    }

    /// Returns a handle to the context of the current turn, whose request goes to `model`. `fixed` is the number of tokens in
    /// the request besides the conversation.
    pub fn in_turn(self: &Rc<Self>, cx: &RuntimeContext, model: &str, fixed: u64) -> ContextHandle {
        let handle = self.handle(&cx.session, &cx.clock, Some(cx.permit.clone()), fixed);
        ContextHandle { model: model.to_owned(), ..handle }
    }
}

/// Runs the strategy's background work after each turn.
pub(super) struct Precompact(pub Rc<ContextManager>);

impl Precompact {
    fn handle(&self, cx: &FollowUpContext) -> ContextHandle {
        let handle = self.0.handle(&cx.session, &cx.clock, None, 0);
        ContextHandle { cancel: cx.cancel.clone(), ..handle }
    }
}

#[async_trait(?Send)]
impl FollowUp for Precompact {
    fn name(&self) -> &'static str {
        "context_ahead"
    }

    fn priority(&self) -> i32 {
        10
    }

    fn runs_at_once(&self, cx: &FollowUpContext) -> bool {
        self.0.strategy.has_work(&self.handle(cx))
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        let handle = self.handle(cx);
        cx.unless_canceled(self.0.strategy.after_turn(&handle)).await?;
        Ok(Progress::Done(Vec::new()))
    }
}
