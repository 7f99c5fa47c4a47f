//! Acts: the agent, its tools and hooks, and the driver of the loop.
//!
//! [`HarnessAgent::call`] is one turn. [`SessionHost`] is one session with the agent that answers
//! in it: it accepts messages, queues, steers, aborts and resumes.

pub mod builder;
pub mod context;
pub mod executor;
pub mod finalizer;
pub mod harness;
pub mod hook;
pub mod host;
pub mod react;
mod stream;
pub mod tool;
pub mod toolkit;

pub use builder::{BuildError, HarnessBuilder};
pub use context::{CancelToken, RuntimeContext, ToolContext};
pub use harness::HarnessAgent;
pub use hook::{ActDecision, Hook};
pub use host::{HostConfig, OnBusy, Post, SessionHost};
pub use tool::{DynTool, Tool, ToolError};
pub use toolkit::Toolkit;
