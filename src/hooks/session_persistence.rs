//! The `session_persistence` hook: adds a turn's usage to the session, in the commit that ends the turn.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, OnError, PostCall, SubStepError},
};
use crate::session::Draft;
use crate::types::Usage;

/// Priority 900, after all other hooks. Also runs after a failure.
pub struct SessionPersistence;

#[async_trait::async_trait(?Send)]
impl Hook for SessionPersistence {
    fn name(&self) -> &'static str {
        "session_persistence"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostCall, HookEvent::Error]
    }

    fn priority(&self) -> i32 {
        900
    }

    fn post_call(&self, event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        keep(event.draft, event.usage, event.cost_usd);
        Ok(())
    }

    fn on_error(&self, event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        keep(event.draft, event.usage, event.cost_usd);
        Ok(())
    }
}

fn keep(draft: &mut Draft, usage: Usage, cost_usd: Option<f64>) {
    draft.state.meta.usage += usage;
    if let Some(cost) = cost_usd {
        *draft.state.meta.cost_usd.get_or_insert(0.0) += cost;
    }
}
