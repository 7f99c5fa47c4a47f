//! (being built)
use crate::types::ModelError;
/// stub
#[derive(Default)]
pub struct RetryPolicy;
impl RetryPolicy {
    /// stub
    pub fn delay_ms(&self, _tries: u32, error: &ModelError, _random: u32) -> Option<u64> {
        error.is_retryable().then_some(10)
    }
}
