//! Limits of a tenant over time, and the messages between its sessions and its ledger.

use super::{Day, NanoUsd, Reached, SessionId, Timestamp, UsageRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time after which a retry may find a free slot, or cost that no turn holds. It cannot be known, so this is an
/// estimate.
pub const SLOT_RETRY: Duration = Duration::from_secs(5);

/// The limits that the ledger checks before a turn starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Maximum number of sessions with a running turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_turns: Option<u32>,
    /// Maximum number of turns that start in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_per_day: Option<u32>,
    /// Number of tokens in a UTC day after which no further turn starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Cost in US dollars in a UTC day after which no further turn starts, and none that waits continues. Running turns
    /// hold their ceilings of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd_per_day: Option<f64>,
}

impl Quota {
    /// Returns whether there are no limits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the ledger counts running turns. Sessions then hold slots.
    pub fn needs_slots(&self) -> bool {
        self.concurrent_turns.is_some() || self.turns_per_day.is_some() || self.cost_usd_per_day.is_some()
    }
}

/// What a session needs its slot for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotUse {
    /// A turn that is about to be stored. If its process is evicted first, no stored state releases the slot.
    Starting,
    /// A turn that runs.
    Running,
}

/// What a session does at a time. A later one replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// When the session sent it. Each is later than the one before.
    pub sent_at: Timestamp,
    /// What the session needs a slot for; `None` if it needs none.
    pub slot: Option<SlotUse>,
    /// The turns that no report has counted: they are queued or about to start. In a slot, also those that started after
    /// the last report.
    pub open_turns: u32,
    /// The cost that the session's turns may have: the sum of the ceilings of those that run, are queued, or are about to
    /// start or continue. A turn without a ceiling holds nothing. Sessions of older versions send none.
    #[serde(default, skip_serializing_if = "NanoUsd::is_zero")]
    pub hold: NanoUsd,
}

/// The request of a session to start one more turn, or to continue one that waits. Its standing includes that turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// The session.
    pub session: SessionId,
    /// When the session was created; the epoch if it is not stored yet.
    #[serde(default)]
    pub created_at: Timestamp,
    /// The session's standing with that turn, without the turns in `started`.
    pub standing: Standing,
    /// Sequence numbers of the records of started turns that the session does not know to be counted. The ledger may have
    /// counted them, because the response to a report may be on its way.
    #[serde(default)]
    pub started: Vec<u64>,
    /// The part of the standing's hold that is for the turn.
    #[serde(default, skip_serializing_if = "NanoUsd::is_zero")]
    pub hold: NanoUsd,
    /// Whether the turn continues, so that it was counted when it started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The limits.
    pub quota: Quota,
}

/// The ledger's response to an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admitted {
    /// The turn may start or continue. The session holds a slot until then, unless it reports earlier.
    Until(Timestamp),
    /// The turn may not start or continue.
    Refused(Reached),
}

/// What the log of a session says about usage, from its records after `from` up to `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The session.
    pub session: SessionId,
    /// When the session was created. A session with the id of an erased one starts from 0 again.
    pub created_at: Timestamp,
    /// Sequence number of the last record that earlier reports cover.
    pub from: u64,
    /// Sequence number of the last record that this report covers.
    pub to: u64,
    /// The sums.
    pub rows: Vec<UsageRow>,
    /// How many turns started on each day. Turns of subagents do not count.
    pub started: BTreeMap<Day, u64>,
    /// The session's standing after these records.
    pub standing: Standing,
    /// Whether the session is being erased.
    pub is_last: bool,
}

/// The ledger's response to a [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Sequence number of the last record that the ledger has counted. If it is not [`Report::to`], the ledger has
    /// counted nothing of the report, because it did not start there.
    pub reported: u64,
    /// Until when the session holds its slot, if it does.
    pub slot_until: Option<Timestamp>,
}

/// Requests that a gateway may pass on until `ends_at` without asking the ledger again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestBlock {
    /// The number of requests; 0 if the limit is reached.
    pub granted: u32,
    /// The end of the minute.
    pub ends_at: Timestamp,
}
