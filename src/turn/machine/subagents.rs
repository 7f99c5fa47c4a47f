//! What subagents use of the budget of their parent's turn.

use super::TurnMachine;
use crate::types::{Budget, ChildStatus, EventKind, Usage};

impl TurnMachine<'_> {
    /// Counts subagents that start.
    pub fn subagents_started(&mut self, count: usize) {
        self.0.subagents = self.0.subagents.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Deducts what a subagent has used, at its end, from the turn's budget. Returns the event for it.
    pub fn charge_subagent(&mut self, ended: &ChildStatus) -> EventKind {
        let ChildStatus { usage, cost_usd, steps, tool_calls, .. } = *ended;
        self.0.steps_of_subagents = self.0.steps_of_subagents.saturating_add(steps);
        self.0.tool_calls_of_step = self.0.tool_calls_of_step.saturating_add(tool_calls);
        let step = Usage { window: None, ..usage };
        self.0.usage += step;
        if let Some(cost) = cost_usd {
            *self.0.cost_usd.get_or_insert(0.0) += cost;
        }
        EventKind::UsageUpdated { step, total: self.0.usage, model: None, cost_usd }
    }

    /// Sets aside the share of a subagent that goes on in the background, so that the turn does not use it.
    pub fn set_aside(&mut self, share: &Budget) {
        let turn = &mut *self.0;
        turn.steps_of_subagents = turn.steps_of_subagents.saturating_add(share.max_steps);
        turn.tool_calls_of_step = turn.tool_calls_of_step.saturating_add(share.max_tool_calls);
        if let (Some(own), Some(share)) = (&mut turn.budget.max_tokens, share.max_tokens) {
            *own = own.saturating_sub(share);
        }
        if let (Some(own), Some(share)) = (&mut turn.budget.max_cost_usd, share.max_cost_usd) {
            *own = (*own - share).max(0.0);
        }
    }

    /// Gives back the share of a subagent in the background, which has ended.
    pub fn give_back(&mut self, share: &Budget) {
        let turn = &mut *self.0;
        turn.steps_of_subagents = turn.steps_of_subagents.saturating_sub(share.max_steps);
        // First from the calls that do not count yet.
        let of_step = share.max_tool_calls.min(turn.tool_calls_of_step);
        turn.tool_calls_of_step -= of_step;
        let of_earlier = share.max_tool_calls - of_step;
        turn.tool_calls_of_subagents = turn.tool_calls_of_subagents.saturating_sub(of_earlier);
        if let (Some(own), Some(share)) = (&mut turn.budget.max_tokens, share.max_tokens) {
            *own = own.saturating_add(share);
        }
        if let (Some(own), Some(share)) = (&mut turn.budget.max_cost_usd, share.max_cost_usd) {
            *own += share;
        }
    }
}
