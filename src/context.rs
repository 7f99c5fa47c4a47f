//! Keeping what the model is shown of a conversation within the model's window.
//!
//! [`ContextStrategy`] is what an agent needs for that; [`compaction`] and [`observation`] are the two built-in
//! strategies. The window itself is a projection of the log: `session::window`.

pub mod compaction;
pub mod observation;
pub mod strategy;

pub use compaction::strategy::Compaction;
pub use observation::strategy::Observation;
pub use strategy::{BeforeDrop, ContextHandle, ContextStrategy};
