//! Twins of the ports in plain memory, with faults that tests can switch on.

pub mod clock;
pub mod directory;
