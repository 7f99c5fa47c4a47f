//! The `unavailable_servers` hook: records in each turn which servers of MCP gave no list of tools, so that the agent lacks
//! their tools.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PreCall},
};
use crate::types::TurnError;
use async_trait::async_trait;

/// Priority 0. Has the names of the servers, each with the reason.
pub struct UnavailableServers(pub Vec<(String, String)>);

#[async_trait(?Send)]
impl Hook for UnavailableServers {
    fn name(&self) -> &'static str {
        "unavailable_servers"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreCall]
    }

    async fn pre_call(&self, _event: &mut PreCall, cx: &RuntimeContext) -> Result<(), TurnError> {
        for (server, reason) in &self.0 {
            cx.state.sub_step_failed(&format!("mcp:{server}"), &format!("the server {reason}"));
        }
        Ok(())
    }
}
