//! The agent, its tools and hooks, and the driver of the loop.
//!
//! [`HarnessAgent::call`] runs one turn. [`SessionHost`] is one session with its agent: it accepts messages,
//! queues, steers, aborts and resumes.

mod admission;
pub mod builder;
mod child_settings;
pub mod context;
mod context_manager;
mod context_source;
mod driver;
mod ending;
mod executor;
pub mod external_tool;
mod fallback;
pub mod finalizer;
mod find_tools;
mod finished_tasks;
pub mod follow_up;
pub mod harness;
pub mod hook;
mod hook_chain;
mod hook_draft;
pub mod host;
pub mod interval;
mod judge;
mod media;
pub mod object_schema;
mod own_default;
mod preparer;
pub mod react;
mod reason;
mod reflection;
pub mod run;
pub mod runtime_state;
pub mod settings;
pub mod spec_writer;
pub mod state;
mod stream;
pub mod tool;
pub mod tool_context;
mod tool_error;
pub mod toolkit;
mod verification;
pub mod versions;

pub use crate::ports::CancelToken;
pub use crate::session::window::Bounds;
pub use builder::{BuildError, HarnessBuilder};
pub use context::RuntimeContext;
pub use context_source::ContextSource;
pub use external_tool::ExternalTool;
pub use follow_up::FollowUp;
pub use harness::HarnessAgent;
pub use hook::{ActDecision, Hook};
pub use hook_draft::HookDraft;
pub use host::{HostConfig, OnBusy, Post, SessionHost};
pub use interval::Interval;
pub use runtime_state::RuntimeState;
pub use settings::{Judge, MediaModels, Settings, ToolFilter, Verify};
pub use state::StateRules;
pub use tool::{DynTool, Tool};
pub use tool_context::{ToolContext, WriteGate};
pub use tool_error::ToolError;
pub use toolkit::Toolkit;
pub use versions::AgentVersions;
