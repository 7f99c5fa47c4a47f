//! Hooks and intervals for the integration tests.

use crate::agent::{
    Hook, Interval, RuntimeContext,
    hook::{HookEvent, PostCall, SubStepError},
    interval::{Tick, TickContext},
};
use crate::types::BoxError;
use serde_json::Value;
use std::time::Duration;

/// `memory_handover`: a hook that fails after each turn if the session's state requests it.
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
        let mut state = event.draft.state().meta.state.clone();
        if state.get("break_handover").is_some_and(|broken| broken == true) {
            // The finalizer must discard this change, because the hook fails afterwards.
            state.insert("handed_over".into(), true.into());
            event.draft.set_state(state, vec!["handed_over".into()]);
            return Err(SubStepError("failed as requested".into()));
        }
        Ok(())
    }
}

/// `pulse`: an interval that counts its ticks, one a second, in the session's state as `beats`, while `beat`
/// is `true` there. It fails if `beat` is `"fail"`, and stops permanently if it is `"stop"`. Enabled only in
/// deployments whose INITIAL_STATE has a `beat`.
pub struct Pulse;

#[async_trait::async_trait(?Send)]
impl Interval for Pulse {
    fn name(&self) -> &'static str {
        "pulse"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn tick(&self, cx: &TickContext) -> Result<Tick, BoxError> {
        let state = cx.state();
        match state.get("beat") {
            Some(Value::String(stop)) if stop == "stop" => Ok(Tick::Stop),
            Some(Value::String(fail)) if fail == "fail" => Err("failed as requested".into()),
            Some(Value::Bool(true)) => {
                let beats = state.get("beats").and_then(Value::as_u64).unwrap_or(0);
                cx.set_state("beats", (beats + 1).into())?;
                Ok(Tick::Again)
            }
            _ => Ok(Tick::Again),
        }
    }
}
