//! The artifacts of a session: bytes in the object store, a pointer in the session.
//!
//! The bytes are written first. The pointer and `artifact.stored` follow in the commit that references them.
//! Bytes without a pointer cannot be read, and are deleted with the session. Each reference has its own
//! object, even if the content is the same, so that an expired one can be deleted without counting
//! references.

mod expiry;
mod large;
pub mod puts;
#[cfg(test)]
mod tests;

use super::{DocumentKey, Draft, Refused, Session, decode, encode};
use crate::ports::{BlobError, BlobResult, BlobStore, Clock, StoreError, within};
use crate::types::{ArtifactId, CallId, EventKind, FileRef, Timestamp, TurnId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use std::{future::Future, ops::Range, rc::Rc};
use thiserror::Error;

pub use large::{MAX_CHARS, store_if_large};

/// Maximum size of an artifact in bytes (16 MiB).
pub const MAX_BYTES: usize = 16 << 20;
/// Maximum total size of a session's attachments in bytes (256 MiB).
pub const MAX_ATTACHED: u64 = 256 << 20;
/// Timeout of one request to the object store.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of an expiring artifact (ten years), so that its expiry is a valid timestamp.
const MAX_TTL: Duration = Duration::from_hours(3_653 * 24);

/// Why an artifact is not available.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArtifactError {
    /// The session has no such artifact.
    #[error("there is no such artifact in this session")]
    NotFound,
    /// The artifact has expired.
    #[error("the artifact expired at {}", .0.to_rfc3339())]
    Expired(Timestamp),
    /// The range is outside the artifact, which has this many bytes.
    #[error("the artifact has {0} bytes")]
    Range(u64),
    /// The session's attachments would exceed their limit.
    #[error("the files of this session would exceed {MAX_ATTACHED} bytes in total")]
    Full,
    /// The session has too many deferred changes.
    #[error(transparent)]
    Busy(Refused),
    /// A store failed or timed out.
    #[error("the artifact store failed: {0}")]
    Store(String),
}

impl From<StoreError> for ArtifactError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<BlobError> for ArtifactError {
    fn from(error: BlobError) -> Self {
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

/// The content of an artifact.
#[derive(Clone, Debug)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// Their media type.
    pub mime_type: String,
    /// The file name of an attachment.
    pub name: Option<String>,
}

/// The session's entry for an artifact. It is kept after the bytes are deleted, to report that they expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Its id, `art_…`.
    pub r#ref: ArtifactId,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its media type.
    pub mime_type: String,
    /// The file name of an attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When the bytes are deleted; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Pointer {
    /// Returns the artifact as a part of a message.
    pub fn as_file(&self) -> FileRef {
        FileRef {
            r#ref: self.r#ref.clone(),
            mime_type: self.mime_type.clone(),
            bytes: self.bytes,
            name: self.name.clone(),
        }
    }
}

/// Bytes in the object store whose pointer is not committed yet.
pub struct Stored {
    pointer: Pointer,
    json: String,
    /// Whether it counts as an attachment.
    is_attached: bool,
}

impl Stored {
    /// Returns the artifact as a part of a message.
    pub fn as_file(&self) -> FileRef {
        self.pointer.as_file()
    }

