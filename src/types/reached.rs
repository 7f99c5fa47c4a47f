//! A limit of a tenant that a request has reached.

use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The limits of a tenant that time resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimedLimit {
    /// Requests in a minute.
    RequestsPerMin,
    /// Turns at the same time.
    ConcurrentTurns,
    /// Turns that start in a UTC day.
    TurnsPerDay,
    /// Tokens of a UTC day.
    TokensPerDay,
    /// Cost of a UTC day.
    CostUsdPerDay,
}

impl TimedLimit {
    /// Returns whether the limit is one of a UTC day.
    pub fn is_daily(self) -> bool {
        matches!(self, Self::TurnsPerDay | Self::TokensPerDay | Self::CostUsdPerDay)
    }
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
    /// Whether running turns hold what is left of the limit, so that it may be free when one of them ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}
