//! The stored moves, in the root.

use super::part::Job;
use crate::platform::sql::{Rows, SqlError, Statement, Value, read};
use crate::ports::moves::{Move, MovePhase};
use crate::types::{MoveId, TenantId, Timestamp, UserId};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The columns of a move and of its tenant.
const MOVE: &str = "m.id, m.tenant, m.user, m.source, m.target, m.phase, m.since, m.copied, m.started_at, \
                    t.deleted_at, t.spread";
/// The moves, with the properties of their tenants.
const JOBS: &str = "moves AS m LEFT JOIN tenants AS t ON t.id = m.tenant";
/// Maximum number of open moves that are read at once.
const MAX_OPEN: usize = 1_000;
/// The condition on a move that has not ended. An index has the same one.
const IS_OPEN: &str = "phase NOT IN ('done', 'canceled')";

#[derive(Deserialize)]
struct MoveRow {
    id: MoveId,
    tenant: TenantId,
    user: Option<UserId>,
    source: String,
    target: String,
    phase: MovePhase,
    since: f64,
    copied: f64,
    started_at: f64,
    deleted_at: Option<f64>,
    spread: Option<f64>,
}

fn name(phase: MovePhase) -> Value<'static> {
    Value::from(match phase {
        MovePhase::Draining => "draining",
        MovePhase::Copying => "copying",
        MovePhase::Cleaning => "cleaning",
        MovePhase::Canceling => "canceling",
        MovePhase::Done => "done",
        MovePhase::Canceled => "canceled",
    })
}

/// Stores a move and returns a row, if the tenant or the user is on the source, and no other move of the tenant is open.
pub(super) fn insert(new: &Move) -> Statement<'_> {
    let is_on_source = match &new.user {
        // The shard of a user of a spread tenant is computed from its id.
        Some(_) => {
            "CASE WHEN EXISTS (SELECT 1 FROM user_shards WHERE tenant = ?1 AND user = ?7) \
             THEN (SELECT shard FROM user_shards WHERE tenant = ?1 AND user = ?7) = ?3 \
             ELSE spread IS NOT NULL OR coalesce(shard, ?3) = ?3 END"
        }
        None => {
            "coalesce(shard, ?3) = ?3 AND ?7 IS NULL AND (spread IS NOT NULL OR NOT EXISTS \
             (SELECT 1 FROM user_shards WHERE tenant = ?1 AND user_shards.shard <> ?3))"
        }
    };
    let sql = format!(
        "INSERT INTO moves (tenant, id, source, target, phase, since, copied, started_at, user) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, 0, ?6, ?7 FROM tenants \
         WHERE tenants.id = ?1 AND deleted_at IS NULL AND {is_on_source} \
         ON CONFLICT (tenant) DO UPDATE SET id = excluded.id, source = excluded.source, target = excluded.target, \
         phase = excluded.phase, since = excluded.since, copied = 0, started_at = excluded.started_at, \
         user = excluded.user WHERE NOT moves.{IS_OPEN} AND moves.id < excluded.id RETURNING 1 AS done"
    );
    let texts = [new.tenant.as_str(), &new.id, &new.source, &new.target].map(Value::from);
    let user = new.user.as_deref().map_or(Value::Null, Value::from);
    let args: Vec<_> = texts.into_iter().chain([name(new.phase), new.since.into(), user]).collect();
    Statement::new(sql, args)
}

/// Queries the latest move of a tenant.
pub(super) fn select(tenant: &TenantId) -> Statement<'_> {
    let sql = format!("SELECT {MOVE} FROM {JOBS} WHERE m.tenant = ?1");
    Statement::new(sql, vec![tenant.as_str().into()])
}

/// Queries the open moves.
pub(super) fn select_open() -> Statement<'static> {
    let sql = format!(
        "SELECT {MOVE} FROM {JOBS} WHERE m.{IS_OPEN} ORDER BY m.started_at, m.tenant LIMIT {MAX_OPEN}"
    );
    Statement::new(sql, vec![])
}

