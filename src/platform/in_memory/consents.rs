//! The store of consent in memory.

use crate::ports::{
    consents::{ConsentKey, ConsentKind, ConsentStore, Sealed, Sealer},
    directory::DirectoryResult,
};
use crate::types::{ConsentGiven, TenantId, Timestamp, UserId};
use async_trait::async_trait;
use std::{cell::RefCell, collections::BTreeMap};

/// The store of consent in memory.
#[derive(Default)]
pub struct InMemoryConsents(RefCell<BTreeMap<ConsentKey, (Sealed, Option<Timestamp>)>>);

#[async_trait(?Send)]
impl ConsentStore for InMemoryConsents {
    async fn get(&self, key: &ConsentKey) -> DirectoryResult<Option<Sealed>> {
        Ok(self.0.borrow().get(key).map(|(sealed, _)| sealed.clone()))
    }

    async fn put(
        &self,
        key: &ConsentKey,
        value: &str,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> DirectoryResult<()> {
        let mut all = self.0.borrow_mut();
        all.retain(|own, (_, end)| own.tenant != key.tenant || end.is_none_or(|end| end > now));
        let version = all.get(key).map_or(0, |(sealed, _)| sealed.version) + 1;
        all.insert(key.clone(), (Sealed { value: value.to_owned(), version }, expires_at));
        Ok(())
    }

    async fn replace(&self, key: &ConsentKey, value: &str, version: u64) -> DirectoryResult<bool> {
        let mut all = self.0.borrow_mut();
        let Some((sealed, _)) = all.get_mut(key).filter(|(own, _)| own.version == version) else {
            return Ok(false);
        };
        *sealed = Sealed { value: value.to_owned(), version: version + 1 };
        Ok(true)
    }

    async fn delete(&self, key: &ConsentKey, version: u64) -> DirectoryResult<()> {
        self.0.borrow_mut().retain(|own, (sealed, _)| own != key || sealed.version != version);
        Ok(())
    }

    async fn request(&self, name: &str, now: Timestamp) -> DirectoryResult<Option<(ConsentKey, Sealed)>> {
        let all = self.0.borrow();
        let is_open = |key: &ConsentKey, end: Option<Timestamp>| {
            key.kind == ConsentKind::Request && key.name == name && end.is_none_or(|end| end > now)
        };
        let found = all.iter().find(|(key, (_, end))| is_open(key, *end));
        Ok(found.map(|(key, (sealed, _))| (key.clone(), sealed.clone())))
    }

    async fn redeem(
        &self,
        request: &ConsentKey,
        version: u64,
        token: &ConsentKey,
        value: &str,
    ) -> DirectoryResult<bool> {
        let mut all = self.0.borrow_mut();
        if all.get(request).is_none_or(|(own, _)| own.version != version) {
            return Ok(false);
        }
        all.remove(request);
        let version = all.get(token).map_or(0, |(sealed, _)| sealed.version) + 1;
        all.insert(token.clone(), (Sealed { value: value.to_owned(), version }, None));
        Ok(true)
    }

    async fn tokens(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&ConsentGiven>,
        limit: usize,
    ) -> DirectoryResult<Vec<ConsentGiven>> {
        let all = self.0.borrow();
        let of = |key: &&ConsentKey| key.tenant == *tenant && key.kind == ConsentKind::Token;
        let given =
            |key: &ConsentKey| Some(ConsentGiven { user: key.user.clone()?, server: key.name.clone() });
        let is_later = |given: &ConsentGiven| {
            user.is_none_or(|user| *user == given.user)
                && after.is_none_or(|after| (&given.user, &given.server) > (&after.user, &after.server))
        };
        Ok(all.keys().filter(of).filter_map(given).filter(is_later).take(limit).collect())
    }

    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<()> {
        let is_of = |key: &ConsentKey| key.tenant == *tenant && (user.is_none() || key.user.as_ref() == user);
        self.0.borrow_mut().retain(|key, _| !is_of(key));
        Ok(())
    }
}

/// Writes the context beside the text, in place of encryption.
pub struct PlainSealer;

impl Sealer for PlainSealer {
    fn seal(&self, context: &str, text: &str) -> Option<String> {
        Some(format!("{context}\n{text}"))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<String> {
        sealed.split_once('\n').filter(|(own, _)| *own == context).map(|(_, text)| text.to_owned())
    }
}
