//! The fence of a move: a row on each of its two shards. While it is closed, triggers refuse other writes of the rows that
//! move (`migrations/0014_moves.sql`, `migrations/0017_user_shards.sql`).
//!
//! The fence of an ended move stays, so that a late run of the move changes nothing. It is open where the rows are. Where
//! they have been it stays closed, so that a late write is refused rather than lost, until a later move replaces it.

use super::part::Job;
use super::position::Position;
use crate::platform::sql::{Rows, SqlError, Statement, Value, json};
use crate::types::json;
use serde::Deserialize;

/// The error with which a trigger refuses a write.
const REFUSED: &str = "the tenant is moving to another shard";
/// The error of [`open`] when the fence has another position.
const OVERTAKEN: &str = "constraint failed: fences.";

/// Returns whether a write failed because its tenant is moving. Its shard may have changed.
pub fn is_refusal(error: &SqlError) -> bool {
    error.0.contains(REFUSED)
}

/// Returns whether a transaction failed because another run has carried on the move.
pub(super) fn is_overtaken(error: &SqlError) -> bool {
    error.0.contains(OVERTAKEN)
}

/// Closes the fence of a move, once. A later move replaces the fence of an earlier one.
pub(super) fn set(job: &Job) -> Result<Statement<'static>, SqlError> {
    let sql = "INSERT INTO fences (tenant, move, position, part) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (tenant) \
               DO UPDATE SET move = excluded.move, position = excluded.position, part = excluded.part, copied = 0, \
               open = 0 WHERE move < excluded.move";
    let mut args = args(job, &Position::Clear)?;
    args.push(job.part().name().into());
    Ok(Statement::new(sql, args))
}

/// Opens the fence of a move for good.
pub(super) fn end(job: &Job) -> Result<Statement<'static>, SqlError> {
    let sql = "INSERT INTO fences (tenant, move, position, open) VALUES (?1, ?2, ?3, 1) ON CONFLICT (tenant) \
               DO UPDATE SET move = excluded.move, position = excluded.position, open = 1 \
               WHERE move <= excluded.move";
    Ok(Statement::new(sql, args(job, &Position::Ended)?))
}

/// Opens the fences of some moves on one shard, as [`end`] does.
pub(super) fn end_all(jobs: &[&Job]) -> Result<Statement<'static>, SqlError> {
    let sql = "UPDATE fences SET position = ?2, open = 1 WHERE open = 0 \
               AND (tenant, move) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))";
    let moves: Vec<_> = jobs.iter().map(|job| [job.tenant().as_str(), &job.one.id]).collect();
    Ok(Statement::new(sql, vec![json(&moves)?.into(), json(&Position::Ended)?.into()]))
}

/// Ends the fence of a move on the shard that the rows have left. It stays closed.
pub(super) fn leave(job: &Job) -> Result<Statement<'static>, SqlError> {
    let sql = "INSERT INTO fences (tenant, move, position, part) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (tenant) \
               DO UPDATE SET move = excluded.move, position = excluded.position, part = excluded.part, open = 0 \
               WHERE move <= excluded.move";
    let mut args = args(job, &Position::Ended)?;
    args.push(job.part().name().into());
    Ok(Statement::new(sql, args))
}

/// Queries the fence of a move.
pub(super) fn select(job: &Job) -> Statement<'_> {
    let sql = "SELECT position, copied FROM fences WHERE tenant = ?1 AND move = ?2";
    Statement::new(sql, [job.tenant().as_str(), &job.one.id].map(Value::from))
}

/// Reads the result of [`select`]: the position, and the number of copied rows. `None` if there is no fence.
pub(super) fn read(results: &[impl Rows]) -> Result<Option<(Position, u64)>, SqlError> {
    #[derive(Deserialize)]
    struct FenceRow {
        position: String,
        copied: f64,
    }
    let row = crate::platform::sql::read::<FenceRow>(results, 0)?.into_iter().next();
    let position = |row: &FenceRow| json::from_str(&row.position).map_err(SqlError::new);
    row.map(|row| Ok((position(&row)?, row.copied as u64))).transpose()
}

/// Returns the first statements of a transaction of the move. The transaction fails unless the fence is at this
/// position, because `move` is never NULL.
pub(super) fn open(job: &Job, position: &Position) -> Result<Vec<Statement<'static>>, SqlError> {
    let check = "INSERT INTO fences (tenant, move, position) SELECT ?1, NULL, '' WHERE NOT EXISTS \
                 (SELECT 1 FROM fences WHERE tenant = ?1 AND move = ?2 AND position = ?3)";
    let open = "UPDATE fences SET open = 1 WHERE tenant = ?1";
    let tenant = vec![Value::from(job.tenant().to_string())];
    Ok(vec![Statement::new(check, args(job, position)?), Statement::new(open, tenant)])
}

/// Returns the last statement of a transaction of the move, which has copied this number of rows.
pub(super) fn close(job: &Job, next: &Position, copied: usize) -> Result<Statement<'static>, SqlError> {
    let sql =
        "UPDATE fences SET open = 0, position = ?3, copied = copied + ?4 WHERE tenant = ?1 AND move = ?2";
    let mut args = args(job, next)?;
    args.push((copied as u64).into());
    Ok(Statement::new(sql, args))
}

fn args(job: &Job, position: &Position) -> Result<Vec<Value<'static>>, SqlError> {
    Ok(vec![job.tenant().to_string().into(), job.one.id.to_string().into(), json(position)?.into()])
}
