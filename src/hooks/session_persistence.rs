//! The `session_persistence` hook: adds a turn's usage to the session, in the commit that ends the turn.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, OnError, PostCall, SubStepError},
};

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
        event.draft.whole().add_usage(event.usage, event.cost_usd);
        Ok(())
    }

    fn on_error(&self, event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        event.draft.whole().add_usage(event.usage, event.cost_usd);
        Ok(())
    }
}
