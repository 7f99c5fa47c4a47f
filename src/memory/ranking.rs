//! Which entries answer a question.
//!
//! 1. [`Question`] reads it: words without stop words, days, names. The index tells in how many parts
//!    of the collection each of these terms stands ([`Question::weigh`]).
//! 2. [`plan()`] chooses boolean queries from these numbers, so that the parts that they pick are few
//!    and hold the rarest terms and combinations of the commoner ones.
//! 3. [`Ranking`] scores the parts by BM25 and an entry by its best part. To this it adds, term by
//!    term, a share of the best that a neighbour has: an answer stands beside its question. It adds
//!    the score of the whole group, and a share of the best score to what the named speaker said.
//! 4. The places beside the best entries are read ([`Ranking::neighbours`]); those that answer without
//!    any rare word of the question are found there.
//!
//! The numbers below were chosen on the development parts of LoCoMo (turns and facts) and BEAM, one
//! setting for all. `examples/eval_memory.rs` measures them. All are flat: a fifth more or less moves
//! recall at 10 by little more than a point.
//!
//! A search reads at most [`MAX_ROWS`] rows, however large the collection is.

pub mod plan;
pub mod question;
pub mod score;

pub use plan::plan;
pub use question::{Question, Term, Weighed};
pub use score::Ranking;

/// Words of a question that count. Questions of people have up to about twenty that are no stop
/// words; the seventeenth changes little.
pub const MAX_WORDS: usize = 16;
/// Words for days that count.
pub const MAX_DATES: usize = 6;
/// Terms whose frequency a search asks for: words, days, and each word as a speaker, and `user`.
pub const MAX_ASKED: usize = 2 * MAX_WORDS + MAX_DATES + 1;
/// Parts that the queries of a search pick. Fewer lose long replies, more leave too little for
/// neighbours: 160 and 100 read about as many rows, and 50 hits hold two points less of BEAM.
pub const MAX_CANDIDATES: usize = 130;
/// Queries of a search.
pub const MAX_QUERIES: usize = 3;
/// Rows that the neighbours of a search may cost: one each, and [`ROWS_A_RUN`] for each run of them.
/// Without any, a tenth of the evidence is not found.
pub const NEIGHBOUR_ROWS: usize = 190;
/// Rows that a run of neighbours costs beside its own: the one that names it, and the one it ends at.
pub const ROWS_A_RUN: usize = 2;
/// Hits of a search.
pub const MAX_HITS: usize = 50;
/// Rows that a search reads, as D1 counts them (`tests/rows.rs`): one for the collection and one a term;
/// two a candidate, and the number of the collection twice a query; the neighbours, and the number again.
pub const MAX_ROWS: usize = (1 + MAX_ASKED) + (2 * MAX_CANDIDATES + 2 * MAX_QUERIES) + (NEIGHBOUR_ROWS + 1);
const _: () = assert!(MAX_ROWS <= 500, "a search may read five hundred rows, and no more");

/// How soon more of a term stops to matter: as in FTS5 and elsewhere.
const K1: f64 = 1.2;
/// How much longer parts are held to have more of everything: as in FTS5 and elsewhere.
const B: f64 = 0.75;
/// What of a term that stands one, two, three entries ahead counts for an entry; of several
/// neighbours that have it, the best alone.
const AHEAD: [f64; 3] = [0.6, 0.3, 0.15];
/// The same for entries before it. Less, since people tell first and talk about it afterwards.
const BEFORE: [f64; 3] = [0.5, 0.25, 0.15];
/// What the score of the whole group counts.
const GROUP: f64 = 1.0;
/// What it counts that the named speaker said it, as a share of the best score.
const SPEAKER: f64 = 0.2;
/// What it counts against an entry that it only asks, as a share of the best score.
const ASKS: f64 = 0.1;
/// Longest entry that only asks, in words: who tells something and asks then has more to say.
const ASKS_WORDS: u32 = 30;

/// How much it says that a term stands in one of `count` documents out of `all`. Never negative, so
/// that in small collections words that stand in most documents still tell these from the rest.
fn weight(all: f64, count: f64) -> f64 {
    (1.0 + (all - count + 0.5) / (count + 0.5)).max(1.0).ln()
}

#[cfg(test)]
mod tests;
