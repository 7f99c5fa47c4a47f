//! When refused requests should be tried again.

use crate::types::Timestamp;
use std::time::Duration;

/// The span over which retries are spread.
const SPREAD: Duration = Duration::from_mins(1);

/// Spreads the retries of refused requests. Clients that were refused together would otherwise return together, all but
/// a few of them in vain.
#[derive(Debug)]
pub(super) struct Retries(Timestamp);

impl Retries {
    /// Creates a spread of which no place is taken.
    pub const fn new() -> Self {
        Self(Timestamp(0))
    }

    /// Returns when the next refused request should be tried again: `apart` after the one before it. This is at or after
    /// `from`, and less than a minute later.
    pub fn next(&mut self, from: Timestamp, apart: Duration) -> Timestamp {
        let at = if self.is_over(from) || self.0.since(from) >= SPREAD { from } else { self.0 };
        self.0 = at + apart;
        at
    }

    /// Returns whether all retries are due at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.0 <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn retries_are_spread_over_a_minute() {
        let (mut retries, apart) = (Retries::new(), Duration::from_secs(25));
        let mut next = |from| retries.next(Timestamp(from), apart).0;
        assert_eq!([0, 0, 0, 0, 0].map(&mut next), [0, 25_000, 50_000, 0, 25_000]);
        assert_eq!([40_000, 90_000].map(&mut next), [50_000, 90_000], "retries in the past count no more");
    }
}
