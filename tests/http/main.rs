//! The real Worker in workerd, over HTTP. One binary: modules share the linked libraries, and
//! their servers start when the first test asks for them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod answers;
mod approvals;
mod artifacts;
mod audit;
mod background;
mod bodies;
mod clients;
mod compaction;
mod consolidation;
mod control;
mod discipline_tools;
mod discipline_turns;
mod doc_commands;
mod errors;
mod events;
mod folders;
mod fuzz;
mod http_tools;
mod isolation;
mod jwt;
mod kit;
mod large;
mod limits;
mod media;
mod memory;
mod model_choice;
mod my_agent;
mod observation;
mod openapi;
mod overflow;
mod page;
mod pending;
mod people;
mod privacy;
mod providers;
mod recovery;
mod remote_agents;
mod rows;
mod runs;
mod shards;
mod skills;
mod socket;
mod specs;
mod subagents;
mod tenants;
mod turns;
mod variables;
mod verification;
mod workspace;
mod workspace_context;
