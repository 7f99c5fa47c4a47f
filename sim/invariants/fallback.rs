//! The model that takes over when the session's model fails: invariant 19.

use super::view::{Entry, Turn, View};
use crate::{
    ledger::Ledger,
    model::{FALLBACK, PRIMARY},
};
use edge_harness::types::ModelErrorKind;

/// 19: a turn asks the session's model until the log says that the other one takes over, and from then on only that one.
pub fn taken_over(ledger: &Ledger, view: &View) {
    for turn in &view.turns {
        let records = turn.records.iter().map(|place| &view.entries[*place]);
        let records: Vec<&Entry> = records.filter(|entry| entry.kind == "model.fallback").collect();
        let since = match records[..] {
            [] => u64::MAX,
            [one]
                if ledger.scenario.falls_back
                    && one.value["previous"] == PRIMARY
                    && one.value["model"] == FALLBACK =>
            {
                one.moment
            }
            _ => {
                ledger.find(19, format!("{}: {} models took over", turn.id, records.len()));
                continue;
            }
        };
        let asks = ledger.asks.borrow();
        for ask in asks.iter().filter(|ask| ask.said == turn.said) {
            if ask.is_fallback != (ask.began > since) {
                let model = if ask.is_fallback { FALLBACK } else { PRIMARY };
                ledger.find(19, format!("{}: {model} is asked for step {}", turn.id, ask.step));
            }
        }
        if ledger.scenario.falls_back && since == u64::MAX {
            helped(ledger, view, turn);
        }
    }
}

/// No turn fails because the model did, before its first token, while another one could have taken over.
fn helped(ledger: &Ledger, view: &View, turn: &Turn) {
    let Some(end) = turn.ends.first().map(|end| &view.entries[*end]) else { return };
    let kinds = [ModelErrorKind::Unavailable, ModelErrorKind::Cut, ModelErrorKind::Stalled];
    let has_failed = kinds.iter().any(|kind| end.value["error"]["code"] == kind.code());
    let asks = ledger.asks.borrow();
    let last = asks.iter().rfind(|ask| ask.said == turn.said);
    // In every third step, planned failures come before the first token.
    if has_failed && last.is_some_and(|ask| ask.step.is_multiple_of(3) && !ask.tools_off && !ask.hangs) {
        ledger.find(19, format!("no other model took over: {}", end.json));
    }
}
