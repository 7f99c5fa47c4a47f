//! An agent server that remembers, streams and survives: Rust on Cloudflare Workers.
//!
//! One HTTP request is one `call()` of a `HarnessAgent`. Each of these parts may use the parts above it
//! (`tests/architecture.rs` enforces this):
//!
//! | part | what it is |
//! |---|---|
//! | [`types`] | plain data: ids, messages, events, outcomes, errors |
//! | [`ports`] | the traits through which the core reaches the world |
//! | [`ledger`] | the ledger of a tenant: usage, and limits over time |
//! | [`model`] | provider wires, the table of providers, retry |
//! | [`workspace`] | the files of agents: user, shared and template layers |
//! | [`memory`] | messages and facts, searched by words |
//! | [`session`] | one session: log, state, context window, live listeners |
//! | [`turn`] | decides, purely: the loop as a state machine, waves, recovery |
//! | [`runs`] | jobs of steps: the plan, the state, the decisions, the report |
//! | [`context`] | keeps the conversation within the model's window: compaction, observation |
//! | [`agent`] | acts: the agent, its hooks and tools, the loop's driver |
//! | [`mcp`] | the client of MCP: the tools of other servers |
//! | [`hooks`], [`follow_ups`], [`tools`] | the built-in capabilities, one file each |
//! | [`standard`] | the only place that adds the built-ins to an agent |
//! | [`http`] | routes, authentication, problems, one file per resource |
//! | [`platform`] | the adapters: in memory, and Cloudflare |
//! | [`testkit`] | a session in memory, for tests of your own tools and hooks |

pub mod agent;
pub mod context;
pub mod follow_ups;
pub mod hooks;
pub mod http;
pub mod inbox;
pub mod ledger;
pub mod mcp;
pub mod memory;
pub mod model;
pub mod platform;
pub mod ports;
pub mod remote;
pub mod runs;
pub mod session;
pub mod standard;
pub mod testkit;
pub mod tools;
pub mod turn;
pub mod types;
pub mod workspace;
