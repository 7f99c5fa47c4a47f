//! Faces: other protocols over the same sessions. A face reads a request into a native message, and writes the records
//! of the turn as frames of its protocol. It stores nothing and runs nothing itself.
//!
//! To add one, write a file with a `Face`, a handler and a
//! [`Projection`](crate::session::hub::Projection); docs/extending.md names the other places.

pub mod a2a;
pub mod ag_ui;
pub mod chat_completions;
mod children;
mod exchange;
pub mod mcp;
pub(super) mod openai;
pub mod responses;
pub mod socket;
pub(super) mod sse;
mod task_id;
mod text;
mod transcript;
pub mod ui_stream;
