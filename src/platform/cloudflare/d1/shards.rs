//! The databases of a deployment, and which of them has a tenant's rows.
//!
//! The bindings are `DB`, `DB_1`, `DB_2` and so on. `DB` is the root as well: tenants, their keys, and
//! what is kept under Idempotency-Keys. What grows as a tenant is used is on the tenant's shard.

use super::{Database, Failed};
use crate::http::{expiring::Expiring, placement, placement::PLACED_MS};
use crate::platform::cloudflare::runtime::WorkerClock;
use crate::ports::Clock;
use crate::types::TenantId;
use serde::Deserialize;
use worker::{D1Type, Env, Result};

/// Tenants whose shard is remembered at most.
const MAX_PLACED: usize = 1_000;
/// How long a placement is good for after [`Shards::locate`], in milliseconds.
const GOOD_FOR_MS: u64 = 1_000;

/// The databases.
pub struct Shards {
    names: Vec<String>,
    root: Database,
    all: Vec<Database>,
    /// The shards of tenants, by number.
    placed: Expiring<usize>,
}

#[derive(Deserialize)]
struct Placement {
    shard: Option<String>,
    deleted_at: Option<f64>,
}

impl Shards {
    /// The databases that are bound: `DB`, and as many more as have a number without a gap.
    ///
    /// # Errors
    /// When there is no `DB`.
    pub fn new(env: &Env) -> Result<Self> {
        let root = Database::new(env.d1("DB")?);
        let (mut names, mut all) = (vec!["DB".to_owned()], vec![root.clone()]);
        loop {
            let name = format!("DB_{}", all.len());
            let Ok(binding) = env.d1(&name) else { break };
            names.push(name);
            all.push(Database::new(binding));
        }
        Ok(Self { names, root, all, placed: Expiring::new(MAX_PLACED) })
    }

    /// The names of all shards.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where tenants and their keys are.
    pub fn root(&self) -> &Database {
        &self.root
    }

    /// All shards, for sweeps.
    pub fn all(&self) -> &[Database] {
        &self.all
    }

    /// The shard that has a tenant's rows. Asks the root where this isolate has not done so lately.
    ///
    /// # Errors
    /// When the root does not answer, or the tenant is on a shard that is not bound any more.
    pub async fn of(&self, tenant: &TenantId) -> std::result::Result<Database, Failed> {
        self.find(tenant, 0).await
    }

    /// Finds a tenant's shard, so that [`Shards::of`] has it at once in the next moment: for those who
    /// must not wait between a check and their statement.
    ///
    /// # Errors
    /// As there.
    pub async fn locate(&self, tenant: &TenantId) -> std::result::Result<(), Failed> {
        self.find(tenant, GOOD_FOR_MS).await.map(drop)
    }

    async fn find(&self, tenant: &TenantId, good_for_ms: u64) -> std::result::Result<Database, Failed> {
        let remembered = self.placed.get(tenant, WorkerClock.now().plus(good_for_ms));
        if let Some(database) = remembered.and_then(|number| self.all.get(number)) {
            return Ok(database.clone());
        }
        let sql = "SELECT shard, deleted_at FROM tenants WHERE id = ?1";
        let row = self.root.rows::<Placement>(sql, &[D1Type::Text(tenant)]).await?.into_iter().next();
        let written = row.as_ref().and_then(|row| row.shard.as_deref());
        let name = written.or_else(|| placement::by_name(tenant, &self.names)).unwrap_or_default();
        let number = self.names.iter().position(|known| known == name);
        let Some((number, database)) = number.and_then(|number| Some((number, self.all.get(number)?))) else {
            return Err(Failed(format!("tenant {tenant} is on shard {name}, which is not bound")));
        };
        // Once it is purged, its id may come back on another shard.
        if row.is_none_or(|row| row.deleted_at.is_none()) {
            let now = WorkerClock.now();
            self.placed.put(tenant.to_string(), number, now.plus(PLACED_MS), now);
        }
        Ok(database.clone())
    }
}
