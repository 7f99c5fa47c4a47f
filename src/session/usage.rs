//! The usage in a session's log, which the session reports to its tenant's ledger.

use super::decode_part;
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Page, Records, Select},
};
use crate::types::{Day, NanoUsd, Owner, Timestamp, TurnId, Usage, UsageKey, UsageRow, UsageTotals};
use serde::{Deserialize, de::IgnoredAny};
use std::collections::BTreeMap;

/// The kinds of records after which a report is due.
pub(super) const DUE: &[&str] = &["turn.completed", "turn.failed", "turn.canceled", "usage.other"];
/// The kinds of records that a report counts.
const COUNTED: &[&str] =
    &["turn.started", "usage.updated", "turn.completed", "turn.failed", "turn.canceled", "usage.other"];

/// The usage in a part of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogUsage {
    /// The sums.
    pub rows: Vec<UsageRow>,
    /// How many turns started on each day.
    pub started: BTreeMap<Day, u64>,
    /// Sequence number of the last record of the part.
    pub to: u64,
}

/// The fields of a record that count.
#[derive(Deserialize)]
struct Counted {
    at: Timestamp,
    /// Of `usage.updated`.
    #[serde(default)]
    step: Option<Usage>,
    /// Of `usage.other` and of the end of a turn.
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    cost_usd: Option<f64>,
    #[serde(default)]
    steps: u64,
    #[serde(default)]
    outcomes: BTreeMap<String, u64>,
    /// Absent in the end of a turn that never started.
    #[serde(default)]
    budget: Option<IgnoredAny>,
}

/// Sums up the records after `after`, up to `last` or to the end of a page. In the session of a subagent,
/// turns do not count, because they are part of a turn of the parent. In that of the parent, the tokens of subagents do
/// not count, because the child reports them: their `usage.updated` has no model.
///
/// # Errors
/// If the store fails, or a record cannot be parsed.
pub fn of_log(
    store: &dyn SessionStore,
    owner: &Owner,
    is_child: bool,
    after: u64,
    last: u64,
) -> Result<LogUsage, StoreError> {
    let before = Some(last.saturating_add(1));
    let Page { records, more } = store.read(Select { after, before, kinds: COUNTED, ..Select::default() })?;
    let mut found = LogUsage { to: last, ..LogUsage::default() };
    if let Some(newest) = records.last().filter(|_| more) {
        found.to = newest.seq;
    }
    let mut sums: BTreeMap<UsageKey, UsageTotals> = BTreeMap::new();
    // A turn that ends after a restart may not know its model.
    let mut models: BTreeMap<Option<TurnId>, String> = BTreeMap::new();
    for record in records {
        let counted: Counted = decode_part(&record.json)?;
        let day = Day::of(counted.at);
        let (model, totals) = match (record.kind.as_str(), counted) {
            ("turn.started", _) => {
                *found.started.entry(day).or_default() += u64::from(!is_child);
                continue;
            }
            ("usage.updated", Counted { step: Some(step), model: Some(model), cost_usd, .. }) => {
                models.insert(record.turn, model.clone());
                (model, spent(step, cost_usd))
            }
            ("usage.other", Counted { usage, model: Some(model), cost_usd, .. }) => {
                (model, spent(usage, cost_usd))
            }
            ("usage.updated" | "usage.other", _) | (_, Counted { budget: None, .. }) => continue,
            (_, Counted { model, steps, outcomes, .. }) => {
                let model = model.or_else(|| models.get(&record.turn).cloned()).unwrap_or_default();
                let tool_calls = outcomes.values().sum();
                let turns = u64::from(!is_child);
                (model, UsageTotals { turns, steps, tool_calls, ..UsageTotals::default() })
            }
        };
        let key = UsageKey { day, agent: owner.agent.clone(), model, user: owner.user.clone() };
        *sums.entry(key).or_default() += totals;
    }
    found.rows = sums.into_iter().map(|(key, totals)| UsageRow { key, totals }).collect();
    Ok(found)
}

fn spent(tokens: Usage, cost_usd: Option<f64>) -> UsageTotals {
    let tokens = Usage { window: None, ..tokens };
    UsageTotals { tokens, cost: NanoUsd::of_usd(cost_usd.unwrap_or_default()), ..UsageTotals::default() }
}

/// Returns the sequence numbers of the records after `after` with which turns started.
///
/// # Errors
/// If the store fails.
pub fn turns_started(store: &dyn SessionStore, after: u64) -> Result<Vec<u64>, StoreError> {
    Records::new(store, Select { after, kinds: &["turn.started"], ..Select::default() })
        .map(|record| Ok(record?.seq))
        .collect()
}

/// Returns the cost of the model calls in the records after `after`.
///
/// # Errors
/// If the store fails, or a record cannot be parsed.
pub fn cost(store: &dyn SessionStore, after: u64) -> Result<NanoUsd, StoreError> {
    #[derive(Deserialize)]
    struct Cost {
        #[serde(default)]
        cost_usd: Option<f64>,
        #[serde(default)]
        model: Option<IgnoredAny>,
    }
    let kinds = &["usage.updated", "usage.other"];
    Records::new(store, Select { after, kinds, ..Select::default() }).try_fold(NanoUsd(0), |sum, record| {
        let Cost { cost_usd, model } = decode_part(&record?.json)?;
        // A subagent reports its own.
        Ok(model.map_or(sum, |_| sum.plus(NanoUsd::of_usd(cost_usd.unwrap_or_default()))))
    })
}

/// Returns the time of the first record after `after` for which a report is due.
///
/// # Errors
/// If the store fails, or the record cannot be parsed.
pub(super) fn first_due(store: &dyn SessionStore, after: u64) -> Result<Option<Timestamp>, StoreError> {
    #[derive(Deserialize)]
    struct At {
        at: Timestamp,
    }
    let first = store.read(Select { after, kinds: DUE, limit: 1, ..Select::default() })?;
    first.records.first().map(|record| Ok(decode_part::<At>(&record.json)?.at)).transpose()
}
