//! The statements of memory, run by SQLite itself on the real migrations.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod index;
mod migrations;
mod spaces;
mod sqlite;
mod twin;
