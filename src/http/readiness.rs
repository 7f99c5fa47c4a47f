//! The result of the last check of what a deployment needs, which [`super::ready`] makes.

use crate::types::expiring::Expiring;
use crate::types::{Problem, Timestamp};
use std::time::Duration;

/// How long a result is used before the next check. The route needs no credential, so checks must be rare.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The result of the last check.
pub struct Readiness(Expiring<Result<(), Problem>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Expiring::new(1))
    }
}

impl Readiness {
    /// Returns the result, unless it is too old.
    pub(super) fn get(&self, now: Timestamp) -> Option<Result<(), Problem>> {
        self.0.get("", now)
    }

    /// Stores the result of a check.
    pub(super) fn put(&self, result: Result<(), Problem>, now: Timestamp) {
        self.0.put(String::new(), result, now + REMEMBERED, now);
    }
}