/// Reads the result of [`select`] or [`select_open`].
pub(super) fn read_all(results: &[impl Rows]) -> Result<Vec<Job>, SqlError> {
    let job = |row: MoveRow| {
        let MoveRow { id, tenant, user, source, target, phase, .. } = row;
        let [since, started_at] = [row.since, row.started_at].map(|at| Timestamp(at as u64));
        let copied = row.copied as u64;
        Job {
            one: Move { id, tenant, user, source, target, phase, since, copied, started_at },
            is_deleted: row.deleted_at.is_some(),
            spread: row.spread.map(|count| count as usize),
        }
    };
    Ok(read::<MoveRow>(results, 0)?.into_iter().map(job).collect())
}

/// Queries the users of a tenant that have a shard of their own.
pub(super) fn select_users(tenant: &TenantId) -> Statement<'_> {
    let sql = "SELECT user, shard FROM user_shards WHERE tenant = ?1";
    Statement::new(sql, vec![tenant.as_str().into()])
}

/// Reads the result of [`select_users`].
pub(super) fn read_users(results: &[impl Rows]) -> Result<BTreeMap<UserId, String>, SqlError> {
    #[derive(Deserialize)]
    struct UserRow {
        user: UserId,
        shard: String,
    }
    Ok(read::<UserRow>(results, 0)?.into_iter().map(|row| (row.user, row.shard)).collect())
}

/// Enters a phase and returns a row, unless another run has entered one.
pub(super) fn enter(one: &Move, phase: MovePhase, now: Timestamp) -> Statement<'_> {
    let sql = "UPDATE moves SET phase = ?4, since = ?5 WHERE tenant = ?1 AND id = ?2 AND phase = ?3 RETURNING 1 AS done";
    let [tenant, id] = [one.tenant.as_str(), &one.id].map(Value::from);
    Statement::new(sql, vec![tenant, id, name(one.phase), name(phase), now.into()])
}

/// Stores the target as the shard of the tenant or the user and enters the phase that follows, in one transaction. Nothing
/// is stored for a user where the tenant is, or whose id determines the target, so that it `returns` there.
pub(super) fn switch(one: &Move, returns: bool, now: Timestamp) -> Vec<Statement<'_>> {
    let is_current = "EXISTS (SELECT 1 FROM moves WHERE tenant = ?1 AND id = ?2 AND phase = ?3)";
    let args = || [one.tenant.as_str().into(), one.id.as_str().into(), name(one.phase)].into_iter();
    let target = Value::from(one.target.as_str());
    let mut statements = Vec::new();
    match one.user.as_deref() {
        Some(user) => {
            let is_home = match returns {
                true => "true",
                false => "EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND spread IS NULL AND shard = ?4)",
            };
            let store = format!(
                "INSERT INTO user_shards (tenant, user, shard) SELECT ?1, ?5, ?4 WHERE {is_current} AND NOT {is_home} \
                 ON CONFLICT (tenant, user) DO UPDATE SET shard = excluded.shard"
            );
            let forget = format!(
                "DELETE FROM user_shards WHERE tenant = ?1 AND user = ?5 AND {is_current} AND {is_home}"
            );
            for sql in [store, forget] {
                let args: Vec<_> = args().chain([target.clone(), user.into()]).collect();
                statements.push(Statement::new(sql, args));
            }
        }
        None => {
            let tenant = format!("UPDATE tenants SET shard = ?4 WHERE id = ?1 AND {is_current}");
            statements.push(Statement::new(tenant, args().chain([target]).collect::<Vec<_>>()));
            // These users were on the tenant's shard, so they have moved with it.
            let users = format!(
                "DELETE FROM user_shards WHERE tenant = ?1 AND {is_current} \
                 AND EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND spread IS NULL)"
            );
            statements.push(Statement::new(users, args().collect::<Vec<_>>()));
        }
    }
    statements.push(enter(one, MovePhase::Cleaning, now));
    statements
}

/// Stores the number of copied rows.
pub(super) fn progress(one: &Move, copied: u64) -> Statement<'_> {
    let [tenant, id] = [one.tenant.as_str(), &one.id].map(Value::from);
    Statement::new(
        "UPDATE moves SET copied = ?3 WHERE tenant = ?1 AND id = ?2",
        vec![tenant, id, copied.into()],
    )
}
