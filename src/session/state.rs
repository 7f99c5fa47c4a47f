//! The stored form of a session's state: a document for each of its parts.

use super::{
    decode,
    document_key::{self, DocumentKey, Listing},
    encode,
    schema::{self, OpenError},
};
use crate::ports::{SessionStore, StoreError};
use crate::types::{
    SessionMeta, SessionState,
    session::{Activity, SCHEMA, Totals},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::rc::Rc;

/// The first version that stores each part of the state in a document of its own. Earlier ones stored all fields in
/// [`DocumentKey::State`], with the totals in the metadata.
const SPLIT: u32 = 3;

/// The document [`DocumentKey::State`]. It has the version of all documents, so every version must read it.
#[derive(Serialize)]
struct StateDocument<'a> {
    schema: u32,
    meta: &'a SessionMeta,
}

/// The metadata in [`DocumentKey::State`], or the part of it that `T` names.
#[derive(Deserialize)]
struct WithMeta<T> {
    meta: T,
}

/// A stored state.
pub(super) struct StoredState {
    pub state: SessionState,
    /// Whether an earlier version stored it. Its documents must then all be written.
    pub is_earlier: bool,
    /// Whether it was stored before there were ledgers. Records up to now are then not reported.
    pub lacks_account: bool,
}

/// Reads the state in one call of the store; `None` if there is none.
///
/// # Errors
/// If a newer version has written it, the store fails, or a document cannot be parsed.
pub(super) fn read(store: &dyn SessionStore) -> Result<Option<StoredState>, OpenError> {
    let documents = document_key::list(store, Listing::State)?;
    let get = |key: &DocumentKey| documents.iter().find(|(own, _)| own == key).map(|(_, json)| json.as_str());
    let Some(json) = get(&DocumentKey::State) else { return Ok(None) };
    let schema = schema::check(json)?;
    let part = |key: DocumentKey| match schema < SPLIT {
        // Each part ignores the fields of the others.
        true => Ok(json),
        false => get(&key).ok_or_else(|| StoreError(format!("the document \"{key}\" is missing"))),
    };
    let WithMeta { meta } = decode::<WithMeta<SessionMeta>>(json)?;
    let mut activity: Activity = decode(part(DocumentKey::Activity)?)?;
    if schema < SPLIT {
        activity.totals = decode::<WithMeta<Totals>>(json)?.meta;
    }
    let child = match &meta.parent {
        Some(_) => Some(shared(part(DocumentKey::Child)?)?),
        None => None,
    };
    let account = get(&DocumentKey::Account).map(shared).transpose()?;
    let lacks_account = account.is_none();
    let state = SessionState {
        meta: Rc::new(meta),
        guidance: shared(part(DocumentKey::Guidance)?)?,
        activity: Rc::new(activity),
        background: shared(part(DocumentKey::Background)?)?,
        child,
        account: account.unwrap_or_default(),
    };
    Ok(Some(StoredState { state, is_earlier: schema < SCHEMA || lacks_account, lacks_account }))
}

fn shared<T: DeserializeOwned>(json: &str) -> Result<Rc<T>, StoreError> {
    decode(json).map(Rc::new)
}

/// Returns the documents of the parts that differ from `stored`; all of them if `stored` is `None`.
///
/// # Errors
/// If a part cannot be written as JSON.
pub(super) fn changed(
    state: &SessionState,
    stored: Option<&SessionState>,
) -> Result<Vec<(DocumentKey, String)>, StoreError> {
    let mut documents = Vec::new();
    if differs(&state.meta, stored.map(|stored| &stored.meta)) {
        let document = StateDocument { schema: SCHEMA, meta: &state.meta };
        documents.push((DocumentKey::State, encode(&document)?));
    }
    if differs(&state.guidance, stored.map(|stored| &stored.guidance)) {
        documents.push((DocumentKey::Guidance, encode(state.guidance.as_ref())?));
    }
    if differs(&state.activity, stored.map(|stored| &stored.activity)) {
        documents.push((DocumentKey::Activity, encode(state.activity.as_ref())?));
    }
    if differs(&state.background, stored.map(|stored| &stored.background)) {
        documents.push((DocumentKey::Background, encode(state.background.as_ref())?));
    }
    if differs(&state.account, stored.map(|stored| &stored.account)) {
        documents.push((DocumentKey::Account, encode(state.account.as_ref())?));
    }
    if let Some(child) = &state.child
        && differs(child, stored.and_then(|stored| stored.child.as_ref()))
    {
        documents.push((DocumentKey::Child, encode(child.as_ref())?));
    }
    Ok(documents)
}

/// Most commits leave most parts as they are, so the pointers are compared first.
fn differs<T: PartialEq>(part: &Rc<T>, stored: Option<&Rc<T>>) -> bool {
    stored.is_none_or(|stored| !Rc::ptr_eq(part, stored) && part != stored)
}

/// Returns whether the stored session is a subagent whose final status its parent has not acknowledged.
/// `false` if the state cannot be parsed.
pub fn owes_status(store: &dyn SessionStore) -> bool {
    let read =
        |key| document_key::read(store, &key).ok().flatten().and_then(|json| decode::<Value>(&json).ok());
    let Some(state) = read(DocumentKey::State) else { return false };
    // Earlier versions stored it in the first document.
    let reported = read(DocumentKey::Child).unwrap_or_else(|| state.clone());
    state["meta"]["parent"].is_object() && reported["reported"] != true
}
