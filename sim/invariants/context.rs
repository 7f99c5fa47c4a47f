//! What leaves the context: 10.

use super::super::{ledger::Ledger, one_shot};
use super::view::View;
use edge_harness::types::{ContextState, Record, json};

/// What stands for messages that nothing is known of, and is said to.
const NOTHING: [&str; 2] = ["left out here", "There is no summary of them"];

/// 10: each compaction and each note follows what was there before, and what is not shown any more is summed up,
/// noted, or said to be left out.
pub fn cuts(ledger: &Ledger, view: &View) {
    let mut state = ContextState::default();
    for entry in &view.entries {
        let Ok(Record { kind, .. }) = json::read(entry.json.as_bytes()) else {
            return ledger.find(10, format!("cannot be read: {}", entry.json));
        };
        if !ContextState::is_about(&kind) {
            continue;
        }
        let before = state.kept_from();
        let folded = state.fold(&kind);
        if !folded && entry.kind == "compaction.completed" {
            ledger.find(10, format!("does not follow what was shown: {}", entry.json));
        }
        if state.kept_from() < before {
            ledger.find(10, format!("shows again what was left out: {}", entry.json));
        }
        if state.kept_from() > before {
            left_out(ledger, view, &state);
        }
    }
}

/// What users said in turns that are not shown any more is named in what stands for them.
fn left_out(ledger: &Ledger, view: &View, state: &ContextState) {
    let mut instead = state.cut.summary.clone().unwrap_or_default();
    state.observed.active.iter().for_each(|chunk| instead.push_str(&chunk.text));
    if NOTHING.iter().any(|nothing| instead.contains(nothing)) {
        return;
    }
    let named = one_shot::named(ledger, &instead);
    for turn in &view.turns {
        let started = turn.started.first().map(|place| view.entries[*place].seq);
        let told = || named.iter().any(|name| turn.said.starts_with(name.as_str()));
        if started.is_some_and(|seq| seq < state.kept_from()) && !told() {
            ledger.find(10, format!("“{}” is neither shown nor told of: {instead:?}", turn.said));
        }
    }
}
