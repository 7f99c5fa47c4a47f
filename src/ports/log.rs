//! Lines for the operator.

/// Takes structured log lines. They never hold what users said, or secrets.
pub trait Log {
    /// Writes one line of JSON.
    fn line(&self, json: &serde_json::Value);
}
