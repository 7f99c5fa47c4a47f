//! Searching. The rows read are bounded by the rows returned.

use super::{COLLECTION, ENTRY, named, token};
use crate::platform::sql::{Rows, Statement, json};
use crate::ports::memory::{Collection, MemoryError, MemoryResult, Place, Statistics, TermQuery};
use serde::Deserialize;
use std::collections::HashMap;

/// Maximum number of terms counted by one statement: each is a result column, of which D1 allows a hundred.
const MAX_COUNTED: usize = 64;

/// Queries the totals of a collection and the frequencies of terms in it. Each frequency is its own subquery,
/// because a joined list would be billed as rows read.
pub(super) fn statistics<'a>(
    collection: &'a Collection,
    terms: &[String],
) -> MemoryResult<Vec<Statement<'a>>> {
    let tokens = terms.iter().map(|term| token(term)).collect::<MemoryResult<Vec<_>>>()?;
    let statement = |tokens: &[String]| {
        let count = |number| {
            format!(
                ", (SELECT doc FROM memory_frequencies WHERE term = replace(?5 ->> {number}, '@', id)) \
                 AS f{number}"
            )
        };
        let counts: String = (0..tokens.len()).map(count).collect();
        let sql = format!(
            "SELECT documents, length, groups{counts} FROM memory_collections \
             WHERE tenant = ?1 AND user = ?2 AND agent = ?3 AND kind = ?4"
        );
        let mut args = named(collection);
        if !tokens.is_empty() {
            args.push(json(&tokens)?.into());
        }
        Ok(Statement::new(sql, args))
    };
    // Without terms, one statement still reads the totals.
    let mut chunks = tokens.chunks(MAX_COUNTED);
    std::iter::once(chunks.next().unwrap_or_default()).chain(chunks).map(statement).collect()
}

#[derive(Deserialize)]
struct StatisticsRow {
    documents: f64,
    length: f64,
    groups: f64,
    #[serde(flatten)]
    frequency: HashMap<String, Option<f64>>,
}

/// Reads the results of [`statistics`].
pub(super) fn read_statistics(results: &[impl Rows], terms: usize) -> MemoryResult<Statistics> {
    let mut statistics = Statistics::default();
    for rows in results {
        let counted = MAX_COUNTED.min(terms - statistics.frequency.len());
        let row = rows.read::<StatisticsRow>()?.into_iter().next();
        let frequency = |number| {
            let row = row.as_ref()?;
            row.frequency.get(&format!("f{number}")).copied().flatten()
        };
        statistics.frequency.extend((0..counted).map(|n| frequency(n).unwrap_or_default() as u64));
        if let Some(row) = &row {
            statistics.documents = row.documents as u64;
            statistics.length = row.length as u64;
            statistics.groups = row.groups as u64;
        }
    }
    Ok(statistics)
}

/// Queries the parts that match each query.
///
/// The index returns the newest rows first, so the limit stops the scan. The condition on the collection is a
/// second safeguard against rows of another collection.
pub(super) fn queries<'a>(
    collection: &'a Collection,
    queries: &[TermQuery],
) -> MemoryResult<Vec<Statement<'a>>> {
    let asked = queries.iter().filter(|query| query.limit > 0 && !query.any_of.is_empty());
    let statement = |query: &TermQuery| {
        let limit = query.limit;
        let sql = format!(
            "SELECT {ENTRY} FROM (SELECT rowid AS number FROM memory_terms \
               WHERE memory_terms MATCH replace(?5, '@', coalesce({COLLECTION}, 0)) \
               ORDER BY rowid DESC LIMIT {limit}) AS hit \
             CROSS JOIN memory_entries ON collection = {COLLECTION} AND serial = hit.number"
        );
        let mut args = named(collection);
        args.push(expression(query)?.into());
        Ok(Statement::new(sql, args))
    };
    asked.map(statement).collect()
}

/// Builds the FTS5 expression of a query. Terms are quoted so that none is parsed as an operator.
fn expression(query: &TermQuery) -> MemoryResult<String> {
    let joined = |terms: &[String], by: &str| {
        let quoted = terms.iter().map(|term| Ok(format!("\"{}\"", token(term)?)));
        Ok::<_, MemoryError>(format!("({})", quoted.collect::<MemoryResult<Vec<_>>>()?.join(by)))
    };
    let any = query.any_of.iter().map(|terms| joined(terms, " AND "));
    let mut expression = format!("({})", any.collect::<MemoryResult<Vec<_>>>()?.join(" OR "));
    if !query.none_of.is_empty() {
        expression.push_str(" NOT ");
        expression.push_str(&joined(&query.none_of, " OR ")?);
    }
    Ok(expression)
}

/// Queries the first parts at some positions.
pub(super) fn around<'a>(collection: &'a Collection, places: &[Place]) -> MemoryResult<Statement<'a>> {
    let runs: Vec<_> = places.iter().map(|at| (&at.group, at.positions.start, at.positions.end)).collect();
    let sql = format!(
        "SELECT {ENTRY} FROM (SELECT value ->> 0 AS name, value ->> 1 AS first, value ->> 2 AS past \
           FROM json_each(?5)) AS run CROSS JOIN memory_entries INDEXED BY memory_entries_by_place \
         ON collection = {COLLECTION} AND grp = name AND part = 0 AND position >= first AND position < past"
    );
    let mut args = named(collection);
    args.push(json(&runs)?.into());
    Ok(Statement::new(sql, args))
}
