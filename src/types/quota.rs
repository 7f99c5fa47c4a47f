//! Limits of a tenant over time, and the messages between its sessions and its ledger.

use super::{Day, ErrorCode, Problem, SessionId, Timestamp, UsageRow};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The limits that the ledger checks before a turn starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Maximum number of sessions with a running turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_turns: Option<u32>,
    /// Maximum number of turns in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_per_day: Option<u32>,
    /// Number of tokens in a UTC day after which no further turn starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Cost in US dollars in a UTC day after which no further turn starts.
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
        self.concurrent_turns.is_some() || self.turns_per_day.is_some()
    }
}

/// What a session does at a time. A later one replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// When the session sent it. Each is later than the one before.
    pub sent_at: Timestamp,
    /// Whether the session holds a slot.
    pub holds_slot: bool,
    /// The turns that are running, queued or about to start: no report has counted them.
    pub open_turns: u32,
}

/// The request of a session to start one more turn, which its standing includes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// The session.
    pub session: SessionId,
    /// The session's standing with that turn.
    pub standing: Standing,
    /// The limits.
    pub quota: Quota,
}

/// The ledger's response to an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admitted {
    /// The turn may start. The session holds a slot until then, unless it reports earlier.
    Until(Timestamp),
    /// The turn may not start.
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

/// The limits of a tenant that time resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimedLimit {
    /// See [`TenantLimits::requests_per_min`](super::TenantLimits::requests_per_min).
    RequestsPerMin,
    /// See [`Quota::concurrent_turns`].
    ConcurrentTurns,
    /// See [`Quota::turns_per_day`].
    TurnsPerDay,
    /// See [`Quota::tokens_per_day`].
    TokensPerDay,
    /// See [`Quota::cost_usd_per_day`].
    CostUsdPerDay,
}

impl fmt::Display for TimedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestsPerMin => "requests_per_min",
            Self::ConcurrentTurns => "concurrent_turns",
            Self::TurnsPerDay => "turns_per_day",
            Self::TokensPerDay => "tokens_per_day",
            Self::CostUsdPerDay => "cost_usd_per_day",
        })
    }
}

/// A limit that the tenant has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The limit.
    pub limit: TimedLimit,
    /// When the limit resets, or when a retry may succeed.
    pub resets_at: Timestamp,
}

impl Reached {
    /// Creates the refusal of a limit that resets at the end of `day`.
    pub fn on(day: Day, limit: TimedLimit) -> Self {
        Self { limit, resets_at: day.next().start() }
    }

    /// Returns the response of a request at `now`.
    pub fn problem(self, now: Timestamp) -> Problem {
        let Self { limit, resets_at } = self;
        let (code, detail) = match limit {
            TimedLimit::RequestsPerMin => (
                ErrorCode::RateLimited,
                format!("the tenant has reached its limit {limit}; try again in the next minute"),
            ),
            TimedLimit::ConcurrentTurns => (
                ErrorCode::RateLimited,
                format!("the tenant has reached its limit {limit}; try again when one of its turns has ended"),
            ),
            TimedLimit::TurnsPerDay | TimedLimit::TokensPerDay | TimedLimit::CostUsdPerDay => (
                ErrorCode::QuotaExceeded,
                format!("the tenant has reached its limit {limit}, which resets at {}", resets_at.to_rfc3339()),
            ),
        };
        let seconds = resets_at.since(now).as_millis().div_ceil(1000).max(1);
        let retry_after_s = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        Problem { retry_after_s, reached: Some(self), ..Problem::new(code, detail) }
    }
}

/// Requests that a gateway may pass on until `ends_at` without asking the ledger again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestBlock {
    /// The number of requests; 0 if the limit is reached.
    pub granted: u32,
    /// The end of the minute.
    pub ends_at: Timestamp,
}
