//! The SQL of memory, run by SQLite on the real migrations.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod index;
mod migrations;
mod spaces;
mod sqlite;
mod twin;
