//! Which boolean queries bring the parts that matter within the bound.

use super::{MAX_CANDIDATES, Term, Weighed};
use crate::ports::memory::TermQuery;
use std::collections::BTreeSet;

/// Common terms that are combined.
const COMBINED: usize = 8;
/// Combinations in a query: the expected number of parts is reached earlier, unless none has any.
const MAX_COMBINATIONS: usize = 32;
/// Of what rare terms leave, the tenths that combinations may have; the commoner terms alone get the rest.
const TENTHS: usize = 7;

/// The queries of a search, which pick at most [`MAX_CANDIDATES`] parts together:
///
/// 1. all parts that hold one of the rarest terms, as many terms as fit whole;
/// 2. parts that hold two or three of the others, or one and a named speaker, those combinations
///    first that are expected to be rarest;
/// 3. parts that hold the rarest of the others and no further one.
///
/// Where a query is cut, what was added last comes first.
pub fn plan(weighed: &Weighed) -> Vec<TermQuery> {
    let mut left = MAX_CANDIDATES;
    let mut rare = 0;
    for term in &weighed.terms {
        match usize::try_from(term.frequency).ok().and_then(|count| left.checked_sub(count)) {
            Some(rest) => left = rest,
            None => break,
        }
        rare += 1;
    }
    let (rare, common) = weighed.terms.split_at(rare);
    let names = |terms: &[Term]| terms.iter().map(|term| term.text.clone()).collect::<Vec<_>>();
    let mut queries = Vec::new();
    if !rare.is_empty() {
        let any_of = names(rare).into_iter().map(|term| vec![term]).collect();
        queries.push(TermQuery { any_of, none_of: Vec::new(), limit: MAX_CANDIDATES - left });
    }
    let Some(first) = common.first().filter(|_| left > 0) else { return queries };
    let any_of = combinations(common, weighed, left as f64);
    let share = if any_of.is_empty() { 0 } else { (left * TENTHS / 10).max(1) };
    if share > 0 {
        queries.push(TermQuery { any_of, none_of: names(rare), limit: share });
    }
    if left > share {
        let none_of = names(rare).into_iter().chain(names(&common[1..])).collect();
        queries.push(TermQuery { any_of: vec![vec![first.text.clone()]], none_of, limit: left - share });
    }
    queries
}

/// Pairs and triples of common terms that are expected in `wanted` parts together, if each term stood
/// anywhere with the same chance; at least one, if there are two terms.
fn combinations(common: &[Term], weighed: &Weighed, wanted: f64) -> Vec<Vec<String>> {
    let terms: Vec<&Term> = common.iter().take(COMBINED).chain(&weighed.speakers).collect();
    let all = (weighed.documents as f64).max(1.0);
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
    // Speakers by themselves say nothing of the matter.
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
