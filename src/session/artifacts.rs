//! Large things of a session: bytes in the object store, a pointer in the session.
//!
//! The bytes are written first; the pointer and `artifact.stored` follow in the commit that makes them
//! known. Bytes whose commit never came have no pointer, so nobody can read them; they go when the
//! session does. Each reference has an object of its own, also where two have the same content: what
//! expires may then be removed without asking who else points there.

mod expiry;
mod large;
pub mod puts;
#[cfg(test)]
mod tests;

use super::{Draft, Refused, Session, decode, encode};
use crate::fault::{self, Fault};
use crate::ports::{BlobStore, Clock, StoreError};
use crate::types::{EventKind, FileRef, Timestamp};
use bytes::Bytes;
use futures::{
    future::{Either, select},
    pin_mut,
};
use serde::{Deserialize, Serialize};
use std::{future::Future, ops::Range, rc::Rc};
use thiserror::Error;

pub use large::{LIMIT, keep_apart};

/// Most bytes of one artifact (16 MiB).
pub const MAX_BYTES: usize = 16 << 20;
/// Most bytes of the files of a session together (256 MiB).
pub const MAX_ATTACHED: u64 = 256 << 20;
/// How long the object store may take for one thing, in milliseconds.
const PATIENCE_MS: u64 = 10_000;
/// The longest life of what expires, in milliseconds (ten years): a time that can still be written.
const LONGEST_MS: u64 = 3_653 * 24 * 3_600_000;

/// Why an artifact cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArtifactError {
    /// The session has none of that name.
    #[error("there is no such artifact in this session")]
    NotFound,
    /// Its time is over.
    #[error("the artifact expired at {}", .0.to_rfc3339())]
    Expired(Timestamp),
    /// It does not have these bytes.
    #[error("the artifact has {0} bytes")]
    Range(u64),
    /// The session has no room for it.
    #[error("the files of this session would have more than {MAX_ATTACHED} bytes together")]
    Full,
    /// The session takes nothing more just now.
    #[error(transparent)]
    Busy(Refused),
    /// A store broke or did not answer.
    #[error("the artifact store does not work: {0}")]
    Store(String),
}

impl From<StoreError> for ArtifactError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<Refused> for ArtifactError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => Self::Busy(refused),
            Refused::Store(error) => error.into(),
        }
    }
}

/// What is to be stored.
#[derive(Clone, Debug)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// What they are.
    pub mime_type: String,
    /// The file's name, for attachments.
    pub name: Option<String>,
}

/// What the session knows of an artifact. It outlives the bytes, to say that they expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Its id, `art_…`.
    pub r#ref: String,
    /// Its size.
    pub bytes: u64,
    /// What it is.
    pub mime_type: String,
    /// The file's name, for attachments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it is gone; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Pointer {
    /// The artifact as a piece of a message.
    pub fn as_file(&self) -> FileRef {
        FileRef {
            r#ref: self.r#ref.clone(),
            mime_type: self.mime_type.clone(),
            bytes: self.bytes,
            name: self.name.clone(),
        }
    }
}

/// Bytes that are in the object store, and a pointer to them that is not stored yet.
pub struct Stored {
    pointer: Pointer,
    json: String,
}

