//! The gateway as its clients see it: access, responses and errors.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod addresses;
mod admin;
mod agents;
mod audit;
mod deployment;
mod entry;
mod erasure;
mod export;
mod faces;
mod http_tools;
mod idempotency;
mod limits;
mod mcp;
mod mcp_legacy;
mod mcp_subscriptions;
mod moves;
mod rules;
mod runs;
mod secrets;
mod signatures;
mod signer;
mod skills;
mod stage;
mod tickets;
mod tokens;
mod workspace;
