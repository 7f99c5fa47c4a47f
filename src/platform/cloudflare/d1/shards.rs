//! The databases of a deployment, and the placement of tenants.
//!
//! The bindings are `DB`, `DB_1`, `DB_2` and so on. `DB` is also the root: it holds tenants, their keys and
//! idempotency keys. All data that grows with a tenant's use is on the tenant's shard. A move copies rows only after
//! [`SHARD_TTL`], so that all isolates learn of it first and then cache the tenant's shard for a moment only.

use super::{Database, timestamp};
use crate::http::{erasure::id_held, placement, placement::SHARD_TTL};
use crate::platform::cloudflare::runtime::WorkerClock;
use crate::platform::sql::{SqlError, shard_name};
use crate::ports::Clock;
use crate::types::{TenantId, UserId, expiring::Expiring, json};
use serde::Deserialize;
use std::{collections::HashMap, rc::Rc, time::Duration};
use worker::{D1Type, Env, Result};

/// Maximum number of tenants whose placement is cached.
const MAX_PLACED: usize = 1_000;
/// Minimum validity of a placement after [`Shards::locate`].
const MIN_VALIDITY: Duration = Duration::from_secs(1);
/// How long an isolate caches the shard of a moving tenant.
const MOVING_TTL: Duration = Duration::from_secs(2);

/// The databases.
pub struct Shards {
    names: Vec<String>,
    root: Database,
    all: Vec<Database>,
    placed: Rc<Placed>,
}

/// The placements of tenants.
pub type Placed = Expiring<Placement>;

/// Where the rows of a tenant are.
#[derive(Clone)]
pub struct Placement {
    /// The number of the tenant's shard.
    home: usize,
    /// The number of shards over which the users are spread, from the first one; otherwise they are on the tenant's
    /// shard.
    spread: Option<usize>,
    /// The numbers of the shards of users that have moved.
    moved: Rc<HashMap<UserId, usize>>,
}

#[derive(Deserialize)]
struct PlacementRow {
    shard: Option<String>,
    spread: Option<f64>,
    deleted_at: Option<f64>,
    moving: f64,
    /// JSON: the shards of users that have moved.
    moved: String,
}

impl Shards {
    /// Collects the bound databases: `DB`, followed by consecutively numbered ones.
    ///
    /// # Errors
    /// If `DB` is not bound.
    pub fn new(env: &Env) -> Result<Self> {
        let root = Database::new(env.d1(&shard_name(0))?);
        let (mut names, mut all) = (vec![shard_name(0)], vec![root.clone()]);
        loop {
            let name = shard_name(all.len());
            let Ok(binding) = env.d1(&name) else { break };
            names.push(name);
            all.push(Database::new(binding));
        }
        Ok(Self { names, root, all, placed: Rc::new(Expiring::new(MAX_PLACED)) })
    }

    /// Returns the names of all shards.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the database of tenants and their keys.
    pub fn root(&self) -> &Database {
        &self.root
    }

    /// Returns all shards, for sweeps.
    pub fn all(&self) -> &[Database] {
        &self.all
    }

    /// Returns the shard with this name.
    pub fn named(&self, name: &str) -> Option<&Database> {
        self.names.iter().zip(&self.all).find(|(known, _)| *known == name).map(|(_, database)| database)
    }

    /// Returns the shard that holds a tenant's rows, except for those of users that are spread or have moved. Asks the root if the
    /// placement is not cached.
    ///
    /// # Errors
    /// If the root fails, or the tenant's shard is no longer bound.
    pub async fn of(&self, tenant: &TenantId) -> std::result::Result<Database, SqlError> {
        let placement = self.find(tenant, Duration::ZERO).await?;
        self.database(tenant, placement.home)
    }

    /// Returns the shard that holds the rows of a tenant's user.
    ///
    /// # Errors
    /// See [`Shards::of`].
    pub async fn of_user(&self, tenant: &TenantId, user: &UserId) -> std::result::Result<Database, SqlError> {
        let number = self.number(tenant, Some(user)).await?;
        self.database(tenant, number)
    }