impl Stored {
    /// Stores the pointer, in the commit that makes it known.
    pub fn draft(self, turn: Option<&str>, draft: &mut Draft) {
        let Self { pointer, json } = self;
        draft.put(document_key(&pointer.r#ref), json);
        if let Some(at) = pointer.expires_at {
            draft.put_until(expiry::document_key(at, &pointer.r#ref), "null".into(), at);
        }
        let Pointer { r#ref, bytes, mime_type, name, expires_at, .. } = pointer;
        draft.record(turn, EventKind::ArtifactStored { r#ref, bytes, mime_type, name, expires_at });
    }
}

/// The artifacts of one session.
pub struct Artifacts {
    session: Rc<Session>,
    blobs: Rc<dyn BlobStore>,
    clock: Rc<dyn Clock>,
}

impl Artifacts {
    /// The artifacts of `session`, in `blobs`.
    pub fn new(session: Rc<Session>, blobs: Rc<dyn BlobStore>, clock: Rc<dyn Clock>) -> Self {
        Self { session, blobs, clock }
    }

    /// Stores a file that lives as long as the session: what a user gave does not vanish. The same
    /// `id` again gives what was stored under it first.
    ///
    /// # Errors
    /// When the session takes no more, or a store breaks or does not answer; nothing is stored then.
    pub async fn attach(&self, id: String, content: Content) -> Result<Pointer, ArtifactError> {
        if let Some(first) = self.pointer(&id)? {
            return Ok(first);
        }
        self.room_for(content.bytes.len() as u64)?;
        self.session.takes_more()?;
        let stored = self.put(id, content, None).await?;
        // No await from here on: whoever stored the same meanwhile is seen.
        if let Some(first) = self.pointer(&stored.pointer.r#ref)? {
            return Ok(first);
        }
        let pointer = stored.pointer.clone();
        let committed = self.room_for(pointer.bytes).and_then(|()| {
            let drafted = |draft: &mut Draft| {
                draft.state.reserved.attached += pointer.bytes;
                stored.draft(None, draft);
            };
            Ok(self.session.commit_from_outside(self.clock.now(), drafted)?)
        });
        if let Err(error) = committed {
            // Others came first. Or perhaps the session was erased meanwhile, with everything that it had by then.
            let _ = self.within(self.blobs.delete(&[self.blob_key(&pointer.r#ref)])).await;
            return Err(error);
        }
        Ok(pointer)
    }

    /// Whether the session may hold so many bytes of files more.
    fn room_for(&self, bytes: u64) -> Result<(), ArtifactError> {
        let held = self.session.state().reserved.attached;
        if held.saturating_add(bytes) > MAX_ATTACHED { Err(ArtifactError::Full) } else { Ok(()) }
    }

    /// Finds an artifact whose time is not over.
    ///
    /// # Errors
    /// When there is none, or the session's store breaks.
    pub fn find(&self, id: &str) -> Result<Pointer, ArtifactError> {
        let pointer = self.pointer(id)?.ok_or(ArtifactError::NotFound)?;
        match pointer.expires_at {
            Some(at) if at <= self.clock.now() => Err(ArtifactError::Expired(at)),
            _ => Ok(pointer),
        }
    }

    /// Reads an artifact that was found, or a range of its bytes.
    ///
    /// # Errors
    /// When the range does not lie inside it, or the store breaks or does not answer.
    pub async fn read(&self, pointer: &Pointer, range: Option<Range<u64>>) -> Result<Bytes, ArtifactError> {
        if range.as_ref().is_some_and(|range| range.start >= range.end || range.end > pointer.bytes) {
            return Err(ArtifactError::Range(pointer.bytes));
        }
        let bytes = self.within(self.blobs.get(&self.blob_key(&pointer.r#ref), range)).await?;
        bytes.ok_or_else(|| ArtifactError::Store("its bytes are missing".into()))
    }

    /// Writes the bytes. The pointer is still to be stored.
    async fn put(&self, id: String, content: Content, ttl_ms: Option<u64>) -> Result<Stored, ArtifactError> {
        let Content { bytes, mime_type, name } = content;
        let now = self.clock.now();
        let pointer = Pointer {
            r#ref: id,
            bytes: bytes.len() as u64,
            mime_type,
            name,
            created_at: now,
            expires_at: ttl_ms.map(|ttl| now.plus(ttl.min(LONGEST_MS))),
        };
        let json = encode(&pointer)?;
        if self.session.is_retired() {
            // Whoever erases the session has removed what there was, or is about to.
            return Err(ArtifactError::Store("this copy of the session was given up".into()));
        }
        let key = self.blob_key(&pointer.r#ref);
        if !fault::active(Fault::DeadReference) {
            self.within(self.blobs.put(&key, bytes, &pointer.mime_type)).await?;
        }
        Ok(Stored { pointer, json })
    }

    fn pointer(&self, id: &str) -> Result<Option<Pointer>, StoreError> {
        let stored = self.session.store().get(&document_key(id))?;
        stored.as_deref().map(decode).transpose()
    }

    /// Where the bytes are: below what goes with the session.
    fn blob_key(&self, id: &str) -> String {
        let state = self.session.state();
        format!("{}/sessions/{}/artifacts/{id}", state.meta.tenant, state.meta.id)
    }

    /// What the object store says, if it says anything in time.
    async fn within<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, ArtifactError> {
        let timer = self.clock.sleep(PATIENCE_MS);
        pin_mut!(work);
        match select(work, timer).await {
            Either::Left((done, _)) => done.map_err(ArtifactError::Store),
            Either::Right(_) => Err(ArtifactError::Store(format!("no answer within {PATIENCE_MS} ms"))),
        }
    }
}

/// A session's artifacts, to be read and not to be added to.
#[derive(Clone)]
pub struct ArtifactReader(Rc<Artifacts>);

impl ArtifactReader {
    /// A view of `artifacts`.
    pub fn new(artifacts: &Rc<Artifacts>) -> Self {
        Self(Rc::clone(artifacts))
    }

    /// See [`Artifacts::find`].
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, id: &str) -> Result<Pointer, ArtifactError> {
        self.0.find(id)
    }

    /// See [`Artifacts::read`].
    ///
    /// # Errors
    /// As there.
    pub async fn read(&self, pointer: &Pointer, range: Option<Range<u64>>) -> Result<Bytes, ArtifactError> {
        self.0.read(pointer, range).await
    }
}

fn document_key(id: &str) -> String {
    format!("artifact/{id}")
}
