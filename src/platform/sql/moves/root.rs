//! The stored moves, in the root.

use crate::platform::sql::{Rows, SqlError, Statement, Value, read};
use crate::ports::moves::{Move, MovePhase};
use crate::types::{MoveId, TenantId, Timestamp};
use serde::Deserialize;

/// The columns of a move.
const MOVE: &str = "m.id, m.tenant, m.source, m.target, m.phase, m.since, m.copied, m.started_at";
/// The condition on a move that has not ended. An index has the same one.
const IS_OPEN: &str = "phase NOT IN ('done', 'canceled')";

#[derive(Deserialize)]
struct MoveRow {
    id: MoveId,
    tenant: TenantId,
    source: String,
    target: String,
    phase: MovePhase,
    since: f64,
    copied: f64,
    started_at: f64,
    deleted_at: Option<f64>,
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

/// Stores a move and returns a row, if the tenant is on its source and no other move of it is open.
pub(super) fn insert(new: &Move) -> Statement<'_> {
    let sql = format!(
        "INSERT INTO moves (tenant, id, source, target, phase, since, copied, started_at) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, 0, ?6 FROM tenants \
         WHERE tenants.id = ?1 AND deleted_at IS NULL AND coalesce(shard, ?3) = ?3 \
         ON CONFLICT (tenant) DO UPDATE SET id = excluded.id, source = excluded.source, target = excluded.target, \
         phase = excluded.phase, since = excluded.since, copied = 0, started_at = excluded.started_at \
         WHERE NOT moves.{IS_OPEN} AND moves.id < excluded.id RETURNING 1 AS done"
    );
    let texts = [new.tenant.as_str(), &new.id, &new.source, &new.target].map(Value::from);
    let args: Vec<_> = texts.into_iter().chain([name(new.phase), new.since.into()]).collect();
    Statement::new(sql, args)
}

/// Queries the move of a tenant.
pub(super) fn select(tenant: &TenantId) -> Statement<'_> {
    let sql = format!(
        "SELECT {MOVE}, t.deleted_at FROM moves AS m LEFT JOIN tenants AS t ON t.id = m.tenant WHERE m.tenant = ?1"
    );
    Statement::new(sql, vec![tenant.as_str().into()])
}

/// Reads the result of [`select`]: the move, and whether the tenant is deleted.
pub(super) fn read_one(results: &[impl Rows]) -> Result<Option<(Move, bool)>, SqlError> {
    let row = read::<MoveRow>(results, 0)?.into_iter().next();
    Ok(row.map(|row| {
        let MoveRow { id, tenant, source, target, phase, since, copied, started_at, deleted_at } = row;
        let [since, started_at] = [since, started_at].map(|at| Timestamp(at as u64));
        (
            Move { id, tenant, source, target, phase, since, copied: copied as u64, started_at },
            deleted_at.is_some(),
        )
    }))
}

/// Queries the tenants of open moves. Those whose tenants cannot write come first: the others can wait.
pub(super) fn select_open(limit: usize) -> Statement<'static> {
    let sql = format!(
        "SELECT tenant FROM moves WHERE {IS_OPEN} ORDER BY phase <> 'copying', phase <> 'canceling', since LIMIT {limit}"
    );
    Statement::new(sql, vec![])
}

/// Reads the result of [`select_open`].
pub(super) fn read_open(results: &[impl Rows]) -> Result<Vec<TenantId>, SqlError> {
    #[derive(Deserialize)]
    struct OpenRow {
        tenant: TenantId,
    }
    Ok(read::<OpenRow>(results, 0)?.into_iter().map(|row| row.tenant).collect())
}

/// Enters a phase and returns a row, unless another run has entered one.
pub(super) fn enter(one: &Move, phase: MovePhase, now: Timestamp) -> Statement<'_> {
    let sql = "UPDATE moves SET phase = ?4, since = ?5 WHERE tenant = ?1 AND id = ?2 AND phase = ?3 RETURNING 1 AS done";
    let [tenant, id] = [one.tenant.as_str(), &one.id].map(Value::from);
    Statement::new(sql, vec![tenant, id, name(one.phase), name(phase), now.into()])
}

/// Moves the tenant to the target and enters the phase that follows, in one transaction.
pub(super) fn switch(one: &Move, now: Timestamp) -> [Statement<'_>; 2] {
    let sql = "UPDATE tenants SET shard = ?4 WHERE id = ?1 AND EXISTS \
               (SELECT 1 FROM moves WHERE tenant = ?1 AND id = ?2 AND phase = ?3)";
    let args = [one.tenant.as_str(), &one.id].map(Value::from).into_iter();
    let args: Vec<_> = args.chain([name(one.phase), one.target.as_str().into()]).collect();
    [Statement::new(sql, args), enter(one, MovePhase::Cleaning, now)]
}

/// Stores the number of copied rows.
pub(super) fn progress(one: &Move, copied: u64) -> Statement<'_> {
    let [tenant, id] = [one.tenant.as_str(), &one.id].map(Value::from);
    Statement::new(
        "UPDATE moves SET copied = ?3 WHERE tenant = ?1 AND id = ?2",
        vec![tenant, id, copied.into()],
    )
}