    /// Returns the shards that hold any rows of a tenant.
    ///
    /// # Errors
    /// See [`Shards::of`].
    pub async fn all_of(&self, tenant: &TenantId) -> std::result::Result<Vec<Database>, SqlError> {
        let Placement { home, spread, moved } = self.find(tenant, Duration::ZERO).await?;
        let mut numbers = vec![home];
        for number in (0..spread.unwrap_or_default()).chain(moved.values().copied()) {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers.into_iter().map(|number| self.database(tenant, number)).collect()
    }

    /// Returns the number of the shard that holds the rows of a tenant or of one of its users.
    ///
    /// # Errors
    /// See [`Shards::of`].
    pub async fn number(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> std::result::Result<usize, SqlError> {
        let Placement { home, spread, moved } = self.find(tenant, Duration::ZERO).await?;
        if let Some(number) = user.and_then(|user| moved.get(user)) {
            return Ok(*number);
        }
        let Some((user, spread)) = user.zip(spread) else { return Ok(home) };
        let names = self.names.get(..spread).unwrap_or(&self.names);
        let name = placement::user_shard(tenant, user, names);
        Ok(self.names.iter().position(|known| Some(known.as_str()) == name).unwrap_or(home))
    }

    /// Returns a shard by its number.
    ///
    /// # Errors
    /// If it is not bound.
    pub fn database(&self, tenant: &TenantId, number: usize) -> std::result::Result<Database, SqlError> {
        let database = self.all.get(number).map(|database| database.of_tenant(tenant, &self.placed));
        database.ok_or_else(|| SqlError(format!("the shard {} is not bound", shard_name(number))))
    }

    /// Looks up a tenant's placement, so that the next lookup returns without waiting. For callers that
    /// must not await between a check and a statement.
    ///
    /// # Errors
    /// See [`Shards::of`].
    pub async fn locate(&self, tenant: &TenantId) -> std::result::Result<(), SqlError> {
        self.find(tenant, MIN_VALIDITY).await.map(drop)
    }

    async fn find(
        &self,
        tenant: &TenantId,
        min_validity: Duration,
    ) -> std::result::Result<Placement, SqlError> {
        if let Some(placement) = self.placed.get(tenant, WorkerClock.now() + min_validity) {
            return Ok(placement);
        }
        let sql = "SELECT shard, spread, deleted_at, EXISTS (SELECT 1 FROM moves WHERE tenant = ?1 \
                   AND phase NOT IN ('done', 'canceled')) AS moving, (SELECT json_group_object(user, shard) \
                   FROM user_shards WHERE tenant = ?1) AS moved FROM tenants WHERE id = ?1";
        let row = self.root.rows::<PlacementRow>(sql, &[D1Type::Text(tenant)]).await?.into_iter().next();
        let written = row.as_ref().and_then(|row| row.shard.as_deref());
        let name = written.or_else(|| placement::shard(tenant, &self.names)).unwrap_or_default();
        let spread = row.as_ref().and_then(|row| row.spread).map(|count| count as usize);
        let position = |name: &str| {
            let number = self.names.iter().position(|known| known == name);
            number.ok_or_else(|| SqlError(format!("tenant {tenant} is on shard {name}, which is not bound")))
        };
        let home = position(name)?;
        let moved = row.as_ref().map(|row| json::from_str::<HashMap<UserId, String>>(&row.moved));
        let moved = moved.transpose().map_err(SqlError::new)?.unwrap_or_default().into_iter();
        let moved: HashMap<UserId, usize> = moved
            .map(|(user, shard)| Ok((user, position(&shard)?)))
            .collect::<std::result::Result<_, SqlError>>()?;
        let bound = self.names.len();
        if let Some(count) = spread.filter(|count| *count > bound) {
            let why =
                format!("tenant {tenant} is spread over {count} shards, of which only {bound} are bound");
            return Err(SqlError(why));
        }
        let placement = Placement { home, spread, moved: Rc::new(moved) };
        // The id of a deleted tenant may be reused on another shard, but not earlier than this.
        let held_until = row.as_ref().and_then(|row| row.deleted_at).map(|at| timestamp(at) + id_held());
        let moving = row.is_some_and(|row| row.moving > 0.0);
        let now = WorkerClock.now();
        let end = now + if moving { MOVING_TTL } else { SHARD_TTL };
        let expires_at = held_until.map_or(end, |held_until| held_until.min(end));
        if expires_at > now {
            self.placed.put(tenant.to_string(), placement.clone(), expires_at, now);
        }
        Ok(placement)
    }
}
