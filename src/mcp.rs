//! The client of MCP: the tools of servers that definitions of agents name.
//!
//! A [`Connection`] speaks Streamable HTTP with one server, in one of two eras of the protocol. A *modern* server
//! (2026-07-28) has no sessions: each request describes itself. A *legacy* server (2025-11-25 and earlier) begins with a
//! handshake. The client asks for the modern era first.
//!
//! [`McpServers`] lists the tools of all servers of a definition; each is an [`McpTool`]. A server that fails costs its own
//! tools and nothing else. What servers say is text of strangers: it is bounded, and never part of the operator's
//! instructions.

mod call;
mod connect;
mod connection;
mod consent;
mod content;
mod elicitation;
mod error;
mod headers;
mod listing;
mod message;
pub mod oauth;
mod oauth_client;
mod offer_tool;
mod offers;
mod outcome;
mod ports;
mod progress;
pub mod protocol;
mod server;
mod tool;

#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use error::{McpError, RpcError};
pub use listing::{Listings, McpServers};
pub use oauth_client::OAuthClient;
pub use ports::Ports;
pub use server::{Auth, MAX_SERVERS, McpServer, tool_prefix};
pub use tool::McpTool;
