//! The operator's log.

/// A sink for structured log lines, which must not contain users' text or secrets.
///
/// ```
/// use edge_harness::{platform::in_memory::MemoryLog, ports::Log};
/// use serde_json::json;
///
/// let log = MemoryLog::default();
/// log.line(&json!({"event": "started"}));
/// assert_eq!(log.lines(), [json!({"event": "started"})]);
/// ```
pub trait Log {
    /// Writes one line of JSON.
    fn line(&self, json: &serde_json::Value);

    /// Writes one line of JSON about a failure, which operators may want to be alerted about.
    fn error(&self, json: &serde_json::Value) {
        self.line(json);
    }
}
