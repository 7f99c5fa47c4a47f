//! Deletes the bytes of expired artifacts. Their pointers are kept, to report the expiry.

use super::{ArtifactError, Artifacts};
use crate::ports::StoreError;
use crate::session::document_key::{self, DocumentKey, Listing};
use crate::types::{ArtifactId, Timestamp};

/// Maximum number of artifacts that one purge deletes.
const MAX_PER_PURGE: usize = 100;

impl Artifacts {
    /// Returns the first `limit` artifacts that expire, in the order of their times; those due at `until` only if given.
    fn expiries(
        &self,
        until: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ArtifactId)>, StoreError> {
        let store = self.session.store();
        let listed = document_key::expiries(store, Listing::ArtifactExpiries, until, limit)?;
        let expiry = |key| match key {
            DocumentKey::ArtifactExpiry(at, id) => Some((at, id)),
            _ => None,
        };
        Ok(listed.into_iter().filter_map(expiry).collect())
    }

    /// Deletes the bytes of expired artifacts, a bounded number at once.
    ///
    /// # Errors
    /// If a store fails or times out; run again then.
    pub async fn purge(&self) -> Result<(), ArtifactError> {
        let now = self.clock.now();
        let (mut documents, mut blobs) = (Vec::new(), Vec::new());
        for (at, id) in self.expiries(Some(now), MAX_PER_PURGE)? {
            blobs.push(self.blob_key(&id));
            documents.push(DocumentKey::ArtifactExpiry(at, id));
        }
        if !documents.is_empty() {
            self.within(self.blobs.delete(&blobs)).await?;
            self.session.commit(now, |draft| documents.into_iter().for_each(|key| draft.delete(key)))?;
        }
        Ok(())
    }

    /// Returns when the next artifact expires; `None` when none does.
    ///
    /// # Errors
    /// When the store fails.
    pub fn next_expiry(&self) -> Result<Option<Timestamp>, ArtifactError> {
        Ok(self.expiries(None, 1)?.first().map(|(at, _)| *at))
    }
}
