//! The program `agentctl`, run against the real Worker in workerd.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../tests/support/mod.rs"]
mod support;

mod acp;
mod agentctl;
mod agents;
mod chat;
mod files;
mod inbox;
mod mcp;
mod memory;
mod operator;
mod profiles;
mod run_kills;
mod runner;
mod runs;
mod sessions;
mod spec;
mod terminal;
mod turns;
mod workspace;
