//! Support of the integration tests: the real Worker under Miniflare, clients for it, and a model server with
//! scripted responses.
//!
//! All calls block, and all waits have a deadline, so that a test fails instead of hanging.

#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod chat;
mod client;
mod counting;
mod folder;
pub mod http;
pub mod log;
mod model_server;
mod process;
mod script;
mod server;
mod sse;
mod wire;

pub use chat::{Chat, PROVIDER_KEY, World, millis, outcomes, result_text, system_text, tail_text};
pub use client::{Client, WebSocket};
pub use counting::Counting;
pub use folder::{Folder, sweep};
pub use http::Response;
pub use model_server::{ModelServer, Received};
pub use script::{Gate, Script};
pub use server::{ADMIN_KEY, DEV_API_KEY, Launch, Server, shared};
pub use sse::{Event, Sse};

/// Maximum time of any wait.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
