//! Finds the entries that match a query.
//!
//! 1. [`ParsedQuery`] parses the query into words without stop words, days and names. The index returns the
//!    number of parts that contain each of these terms ([`ParsedQuery::weighted_by`]).
//! 2. [`build_queries`] builds boolean queries from these numbers, which select few parts: those with the rarest
//!    terms, and those with combinations of more common terms.
//! 3. [`Ranking`] scores the parts by BM25, and an entry by its best part. To each term it adds a share of
//!    the best score that a neighboring entry has for it, because an answer is next to its question. It also
//!    adds the score of the whole group, and a bonus for entries of a named speaker.
//! 4. The entries next to the best ones are read ([`Ranking::neighbors`]). This finds answers that contain
//!    no rare word of the query.
//!
//! The constants below were chosen on the development splits of LoCoMo (turns and facts) and BEAM, with one
//! setting for all; `examples/eval_memory.rs` measures them. The optimum is flat: changing a constant by a
//! fifth changes recall@10 by little more than a point.
//!
//! A search reads at most [`MAX_ROWS`] rows, regardless of the size of the collection.

pub mod queries;
pub mod query;
pub mod score;

pub use queries::build_queries;
pub use query::{ParsedQuery, Term, WeightedQuery};
pub use score::Ranking;

/// Maximum number of words of a query. Typical queries have up to about 20 words that are not stop words, and
/// those after the 16th change little.
pub const MAX_WORDS: usize = 16;
/// Maximum number of date terms of a query.
pub const MAX_DATES: usize = 6;
/// Maximum number of terms whose frequency a search requests: words, dates, each word as a speaker, and
/// `user`.
pub const MAX_TERMS: usize = 2 * MAX_WORDS + MAX_DATES + 1;
/// Maximum number of parts that the queries of a search select. Fewer miss long replies; more leave too few
/// rows for neighbors. For example, 160 parts with 100 neighbor rows read about as many rows, but find two
/// points less of BEAM in 50 hits.
pub const MAX_CANDIDATES: usize = 130;
/// Maximum number of queries of a search.
pub const MAX_QUERIES: usize = 3;
/// Maximum number of rows for the neighbors of a search: one per neighbor and [`ROWS_PER_RUN`] per run of
/// them. Without neighbors, a tenth of the evidence is not found.
pub const NEIGHBOR_ROWS: usize = 190;
/// Additional rows per run of neighbors: the row that names it, and the row at which it ends.
pub const ROWS_PER_RUN: usize = 2;
/// Maximum number of hits of a search.
pub const MAX_HITS: usize = 50;
/// Maximum number of rows that a search reads, as D1 counts them (see `tests/http/rows.rs`): one for the
/// collection and one per term; two per candidate and two lookups of the collection per query; the neighbors,
/// and one more lookup.
pub const MAX_ROWS: usize = (1 + MAX_TERMS) + (2 * MAX_CANDIDATES + 2 * MAX_QUERIES) + (NEIGHBOR_ROWS + 1);
const _: () = assert!(MAX_ROWS <= 500, "a search must read at most 500 rows");

/// BM25: how soon further occurrences of a term stop to matter. The usual value, as in FTS5.
const K1: f64 = 1.2;
/// BM25: how strongly scores are normalized by length. The usual value, as in FTS5.
const B: f64 = 0.75;
/// Share of a term's score that an entry gets from an entry one, two or three positions after it. Of several
/// neighbors with the term only the best counts.
const AFTER_SHARES: [f64; 3] = [0.6, 0.3, 0.15];
/// The same for entries before it. Less, because people state something first and discuss it afterwards.
const BEFORE_SHARES: [f64; 3] = [0.5, 0.25, 0.15];
/// Weight of the score of the group.
const GROUP_WEIGHT: f64 = 1.0;
/// Bonus for an entry of the named speaker, as a share of the best score.
const SPEAKER_BONUS: f64 = 0.2;
/// Penalty for an entry that only asks a question, as a share of the best score.
const QUESTION_PENALTY: f64 = 0.1;
/// Maximum length of an entry that counts as only a question, in words. Longer ones usually also state
/// something.
const MAX_QUESTION_WORDS: u32 = 30;

/// Returns the weight of a term that occurs in `count` of `all` documents. Never negative, so that in small
/// collections terms that occur in most documents still distinguish these from the rest.
fn weight(all: f64, count: f64) -> f64 {
    (1.0 + (all - count + 0.5) / (count + 0.5)).max(1.0).ln()
}

#[cfg(test)]
mod tests;
