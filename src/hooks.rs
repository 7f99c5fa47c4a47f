//! The built-in hooks, which are independent of each other.

pub mod agent_trace;
pub mod approved_plan;
#[cfg(feature = "fixtures")]
pub mod fixtures;
pub mod session_persistence;
pub mod skills;
pub mod tool_result_eviction;
pub mod unavailable_servers;
pub mod unusable_agent;
pub mod workspace_context;
pub mod workspace_tools;

pub use agent_trace::AgentTrace;
pub use approved_plan::ApprovedPlan;
pub use session_persistence::SessionPersistence;
pub use skills::Skills;
pub use tool_result_eviction::ToolResultEviction;
pub use unavailable_servers::UnavailableServers;
pub use unusable_agent::UnusableAgent;
pub use workspace_context::WorkspaceContext;
pub use workspace_tools::WorkspaceTools;
