//! The `unusable_agent` hook: fails each turn of a version that this deployment cannot run, for example because it names
//! a tool that the Worker no longer has.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PreReasoning},
};
use crate::types::{ErrorCode, TurnError};
use async_trait::async_trait;

/// Priority 0. Has the reason, for people.
pub struct UnusableAgent(pub String);

#[async_trait(?Send)]
impl Hook for UnusableAgent {
    fn name(&self) -> &'static str {
        "unusable_agent"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreReasoning]
    }

    async fn pre_reasoning(&self, _event: &mut PreReasoning, _cx: &RuntimeContext) -> Result<(), TurnError> {
        Err(TurnError::new(ErrorCode::NotConfigured.as_str(), self.0.clone(), false))
    }
}
