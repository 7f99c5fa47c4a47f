//! stub
use crate::ports::{
    MemoryIndex,
    memory::{Collection, Entry, MemoryResult},
};
/// A hit.
pub struct Hit {
    /// e
    pub entry: Entry,
    /// s
    pub score: f64,
}
/// stub
pub async fn search(_: &dyn MemoryIndex, _: &Collection, _: &str, _: usize) -> MemoryResult<Vec<Hit>> {
    Ok(vec![])
}