    /// Adds the pointer to the commit that references the artifact.
    pub fn draft(self, turn: Option<&TurnId>, draft: &mut Draft) {
        let Self { pointer, json, is_attached } = self;
        if is_attached {
            draft.add_attached(pointer.bytes);
        }
        draft.put(DocumentKey::Artifact(pointer.r#ref.clone()), json);
        if let Some(at) = pointer.expires_at {
            draft.put_until(DocumentKey::ArtifactExpiry(at, pointer.r#ref.clone()), "null".into(), at);
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
    /// Creates the artifacts of `session`, in `blobs`.
    pub fn new(session: Rc<Session>, blobs: Rc<dyn BlobStore>, clock: Rc<dyn Clock>) -> Self {
        Self { session, blobs, clock }
    }

    /// Stores a file for the lifetime of the session. Storing again under the same `id` returns the first
    /// file.
    ///
    /// # Errors
    /// If the session has reached its limits, or a store fails or times out. Nothing is stored then.
    pub async fn attach(&self, id: ArtifactId, content: Content) -> Result<Pointer, ArtifactError> {
        if let Some(first) = self.pointer(&id)? {
            return Ok(first);
        }
        self.room_for(content.bytes.len() as u64)?;
        self.session.check_capacity()?;
        let stored = Stored { is_attached: true, ..self.put(id, content, None).await? };
        // No await from here on, so that a concurrent upload under the same id is detected.
        if let Some(first) = self.pointer(&stored.pointer.r#ref)? {
            return Ok(first);
        }
        let pointer = stored.pointer.clone();
        let committed = self.room_for(pointer.bytes).and_then(|()| {
            let drafted = |draft: &mut Draft| {
                stored.draft(None, draft);
            };
            Ok(self.session.commit_from_outside(self.clock.now(), drafted)?)
        });
        if let Err(error) = committed {
            // Other files took the space, or the session was erased. Delete the bytes that were written.
            let _ = self.within(self.blobs.delete(&[self.blob_key(&pointer.r#ref)])).await;
            return Err(error);
        }
        Ok(pointer)
    }

    /// Stores a file of a call, under an id that follows from the call and the number of the file. Its
    /// pointer must still be committed.
    async fn store_file(
        &self,
        turn: &TurnId,
        call_id: &CallId,
        number: usize,
        content: Content,
    ) -> Result<Stored, ArtifactError> {
        self.room_for(content.bytes.len() as u64)?;
        let id = large::id_of([turn.as_str(), call_id, &number.to_string()]);
        Ok(Stored { is_attached: true, ..self.put(id, content, None).await? })
    }

    /// Checks that the session has room for `bytes` more bytes of attachments.
    fn room_for(&self, bytes: u64) -> Result<(), ArtifactError> {
        let held = self.session.state().activity.reserved.attached;
        if held.saturating_add(bytes) > MAX_ATTACHED { Err(ArtifactError::Full) } else { Ok(()) }
    }

    /// Finds an artifact that has not expired.
    ///
    /// # Errors
    /// If there is none, or the session's store fails.
    pub fn find(&self, id: &ArtifactId) -> Result<Pointer, ArtifactError> {
        let pointer = self.pointer(id)?.ok_or(ArtifactError::NotFound)?;
        match pointer.expires_at {
            Some(at) if at <= self.clock.now() => Err(ArtifactError::Expired(at)),
            _ => Ok(pointer),
        }
    }

    /// Reads an artifact, or a range of its bytes.
    ///
    /// # Errors
    /// If the range is outside the artifact, or the store fails or times out.
    pub async fn read(&self, pointer: &Pointer, range: Option<Range<u64>>) -> Result<Bytes, ArtifactError> {
        if range.as_ref().is_some_and(|range| range.start >= range.end || range.end > pointer.bytes) {
            return Err(ArtifactError::Range(pointer.bytes));
        }
        let bytes = self.within(self.blobs.get(&self.blob_key(&pointer.r#ref), range)).await?;
        bytes.ok_or_else(|| ArtifactError::Store("its bytes are missing".into()))
    }

    /// Writes the bytes. The pointer must still be committed.
    async fn put(
        &self,
        id: ArtifactId,
        content: Content,
        ttl: Option<Duration>,
    ) -> Result<Stored, ArtifactError> {
        let Content { bytes, mime_type, name } = content;
        let now = self.clock.now();
        let pointer = Pointer {
            r#ref: id,
            bytes: bytes.len() as u64,
            mime_type,
            name,
            created_at: now,
            expires_at: ttl.map(|ttl| now + ttl.min(MAX_TTL)),
        };
        let json = encode(&pointer)?;
        if self.session.is_retired() {
            // The erasure of the session deletes the existing bytes, but would miss new ones.
            return Err(ArtifactError::Store("this copy of the session is retired".into()));
        }
        let key = self.blob_key(&pointer.r#ref);
        self.within(self.blobs.put(&key, bytes, &pointer.mime_type)).await?;
        Ok(Stored { pointer, json, is_attached: false })
    }

    fn pointer(&self, id: &ArtifactId) -> Result<Option<Pointer>, StoreError> {
        let stored = self.session.document(&DocumentKey::Artifact(id.clone()))?;
        stored.as_deref().map(decode).transpose()
    }

    /// Returns the key of the bytes, under the prefix that is deleted with the session.
    fn blob_key(&self, id: &ArtifactId) -> String {
        let state = self.session.state();
        format!("{}/sessions/{}/artifacts/{id}", state.meta.tenant, state.meta.id)
    }

    /// Awaits the object store, with a timeout.
    async fn within<T>(&self, work: impl Future<Output = BlobResult<T>>) -> Result<T, ArtifactError> {
        let done = within(self.clock.as_ref(), STORE_TIMEOUT, work).await;
        Ok(done.map_err(|unfinished| ArtifactError::Store(unfinished.to_string()))??)
    }
}

/// Read access to a session's artifacts.
#[derive(Clone)]
pub struct ArtifactReader(Rc<Artifacts>);

impl ArtifactReader {
    /// Creates a reader of `artifacts`.
    pub fn new(artifacts: &Rc<Artifacts>) -> Self {
        Self(Rc::clone(artifacts))
    }

    /// See [`Artifacts::find`].
    ///
    /// # Errors
    /// See [`Artifacts::find`].
    pub fn find(&self, id: &ArtifactId) -> Result<Pointer, ArtifactError> {
        self.0.find(id)
    }

    /// Stores a file of a call. Its pointer must still be committed.
    pub(crate) async fn store(
        &self,
        turn: &TurnId,
        call_id: &CallId,
        number: usize,
        content: Content,
    ) -> Result<Stored, ArtifactError> {
        self.0.store_file(turn, call_id, number, content).await
    }

    /// See [`Artifacts::read`].
    ///
    /// # Errors
    /// See [`Artifacts::read`].
    pub async fn read(&self, pointer: &Pointer, range: Option<Range<u64>>) -> Result<Bytes, ArtifactError> {
        self.0.read(pointer, range).await
    }
}
