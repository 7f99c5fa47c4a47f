//! The context strategy of an agent, and what the agent gives it to work with.

use super::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
};
use crate::context::{BeforeDrop, ContextHandle, ContextStrategy};
use crate::fault::{self, Fault};
use crate::ports::{CancelToken, Clock, Models};
use crate::session::{Permit, Session};
use crate::types::Owner;
use async_trait::async_trait;
use std::rc::Rc;

/// Most rounds in which one follow-up may process what is about to leave the context.
const MAX_ROUNDS: usize = 100;

/// A context strategy, and what an agent needs to carry it out.
pub(super) struct ContextManager {
    pub strategy: Rc<dyn ContextStrategy>,
    /// What must have seen messages before they leave the context.
    pub before: Rc<[Rc<dyn FollowUp>]>,
    pub models: Rc<dyn Models>,
}

#[async_trait(?Send)]
impl BeforeDrop for ContextManager {
    async fn before_drop(&self, cx: &ContextHandle, until: u64) -> Result<(), String> {
        // Nothing is learned from what a subagent was told.
        let learns = cx.session.state().meta.parent.is_none() && !fault::active(Fault::DropUnseen);
        for follow_up in self.before.iter().filter(|_| learns) {
            let name = follow_up.name();
            for round in 0.. {
                let seen = cx.session.state().follow_ups.get(name).map_or(0, |progress| progress.seen);
                if seen >= until {
                    break;
                }
                if round == MAX_ROUNDS {
                    return Err(format!("{name} does not come to an end"));
                }
                let work = follow_context(cx, seen, until);
                let (seen, records) =
                    match follow_up.run(&work).await.map_err(|why| format!("{name}: {why}"))? {
                        Progress::Done(records) => (until, records),
                        Progress::UpTo(seen, records) => (seen, records),
                        Progress::NotBefore(at) => {
                            return Err(format!("{name} waits until {}", at.to_rfc3339()));
                        }
                    };
                cx.commit(|draft, turn| {
                    let progress = draft.state.follow_ups.entry(name.to_owned()).or_default();
                    progress.seen = progress.seen.max(seen);
                    records.into_iter().for_each(|kind| draft.record(turn, kind));
                })?;
            }
        }
        Ok(())
    }
}

fn follow_context(cx: &ContextHandle, seen: u64, until: u64) -> FollowUpContext {
    let state = cx.session.state();
    FollowUpContext {
        owner: cx.owner.clone(),
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
            models: Rc::clone(&self.models),
            before: Rc::clone(self) as Rc<dyn BeforeDrop>,
            fixed,
            cancel: CancelToken::default(),
        }
    }

    /// The context of the turn at hand, whose request has so many tokens beside the conversation.
    pub fn in_turn(self: &Rc<Self>, cx: &RuntimeContext, fixed: u64) -> ContextHandle {
        self.handle(&cx.session, &cx.clock, Some(cx.permit.clone()), fixed)
    }
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
