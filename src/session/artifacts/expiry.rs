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
    /// Removes bytes whose time is over, a bounded number of them.
    ///
    /// # Errors
    /// When a store fails or does not answer; repeating the call is safe.
    pub async fn purge(&self) -> Result<(), ArtifactError> {
        let now = self.clock.now();
        let (mut documents, mut blobs) = (Vec::new(), Vec::new());
        for (key, _) in self.session.store().list(INDEX)? {
            let Some((at, id)) = read_key(&key) else { continue };
            if at > now || documents.len() == AT_ONCE {
                break;
            }
            blobs.push(self.blob_key(id));
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
