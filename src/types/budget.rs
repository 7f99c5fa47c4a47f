//! The limits of a turn.

use super::FieldError;
use serde::{Deserialize, Serialize};

/// The limits of a turn. A turn that reaches one ends normally, with a stop reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Budget {
    /// Maximum number of model calls.
    pub max_steps: u32,
    /// Maximum number of tool calls.
    pub max_tool_calls: u32,
    /// Wall-clock time of the turn, in seconds.
    pub timeout_s: u32,
    /// Wall-clock time of one tool call, in seconds; never past the turn's deadline.
    pub tool_timeout_s: u32,
    /// Maximum number of input and output tokens together; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Maximum cost in US dollars, by the price table; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Maximum number of self-critiques.
    #[serde(default = "max_reflections")]
    pub max_reflections: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max_steps: 50,
            max_tool_calls: 100,
            timeout_s: 600,
            tool_timeout_s: 45,
            max_tokens: None,
            max_cost_usd: None,
            max_reflections: max_reflections(),
        }
    }
}

/// Returns the default for sessions stored before self-critiques existed.
fn max_reflections() -> u32 {
    4
}

/// A caller's changes to a budget; an absent field keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct BudgetPatch {
    /// Maximum number of model calls; at least 1.
    pub max_steps: Option<u32>,
    /// Maximum number of tool calls.
    pub max_tool_calls: Option<u32>,
    /// Wall-clock time of the turn, in seconds; at least 1.
    pub timeout_s: Option<u32>,
    /// Wall-clock time of one tool call, in seconds; at least 1.
    pub tool_timeout_s: Option<u32>,
    /// Maximum number of input and output tokens together.
    pub max_tokens: Option<u64>,
    /// Maximum cost in US dollars.
    pub max_cost_usd: Option<f64>,
    /// Maximum number of self-critiques.
    pub max_reflections: Option<u32>,
}

/// The lower bounds of what a caller may request.
const FLOOR: Budget = Budget {
    max_steps: 1,
    max_tool_calls: 0,
    timeout_s: 1,
    tool_timeout_s: 1,
    max_tokens: None,
    max_cost_usd: None,
    max_reflections: 0,
};

/// The upper bounds of what a caller may request, whatever the defaults are.
pub const CEILING: Budget = Budget {
    max_steps: 1_000,
    max_tool_calls: 10_000,
    timeout_s: 86_400,
    tool_timeout_s: 3_600,
    max_tokens: None,
    max_cost_usd: None,
    max_reflections: 100,
};

impl BudgetPatch {
    /// Returns the limits that are out of range. `at` is the JSON Pointer to the budget, `ceiling` has the highest
    /// values.
    pub fn violations(&self, at: &str, ceiling: &Budget) -> Vec<FieldError> {
        let counts = [
            ("max_steps", self.max_steps, FLOOR.max_steps, ceiling.max_steps),
            ("max_tool_calls", self.max_tool_calls, FLOOR.max_tool_calls, ceiling.max_tool_calls),
            ("timeout_s", self.timeout_s, FLOOR.timeout_s, ceiling.timeout_s),
            ("tool_timeout_s", self.tool_timeout_s, FLOOR.tool_timeout_s, ceiling.tool_timeout_s),
            ("max_reflections", self.max_reflections, FLOOR.max_reflections, ceiling.max_reflections),
        ];
        let violation = |name: &str, detail: String| FieldError { pointer: format!("{at}/{name}"), detail };
        let counts = counts.into_iter().filter_map(|(name, wish, floor, ceiling)| {
            let fits = (floor..=ceiling).contains(&wish?);
            (!fits).then(|| violation(name, format!("expected {floor} to {ceiling}")))
        });
        let tokens = self.max_tokens.filter(|max| *max == 0);
        let tokens = tokens.map(|_| violation("max_tokens", "expected 1 or more".into()));
        let cost = self.max_cost_usd.and_then(|max| match ceiling.max_cost_usd {
            Some(most) if !(0.0..=most).contains(&max) => Some(format!("expected 0 to {most}")),
            None if max < 0.0 => Some("expected 0 or more".into()),
            _ => None,
        });
        let cost = cost.map(|detail| violation("max_cost_usd", detail));
        counts.chain(tokens).chain(cost).collect()
    }
}

impl Budget {
    /// Returns this budget with a caller's changes applied, within [`CEILING`].
    pub fn patched(mut self, patch: &BudgetPatch) -> Self {
        let set = |field: &mut u32, wish: Option<u32>, floor: u32, ceiling: u32| {
            if let Some(wish) = wish {
                *field = wish.clamp(floor, ceiling);
            }
        };
        set(&mut self.max_steps, patch.max_steps, FLOOR.max_steps, CEILING.max_steps);
        set(&mut self.max_tool_calls, patch.max_tool_calls, FLOOR.max_tool_calls, CEILING.max_tool_calls);
        set(&mut self.timeout_s, patch.timeout_s, FLOOR.timeout_s, CEILING.timeout_s);
        set(&mut self.tool_timeout_s, patch.tool_timeout_s, FLOOR.tool_timeout_s, CEILING.tool_timeout_s);
        set(&mut self.max_reflections, patch.max_reflections, FLOOR.max_reflections, CEILING.max_reflections);
        self.max_tokens = patch.max_tokens.or(self.max_tokens);
        // `f64::max` returns 0 for NaN.
        self.max_cost_usd = patch.max_cost_usd.map(|wish| wish.max(0.0)).or(self.max_cost_usd);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_budget_stored_without_max_reflections_is_readable() {
        let mut stored = serde_json::to_value(Budget::default()).expect("JSON");
        stored.as_object_mut().expect("an object").remove("max_reflections");
        assert_eq!(serde_json::from_value::<Budget>(stored).expect("a budget"), Budget::default());
    }

    #[test]
    fn values_out_of_range_are_named_with_the_range() {
        let violations = |patch: BudgetPatch| {
            let found = patch.violations("/budget", &CEILING).into_iter();
            found.map(|error| format!("{} {}", error.pointer, error.detail)).collect::<Vec<_>>()
        };
        let patch = BudgetPatch {
            max_steps: Some(0),
            timeout_s: Some(1_000_000_000),
            max_tokens: Some(0),
            max_cost_usd: Some(-1.0),
            max_tool_calls: Some(0),
            ..BudgetPatch::default()
        };
        assert_eq!(
            violations(patch),
            [
                "/budget/max_steps expected 1 to 1000",
                "/budget/timeout_s expected 1 to 86400",
                "/budget/max_tokens expected 1 or more",
                "/budget/max_cost_usd expected 0 or more"
            ]
        );
    }

    #[test]
    fn patched_values_are_clamped() {
        let wish = |max_cost_usd: f64| {
            let patch = BudgetPatch { max_cost_usd: Some(max_cost_usd), ..BudgetPatch::default() };
            Budget::default().patched(&patch).max_cost_usd
        };
        assert_eq!([0.5, 0.0, -1.0, f64::NAN].map(wish), [0.5, 0.0, 0.0, 0.0].map(Some));
        let patch = BudgetPatch { max_steps: Some(0), timeout_s: Some(u32::MAX), ..BudgetPatch::default() };
        let budget = Budget::default().patched(&patch);
        assert_eq!((budget.max_steps, budget.timeout_s), (1, CEILING.timeout_s));
        assert_eq!(budget.max_cost_usd, None);
    }
}
