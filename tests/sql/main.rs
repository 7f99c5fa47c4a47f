//! The SQL of memory and of sessions, run by SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod audit;
mod consents;
mod glance;
mod index;
mod migrations;
mod moves;
mod secrets;
mod session_store;
mod spaces;
mod spread;
mod sqlite;
mod storage;
mod storage_days;
mod twin;
