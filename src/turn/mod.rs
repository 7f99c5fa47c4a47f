//! Decides what a turn does next. Pure: no await, no clock, no store.

pub mod machine;
pub mod scheduler;

pub use machine::{Step, TurnMachine};
