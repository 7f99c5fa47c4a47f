//! Messages that leave the context window: invariant 10.

use super::{ends, view::View};
use crate::{
    ledger::{Ledger, Unindexed},
    model::one_shot,
    scenario::{SessionScenario, mark},
    world::Node,
};
use edge_harness::ports::memory::CollectionKind;
use edge_harness::session::window::ContextState;
use edge_harness::types::{Record, session::Activity};

/// Texts that say that messages are neither summarized nor noted.
const NOTHING: [&str; 2] = ["left out here", "There is no summary of them"];

/// The time to its deadline, in milliseconds, with which a turn does not wait for the extraction of facts. A compaction that it
/// needs may wait for a sixth of it.
const HURRY_MS: u64 = 1_000;

/// 10: each compaction and each note continues from the earlier ones, and messages that leave the window are
/// summarized, noted, or said to be missing.
pub fn cuts(ledger: &Ledger, view: &View) {
    let mut state = ContextState::default();
    for entry in &view.entries {
        let Ok(Record { kind, .. }) = serde_json::from_str(&entry.json) else {
            return ledger.find(10, format!("cannot parse: {}", entry.json));
        };
        if !ContextState::is_about(&kind) {
            continue;
        }
        let before = state.kept_from();
        let folded = state.fold(&kind);
        if !folded && entry.kind == "compaction.completed" {
            ledger.find(10, format!("does not continue from the current window: {}", entry.json));
        }
        if state.kept_from() < before {
            ledger.find(10, format!("brings dropped messages back: {}", entry.json));
        }
        if state.kept_from() > before {
            left_out(ledger, view, &state);
        }
    }
}

/// The users' messages of turns that left the window are mentioned in the summary or the notes.
fn left_out(ledger: &Ledger, view: &View, state: &ContextState) {
    let mut instead = state.cut.summary.clone().unwrap_or_default();
    state.observed.active.iter().for_each(|chunk| instead.push_str(&chunk.text));
    if NOTHING.iter().any(|nothing| instead.contains(nothing)) {
        return;
    }
    let named = one_shot::named(ledger, &instead);
    for turn in view.turns.iter().filter(|turn| !turn.is_woken()) {
        let started = turn.started.first().map(|place| view.entries[*place].seq);
        let mentioned = || named.iter().any(|name| turn.said.starts_with(name.as_str()));
        if started.is_some_and(|seq| seq < state.kept_from()) && !mentioned() {
            ledger.find(10, format!("“{}” is neither in the window nor mentioned: {instead:?}", turn.said));
        }
    }
}

/// 10: before messages leave the window, they are indexed and facts are extracted from them, unless the turn that needs
/// the room has hardly any time left.
pub fn indexed(ledger: &Ledger, view: &View, node: &Node) {
    for Unindexed { place, message, kind, at } in &*ledger.unindexed.borrow() {
        let running = view.turns.iter().find(|turn| turn.runs_at(view, *at));
        let deadline = running.and_then(|turn| ends::deadline(ledger, view, turn));
        if *place == node.place && deadline.is_none_or(|deadline| deadline > at + HURRY_MS) {
            let left = format!("“{message}” leaves the window and is not in the index of {kind:?}");
            ledger.find(10, left);
        }
    }
}

/// 10: at the end, each user's message is indexed and facts are extracted from it, or the follow-up that does it is
/// due. A deletion that fails has already removed some of this.
pub fn owed(ledger: &Ledger, view: &View, node: &Node, session: &SessionScenario) {
    if session.erased {
        return;
    }
    let Ok(activity) = serde_json::from_value::<Activity>(node.document("state/activity")) else { return };
    let flush = Some(("memory_flush", CollectionKind::Facts)).filter(|_| ledger.scenario.context.flush);
    for (follow_up, kind) in [Some(("turn_index", CollectionKind::Turns)), flush].into_iter().flatten() {
        let progress = activity.follow_ups.get(follow_up).copied().unwrap_or_default();
        if progress.is_requested() && node.alarm.get().is_some() {
            continue;
        }
        for turn in view.turns.iter().filter(|turn| !turn.started.is_empty() && !turn.is_woken()) {
            let said = turn.said.strip_prefix(&mark(node.place)).unwrap_or_default();
            let name = said.split_whitespace().next().unwrap_or_default();
            if !one_shot::is_indexed(ledger, session, name, kind) {
                let left = format!("“{}” is not in the index of {kind:?}", turn.said);
                ledger.find(10, format!("{left}, and {follow_up} is not due"));
            }
        }
    }
}
