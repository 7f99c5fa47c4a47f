//! A hook that only the integration tests use.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PostCall, SubStepError},
};

/// `memory_handover`: a step behind each reply that breaks when the session's state says so.
pub struct MemoryHandover;

#[async_trait::async_trait(?Send)]
impl Hook for MemoryHandover {
    fn name(&self) -> &'static str {
        "memory_handover"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostCall]
    }

    fn post_call(&self, event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        if event.draft.state.meta.state.get("break_handover").is_some_and(|broken| broken == true) {
            // What a step did before it broke is undone.
            event.draft.state.meta.state.insert("handed_over".into(), true.into());
            return Err(SubStepError("broken, as asked for".into()));
        }
        Ok(())
    }
}
