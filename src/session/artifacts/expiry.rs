//! Removes bytes whose time is over. Their pointers stay, to say so.

use super::{ArtifactError, Artifacts};
use crate::types::Timestamp;

/// Documents that say when which artifact expires, soonest first: the purge looks at these alone,
/// never at pointers.
const INDEX: &str = "artifact-expiry/";
/// Most artifacts that one purge removes.
const AT_ONCE: usize = 100;

/// The document that says when an artifact expires: all of it is in the key.
pub(super) fn document_key(at: Timestamp, id: &str) -> String {
    format!("{INDEX}{:020}/{id}", at.0)
}

fn read_key(key: &str) -> Option<(Timestamp, &str)> {
    let (at, id) = key.strip_prefix(INDEX)?.split_once('/')?;
    Some((Timestamp(at.parse().ok()?), id))
}

impl Artifacts {
    /// Removes bytes whose time is over, a bounded number of them. Returns when there will be more.
    ///
    /// # Errors
    /// When a store breaks or does not answer; it is to be tried again then.
    pub async fn purge(&self) -> Result<Option<Timestamp>, ArtifactError> {
        let now = self.clock.now();
        let (mut documents, mut blobs, mut next) = (Vec::new(), Vec::new(), None);
        for (key, _) in self.session.store().list(INDEX)? {
            let Some((at, id)) = read_key(&key) else { continue };
            if at > now || documents.len() == AT_ONCE {
                next = Some(at);
                break;
            }
            blobs.push(self.blob_key(id));
            documents.push(key);
        }
        if !documents.is_empty() {
            self.within(self.blobs.delete(&blobs)).await?;
            self.session.commit(now, |draft| documents.into_iter().for_each(|key| draft.delete(key)))?;
        }
        Ok(next)
    }
}
