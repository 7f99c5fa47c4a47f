//! Decides when to retry a failed model call.

use crate::types::ModelError;
use std::time::Duration;

/// Limits of retries. Pure: the caller supplies the random number and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delay after the first attempt; it doubles after each further attempt.
    pub base: Duration,
    /// Upper bound of the computed delay.
    pub max_delay: Duration,
    /// Longest delay that a provider may request; the call fails if it requests more.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            base: Duration::from_millis(500),
            max_delay: Duration::from_secs(8),
            max_retry_after: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Returns the delay before the next attempt, or `None` to give up. `attempts` attempts were made and the
    /// last one failed with `error`. Half of the delay is fixed and half scales with `random`, which spreads
    /// out callers that failed at the same time.
    pub fn delay(&self, attempts: u32, error: &ModelError, random: u32) -> Option<Duration> {
        if attempts >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let requested = error.retry_after.unwrap_or_default();
        if requested > self.max_retry_after {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(31);
        let half = self.base.saturating_mul(1 << doublings).min(self.max_delay) / 2;
        let jitter = half.mul_f64(f64::from(random) / f64::from(u32::MAX));
        Some((half + jitter).max(requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ModelErrorKind::{self, *};
    use crate::types::time::millis;
    use proptest::prelude::*;

    fn error(kind: ModelErrorKind, after: Option<u64>, should_retry: Option<bool>) -> ModelError {
        let retry_after = after.map(Duration::from_millis);
        ModelError { retry_after, should_retry, ..ModelError::new(kind, "x") }
    }

    #[test]
    fn table() {
        let policy = RetryPolicy::default();
        let cases = [
            // attempts, kind, retry-after, x-should-retry, random, expected
            (1, Unavailable, None, None, 0, Some(250)),
            (1, Unavailable, None, None, u32::MAX, Some(500)),
            (2, Network, None, None, 0, Some(500)),
            (3, Cut, None, None, 0, Some(1_000)),
            (4, Stalled, None, None, 0, None),
            (1, RateLimited, Some(3_000), None, 0, Some(3_000)),
            (1, RateLimited, Some(60_000), None, 0, Some(60_000)),
            (1, RateLimited, Some(60_001), None, 0, None),
            (1, Billing, None, None, 0, None),
            (1, Auth, None, None, 0, None),
            (1, Overflow, None, None, 0, None),
            (1, Invalid, None, None, 0, None),
            (1, Unavailable, None, Some(false), 0, None),
            (1, Invalid, None, Some(true), 0, Some(250)),
        ];
        for (attempts, kind, after, should, random, expected) in cases {
            let got = policy.delay(attempts, &error(kind, after, should), random).map(millis);
            assert_eq!(got, expected, "{attempts} {kind:?} {after:?} {should:?} {random}");
        }
    }

    proptest! {
        #[test]
        fn waits_are_bounded(max_attempts in 1u32..100, attempts in 0u32..100, random: u32, after in proptest::option::of(0u64..100_000)) {
            let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
            if let Some(wait) = policy.delay(attempts, &error(RateLimited, after, None), random) {
                prop_assert!(attempts < max_attempts);
                let after = after.unwrap_or(0);
                prop_assert!((after.max(250)..=after.max(8_000)).contains(&millis(wait)));
            }
        }
    }
}
