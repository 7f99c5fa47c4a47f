//! Decides what a turn does next. Pure: no I/O, no await, no clock.

pub mod citations;
pub mod machine;
pub mod policy;
pub mod replay;
pub mod scheduler;
pub mod schema;
pub mod selector;
pub mod structured;

pub use machine::{PricedUsage, Step, TurnMachine};
pub use selector::ToolSelection;
