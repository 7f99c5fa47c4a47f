//! What of a session's log a model is shown, and how much of a model's window that takes.

use super::{EventKind, Observed};
use serde::{Deserialize, Serialize};

/// What compaction leaves of the conversation. Each one stands in the log; the newest that applies holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// The how-manieth of the session, from 1. One that does not follow the one before it was made for a
    /// context that is gone, and is void.
    pub number: u64,
    /// Records of messages below this number are not shown, but the message that the last turn answers.
    pub kept_from: u64,
    /// What tools got and gave in messages below this number is shown short.
    pub brief_before: u64,
    /// Messages that are shown in part: their number, and how many characters of each piece of theirs. A list
    /// and no map: it is short, and a map costs the Worker more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parted: Vec<(u64, usize)>,
    /// What stands for the messages that are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Cut {
    /// How many characters of each piece are shown of the message of this number; none when all are.
    pub fn chars(&self, seq: u64) -> Option<usize> {
        self.parted.iter().find(|(parted, _)| *parted == seq).map(|(_, chars)| *chars)
    }
}

/// All that decides what a model is shown of the log: a fold of the log's records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextState {
    /// What compaction leaves.
    pub cut: Cut,
    /// Notes that stand for messages.
    pub observed: Observed,
}

impl ContextState {
    /// Whether a record of this kind may change what is shown.
    pub fn is_about(kind: &EventKind) -> bool {
        matches!(kind, EventKind::CompactionCompleted { .. }) || Observed::is_about(kind)
    }

    /// Records of messages below this number are not shown, but the message that the last turn answers.
    pub fn kept_from(&self) -> u64 {
        self.cut.kept_from.max(self.observed.kept_from())
    }

    /// Takes note of a record. Returns whether it changed what is shown.
    pub fn fold(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::CompactionCompleted { cut, .. } if cut.number == self.cut.number + 1 => {
                self.cut = cut.clone();
                true
            }
            kind => self.observed.fold(kind),
        }
    }
}

/// Why a context is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactReason {
    /// It has too many messages.
    Messages,
    /// It has too many tokens.
    Tokens,
    /// The provider said that it is too long.
    Overflow,
    /// Somebody asked for it.
    Request,
}

/// How much of a model's window the last request and its answer took, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowUse {
    /// Taken.
    pub used: u64,
    /// All there is.
    pub limit: u64,
}

/// What is known of a model's own way of counting tokens, from its last answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gauge {
    /// The model, as `provider/model`.
    pub model: String,
    /// Tokens that it counts for a thousand of our estimate; 0 when nothing is known.
    pub permille: u64,
    /// Tokens of its requests beside the conversation, by our estimate: instructions, tools, and the like.
    pub fixed: u64,
    /// A number of tokens, by our estimate, that was too much for it; 0 when none was.
    pub too_much: u64,
}

/// The bounds of what one answer may say of our estimate, in permille: a count that is off by more is not
/// one of what was sent.
const PERMILLE: std::ops::RangeInclusive<u64> = 600..=2_500;

/// Fewest tokens of a request that is believed to be too long for a window.
const LEAST: u64 = 1_000;

impl Gauge {
    /// What is known of `model`.
    pub fn of(&self, model: &str) -> Self {
        if self.model == model { self.clone() } else { Self { model: model.to_owned(), ..Self::default() } }
    }

    /// Learns from a request: what we estimated, and what the provider counted.
    pub fn learn(&mut self, estimated: u64, counted: u64) {
        if estimated > 0 && counted > 0 {
            self.permille = (counted * 1_000 / estimated).clamp(*PERMILLE.start(), *PERMILLE.end());
        }
    }

    /// Learns that a request was too long, by our estimate. One that is hardly more than what stands beside the
    /// conversation tells of something else, such as an answer that was to be longer than the window.
    pub fn refuse(&mut self, estimated: u64) {
        if estimated >= 2 * self.fixed.max(LEAST) {
            let known = if self.too_much == 0 { estimated } else { self.too_much };
            self.too_much = known.min(estimated);
        }
    }

    /// Trusts the model with a little more after each answer, up to its `window` by our estimate: what was
    /// refused once may have been refused for another reason.
    pub fn accept(&mut self, window: u64) {
        let more = self.too_much + self.too_much / 16;
        self.too_much = if more < window { more } else { 0 };
    }

    /// Our estimate as the provider would count it.
    pub fn counted(&self, estimated: u64) -> u64 {
        if self.permille == 0 { estimated } else { estimated.saturating_mul(self.permille) / 1_000 }
    }

    /// A provider's number of tokens as we would estimate it.
    pub fn estimated(&self, counted: u64) -> u64 {
        counted.saturating_mul(1_000).checked_div(self.permille).unwrap_or(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_gauge_learns_within_reason() {
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
        assert_eq!(gauge.too_much, 0, "the window is believed again");
        assert_eq!(gauge.of("c/d").permille, 0);
        assert_eq!(gauge.of("a/b"), gauge);
    }

    #[test]
    fn a_cut_that_does_not_follow_is_void() {
        let cut = |number: u64| EventKind::CompactionCompleted {
            reason: CompactReason::Tokens,
            dropped: 1,
            summary_tokens: 0,
            tokens_before: 2,
            tokens_after: 1,
            cut: Cut { number, kept_from: number * 10, ..Cut::default() },
        };
        let mut state = ContextState::default();
        assert!(!state.fold(&cut(2)) && state.fold(&cut(1)) && !state.fold(&cut(1)) && state.fold(&cut(2)));
        assert_eq!(state.cut.kept_from, 20);
    }
}
