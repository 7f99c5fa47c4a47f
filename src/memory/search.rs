//! Searches a collection with at most three round trips to the index.

use super::ranking::{MAX_HITS, ParsedQuery, Ranking, build_queries};
use crate::ports::memory::{Collection, Entry, MemoryIndex, MemoryResult};

/// A search result.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The best part of the entry.
    pub entry: Entry,
    /// Relevance. Comparable only within one search.
    pub score: f64,
}

/// Searches `collection` for `query` and returns at most `limit` (and at most [`MAX_HITS`]) entries, best
/// first. Any text is a valid query; one without meaningful words finds nothing. Reads at most
/// [`super::ranking::MAX_ROWS`] rows.
///
/// # Errors
///
/// Returns an error when the index is unavailable.
pub async fn search(
    index: &dyn MemoryIndex,
    collection: &Collection,
    query: &str,
    limit: usize,
) -> MemoryResult<Vec<Hit>> {
    let parsed = ParsedQuery::parse(query);
    let terms_needed = parsed.terms_needed();
    if terms_needed.is_empty() {
        return Ok(Vec::new());
    }
    let weighted = parsed.weighted_by(&index.statistics(collection, &terms_needed).await?);
    let queries = build_queries(&weighted);
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranking = Ranking::new(&weighted, index.find(collection, &queries).await?);
    let places = ranking.neighbors();
    if !places.is_empty() {
        ranking.add(index.around(collection, &places).await?);
    }
    let hits = ranking.hits(limit.min(MAX_HITS));
    Ok(hits.into_iter().map(|(entry, score)| Hit { entry, score }).collect())
}
