//! Large things of a session: bytes in the object store, a pointer in the session.

use super::{Draft, Session};
use crate::ports::BlobStore;
use crate::types::ToolOutcome;
use std::rc::Rc;

/// The artifacts of one session.
pub struct Artifacts {
    session: Rc<Session>,
    blobs: Rc<dyn BlobStore>,
}

/// Bytes that are in the object store, and a pointer to them that is not stored yet.
pub struct Stored {}

impl Stored {
    /// Stores the pointer, in the commit that makes it known.
    pub fn draft(self, _turn: Option<&str>, _draft: &mut Draft) {}
}

impl Artifacts {
    /// The artifacts of `session`, in `blobs`.
    pub fn new(session: Rc<Session>, blobs: Rc<dyn BlobStore>) -> Self {
        Self { session, blobs }
    }
}

/// Keeps an answer that is too large for a model apart, or, when the store fails, cuts it.
pub async fn keep_apart(
    _artifacts: &Artifacts,
    _id: String,
    outcome: ToolOutcome,
    _ttl_ms: u64,
) -> (ToolOutcome, Option<Stored>) {
    (outcome, None)
}
