//! What the operator sets for all sessions of a tenant.

use super::{
    Budget, BudgetPatch, FieldError, ModelError, ModelList, Quota, Rules, StorageLimits, budget::CEILING,
};
use serde::{Deserialize, Serialize};

/// The permission rules and the limits of a tenant. Several isolates send them to a session, each from its own cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantPolicy {
    /// The permission rules.
    #[serde(flatten)]
    pub rules: Rules,
    /// The limits.
    #[serde(default, skip_serializing_if = "TenantLimits::is_empty")]
    pub limits: TenantLimits,
    /// The tenant's version when it had this policy; 0 from a source without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u64,
}

fn is_zero(version: &u64) -> bool {
    *version == 0
}

impl TenantPolicy {
    /// Returns whether `sent` replaces this policy: it differs, and is not older.
    pub fn is_replaced_by(&self, sent: &Self) -> bool {
        sent.version >= self.version && self != sent
    }
}

/// The limits of a tenant. An absent one limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct TenantLimits {
    /// The models that the tenant's sessions may use, of those that the deployment offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelList>,
    /// Maximum number of model calls of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Maximum number of tool calls of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Maximum time of a turn, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// Maximum cost of a turn, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Maximum number of requests in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_min: Option<u32>,
    /// Maximum number of turns at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_turns: Option<u32>,
    /// Maximum number of turns that start in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_per_day: Option<u32>,
    /// Tokens of a UTC day after which no turn starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Cost of a UTC day in US dollars after which no turn starts, or continues after a decision. Exact within one turn if
    /// each turn has a `max_cost_usd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd_per_day: Option<f64>,
    /// Maximum size of files and memory together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_bytes: Option<u64>,
    /// Maximum number of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Maximum number of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Maximum number of rows of the memory index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_rows: Option<u64>,
}

impl TenantLimits {
    /// Returns whether there are no limits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks limits from a request.
    ///
    /// # Errors
    /// The invalid limits. `at` is the JSON Pointer to the limits.
    pub fn violations(&self, at: &str) -> Vec<FieldError> {
        let models = self.models.as_ref().and_then(ModelList::fault);
        let models = models.map(|fault| fault.below(&format!("{at}/models")));
        let budget = BudgetPatch {
            max_steps: self.max_steps,
            max_tool_calls: self.max_tool_calls,
            timeout_s: self.timeout_s,
            max_cost_usd: self.max_cost_usd,
            ..BudgetPatch::default()
        };
        let is_negative = self.cost_usd_per_day.is_some_and(|limit| limit < 0.0);
        let cost = is_negative.then(|| FieldError {
            pointer: format!("{at}/cost_usd_per_day"),
            detail: "expected 0 or more".into(),
        });
        models.into_iter().chain(budget.violations(at, &CEILING)).chain(cost).collect()
    }

    /// Returns the budget of a turn with each limit lowered to the tenant's, if that is lower.
    pub fn lower(&self, mut budget: Budget) -> Budget {
        let lower = |field: &mut u32, limit: Option<u32>| *field = limit.unwrap_or(*field).min(*field);
        lower(&mut budget.max_steps, self.max_steps);
        lower(&mut budget.max_tool_calls, self.max_tool_calls);
        lower(&mut budget.timeout_s, self.timeout_s);
        let costs = [budget.max_cost_usd, self.max_cost_usd];
        budget.max_cost_usd = costs.into_iter().flatten().reduce(f64::min);
        budget
    }

    /// Returns these limits, with those of a turn lowered to those of an agent.
    pub fn lowered(mut self, agent: &Self) -> Self {
        fn lower<T: Copy + PartialOrd>(own: &mut Option<T>, other: Option<T>) {
            match (*own, other) {
                (Some(one), Some(other)) if one <= other => {}
                (_, Some(other)) => *own = Some(other),
                (_, None) => {}
            }
        }
        lower(&mut self.max_steps, agent.max_steps);
        lower(&mut self.max_tool_calls, agent.max_tool_calls);
        lower(&mut self.timeout_s, agent.timeout_s);
        lower(&mut self.max_cost_usd, agent.max_cost_usd);
        self
    }

    /// Returns the highest limits that a request of the tenant may name.
    pub fn ceiling(&self) -> Budget {
        self.lower(CEILING)
    }

    /// Returns these limits, with those of `defaults` that a tenant of the deployment has unless it has its own.
    pub fn or(mut self, defaults: &Self) -> Self {
        self.requests_per_min = self.requests_per_min.or(defaults.requests_per_min);
        self.concurrent_turns = self.concurrent_turns.or(defaults.concurrent_turns);
        self.turns_per_day = self.turns_per_day.or(defaults.turns_per_day);
        self.tokens_per_day = self.tokens_per_day.or(defaults.tokens_per_day);
        self.cost_usd_per_day = self.cost_usd_per_day.or(defaults.cost_usd_per_day);
        self
    }

    /// Returns the limits that the ledger checks before a turn starts.
    pub fn quota(&self) -> Quota {
        let Self { concurrent_turns, turns_per_day, tokens_per_day, cost_usd_per_day, .. } = *self;
        Quota { concurrent_turns, turns_per_day, tokens_per_day, cost_usd_per_day }
    }

    /// Returns the limits of what the tenant stores.
    pub fn storage(&self) -> StorageLimits {
        let Self { storage_bytes, sessions, files, memory_rows, .. } = *self;
        StorageLimits { storage_bytes, sessions, files, memory_rows }
    }

    /// Returns whether sessions of the tenant may use a model.
    pub fn allow_model(&self, id: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.contains(id))
    }

    /// Checks that sessions of the tenant may use a model.
    ///
    /// # Errors
    /// They may not. The message lists the models that they may use.
    pub fn check_model(&self, id: &str) -> Result<(), ModelError> {
        self.models.as_ref().map_or(Ok(()), |models| models.check(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn limits_lower_a_budget_and_never_raise_it() {
        let limits = TenantLimits {
            max_steps: Some(5),
            max_tool_calls: Some(1_000),
            max_cost_usd: Some(0.5),
            ..TenantLimits::default()
        };
        let budget = limits.lower(Budget::default());
        assert_eq!((budget.max_steps, budget.max_tool_calls, budget.timeout_s), (5, 100, 600));
        assert_eq!(budget.max_cost_usd, Some(0.5));
        let cheap = Budget { max_cost_usd: Some(0.1), ..Budget::default() };
        assert_eq!(limits.lower(cheap).max_cost_usd, Some(0.1));
        assert_eq!(TenantLimits::default().lower(cheap), cheap);
    }
}
