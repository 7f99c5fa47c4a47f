//! The rows of the directory, as D1 returns them.

use super::timestamp;
use crate::ports::directory::{ApiKey, DirectoryError, DirectoryResult, SessionEntry, Tenant};
use crate::types::{AgentId, FieldError, KeyId, SessionId, TenantId, TenantPolicy, UserId, json};
use serde::{Deserialize, de::DeserializeOwned};

pub fn invalid_row(error: FieldError) -> DirectoryError {
    DirectoryError(format!("cannot read a row: {error}"))
}

#[derive(Deserialize)]
pub struct TenantRow {
    pub id: TenantId,
    pub name: String,
    pub created_at: f64,
    pub jwt: Option<String>,
    pub shard: Option<String>,
    pub spread: Option<f64>,
    pub permissions: Option<String>,
    pub limits: Option<String>,
    pub version: f64,
}

impl TenantRow {
    pub fn read(self) -> DirectoryResult<Tenant> {
        let jwt = self.jwt.map(|jwt| json::from_str(&jwt)).transpose().map_err(invalid_row)?;
        Ok(Tenant {
            id: self.id,
            name: self.name,
            created_at: timestamp(self.created_at),
            jwt,
            shard: self.shard,
            spread: self.spread.map(|count| count as usize),
            permissions: or_default(self.permissions)?,
            limits: or_default(self.limits)?,
            version: self.version as u64,
        })
    }
}

/// Parses a column that is NULL for the default.
fn or_default<T: DeserializeOwned + Default>(stored: Option<String>) -> DirectoryResult<T> {
    stored.map_or(Ok(T::default()), |text| json::from_str(&text).map_err(invalid_row))
}

#[derive(Deserialize)]
pub struct DeletedRow {
    pub id: TenantId,
    pub deleted_at: f64,
}

#[derive(Deserialize)]
pub struct CountRow {
    pub sessions: f64,
}

#[derive(Deserialize)]
pub struct KeyRow {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: String,
    pub scopes: String,
    pub created_at: f64,
    pub expires_at: Option<f64>,
    /// The tenant's rules, limits and version, if they were selected.
    #[serde(default)]
    pub permissions: Option<String>,
    #[serde(default)]
    pub limits: Option<String>,
    #[serde(default)]
    pub version: f64,
}

impl KeyRow {
    pub fn read_with_policy(mut self) -> DirectoryResult<(ApiKey, TenantPolicy)> {
        let (rules, limits) = (or_default(self.permissions.take())?, or_default(self.limits.take())?);
        let policy = TenantPolicy { rules, limits, version: self.version as u64 };
        Ok((self.read()?, policy))
    }

    pub fn read(self) -> DirectoryResult<ApiKey> {
        Ok(ApiKey {
            id: self.id,
            tenant: self.tenant,
            name: self.name,
            scopes: json::from_str(&self.scopes).map_err(invalid_row)?,
            created_at: timestamp(self.created_at),
            expires_at: self.expires_at.map(timestamp),
        })
    }
}

#[derive(Deserialize)]
pub struct SessionRow {
    pub tenant: TenantId,
    pub id: SessionId,
    pub user: UserId,
    pub agent: AgentId,
    pub title: Option<String>,
    pub created_at: f64,
    pub updated_at: f64,
    pub pending: f64,
    pub running: f64,
    pub parent: Option<SessionId>,
}

impl SessionRow {
    pub fn read(self) -> SessionEntry {
        SessionEntry {
            tenant: self.tenant,
            id: self.id,
            user: self.user,
            agent: self.agent,
            title: self.title,
            created_at: timestamp(self.created_at),
            updated_at: timestamp(self.updated_at),
            pending: self.pending as u32,
            running: self.running > 0.0,
            parent: self.parent,
        }
    }
}

#[derive(Deserialize)]
pub struct ClaimRow {
    pub body_hash: String,
    pub status: Option<f64>,
    pub answer: Option<String>,
}

#[derive(Deserialize)]
pub struct SecretRow {
    pub value: String,
}
