//! Remote agents: kinds of subagents whose work another server does, reached by A2A 1.0.
//!
//! A [`RemoteModel`] is the model of such a subagent's session. Each task becomes a message to the remote agent, and the
//! text of the remote task is the reply. So a remote subagent waits, goes on in the background, is canceled, and is shown
//! like all others, and its conversation is in a log.
//!
//! ```text
//! agent_spawn ─▶ session of the subagent ─▶ RemoteModel ─▶ SendStreamingMessage, GetTask, CancelTask
//! ```

mod connection;
mod model;
mod ports;
mod task;

#[cfg(test)]
mod tests;

pub use model::RemoteModel;
pub use ports::RemotePorts;
