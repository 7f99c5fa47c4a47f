//! (being built)
pub mod retry;
