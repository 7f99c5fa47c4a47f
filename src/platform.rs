//! Implementations of the ports.

#[cfg(feature = "cloudflare")]
pub mod cloudflare;
pub mod in_memory;
pub mod sql;
