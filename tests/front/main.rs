//! What clients of the front see: who gets in, what they get, and what they are told otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod admin;
mod entry;
mod idempotency;
mod rules;
mod signatures;
mod signer;
mod stage;
mod tokens;
mod workspace;
