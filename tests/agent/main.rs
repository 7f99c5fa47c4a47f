//! One session and its agent, natively: all ports are in memory, the test controls the clock, and the session
//! can be evicted after any commit.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod approvals;
mod artifacts;
mod bounds;
mod build;
mod ceilings;
mod chat_completions;
mod compaction;
mod compaction_plans;
mod context;
mod crash;
mod denials;
mod discipline;
mod eviction;
mod files;
mod follow_ups;
mod hooks;
mod http;
mod intervals;
mod limits;
mod memory;
mod models;
mod modes;
mod observation;
mod others;
mod outputs;
mod pages;
mod permissions;
mod plans;
mod questions;
mod quotas;
mod replay;
mod responses;
mod settings;
mod stage;
mod state;
mod stored;
mod subagents;
mod tasks;
mod totals;
mod turns;
mod ui_stream;
mod view;
mod workspace_context;
