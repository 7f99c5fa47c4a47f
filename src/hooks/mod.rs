//! The built-in hooks, one file each. They know nothing of each other.

pub mod agent_trace;
#[cfg(feature = "fixtures")]
pub mod fixtures;
pub mod session_persistence;

pub use agent_trace::AgentTrace;
pub use session_persistence::SessionPersistence;
