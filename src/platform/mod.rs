//! Adapters of the ports.

pub mod in_memory;
