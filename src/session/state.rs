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

/// The first version that does not store parts that a session has from the start.
const SPARSE: u32 = 5;

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

/// What the store has of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Nothing.
    Nothing,
    /// The form of an earlier version. All documents must be written.
    Earlier,
    /// The form of this version.
    Current,
}

/// A stored state.
pub(super) struct StoredState {
    pub state: SessionState,
    /// Whether an earlier version stored it.
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
        true => Some(json),
        false => get(&key),
    };
    let WithMeta { meta } = decode::<WithMeta<SessionMeta>>(json)?;
    let activity = part(DocumentKey::Activity)
        .ok_or_else(|| StoreError(format!("the document \"{}\" is missing", DocumentKey::Activity)))?;
    let mut activity: Activity = decode(activity)?;
    if schema < SPLIT {
        activity.totals = decode::<WithMeta<Totals>>(json)?.meta;
    }
    let child = match &meta.parent {
        Some(_) => Some(shared(part(DocumentKey::Child))?),
        None => None,
    };
    let account = get(&DocumentKey::Account);
    let lacks_account = schema < SPARSE && account.is_none();
    let state = SessionState {
        meta: Rc::new(meta),
        guidance: shared(part(DocumentKey::Guidance))?,
        activity: Rc::new(activity),
        background: shared(part(DocumentKey::Background))?,
        child,
        subagents: shared(get(&DocumentKey::Subagents))?,
        account: shared(account)?,
        webhooks: shared(get(&DocumentKey::Webhooks))?,
    };
    Ok(Some(StoredState { state, is_earlier: schema < SCHEMA, lacks_account }))
}

fn shared<T: DeserializeOwned + Default>(json: Option<&str>) -> Result<Rc<T>, StoreError> {
    json.map_or_else(|| Ok(Rc::default()), |json| decode(json).map(Rc::new))
}

/// Returns the documents of the parts that differ from the stored ones.
///
/// # Errors
/// If a part cannot be written as JSON.
pub(super) fn changed(
    state: &SessionState,
    stored: Stored,
    before: &SessionState,
) -> Result<Vec<(DocumentKey, String)>, StoreError> {
    let mut documents = Vec::new();
    let is_new = stored == Stored::Nothing;
    if is_new || stored.differs(&state.meta, &before.meta) {
        let document = StateDocument { schema: SCHEMA, meta: &state.meta };
        documents.push((DocumentKey::State, encode(&document)?));
    }
    if is_new || stored.differs(&state.activity, &before.activity) {
        documents.push((DocumentKey::Activity, encode(state.activity.as_ref())?));
    }
    // A new session without these documents has their defaults.
    let before = match is_new {
        true => &SessionState::new(SessionMeta::clone(&state.meta)),
        false => before,
    };
    if stored.differs(&state.guidance, &before.guidance) {
        documents.push((DocumentKey::Guidance, encode(state.guidance.as_ref())?));
    }
    if stored.differs(&state.background, &before.background) {
        documents.push((DocumentKey::Background, encode(state.background.as_ref())?));
    }
    if stored.differs(&state.account, &before.account) {
        documents.push((DocumentKey::Account, encode(state.account.as_ref())?));
    }
    if stored.differs(&state.webhooks, &before.webhooks) {
        documents.push((DocumentKey::Webhooks, encode(state.webhooks.as_ref())?));
    }
    if stored.differs(&state.subagents, &before.subagents) {
        documents.push((DocumentKey::Subagents, encode(state.subagents.as_ref())?));
    }
    if let (Some(child), Some(before)) = (&state.child, &before.child)
        && stored.differs(child, before)
    {
        documents.push((DocumentKey::Child, encode(child.as_ref())?));
    }
    Ok(documents)
}

impl Stored {
    /// Returns whether a part must be written. Most commits leave most parts as they are, so the pointers are compared
    /// first.
    fn differs<T: PartialEq>(self, part: &Rc<T>, before: &Rc<T>) -> bool {
        self == Self::Earlier || (!Rc::ptr_eq(part, before) && part != before)
    }
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
