//! Deletes the bytes of expired artifacts. Their pointers are kept, to report the expiry.

use super::{ArtifactError, Artifacts};
use crate::types::{ArtifactId, Timestamp};

/// Prefix of the documents that index artifacts by expiry time, so that a purge reads only those that are
/// due.
const INDEX: &str = "artifact-expiry/";
/// Maximum number of artifacts that one purge deletes.
const MAX_PER_PURGE: usize = 100;

/// Returns the key of the document that indexes an artifact's expiry. Its value is empty.
pub(super) fn document_key(at: Timestamp, id: &ArtifactId) -> String {
    format!("{INDEX}{:020}/{id}", at.0)
}

fn read_key(key: &str) -> Option<(Timestamp, ArtifactId)> {
    let (at, id) = key.strip_prefix(INDEX)?.split_once('/')?;
    Some((Timestamp(at.parse().ok()?), id.into()))
}

impl Artifacts {
    /// Deletes the bytes of expired artifacts, a bounded number at once.
    ///
    /// # Errors
    /// If a store fails or times out; run again then.
    pub async fn purge(&self) -> Result<(), ArtifactError> {
        let now = self.clock.now();
        let (mut documents, mut blobs) = (Vec::new(), Vec::new());
        for (key, _) in self.session.store().list(INDEX)? {
            let Some((at, id)) = read_key(&key) else { continue };
            if at > now || documents.len() == MAX_PER_PURGE {
                break;
            }
            blobs.push(self.blob_key(&id));
            documents.push(key);
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
        let documents = self.session.store().list(INDEX)?;
        Ok(documents.iter().find_map(|(key, _)| read_key(key)).map(|(at, _)| at))
    }
}
