//! The versions of the protocol, and its extension.

/// The modern version.
pub(super) const MODERN: &str = "2026-07-28";
/// The legacy versions, the newest first.
pub(super) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The name of the extension for tasks.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The version whose clients expect that a stream begins with an event without data.
pub(super) const PRIMED: &str = LEGACY[0];
