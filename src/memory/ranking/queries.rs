//! Builds boolean queries that select the relevant parts within the row limit.

use super::{MAX_CANDIDATES, Term, WeightedQuery};
use crate::ports::memory::TermQuery;
use std::collections::BTreeSet;

/// Maximum number of common terms that are combined.
const COMBINED: usize = 8;
/// Maximum number of combinations in a query. Usually the expected number of parts is reached with fewer.
const MAX_COMBINATIONS: usize = 32;
/// Share of the candidates left by rare terms that combinations may use, in tenths. Common terms alone use
/// the rest.
const COMBINED_TENTHS: usize = 7;

/// Builds the queries of a search, which together select at most [`MAX_CANDIDATES`] parts:
///
/// 1. all parts that contain one of the rarest terms, for as many terms as fit completely;
/// 2. parts that contain two or three of the other terms, or one of them and a named speaker; combinations
///    that are expected to be rare come first;
/// 3. parts that contain the rarest of the other terms and no further one.
///
/// When a query is truncated, its newest parts are returned.
pub fn build_queries(weighted: &WeightedQuery) -> Vec<TermQuery> {
    let mut left = MAX_CANDIDATES;
    let mut rare = 0;
    for term in &weighted.terms {
        match usize::try_from(term.frequency).ok().and_then(|count| left.checked_sub(count)) {
            Some(rest) => left = rest,
            None => break,
        }
        rare += 1;
    }
    let (rare, common) = weighted.terms.split_at(rare);
    let names = |terms: &[Term]| terms.iter().map(|term| term.text.clone()).collect::<Vec<_>>();
    let mut queries = Vec::new();
    if !rare.is_empty() {
        let any_of = names(rare).into_iter().map(|term| vec![term]).collect();
        queries.push(TermQuery { any_of, none_of: Vec::new(), limit: MAX_CANDIDATES - left });
    }
    let Some(first) = common.first().filter(|_| left > 0) else { return queries };
    let any_of = combinations(common, weighted, left as f64);
    let share = if any_of.is_empty() { 0 } else { (left * COMBINED_TENTHS / 10).max(1) };
    if share > 0 {
        queries.push(TermQuery { any_of, none_of: names(rare), limit: share });
    }
    if left > share {
        let none_of = names(rare).into_iter().chain(names(&common[1..])).collect();
        queries.push(TermQuery { any_of: vec![vec![first.text.clone()]], none_of, limit: left - share });
    }
    queries
}

/// Returns pairs and triples of common terms that are together expected in `wanted` parts, assuming that
/// terms are independent. Returns at least one combination if there are two terms.
fn combinations(common: &[Term], weighted: &WeightedQuery, wanted: f64) -> Vec<Vec<String>> {
    let terms: Vec<&Term> = common.iter().take(COMBINED).chain(&weighted.speakers).collect();
    let all = (weighted.documents as f64).max(1.0);
    let share: Vec<f64> = terms.iter().map(|term| term.frequency as f64 / all).collect();
    let mut pool: Vec<(f64, Vec<usize>)> = Vec::new();
    for a in 0..terms.len() {
        for b in a + 1..terms.len() {
            pool.push((all * share[a] * share[b], vec![a, b]));
            for c in b + 1..terms.len() {
                pool.push((all * share[a] * share[b] * share[c], vec![a, b, c]));
            }
        }
    }
    // Combinations of speakers alone do not narrow the topic.
    let spoken = common.len().min(COMBINED);
    pool.retain(|(_, members)| members.iter().any(|at| *at < spoken));
    pool.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let mut expected = 0.0;
    let fits = |(count, _): &&(f64, Vec<usize>)| {
        expected += count;
        expected <= wanted
    };
    let taken = pool.iter().take_while(fits).count().clamp(1, MAX_COMBINATIONS).min(pool.len());
    let pairs: BTreeSet<&Vec<usize>> =
        pool[..taken].iter().map(|(_, members)| members).filter(|members| members.len() == 2).collect();
    let covered = |members: &Vec<usize>| {
        let [a, b, c] = members[..] else { return false };
        [[a, b], [a, c], [b, c]].iter().any(|pair| pairs.contains(&pair.to_vec()))
    };
    let needed = pool[..taken].iter().filter(|(_, members)| !covered(members));
    needed.map(|(_, members)| members.iter().map(|at| terms[*at].text.clone()).collect()).collect()
}
