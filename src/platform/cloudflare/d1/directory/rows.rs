//! The rows of the directory, as D1 returns them.

use super::timestamp;
use crate::ports::directory::{ApiKey, DirectoryError, DirectoryResult, SessionEntry, Tenant};
use crate::types::{AgentId, KeyId, Rules, SessionId, TenantId, TenantRules, UserId};
use serde::Deserialize;

pub fn invalid_row(error: serde_json::Error) -> DirectoryError {
    DirectoryError(format!("cannot read a row: {error}"))
}

#[derive(Deserialize)]
pub struct TenantRow {
    pub id: TenantId,
    pub name: String,
    pub created_at: f64,
    pub jwt: Option<String>,
    pub shard: Option<String>,
    pub permissions: Option<String>,
    pub version: f64,
}

impl TenantRow {
    pub fn read(self) -> DirectoryResult<Tenant> {
        let jwt = self.jwt.map(|jwt| serde_json::from_str(&jwt)).transpose().map_err(invalid_row)?;
        Ok(Tenant {
            id: self.id,
            name: self.name,
            created_at: timestamp(self.created_at),
            jwt,
            shard: self.shard,
            permissions: rules(self.permissions)?,
            version: self.version as u64,
        })
    }
}

pub fn rules(stored: Option<String>) -> DirectoryResult<Rules> {
    stored.map_or(Ok(Rules::default()), |text| serde_json::from_str(&text).map_err(invalid_row))
}

#[derive(Deserialize)]
pub struct DeletedRow {
    pub id: TenantId,
    pub deleted_at: f64,
}

#[derive(Deserialize)]
pub struct KeyRow {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: String,
    pub scopes: String,
    pub created_at: f64,
    pub expires_at: Option<f64>,
    /// The tenant's rules and version, if they were selected.
    #[serde(default)]
    pub permissions: Option<String>,
    #[serde(default)]
    pub version: f64,
}

impl KeyRow {
    pub fn read_with_rules(mut self) -> DirectoryResult<(ApiKey, TenantRules)> {
        let rules = TenantRules { rules: rules(self.permissions.take())?, version: self.version as u64 };
        Ok((self.read()?, rules))
    }

    pub fn read(self) -> DirectoryResult<ApiKey> {
        Ok(ApiKey {
            id: self.id,
            tenant: self.tenant,
            name: self.name,
            scopes: serde_json::from_str(&self.scopes).map_err(invalid_row)?,
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

/// Returns the columns of a tenant that hold its issuer's name, its issuer and its rules, the last two as
/// JSON.
pub fn json_columns(tenant: &Tenant) -> DirectoryResult<(Option<&str>, Option<String>, Option<String>)> {
    let jwt = tenant.jwt.as_ref();
    let text = jwt.map(serde_json::to_string).transpose().map_err(invalid_row)?;
    let rules = Some(&tenant.permissions).filter(|rules| !rules.is_empty());
    let rules = rules.map(serde_json::to_string).transpose().map_err(invalid_row)?;
    Ok((jwt.map(|jwt| jwt.issuer.as_str()), text, rules))
}

#[derive(Deserialize)]
pub struct SecretRow {
    pub value: String,
}
