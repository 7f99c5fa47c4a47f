//! Removing the terms of erased entries from the full-text index (`migrations/0015_erased_terms.sql`).
//!
//! A deletion only marks an entry as deleted: its terms stay in their segment until that is merged with others. A merge
//! of all segments rewrites the whole index, so it runs in steps, and at most once a day.

use crate::platform::sql::{Sql, SqlError, Statement, read};
use crate::types::Timestamp;
use serde::Deserialize;
use std::time::Duration;

/// Minimum time between two merges.
const GAP: Duration = Duration::from_hours(24);
/// Number of pages of 4 kB that a step writes.
const PAGES: usize = 500;

/// Returns the statement that requests a merge.
pub(super) fn request<'a>() -> Statement<'a> {
    Statement::new("UPDATE memory_merge SET erased = 1 WHERE id = 1 AND erased = 0", [])
}

#[derive(Deserialize)]
struct StepRow {
    steps: f64,
}

#[derive(Deserialize)]
struct ChangesRow {
    changes: f64,
}

/// Takes a step of the merge of a database, if one runs or is due. Returns whether another step has to follow.
pub(super) async fn step(database: &impl Sql, now: Timestamp) -> Result<bool, SqlError> {
    let due =
        "SELECT steps FROM memory_merge WHERE id = 1 AND (steps > 0 OR (erased = 1 AND merged_at <= ?1))";
    let due = database.batch(&[Statement::new(due, [(now - GAP).into()])]).await?;
    let Some(StepRow { steps }) = read(&due, 0)?.into_iter().next() else { return Ok(false) };
    // A merge does not cover what is erased after its first step. One transaction, so that the first step cannot be lost.
    let count = "UPDATE memory_merge SET erased = CASE WHEN steps = 0 THEN 0 ELSE erased END, steps = steps + 1 \
                 WHERE id = 1";
    // A negative number includes the segments that would not be merged on their own.
    let pages = if steps > 0.0 { PAGES.to_string() } else { format!("-{PAGES}") };
    let merge = format!("INSERT INTO memory_terms (memory_terms, rank) VALUES ('merge', {pages})");
    let changes = || Statement::new("SELECT total_changes() AS changes", []);
    let statements = [Statement::new(count, []), changes(), Statement::new(merge, []), changes()];
    let results = database.batch(&statements).await?;
    let change =
        |number| read::<ChangesRow>(&results, number).map(|rows| rows.first().map(|row| row.changes));
    // The statement itself counts as a change; without another one, nothing is left to merge.
    if change(3)? > change(1)?.map(|before| before + 1.0) {
        return Ok(true);
    }
    let end = "UPDATE memory_merge SET steps = 0, merged_at = ?1 WHERE id = 1";
    database.batch(&[Statement::new(end, [now.into()])]).await?;
    Ok(false)
}
