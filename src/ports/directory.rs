//! Data shared between sessions: tenants, keys, and the list of sessions. Rows of a tenant are accessible
//! only through that tenant's id.

use crate::types::{
    AgentId, AuditEntry, AuditQuery, Day, KeyId, Rules, Scopes, SessionId, StorageUse, TenantId,
    TenantLimits, TenantPolicy, Timestamp, UserId,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

/// A failed directory call, with the store's message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("directory: {0}")]
pub struct DirectoryError(pub String);

/// The result of a directory call.
pub type DirectoryResult<T> = Result<T, DirectoryError>;

/// How a tenant's identity provider signs tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JwtConfig {
    /// The required `iss` claim.
    pub issuer: String,
    /// The required `aud` claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Whether tokens for any audience are accepted. Otherwise, tokens need the audience.
    #[serde(default)]
    pub any_audience: bool,
    /// The scopes that a token can have at most.
    #[serde(default = "Scopes::standard")]
    pub max_scopes: Scopes,
    /// The URL of the provider's keys (https).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// The keys (RFC 7517), required for HS256. Stored as an encrypted string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<serde_json::Value>,
}

/// A tenant, the unit of isolation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// The tenant's id.
    pub id: TenantId,
    /// The name, for people.
    pub name: String,
    /// When the tenant was created.
    pub created_at: Timestamp,
    /// The tenant's identity provider. Contains no secret in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtConfig>,
    /// The shard that stores all rows of the tenant; absent without shards. Changed by a move only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The number of shards over which the memory and the files of users are spread. Absent if they are on the tenant's
    /// shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<usize>,
    /// The permission rules for all sessions of the tenant.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub permissions: Rules,
    /// The limits of all sessions of the tenant.
    #[serde(default, skip_serializing_if = "TenantLimits::is_empty")]
    pub limits: TenantLimits,
    /// Raised by each update, and higher than that of any earlier tenant with this id.
    pub version: u64,
}

impl Tenant {
    /// Returns what applies to all sessions of the tenant.
    pub fn policy(&self) -> TenantPolicy {
        let (rules, limits) = (self.permissions.clone(), self.limits.clone());
        TenantPolicy { rules, limits, version: self.version }
    }

    /// Returns the version of an update at `now`. It is based on the time, so that a tenant that is created
    /// again with the id of a deleted one has a higher version.
    pub fn next_version(&self, now: Timestamp) -> u64 {
        (self.version + 1).max(now.0)
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The key's public id.
    pub id: KeyId,
    /// The key's tenant.
    pub tenant: TenantId,
    /// The name, for people.
    pub name: String,
    /// The scopes of the key.
    pub scopes: Scopes,
    /// When the key was created.
    pub created_at: Timestamp,
    /// When the key expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Which sessions to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKinds {
    /// Those in which people talk to agents.
    Conversations,
    /// Those of runs.
    Runs,
    /// All, also those of subagents.
    All,
}

/// An entry of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// The session's tenant.
    pub tenant: TenantId,
    /// The session's id.
    pub id: SessionId,
    /// The session's user.
    pub user: UserId,
    /// The session's agent.
    pub agent: AgentId,
    /// The session's title.
    pub title: Option<String>,
    /// When the session was created.
    pub created_at: Timestamp,
    /// When the session last changed.
    pub updated_at: Timestamp,
    /// Number of calls that wait for a person or a client.
    #[serde(default)]
    pub pending: u32,
    /// Whether a turn has been running for some time.
    #[serde(default)]
    pub running: bool,
    /// The parent session of a subagent's session, which lists omit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
}

/// The result of claiming an Idempotency-Key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key is new. The caller now holds it and must settle it.
    Fresh,
    /// The first request is still running.
    Running,
    /// The key was used with a different body.
    Reused,
    /// The stored response: status and encrypted body.
    Done(u16, String),
}

/// How long the response to an Idempotency-Key is stored (one day).
pub const CLAIM_TTL: Duration = Duration::from_hours(24);
/// How long a request may hold an Idempotency-Key before another request may take it over.
pub const CLAIM_TIMEOUT: Duration = Duration::from_mins(1);

