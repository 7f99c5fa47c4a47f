//! What the turns of a tenant consumed, by UTC day, agent, model and user.

use super::{AgentId, Timestamp, Usage, UserId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, ops::AddAssign, time::Duration};

/// The length of a day.
const DAY: Duration = Duration::from_hours(24);

/// A UTC day. As text and in JSON, such as `2026-11-20`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(
    /// Days since 1970-01-01.
    u64,
);

impl Day {
    /// Returns the day of a time.
    pub fn of(at: Timestamp) -> Self {
        Self(at.0 / super::time::millis(DAY))
    }

    /// Returns the start of the day.
    pub fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(super::time::millis(DAY)))
    }

    /// Returns the day that follows.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the day `days` days earlier; at the earliest the first day.
    pub fn earlier(self, days: u64) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// Returns the number of days from `earlier` to this day; 0 if that is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Parses text of the form `2026-11-20`.
    pub fn parse(text: &str) -> Option<Self> {
        let day = Self::of(Timestamp::parse(&format!("{text}T00:00:00Z"))?);
        (day.to_string() == text).then_some(day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.start().date())
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("expected a date"))
    }
}

/// A cost in billionths of a US dollar: a whole number, so that sums do not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

impl NanoUsd {
    const PER_USD: f64 = 1e9;

    /// Rounds a cost in US dollars. A negative cost counts as 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    pub fn of_usd(usd: f64) -> Self {
        Self((usd * Self::PER_USD).round() as u64)
    }

    /// Returns the sum, or the highest cost if it is higher.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or 0 if `other` is higher.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns whether the cost is 0.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Returns the cost in US dollars.
    #[allow(clippy::cast_precision_loss, reason = "costs of a day are far below 2^53")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / Self::PER_USD
    }
}

/// Sums of what turns consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageTotals {
    /// Turns that ended. Turns of subagents do not count.
    pub turns: u64,
    /// Steps, those of subagents included.
    pub steps: u64,
    /// Tool calls, those of subagents included.
    pub tool_calls: u64,
    /// Tokens.
    #[serde(flatten)]
    pub tokens: Usage,
    /// The cost of the tokens, as far as prices are known.
    #[serde(rename = "cost_nano_usd")]
    pub cost: NanoUsd,
}

impl AddAssign for UsageTotals {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.steps += other.steps;
        self.tool_calls += other.tool_calls;
        self.tokens += other.tokens;
        self.cost.0 += other.cost.0;
    }
}

/// What a row of usage is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsageKey {
    /// The UTC day.
    pub day: Day,
    /// The agent.
    pub agent: AgentId,
    /// The model, as `provider/model`; empty for turns to which no model responded.
    pub model: String,
    /// The user.
    pub user: UserId,
}

/// Some of the rows of usage, by day.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UsagePage {
    /// The rows.
    pub rows: Vec<UsageRow>,
    /// After which the next page begins; absent on the last page.
    pub next: Option<String>,
}

/// A row of usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// What the row is about.
    #[serde(flatten)]
    pub key: UsageKey,
    /// The sums.
    #[serde(flatten)]
    pub totals: UsageTotals,
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn days_are_those_of_utc() {
        let day = Day::of(Timestamp(1_795_176_000_123));
        assert_eq!((day.to_string(), Day::parse("2026-11-20")), ("2026-11-20".to_owned(), Some(day)));
        assert_eq!(day.next().start().to_rfc3339(), "2026-11-21T00:00:00.000Z");
        assert_eq!((day.earlier(20).to_string(), day.since(day.earlier(20))), ("2026-10-31".to_owned(), 20));
        for text in ["", "2026-11-31", "2026-1-1", "2026-11-20T00:00:00Z", "today"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }

    #[test]
    fn costs_are_sums_of_whole_numbers() {
        let mut sum = UsageTotals::default();
        for usd in [0.1, 0.2, 0.000_000_001, -1.0, f64::NAN] {
            sum += UsageTotals { cost: NanoUsd::of_usd(usd), ..UsageTotals::default() };
        }
        assert_eq!(sum.cost, NanoUsd(300_000_001));
    }

    #[test]
    fn a_row_round_trips_through_json() {
        let totals = UsageTotals {
            turns: 1,
            tokens: Usage { input_tokens: 5, ..Usage::default() },
            cost: NanoUsd(7),
            ..UsageTotals::default()
        };
        let key =
            UsageKey { day: Day::of(Timestamp(0)), agent: "a".into(), model: "p/m".into(), user: "u".into() };
        let row = UsageRow { key, totals };
        let json = serde_json::to_string(&row).expect("JSON");
        assert_eq!(serde_json::from_str::<UsageRow>(&json).expect("a row"), row);
    }
}
