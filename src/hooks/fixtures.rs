//! What only the integration tests hook in.

use crate::agent::{
    Hook, Interval, RuntimeContext,
    hook::{HookEvent, PostCall, SubStepError},
    interval::{Tick, TickContext},
};
use serde_json::Value;

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

/// `pulse`: counts its beats, one a second, in the session's state as `beats`, while `beat` is true there; breaks when it
/// is `"fail"`, and stops for good when it is `"stop"`. Only in deployments whose INITIAL_STATE has a `beat`.
pub struct Pulse;

#[async_trait::async_trait(?Send)]
impl Interval for Pulse {
    fn name(&self) -> &'static str {
        "pulse"
    }

    fn every_ms(&self) -> u64 {
        1_000
    }

    async fn tick(&self, cx: &TickContext) -> Result<Tick, String> {
        let state = cx.state();
        match state.get("beat") {
            Some(Value::String(stop)) if stop == "stop" => Ok(Tick::Stop),
            Some(Value::String(fail)) if fail == "fail" => Err("broken, as asked for".into()),
            Some(Value::Bool(true)) => {
                let beats = state.get("beats").and_then(Value::as_u64).unwrap_or(0);
                cx.set_state("beats", (beats + 1).into())?;
                Ok(Tick::Again)
            }
            _ => Ok(Tick::Again),
        }
    }
}
