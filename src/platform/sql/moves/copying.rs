//! Copying and removing a page of rows, each in one transaction.

use super::part::Job;
use super::position::Position;
use super::{Terms, clear, fence, rows};
use crate::platform::sql::{Sql, SqlError, Statement, memory::copy, read};
use serde::Deserialize;

/// Maximum number of rows of a page.
const PAGE_SIZE: usize = 500;
/// Maximum size of a page as JSON, in bytes. D1 allows two million for a parameter.
const MAX_PAGE: usize = 1_900_000;

/// A row as JSON, and the position after it.
type Row = (String, Position);

/// Copies the rows after a position. Returns the next position, and the number of rows.
pub(super) async fn copy_page(
    job: &Job,
    source: &impl Sql,
    target: &impl Sql,
    position: &Position,
    terms: Terms,
) -> Result<(Position, usize), SqlError> {
    let (page, count, last) = fitting(read_rows(job, source, position, terms).await?);
    let mut statements = fence::open(job, position)?;
    match (position, &page) {
        (_, None) | (Position::Clear | Position::End | Position::Ended, _) => {}
        (Position::Rows(table, _), Some((page, first))) => {
            statements.push(rows::insert(*table, first, page)?);
        }
        (Position::Entries(_), Some((page, _))) => statements.extend(copy::insert(job.tenant(), page)),
        (Position::Spaces(..), Some((page, _))) => statements.push(copy::insert_spaces(job.tenant(), page)),
        (Position::Limits, Some((page, _))) => statements.push(rows::insert_limits(job.tenant(), page)),
    }
    let next = last.unwrap_or_else(|| position.next());
    statements.push(fence::close(job, &next, count)?);
    target.batch(&statements).await?;
    Ok((next, count))
}

async fn read_rows(
    job: &Job,
    source: &impl Sql,
    position: &Position,
    terms: Terms,
) -> Result<Vec<Row>, SqlError> {
    let (tenant, part) = (job.tenant(), job.part());
    Ok(match position {
        Position::Entries(_) | Position::Spaces(..) if part.memory().is_none() => Vec::new(),
        Position::Rows(table, after) => {
            let found = source.batch(&[rows::select(*table, job, after, PAGE_SIZE)]).await?;
            let page = rows::read_page(*table, &found)?;
            page.into_iter().map(|(row, key)| (row, Position::Rows(*table, key))).collect()
        }
        Position::Entries(after) => {
            let found = source.batch(&copy::select(tenant, part.user(), after, PAGE_SIZE)).await?;
            let page = copy::read_page(&found, PAGE_SIZE, terms)?;
            page.into_iter().map(|(row, cursor)| (row, Position::Entries(cursor))).collect()
        }
        Position::Spaces(user, agent) => {
            let found =
                source.batch(&[copy::select_spaces(tenant, part.user(), (user, agent), PAGE_SIZE)]).await?;
            let page = copy::read_spaces(&found)?;
            page.into_iter().map(|(row, user, agent)| (row, Position::Spaces(user, agent))).collect()
        }
        Position::Limits => {
            let found = source.batch(&[rows::select_limits(tenant)]).await?;
            let limits: Vec<serde_json::Value> = read(&found, 0)?;
            limits.into_iter().map(|row| (row.to_string(), Position::End)).collect()
        }
        Position::Clear | Position::End | Position::Ended => Vec::new(),
    })
}

/// Returns the first rows that fit into a parameter: as a list in JSON with the first of them, their number, and the
/// position after the last.
fn fitting(rows: Vec<Row>) -> (Option<(String, String)>, usize, Option<Position>) {
    let mut fit: Option<(String, String)> = None;
    let (mut count, mut last) = (0, None);
    for (row, position) in rows {
        match &mut fit {
            None => fit = Some((format!("[{row}"), row)),
            Some((page, _)) if page.len() + row.len() + 2 > MAX_PAGE => break,
            Some((page, _)) => {
                page.push(',');
                page.push_str(&row);
            }
        }
        (count, last) = (count + 1, Some(position));
    }
    (fit.map(|(page, first)| (page + "]", first)), count, last)
}

/// Removes a page of the move's rows from a shard. Returns whether nothing is left; then `last` has run in a
/// transaction of its own.
pub(super) async fn clear_page(
    job: &Job,
    shard: &impl Sql,
    position: &Position,
    last: Statement<'_>,
) -> Result<bool, SqlError> {
    #[derive(Deserialize)]
    struct More {
        more: f64,
    }
    let mut statements = fence::open(job, position)?;
    statements.extend(clear::page(job));
    let more = statements.len() - 1;
    statements.push(fence::close(job, position, 0)?);
    let results = shard.batch(&statements).await?;
    if read::<More>(&results, more)?.iter().any(|row| row.more > 0.0) {
        return Ok(false);
    }
    let mut statements = fence::open(job, position)?;
    statements.extend(clear::rest(job).into_iter().chain([last]));
    shard.batch(&statements).await?;
    Ok(true)
}
