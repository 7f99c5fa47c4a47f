//! Decides what a turn does next. Pure: no await, no clock, no store.

pub mod citations;
pub mod machine;
pub mod policy;
pub mod replay;
pub mod scheduler;
pub mod schema;
pub mod selector;
pub mod structured;

pub use machine::{Spent, Step, TurnMachine};
pub use selector::ToolSelection;
