//! Simple tools for the integration tests.

mod effects;
mod outcomes;

pub use effects::{Counter, Read, Sleep, Write};
pub use outcomes::{Add, Big, Cite, Fail, Panic};
