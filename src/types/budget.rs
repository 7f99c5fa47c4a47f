//! The bounds of a turn.

use serde::{Deserialize, Serialize};

/// What a turn may use. Every bound ends the turn normally, with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Model calls.
    pub max_steps: u32,
    /// Tool calls.
    pub max_tool_calls: u32,
    /// Wall time of the turn in seconds.
    pub timeout_s: u32,
    /// Wall time of one tool call in seconds; never past the turn's own end.
    pub tool_timeout_s: u32,
    /// Input and output tokens together; none means no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Money in US dollars, by the price table; none means no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Reflections.
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

/// Sessions stored before there were reflections say nothing of them.
fn max_reflections() -> u32 {
    4
}

/// A caller's wishes; what is absent stays as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetPatch {
    /// See [`Budget::max_steps`]; at least 1.
    pub max_steps: Option<u32>,
    /// See [`Budget::max_tool_calls`].
    pub max_tool_calls: Option<u32>,
    /// See [`Budget::timeout_s`]; at least 1.
    pub timeout_s: Option<u32>,
    /// See [`Budget::tool_timeout_s`]; at least 1.
    pub tool_timeout_s: Option<u32>,
    /// See [`Budget::max_tokens`].
    pub max_tokens: Option<u64>,
    /// See [`Budget::max_cost_usd`]; below 0, and what is no number, counts as 0.
    pub max_cost_usd: Option<f64>,
    /// See [`Budget::max_reflections`].
    pub max_reflections: Option<u32>,
}

/// The highest values a caller may ask for, whatever the defaults are.
pub const CEILING: Budget = Budget {
    max_steps: 1_000,
    max_tool_calls: 10_000,
    timeout_s: 86_400,
    tool_timeout_s: 3_600,
    max_tokens: None,
    max_cost_usd: None,
    max_reflections: 100,
};

impl Budget {
    /// This budget with a caller's wishes applied, within [`CEILING`].
    pub fn patched(mut self, patch: &BudgetPatch) -> Self {
        let set = |field: &mut u32, wish: Option<u32>, ceiling: u32, floor: u32| {
            if let Some(wish) = wish {
                *field = wish.clamp(floor, ceiling);
            }
        };
        set(&mut self.max_steps, patch.max_steps, CEILING.max_steps, 1);
        set(&mut self.max_tool_calls, patch.max_tool_calls, CEILING.max_tool_calls, 0);
        set(&mut self.timeout_s, patch.timeout_s, CEILING.timeout_s, 1);
        set(&mut self.tool_timeout_s, patch.tool_timeout_s, CEILING.tool_timeout_s, 1);
        set(&mut self.max_reflections, patch.max_reflections, CEILING.max_reflections, 0);
        self.max_tokens = patch.max_tokens.or(self.max_tokens);
        // `max` takes the 0 where the wish is no number.
        self.max_cost_usd = patch.max_cost_usd.map(|wish| wish.max(0.0)).or(self.max_cost_usd);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn what_was_stored_before_there_were_reflections_is_read() {
        let mut stored = serde_json::to_value(Budget::default()).expect("JSON");
        stored.as_object_mut().expect("an object").remove("max_reflections");
        assert_eq!(serde_json::from_value::<Budget>(stored).expect("a budget"), Budget::default());
    }

    #[test]
    fn wishes_stay_within_reason() {
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
