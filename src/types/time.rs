//! Timestamps: milliseconds in memory, RFC 3339 on the wire.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in milliseconds since the Unix epoch. RFC 3339 in UTC in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the start of the minute.
    pub fn start_of_minute(self) -> Self {
        Self(self.0 - self.0 % 60_000)
    }

    /// Formats as RFC 3339 in UTC with milliseconds, such as `2026-11-20T12:00:00.000Z`.
    pub fn to_rfc3339(self) -> String {
        i64::try_from(self.0)
            .ok()
            .and_then(DateTime::<Utc>::from_timestamp_millis)
            .unwrap_or(DateTime::UNIX_EPOCH)
            .to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// Returns the UTC date, such as `2026-11-20`.
    pub fn date(self) -> String {
        self.to_rfc3339().get(..10).unwrap_or_default().to_owned()
    }

    /// Parses RFC 3339 with any offset.
    pub fn parse(text: &str) -> Option<Self> {
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        u64::try_from(time.timestamp_millis()).ok().map(Self)
    }
}

/// Returns up to `count` items for a run that starts at this time: a run each minute takes each item in turn.
pub fn in_turn<T>(mut items: Vec<T>, count: usize, now: Timestamp) -> Vec<T> {
    let run = usize::try_from(now.0 / 60_000).unwrap_or_default();
    let first = run.wrapping_mul(count).checked_rem(items.len()).unwrap_or_default();
    items.rotate_left(first);
    items.truncate(count);
    items
}

/// Adds a span. Stops at the latest time.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }
}

/// Subtracts a span. Stops at the epoch.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }
}

/// Returns a span in whole milliseconds, the unit of spans in events, logs and databases.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl schemars::JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("expected an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_has_its_turn() {
        for len in 0..50 {
            let mut seen = std::collections::BTreeSet::new();
            let runs = (len as u64).div_ceil(20);
            for run in 0..runs {
                let taken = in_turn((0..len).collect(), 20, Timestamp(1_795_176_012_345 + run * 60_000));
                assert_eq!(taken.len(), len.min(20));
                seen.extend(taken);
            }
            assert_eq!(seen.len(), len);
        }
    }

    #[test]
    fn rfc3339_round_trips() {
        let time = Timestamp(1_795_176_000_123);
        assert_eq!(time.to_rfc3339(), "2026-11-20T12:00:00.123Z");
        assert_eq!(time.date(), "2026-11-20");
        assert_eq!(Timestamp::parse(&time.to_rfc3339()), Some(time));
        assert_eq!(Timestamp::parse("2026-11-20T13:00:00.123+01:00"), Some(time));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn arithmetic_saturates() {
        let (time, second) = (Timestamp(5_000), Duration::from_secs(1));
        assert_eq!((time + second, time - second), (Timestamp(6_000), Timestamp(4_000)));
        assert_eq!((time.since(time - second), (time - second).since(time)), (second, Duration::ZERO));
        assert_eq!((time + Duration::MAX, time - Duration::MAX), (Timestamp(u64::MAX), Timestamp(0)));
    }
}
