//! What a child gets from the turn that spawns it: model, tools, and a share of the budget.

use super::HarnessAgent;
use crate::types::{Budget, ChildSettings, ChildTask, SessionState, TurnState};

impl HarnessAgent {
    /// Returns the settings of a child. `shares` is into how many equal parts the remaining budget of the turn is divided.
    pub(super) fn child_settings(
        &self,
        state: &SessionState,
        turn: &TurnState,
        task: &ChildTask,
        shares: u64,
    ) -> ChildSettings {
        let mut kinds = self.settings.subagents.iter().flatten();
        let kind = kinds.find(|kind| !task.forked && kind.id == task.agent).cloned().unwrap_or_default();
        let is_remote = kind.remote.is_some();
        // A fork keeps the tools of the original, so that both prompts share a cached prefix. Its calls of
        // tools that subagents may not use are denied.
        let tools = match task.forked {
            true => self.tools_of_fork(state),
            false if is_remote => Some(Vec::new()),
            false => Some(self.tools_of_subagents(state, kind.tools.as_deref())),
        };
        // At least one, so that it can answer.
        let share = |max: u32, used: u32| {
            let share = u64::from(max.saturating_sub(used)) / shares;
            u32::try_from(share).unwrap_or(u32::MAX).max(1)
        };
        let left = |max: f64| (max - turn.cost_usd.unwrap_or(0.0)).max(0.0) / shares as f64;
        let most = turn.budget;
        let budget = Budget {
            max_steps: share(most.max_steps, turn.used_steps()).min(kind.max_steps.unwrap_or(u32::MAX)),
            max_tool_calls: share(most.max_tool_calls, turn.used_tool_calls() + turn.tool_calls_of_step),
            max_tokens: most.max_tokens.map(|max| max.saturating_sub(turn.usage.total_tokens) / shares),
            max_cost_usd: most.max_cost_usd.map(left),
            ..most
        };
        let limits = &state.guidance.tenant_policy.limits;
        // A cost limit has no effect with a model that has no price.
        let is_usable = |model: &String| {
            let is_bounded = budget.max_cost_usd.is_none() || self.models.price(model).is_some();
            is_bounded && limits.allow_model(model)
        };
        let model = kind.model.filter(is_usable).or_else(|| state.meta.model.clone());
        ChildSettings { model, budget, tools, think: turn.options.think }
    }
}