/// How long rows of the audit trail are kept. One day longer than the database refuses to delete them, so that clocks need
/// not agree.
pub const AUDIT_TTL: Duration = Duration::from_hours(401 * 24);

/// Maximum number of shards that one sweep covers: each in turn, by the minute. The platform limits the calls of a run.
pub const SHARDS_PER_SWEEP: usize = 20;

/// The store of tenants, keys, the list of sessions, idempotency outside sessions, and the audit trail. Each change of a
/// tenant or a key adds its row of the audit trail in the same transaction.
///
/// ```
/// # use edge_harness::ports::{Directory, directory::DirectoryResult};
/// # use edge_harness::types::TenantId;
/// /// Returns whether a tenant exists and has no sessions.
/// async fn is_unused(directory: &dyn Directory, tenant: &TenantId) -> DirectoryResult<bool> {
///     Ok(directory.tenant(tenant).await?.is_some() && directory.count_sessions(tenant, None).await? == 0)
/// }
/// ```
#[async_trait(?Send)]
pub trait Directory {
    /// Fails if a database cannot be read, or lacks the newest migration.
    async fn check(&self) -> DirectoryResult<()>;
    /// Creates a tenant. Returns `false` if the id is taken.
    async fn create_tenant(&self, tenant: &Tenant, audit: &AuditEntry) -> DirectoryResult<bool>;
    /// Updates a tenant's name, issuer, rules, limits, and version. Returns `false` if the stored version is no longer
    /// `read_version`, or the tenant does not exist.
    async fn update_tenant(
        &self,
        tenant: &Tenant,
        read_version: u64,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool>;
    /// Copies a tenant's storage limits to its shards, where each write checks them. An older version of the tenant never
    /// replaces a newer one. Fails while the tenant moves.
    async fn copy_limits(&self, tenant: &Tenant) -> DirectoryResult<()>;
    /// Lists tenants whose storage limits are not known to be on all of their shards, except those that move.
    async fn limits_due(&self, limit: usize) -> DirectoryResult<Vec<Tenant>>;
    /// Returns the tenant with this id.
    async fn tenant(&self, id: &TenantId) -> DirectoryResult<Option<Tenant>>;
    /// Lists tenants in the order of their ids, starting after `after`.
    async fn tenants(&self, after: Option<&TenantId>, limit: usize) -> DirectoryResult<Vec<Tenant>>;
    /// Deletes the keys of the row's tenant and marks the tenant as deleted. It can no longer be found, but its id stays
    /// taken until [`Directory::purge_tenant`]. Returns `false` if the tenant does not exist.
    async fn delete_tenant(&self, audit: &AuditEntry) -> DirectoryResult<bool>;
    /// Lists the tenants marked as deleted, with the time of deletion; oldest first.
    async fn deleted_tenants(&self, limit: usize) -> DirectoryResult<Vec<(TenantId, Timestamp)>>;
    /// Returns when the tenant with this id was deleted, if it is marked as deleted.
    async fn deleted_at(&self, id: &TenantId) -> DirectoryResult<Option<Timestamp>>;
    /// Returns the number of shards that hold any rows of a tenant.
    async fn shard_count(&self, tenant: &TenantId) -> DirectoryResult<usize>;
    /// Removes a tenant that is marked as deleted, which frees its id.
    async fn purge_tenant(&self, id: &TenantId) -> DirectoryResult<()>;
    /// Lists the tenants with this token issuer.
    async fn tenants_by_issuer(&self, issuer: &str) -> DirectoryResult<Vec<Tenant>>;

    /// Stores a key under the hash of its secret. Returns `false` if the tenant does not exist.
    async fn create_key(&self, key: &ApiKey, hash: &str, audit: &AuditEntry) -> DirectoryResult<bool>;
    /// Returns the key with this hash, unless it is revoked or expired, and its tenant's policy.
    async fn key_by_hash(
        &self,
        hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>>;
    /// Returns the key with this id, unless it is revoked or expired, and its tenant's policy.
    async fn key(
        &self,
        tenant: &TenantId,
        id: &KeyId,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>>;
    /// Lists a tenant's keys in the order of their ids, starting after `after`.
    async fn keys(
        &self,
        tenant: &TenantId,
        after: Option<&KeyId>,
        limit: usize,
    ) -> DirectoryResult<Vec<ApiKey>>;
    /// Revokes a key of the row's tenant. Returns `false` if it does not exist.
    async fn delete_key(&self, id: &KeyId, audit: &AuditEntry) -> DirectoryResult<bool>;

    /// Adds rows to the audit trail, for changes outside the directory. A row that exists is kept.
    async fn append_audit(&self, entries: &[AuditEntry]) -> DirectoryResult<()>;
    /// Lists rows of a tenant's audit trail, newest first. The rows of a deleted tenant remain.
    async fn audit(&self, tenant: &TenantId, query: &AuditQuery) -> DirectoryResult<Vec<AuditEntry>>;

    /// Adds or replaces an entry of the list of sessions. A newer existing entry is kept.
    async fn put_session(&self, entry: &SessionEntry) -> DirectoryResult<()>;
    /// Removes an entry of the list of sessions.
    async fn delete_session(&self, tenant: &TenantId, id: &SessionId) -> DirectoryResult<()>;
    /// Lists the ids of the sessions of a session's subagents.
    async fn subagents(&self, tenant: &TenantId, session: &SessionId) -> DirectoryResult<Vec<SessionId>>;
    /// Lists a tenant's sessions of these kinds before the pair `(created_at, id)`, newest first.
    async fn sessions(
        &self,
        kinds: SessionKinds,
        tenant: &TenantId,
        user: Option<&UserId>,
        agent: Option<&AgentId>,
        before: Option<(Timestamp, &SessionId)>,
        limit: usize,
    ) -> DirectoryResult<Vec<SessionEntry>>;

    /// Counts the sessions of a tenant, or of one of its users, those of subagents included.
    async fn count_sessions(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<u64>;

    /// Claims an Idempotency-Key of a tenant, or of the operator. `scope` consists of route and owner. Rows older than
    /// [`CLAIM_TTL`] are ignored, and so are claims still running after [`CLAIM_TIMEOUT`], whose request must have failed.
    async fn claim(
        &self,
        tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        body_hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Claim>;
    /// Stores the first response, or releases the key if there is none.
    async fn settle(
        &self,
        tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        response: Option<(u16, &str)>,
    ) -> DirectoryResult<()>;

    /// Records in which session a call of a client runs. A record is kept for [`CLAIM_TTL`], and replaces an earlier one of
    /// the same call. `call` distinguishes the call from all others of the tenant.
    async fn put_call(
        &self,
        tenant: &TenantId,
        call: &str,
        session: &SessionId,
        now: Timestamp,
    ) -> DirectoryResult<()>;
    /// Returns the session in which a call of a client runs or has run, if that is recorded.
    async fn session_of_call(&self, tenant: &TenantId, call: &str) -> DirectoryResult<Option<SessionId>>;

    /// Stores an encrypted secret of the deployment, unless one with this name is stored. Returns the stored
    /// one.
    async fn secret(&self, name: &str, new: &str) -> DirectoryResult<String>;

    /// Returns what a tenant stores, or one of its users.
    async fn storage(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<StorageUse>;
    /// Records what tenants store on this day, for a bounded number of tenants that have no row of the day. `now` is a
    /// time of the day.
    async fn record_storage(&self, now: Timestamp) -> DirectoryResult<()>;
    /// Lists what a tenant stored on the days of a range that were recorded.
    async fn stored_by_day(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
    ) -> DirectoryResult<Vec<(Day, StorageUse)>>;

    /// Removes a bounded number of expired idempotency rows on up to [`SHARDS_PER_SWEEP`] shards, keys, and rows of the
    /// audit trail. Returns whether more are left.
    async fn expire(&self, now: Timestamp) -> DirectoryResult<bool>;
}
