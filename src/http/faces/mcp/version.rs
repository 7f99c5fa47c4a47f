//! The versions of the protocol, and its extension.

pub(super) use crate::mcp::protocol::{LEGACY, MODERN};

/// The name of the extension for tasks.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The version whose clients expect that a stream begins with an event without data.
pub(super) const PRIMED: &str = LEGACY[0];
