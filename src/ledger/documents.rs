//! Documents of the ledger that were read together.

use super::{Account, Slots, key};
use crate::ports::{SessionStore, StoreError};
use crate::types::{SessionId, Timestamp, json};
use serde::de::DeserializeOwned;

/// Documents that were read in one call of the store.
pub(super) struct Documents {
    keys: Vec<String>,
    /// For each key, the document, if there is one.
    found: Vec<Option<String>>,
}

impl Documents {
    /// Reads the documents with these keys.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) fn read(store: &dyn SessionStore, keys: Vec<String>) -> Result<Self, StoreError> {
        Ok(Self { found: store.get_all(&keys)?, keys })
    }

    /// Returns a document, or `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be parsed, or was not read.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let place = self.keys.iter().position(|own| own == key).and_then(|place| self.found.get(place));
        match place {
            Some(json) => json.as_deref().map(decode).transpose(),
            // It may exist: taken for absent, its sums would start again from zero.
            None => Err(StoreError(format!("the document {key:?} was not read"))),
        }
    }

    /// Returns the slots that have not ended.
    ///
    /// # Errors
    /// As for [`Documents::get`].
    pub(super) fn slots(&self, now: Timestamp) -> Result<Slots, StoreError> {
        let mut slots: Slots = self.get(key::SLOTS)?.unwrap_or_default();
        slots.retain(|_, slot| slot.until > now);
        Ok(slots)
    }

    /// Returns what the ledger knows of a session.
    ///
    /// # Errors
    /// As for [`Documents::get`].
    pub(super) fn account(&self, session: &SessionId) -> Result<Account, StoreError> {
        Ok(self.get(&key::account(session))?.unwrap_or_default())
    }
}

/// Parses a stored document.
///
/// # Errors
/// If it has another form.
pub(super) fn decode<T: DeserializeOwned>(json: &str) -> Result<T, StoreError> {
    json::from_str(json).map_err(|e| StoreError(format!("cannot read stored JSON: {e}")))
}
