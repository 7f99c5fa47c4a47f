//! When to try a failed model call again.

use crate::types::ModelError;

/// How often and how long to wait. Pure: the caller brings the chance and does the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all, the first one included.
    pub tries: u32,
    /// The wait after the first try, doubled after each further one.
    pub base_ms: u64,
    /// The longest wait of our own making.
    pub cap_ms: u64,
    /// The longest wait that a provider may ask for; beyond it the call fails.
    pub patience_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 4, base_ms: 500, cap_ms: 8_000, patience_ms: 60_000 }
    }
}

impl RetryPolicy {
    /// How long to wait before the next try, after `tried` tries of which the last ended in
    /// `error`; `None` to give up. `random` spreads callers that failed together: half of the wait
    /// is fixed, half is chance.
    pub fn delay_ms(&self, tried: u32, error: &ModelError, random: u32) -> Option<u64> {
        if tried >= self.tries || !error.is_retryable() {
            return None;
        }
        let asked = error.retry_after_ms.unwrap_or(0);
        if asked > self.patience_ms {
            return None;
        }
        let doublings = tried.saturating_sub(1).min(32);
        let wait = self.base_ms.saturating_mul(1 << doublings).min(self.cap_ms);
        let half = wait / 2;
        let chance = (half.saturating_mul(u64::from(random))) >> 32;
        Some((wait - half + chance).max(asked))
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
            // tried, kind, retry-after, x-should-retry, random, expected
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
        for (tried, kind, after, should, random, expected) in cases {
            let got = policy.delay_ms(tried, &error(kind, after, should), random);
            assert_eq!(got, expected, "{tried} {kind:?} {after:?} {should:?} {random}");
        }
    }

    proptest! {
        #[test]
        fn waits_are_bounded(tries in 1u32..100, tried in 0u32..100, random: u32, after in proptest::option::of(0u64..100_000)) {
            let policy = RetryPolicy { tries, ..RetryPolicy::default() };
            if let Some(wait) = policy.delay_ms(tried, &error(RateLimited, after, None), random) {
                prop_assert!(tried < tries);
                prop_assert!(wait >= after.unwrap_or(0).max(250) && wait <= after.unwrap_or(0).max(8_000));
            }
        }
    }
}
