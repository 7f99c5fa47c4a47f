//! Reads and checks what the object of a session stores, without opening the session.

use super::{DocumentKey, OpenError, decode_part, document_key, schema};
use crate::ports::{SessionStore, StoreError};
use crate::types::{AgentId, AgentRef, AgentVersion, Owner, SessionId, TenantId, UserId, WorkspaceOwner};
use serde::{Deserialize, de::DeserializeOwned};

/// Reads the owner of the stored session, or `None` if there is none. Works even if the rest of the state
/// cannot be parsed.
///
/// # Errors
/// If the store fails, or the owner cannot be parsed.
pub fn owner(store: &dyn SessionStore) -> Result<Option<Owner>, StoreError> {
    meta(store)
}

/// Reads on which workspace the stored session works. Otherwise like [`owner`].
///
/// # Errors
/// As for [`owner`].
pub(crate) fn workspace(store: &dyn SessionStore) -> Result<Option<WorkspaceOwner>, StoreError> {
    #[derive(Deserialize)]
    struct Own {
        id: SessionId,
        #[serde(default)]
        isolated: bool,
    }
    let (Some(owner), Some(own)) = (owner(store)?, meta::<Own>(store)?) else { return Ok(None) };
    Ok(Some(WorkspaceOwner { owner, session: own.isolated.then_some(own.id) }))
}

/// Reads some of the identity and the settings of the stored session, or `None` if there is none.
fn meta<T: DeserializeOwned>(store: &dyn SessionStore) -> Result<Option<T>, StoreError> {
    #[derive(Deserialize)]
    struct State<T> {
        meta: T,
    }
    if !store.exists()? {
        return Ok(None);
    }
    let Some(json) = document_key::read(store, &DocumentKey::State)? else { return Ok(None) };
    let State { meta } = decode_part(&json)?;
    Ok(Some(meta))
}

/// Reads the tenant, the user and the agent of the stored session, or `None` if there is none or a newer version has written it.
///
/// # Errors
/// If the store fails, or the agent cannot be parsed.
pub fn agent(store: &dyn SessionStore) -> Result<Option<(TenantId, UserId, AgentRef)>, StoreError> {
    #[derive(Deserialize)]
    struct State {
        meta: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        tenant: TenantId,
        user: UserId,
        agent: AgentId,
        #[serde(default)]
        agent_version: AgentVersion,
    }
    if !store.exists()? {
        return Ok(None);
    }
    let Some(json) = document_key::read(store, &DocumentKey::State)? else { return Ok(None) };
    if schema::check(&json).is_err() {
        return Ok(None);
    }
    let State { meta: Meta { tenant, user, agent, agent_version } } = decode_part(&json)?;
    Ok(Some((tenant, user, AgentRef { id: agent, version: agent_version })))
}

/// Checks that this version can read the stored session, if there is one.
///
/// # Errors
/// If a newer version has written it, or the store fails.
pub fn check_schema(store: &dyn SessionStore) -> Result<(), OpenError> {
    let state = if store.exists()? { document_key::read(store, &DocumentKey::State)? } else { None };
    state.map_or(Ok(()), |json| schema::check(&json).map(drop))
}

/// Deletes the records of a copy that has not become a session.
///
/// # Errors
/// If the store fails.
pub(crate) fn discard_copy(store: &dyn SessionStore) -> Result<(), StoreError> {
    let is_copy = store.exists()? && document_key::read(store, &DocumentKey::State)?.is_none();
    if is_copy && store.last_seq()? > 0 { store.erase() } else { Ok(()) }
}
