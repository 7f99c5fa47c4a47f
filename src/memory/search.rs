//! A search: three round trips to the index at most.

use super::ranking::{MAX_HITS, Question, Ranking, plan};
use crate::ports::memory::{Collection, Entry, MemoryIndex, MemoryResult};

/// An entry that answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The part of it that answers best.
    pub entry: Entry,
    /// How well it answers. Scores of one search compare with each other, and with no others.
    pub score: f64,
}

/// Finds what of a collection answers `query`, best first, at most `limit` (and [`MAX_HITS`]) entries.
/// Any text is a query; one that says nothing finds nothing. Reads at most
/// [`super::ranking::MAX_ROWS`] rows.
///
/// # Errors
///
/// The index does not answer.
pub async fn search(
    index: &dyn MemoryIndex,
    collection: &Collection,
    query: &str,
    limit: usize,
) -> MemoryResult<Vec<Hit>> {
    let question = Question::read(query);
    let asked = question.asked();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let weighed = question.weigh(&index.statistics(collection, &asked).await?);
    let queries = plan(&weighed);
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranking = Ranking::new(&weighed, index.find(collection, &queries).await?);
    let places = ranking.neighbours();
    if !places.is_empty() {
        ranking.add(index.around(collection, &places).await?);
    }
    let hits = ranking.hits(limit.min(MAX_HITS));
    Ok(hits.into_iter().map(|(entry, score)| Hit { entry, score }).collect())
}
