//! The SQL of memory and of logs, run by SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod index;
mod log;
mod migrations;
mod spaces;
mod sqlite;
mod storage;
mod twin;
