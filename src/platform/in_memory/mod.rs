//! Twins of the ports in plain memory, with faults that tests can switch on.

pub mod clock;
pub mod directory;
pub mod session_store;

pub use session_store::MemorySessionStore;
