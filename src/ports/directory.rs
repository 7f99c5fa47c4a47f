//! What is shared between sessions: tenants, keys, and the list of sessions. Rows of one tenant
//! are reached only through that tenant's id.

use crate::types::{Rules, Scopes, TenantId, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The directory does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("directory: {0}")]
pub struct DirectoryError(pub String);

/// The result of a directory call.
pub type DirectoryResult<T> = Result<T, DirectoryError>;

/// How a tenant's own identity provider signs tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JwtConfig {
    /// The `iss` claim.
    pub issuer: String,
    /// The `aud` claim that must be present, where one is demanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Where the provider publishes its keys (https).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// The keys themselves (RFC 7517); needed for HS256. Sealed, a string, wherever it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<serde_json::Value>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name, for people.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its issuer, where it has one. Holds no secret in clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtConfig>,
    /// The shard that all of its rows are on, for ever; none where there are no shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// What its agents may do, in all of its sessions.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub permissions: Rules,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its public id.
    pub id: String,
    /// Its tenant.
    pub tenant: TenantId,
    /// What it is for, for people.
    pub name: String,
    /// What it allows.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A line of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its id.
    pub id: String,
    /// Its user.
    pub user: String,
    /// Its agent.
    pub agent: String,
    /// Its title.
    pub title: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The session that it was sent out by, where it is a subagent's: it stands in no list then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// A first answer kept under an Idempotency-Key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody used the key before: the caller holds it now and must settle it.
    Fresh,
    /// Somebody is at it.
    Running,
    /// It was used with another body.
    Reused,
    /// The first answer: status and (sealed) body.
    Done(u16, String),
}

/// How long an Idempotency-Key is kept: a day.
pub const CLAIM_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long a request may hold an Idempotency-Key before another may take over.
pub const CLAIM_RUNNING_MS: u64 = 60 * 1_000;

/// Tenants, keys, issuers, the list of sessions, and idempotency of what is not in a session.
#[async_trait(?Send)]
pub trait Directory {
    /// Makes a tenant; false if the id is taken.
    async fn create_tenant(&self, tenant: &Tenant) -> DirectoryResult<bool>;
    /// Replaces a tenant's name, issuer and rules; false if there is none.
    async fn update_tenant(&self, tenant: &Tenant) -> DirectoryResult<bool>;
    /// Finds a tenant.
    async fn tenant(&self, id: &TenantId) -> DirectoryResult<Option<Tenant>>;
    /// Tenants by id, behind `after`.
    async fn tenants(&self, after: Option<&TenantId>, limit: usize) -> DirectoryResult<Vec<Tenant>>;
    /// Removes a tenant's keys and marks it deleted: from then on nothing finds it, but its id stays
    /// taken until [`Directory::purge_tenant`]. False if there is none.
    async fn delete_tenant(&self, id: &TenantId, now: Timestamp) -> DirectoryResult<bool>;
    /// Tenants marked deleted, and since when; oldest mark first.
    async fn deleted_tenants(&self, limit: usize) -> DirectoryResult<Vec<(TenantId, Timestamp)>>;
    /// Forgets a tenant that is marked deleted.
    async fn purge_tenant(&self, id: &TenantId) -> DirectoryResult<()>;
    /// Tenants whose tokens carry this issuer.
    async fn tenants_by_issuer(&self, issuer: &str) -> DirectoryResult<Vec<Tenant>>;

    /// Stores a key by the hash of its secret; false if there is no such tenant.
    async fn create_key(&self, key: &ApiKey, hash: &str) -> DirectoryResult<bool>;
    /// Finds a key that is neither revoked nor expired by the hash of its secret, and its tenant's rules.
    async fn key_by_hash(&self, hash: &str, now: Timestamp) -> DirectoryResult<Option<(ApiKey, Rules)>>;
    /// A tenant's keys by id, behind `after`.
    async fn keys(&self, tenant: &TenantId, after: &str, limit: usize) -> DirectoryResult<Vec<ApiKey>>;
    /// Revokes a key; false if there is none.
    async fn delete_key(&self, tenant: &TenantId, id: &str) -> DirectoryResult<bool>;

    /// Adds a line to the list of sessions, or replaces it unless what is there is newer.
    async fn put_session(&self, entry: &SessionEntry) -> DirectoryResult<()>;
    /// Removes a line.
    async fn delete_session(&self, tenant: &TenantId, id: &str) -> DirectoryResult<()>;
    /// The ids of the sessions of subagents that a session has sent out.
    async fn subagents(&self, tenant: &TenantId, session: &str) -> DirectoryResult<Vec<String>>;
    /// A tenant's sessions, newest first, behind the pair `(created_at, id)`; those of subagents only with
    /// `subagents`.
    async fn sessions(
        &self,
        tenant: &TenantId,
        user: Option<&str>,
        agent: Option<&str>,
        before: Option<(Timestamp, &str)>,
        limit: usize,
        subagents: bool,
    ) -> DirectoryResult<Vec<SessionEntry>>;

    /// Claims an Idempotency-Key; `scope` is tenant and route. Rows older than [`CLAIM_KEPT_MS`]
    /// count as gone, and so do those still running after [`CLAIM_RUNNING_MS`]: whoever held them
    /// died.
    async fn claim(&self, scope: &str, key: &str, body_hash: &str, now: Timestamp) -> DirectoryResult<Claim>;
    /// Keeps the first answer, or frees the key when there is none.
    async fn settle(&self, scope: &str, key: &str, answer: Option<(u16, &str)>) -> DirectoryResult<()>;

    /// Removes what is past its time: idempotency rows and expired keys. Bounded; returns whether
    /// more is left.
    async fn expire(&self, now: Timestamp) -> DirectoryResult<bool>;
}
