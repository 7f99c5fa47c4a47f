//! The built-in hooks, one file each. They know nothing of each other.

pub mod agent_trace;
#[cfg(feature = "fixtures")]
pub mod fixtures;
pub mod memory_flush;
pub mod memory_maintenance;
pub mod observation;
pub mod session_persistence;
pub mod turn_index;
pub mod workspace_context;

pub use agent_trace::AgentTrace;
pub use memory_flush::MemoryFlush;
pub use memory_maintenance::MemoryMaintenance;
pub use observation::Observation;
pub use session_persistence::SessionPersistence;
pub use turn_index::TurnIndex;
pub use workspace_context::WorkspaceContext;
