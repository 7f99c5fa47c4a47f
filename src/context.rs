//! Keeps the part of a conversation that the model is shown within the model's context window.
//!
//! [`ContextStrategy`] is the interface between an agent and its strategy; [`compaction`] and [`observation`]
//! are the built-in strategies. The window itself is a projection of the log: `session::window`.

pub mod compaction;
pub mod observation;
pub mod strategy;

pub use compaction::strategy::Compaction;
pub use observation::strategy::Observation;
pub use strategy::{BeforeDrop, ContextHandle, ContextStrategy};
