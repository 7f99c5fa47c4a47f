//! The built-in hooks, one file each. They know nothing of each other.

pub mod agent_trace;
pub mod compaction;
#[cfg(feature = "fixtures")]
pub mod fixtures;
pub mod memory_flush;
pub mod memory_maintenance;
pub mod observation;
pub mod session_persistence;
pub mod tool_result_eviction;
pub mod turn_index;
pub mod workspace_context;

pub use agent_trace::AgentTrace;
pub use compaction::Compaction;
pub use memory_flush::MemoryFlush;
pub use memory_maintenance::MemoryMaintenance;
pub use observation::Observation;
pub use session_persistence::SessionPersistence;
pub use tool_result_eviction::ToolResultEviction;
pub use turn_index::TurnIndex;
pub use workspace_context::WorkspaceContext;
