//! Tools that only the integration tests use. What they do is as simple as what they stand for.

mod effects;
mod outcomes;

pub use effects::{Counter, Read, Sleep, Write};
pub use outcomes::{Add, Big, Cite, Fail, Panic};
