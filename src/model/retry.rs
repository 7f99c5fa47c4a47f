//! Decides when to retry a failed model call.

use crate::types::ModelError;

/// Limits of retries. Pure: the caller supplies the random number and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delay after the first attempt; it doubles after each further attempt.
    pub base_ms: u64,
    /// Upper bound of the computed delay.
    pub max_delay_ms: u64,
    /// Longest delay that a provider may request; the call fails if it requests more.
    pub max_retry_after_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, base_ms: 500, max_delay_ms: 8_000, max_retry_after_ms: 60_000 }
    }
}

impl RetryPolicy {
    /// Returns the delay before the next attempt, or `None` to give up. `attempts` attempts were made and the
    /// last one failed with `error`. Half of the delay is fixed and half scales with `random`, which spreads
    /// out callers that failed at the same time.
    pub fn delay_ms(&self, attempts: u32, error: &ModelError, random: u32) -> Option<u64> {
        if attempts >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let requested = error.retry_after_ms.unwrap_or(0);
        if requested > self.max_retry_after_ms {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(32);
        let wait = self.base_ms.saturating_mul(1 << doublings).min(self.max_delay_ms);
        let half = wait / 2;
        let chance = (half.saturating_mul(u64::from(random))) >> 32;
        Some((wait - half + chance).max(requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ModelErrorKind::{self, *};
    use proptest::prelude::*;

    fn error(kind: ModelErrorKind, retry_after_ms: Option<u64>, should_retry: Option<bool>) -> ModelError {
        ModelError { retry_after_ms, should_retry, ..ModelError::new(kind, "x") }
    }

    #[test]
    fn table() {
        let policy = RetryPolicy::default();
        let cases = [
            // attempts, kind, retry-after, x-should-retry, random, expected
            (1, Unavailable, None, None, 0, Some(250)),
            (1, Unavailable, None, None, u32::MAX, Some(499)),
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
            let got = policy.delay_ms(attempts, &error(kind, after, should), random);
            assert_eq!(got, expected, "{attempts} {kind:?} {after:?} {should:?} {random}");
        }
    }

    proptest! {
        #[test]
        fn waits_are_bounded(max_attempts in 1u32..100, attempts in 0u32..100, random: u32, after in proptest::option::of(0u64..100_000)) {
            let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
            if let Some(wait) = policy.delay_ms(attempts, &error(RateLimited, after, None), random) {
                prop_assert!(attempts < max_attempts);
                prop_assert!(wait >= after.unwrap_or(0).max(250) && wait <= after.unwrap_or(0).max(8_000));
            }
        }
    }
}
