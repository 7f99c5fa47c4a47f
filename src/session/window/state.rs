//! The state that determines which part of the log the model is shown.

use super::observed::Observed;
use crate::types::{Cut, EventKind};
use serde::{Deserialize, Serialize};

/// The state that determines which part of the log the model is shown. Built by folding the log's records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextState {
    /// The latest cut.
    pub cut: Cut,
    /// The notes that replace messages.
    pub observed: Observed,
}

impl ContextState {
    /// Returns whether a record of this kind may change the context.
    pub fn is_about(kind: &EventKind) -> bool {
        matches!(kind, EventKind::CompactionCompleted { .. }) || Observed::is_about(kind)
    }

    /// Returns the sequence number below which messages are hidden, except the user message of the last turn.
    pub fn kept_from(&self) -> u64 {
        self.cut.kept_from.max(self.observed.kept_from())
    }

    /// Applies a record. Returns whether it changed the state.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CompactReason;

    #[test]
    fn a_cut_with_a_number_out_of_order_is_ignored() {
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
