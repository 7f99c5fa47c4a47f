//! The part of a session's log that the model is shown, and its share of the context window.

use serde::{Deserialize, Serialize};

/// The result of a compaction. Each cut is a record of the log; the latest valid one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(rename = "CompactionCut")]
pub struct Cut {
    /// Number of the cut within the session, starting at 1. A cut with a number out of order was computed for
    /// an outdated context and is ignored.
    pub number: u64,
    /// Messages whose record is below this sequence number are hidden, except the user message of the last
    /// turn.
    pub kept_from: u64,
    /// Tool arguments and results are shortened in messages below this sequence number.
    pub brief_before: u64,
    /// Messages that are shown in part: sequence number, and characters shown of each part. A list, because
    /// it is short and a map costs more code size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parted: Vec<(u64, usize)>,
    /// The summary of the hidden messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Cut {
    /// Returns how many characters are shown of each part of message `seq`; `None` for all.
    pub fn chars(&self, seq: u64) -> Option<usize> {
        self.parted.iter().find(|(parted, _)| *parted == seq).map(|(_, chars)| *chars)
    }
}

/// Why a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactReason {
    /// Too many messages.
    Messages,
    /// Too many tokens.
    Tokens,
    /// The provider rejected the request as too long.
    Overflow,
    /// A caller requested it.
    Request,
}

/// How much of the model's context window the last request and its response took, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WindowUse {
    /// Tokens taken.
    pub used: u64,
    /// Tokens of the whole window.
    pub limit: u64,
}

/// The correction of token estimates for one model, learned from the provider's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gauge {
    /// The model, as `provider/model`.
    pub model: String,
    /// Tokens that the provider counts per 1,000 estimated tokens; 0 while unknown.
    pub permille: u64,
    /// Estimated tokens of a request in addition to the conversation: instructions, tools, and so on.
    pub fixed: u64,
    /// The smallest estimate that the provider rejected as too long; 0 if there is none.
    pub too_much: u64,
}

/// The plausible range of the correction, in permille. A count outside it belongs to another request.
const PERMILLE: std::ops::RangeInclusive<u64> = 600..=2_500;

/// Smallest request, in tokens, that is believed to have exceeded a context window.
const MIN_OVERFLOW: u64 = 1_000;

impl Gauge {
    /// Returns the correction for `model`: this one if it is for that model, else an empty one.
    pub fn of(&self, model: &str) -> Self {
        if self.model == model { self.clone() } else { Self { model: model.to_owned(), ..Self::default() } }
    }

    /// Learns the ratio of the provider's count to the estimate.
    pub fn learn(&mut self, estimated: u64, counted: u64) {
        if estimated > 0 && counted > 0 {
            self.permille = (counted * 1_000 / estimated).clamp(*PERMILLE.start(), *PERMILLE.end());
        }
    }

    /// Records that a request of this estimated size was rejected as too long. A request that is hardly
    /// larger than its fixed part is ignored: it failed for another reason, such as an output limit beyond
    /// the window.
    pub fn refuse(&mut self, estimated: u64) {
        if estimated >= 2 * self.fixed.max(MIN_OVERFLOW) {
            let known = if self.too_much == 0 { estimated } else { self.too_much };
            self.too_much = known.min(estimated);
        }
    }

    /// Raises the rejected size a little after each success, up to the estimated `window`: the rejection may
    /// have had another reason.
    pub fn accept(&mut self, window: u64) {
        let more = self.too_much + self.too_much / 16;
        self.too_much = if more < window { more } else { 0 };
    }

    /// Converts an estimate to the provider's count.
    pub fn counted(&self, estimated: u64) -> u64 {
        if self.permille == 0 { estimated } else { estimated.saturating_mul(self.permille) / 1_000 }
    }

    /// Converts a provider's count to an estimate.
    pub fn estimated(&self, counted: u64) -> u64 {
        counted.saturating_mul(1_000).checked_div(self.permille).unwrap_or(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_gauge_learns_within_bounds() {
        let mut gauge = Gauge::default().of("a/b");
        assert_eq!((gauge.counted(1_000), gauge.estimated(1_000)), (1_000, 1_000));
        gauge.learn(1_000, 1_250);
        assert_eq!((gauge.counted(2_000), gauge.estimated(2_500)), (2_500, 2_000));
        gauge.learn(1_000, 0);
        assert_eq!(gauge.permille, 1_250);
        gauge.learn(1_000_000, 1);
        assert_eq!(gauge.permille, 600);
        gauge.fixed = 3_000;
        gauge.refuse(5_999);
        assert_eq!(gauge.too_much, 0);
        gauge.refuse(8_000);
        gauge.refuse(9_000);
        assert_eq!(gauge.too_much, 8_000);
        gauge.accept(128_000);
        assert_eq!(gauge.too_much, 8_500);
        (0..10_000).for_each(|_| gauge.accept(128_000));
        assert_eq!(gauge.too_much, 0, "the full window is used again");
        assert_eq!(gauge.of("c/d").permille, 0);
        assert_eq!(gauge.of("a/b"), gauge);
    }
}
