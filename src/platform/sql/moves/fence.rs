//! The fence of a moving tenant: a row on each of its two shards. While it is closed, triggers refuse all writes of the
//! tenant (`migrations/0014_moves.sql`).
//!
//! The fence of an ended move stays, open, so that a late run of the move cannot close it again.

use super::position::Position;
use crate::platform::sql::{Rows, SqlError, Statement, Value, json};
use crate::ports::moves::Move;
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
pub(super) fn set(one: &Move) -> Result<Statement<'static>, SqlError> {
    let sql = "INSERT INTO fences (tenant, move, position) VALUES (?1, ?2, ?3) ON CONFLICT (tenant) DO UPDATE SET \
               move = excluded.move, position = excluded.position, copied = 0, open = 0 WHERE move < excluded.move";
    Ok(Statement::new(sql, args(one, &Position::Clear)?))
}

/// Opens the fence of a move for good.
pub(super) fn end(one: &Move) -> Result<Statement<'static>, SqlError> {
    let sql = "INSERT INTO fences (tenant, move, position, open) VALUES (?1, ?2, ?3, 1) ON CONFLICT (tenant) \
               DO UPDATE SET move = excluded.move, position = excluded.position, open = 1 \
               WHERE move <= excluded.move";
    Ok(Statement::new(sql, args(one, &Position::Ended)?))
}

/// Queries the fence of a move.
pub(super) fn select(one: &Move) -> Statement<'_> {
    let sql = "SELECT position, copied FROM fences WHERE tenant = ?1 AND move = ?2";
    Statement::new(sql, [one.tenant.as_str(), &one.id].map(Value::from))
}

/// Reads the result of [`select`]: the position, and the number of copied rows. `None` if there is no fence.
pub(super) fn read(results: &[impl Rows]) -> Result<Option<(Position, u64)>, SqlError> {
    #[derive(Deserialize)]
    struct FenceRow {
        position: String,
        copied: f64,
    }
    let row = crate::platform::sql::read::<FenceRow>(results, 0)?.into_iter().next();
    let position = |row: &FenceRow| serde_json::from_str(&row.position).map_err(SqlError::new);
    row.map(|row| Ok((position(&row)?, row.copied as u64))).transpose()
}

/// Returns the first statements of a transaction of the move. The transaction fails unless the fence is at this
/// position, because `move` is never NULL.
pub(super) fn open(one: &Move, position: &Position) -> Result<Vec<Statement<'static>>, SqlError> {
    let check = "INSERT INTO fences (tenant, move, position) SELECT ?1, NULL, '' WHERE NOT EXISTS \
                 (SELECT 1 FROM fences WHERE tenant = ?1 AND move = ?2 AND position = ?3)";
    let open = "UPDATE fences SET open = 1 WHERE tenant = ?1";
    let tenant = vec![Value::from(one.tenant.to_string())];
    Ok(vec![Statement::new(check, args(one, position)?), Statement::new(open, tenant)])
}

/// Returns the last statement of a transaction of the move, which has copied this number of rows.
pub(super) fn close(one: &Move, next: &Position, copied: usize) -> Result<Statement<'static>, SqlError> {
    let sql =
        "UPDATE fences SET open = 0, position = ?3, copied = copied + ?4 WHERE tenant = ?1 AND move = ?2";
    let mut args = args(one, next)?;
    args.push((copied as u64).into());
    Ok(Statement::new(sql, args))
}

fn args(one: &Move, position: &Position) -> Result<Vec<Value<'static>>, SqlError> {
    Ok(vec![one.tenant.to_string().into(), one.id.to_string().into(), json(position)?.into()])
}
