//! The scores of entries, from their own terms, their neighbours', their group's and their speakers.

use super::{
    AHEAD, ASKS, ASKS_WORDS, B, BEFORE, GROUP, K1, NEIGHBOUR_ROWS, ROWS_A_RUN, SPEAKER, Weighed, weight,
};
use crate::memory::terms;
use crate::ports::memory::{Entry, Place};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Entries that may answer a question, with what is known of each.
pub struct Ranking {
    terms: Vec<String>,
    /// What each term says in a part.
    weights: Vec<f64>,
    speakers: Vec<String>,
    average: f64,
    entries: BTreeMap<Spot, Scored>,
    groups: BTreeMap<String, f64>,
}

/// A group and a position in it.
type Spot = (String, u32);

struct Scored {
    /// The best part.
    entry: Entry,
    /// What it has of each term.
    shares: Vec<f64>,
    /// Whether a named speaker said it.
    named: bool,
}

impl Scored {
    fn own(&self) -> f64 {
        self.shares.iter().sum()
    }
}

impl Ranking {
    /// Scores what the queries of the plan have picked.
    pub fn new(weighed: &Weighed, mut candidates: Vec<Entry>) -> Self {
        candidates.sort_by(|a, b| {
            (&a.group, a.position, a.part, &a.key).cmp(&(&b.group, b.position, b.part, &b.key))
        });
        candidates.dedup_by(|a, b| (&a.key, a.part) == (&b.key, b.part));
        let all = weighed.documents as f64;
        let mut ranking = Self {
            terms: weighed.terms.iter().map(|term| term.text.clone()).collect(),
            weights: weighed.terms.iter().map(|term| weight(all, term.frequency as f64)).collect(),
            speakers: weighed.speakers.iter().map(|term| term.text.clone()).collect(),
            average: (weighed.length as f64 / all.max(1.0)).max(1.0),
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        let mut counts = Vec::new();
        for entry in candidates {
            let count = ranking.count(&entry);
            counts.push((entry.group.clone(), count.clone()));
            ranking.put(entry, &count);
        }
        ranking.groups = ranking.score_groups(weighed, &counts);
        ranking
    }

    /// How often each term stands in a part, its day and speaker included.
    fn count(&self, entry: &Entry) -> Vec<u32> {
        let mut counts = terms::count(&entry.text, &self.terms);
        let beside =
            terms::dates(entry.at).into_iter().chain(entry.speaker.iter().flat_map(|name| terms::by(name)));
        for term in beside {
            if let Some(at) = self.terms.iter().position(|known| *known == term) {
                counts[at] = 1;
            }
        }
        counts
    }

    fn put(&mut self, entry: Entry, counts: &[u32]) {
        let length = K1 * (1.0 - B + B * f64::from(entry.length) / self.average);
        let share = |(at, count): (usize, &u32)| {
            let count = f64::from(*count);
            // A day or a speaker is there or not, however long the text is.
            let norm = if self.terms[at].contains('_') { K1 } else { length };
            self.weights[at] * count * (K1 + 1.0) / (count + norm)
        };
        let shares = counts.iter().enumerate().map(share).collect();
        let by = entry.speaker.as_deref().map(terms::by).unwrap_or_default();
        let named = by.iter().any(|term| self.speakers.contains(term));
        let spot = (entry.group.clone(), entry.position);
        let scored = Scored { entry, shares, named };
        match self.entries.get(&spot) {
            Some(other) if other.own() >= scored.own() => {}
            _ => drop(self.entries.insert(spot, scored)),
        }
    }

    /// BM25 of whole groups, as far as the candidates tell: of a rare term they hold all places; of a
    /// commoner one, in how many groups it stands is estimated.
    fn score_groups(&self, weighed: &Weighed, counts: &[(String, Vec<u32>)]) -> BTreeMap<String, f64> {
        let all = (weighed.groups as f64).max(1.0);
        let mut sums: BTreeMap<&String, Vec<u32>> = BTreeMap::new();
        let mut seen = vec![0_u64; self.terms.len()];
        for (group, count) in counts {
            let sum = sums.entry(group).or_insert_with(|| vec![0; count.len()]);
            for (at, count) in count.iter().enumerate().filter(|(at, _)| !self.terms[*at].contains('_')) {
                sum[at] += count;
                seen[at] += u64::from(*count > 0);
            }
        }
        let weights: Vec<f64> = (weighed.terms.iter().enumerate())
            .map(|(at, term)| {
                let groups = sums.values().filter(|sum| sum[at] > 0).count() as f64;
                let (there, seen) = (term.frequency as f64, seen[at] as f64);
                if seen >= there || groups == 0.0 {
                    return weight(all, groups.min(all));
                }
                let spread = all * (1.0 - (1.0 - 1.0 / all).powi(there as i32));
                weight(all, spread.max(groups * there / seen).min(all))
            })
            .collect();
        let score = |sum: Vec<u32>| {
            let share = |(count, weight): (&u32, &f64)| {
                let count = f64::from(*count);
                weight * count * (K1 + 1.0) / (count + K1)
            };
            sum.iter().zip(&weights).map(share).sum()
        };
        sums.into_iter().map(|(group, sum)| (group.clone(), score(sum))).collect()
    }

    /// The score of each place that an entry scored or its neighbour may have, before speakers count.
    fn spread(&self) -> BTreeMap<Spot, f64> {
        let mut lent: BTreeMap<Spot, Vec<f64>> = BTreeMap::new();
        let mut scores: BTreeMap<Spot, f64> = BTreeMap::new();
        for (spot, scored) in self.entries.iter().filter(|(_, scored)| scored.own() > 0.0) {
            *scores.entry(spot.clone()).or_default() += scored.own();
            for (share, position) in around(spot.1) {
                let best =
                    lent.entry((spot.0.clone(), position)).or_insert_with(|| vec![0.0; self.terms.len()]);
                for (best, own) in best.iter_mut().zip(&scored.shares) {
                    *best = best.max(share * own);
                }
            }
        }
        for (spot, shares) in lent {
            *scores.entry(spot).or_default() += shares.iter().sum::<f64>();
        }
        for (spot, score) in &mut scores {
            *score += GROUP * self.groups.get(&spot.0).copied().unwrap_or_default();
        }
        scores
    }

    /// The places to read beside what was picked: the best that are not known, as many as
    /// [`NEIGHBOUR_ROWS`] allows, those of a group that follow each other as one. Of two runs with one
    /// place between, that place is read too, known or not: it costs less than a run does.
    pub fn neighbours(&self) -> Vec<Place> {
        let mut scores = self.spread();
        let top = scores.values().copied().fold(0.0, f64::max);
        scores.retain(|spot, _| !self.entries.contains_key(spot));
        let mut wanted: Vec<(f64, Spot)> = (scores.into_iter())
            .map(|(spot, score)| (score + if self.likely(&spot) { SPEAKER * top } else { 0.0 }, spot))
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let (mut spots, mut left) = (BTreeSet::new(), NEIGHBOUR_ROWS);
        for (_, spot) in wanted {
            if spots.contains(&spot) {
                continue;
            }
            let (between, joined) = beside(&spots, &spot);
            // Joining two runs may give back more than it costs.
            let Some(rest) = (left + ROWS_A_RUN * joined).checked_sub(1 + between.len() + ROWS_A_RUN) else {
                continue;
            };
            left = rest;
            spots.extend(between);
            spots.insert(spot);
        }
        let mut places: Vec<Place> = Vec::new();
        for (group, position) in spots {
            match places.last_mut() {
                Some(last) if last.group == group && last.positions.end == position => {
                    last.positions.end += 1
                }
                _ => places.push(Place { group, positions: position..position + 1 }),
            }
        }
        places
    }

    /// Whether a named speaker may stand at a place that was not read: most often two take turns.
    fn likely(&self, (group, position): &Spot) -> bool {
        let named = |position: u32| self.entries.get(&(group.clone(), position)).map(|scored| scored.named);
        let at = |distance: u32| {
            let beside = [position.checked_sub(distance), position.checked_add(distance)];
            let known: Vec<bool> = beside.into_iter().flatten().filter_map(named).collect();
            (!known.is_empty()).then(|| known.contains(&true) == distance.is_multiple_of(2))
        };
        !self.speakers.is_empty() && (1..=3).find_map(at).unwrap_or_default()
    }

    /// Takes in what was read at the places of [`Ranking::neighbours`].
    pub fn add(&mut self, neighbours: Vec<Entry>) {
        for entry in neighbours {
            let counts = self.count(&entry);
            self.put(entry, &counts);
        }
    }

    /// The entries with their scores, best first; of equal ones the newest, then by key.
    pub fn hits(mut self, limit: usize) -> Vec<(Entry, f64)> {
        let scores = self.spread();
        let known = |spot: &Spot| self.entries.contains_key(spot);
        let top = scores.iter().filter(|(spot, _)| known(spot)).map(|(_, score)| *score).fold(0.0, f64::max);
        let mut hits = Vec::new();
        for (spot, score) in scores {
            let Some(Scored { entry, named, .. }) = self.entries.remove(&spot) else { continue };
            let asks = entry.length <= ASKS_WORDS && entry.text.trim_end().ends_with(['?', '？']);
            let speaker = if named { SPEAKER * top } else { 0.0 };
            let question = if asks { ASKS * top } else { 0.0 };
            hits.push((entry, score + speaker - question));
        }
        hits.sort_by(|(a, x), (b, y)| {
            y.total_cmp(x).then_with(|| (Reverse(a.at), &a.key).cmp(&(Reverse(b.at), &b.key)))
        });
        hits.truncate(limit);
        hits
    }
}

/// The places between a new one and the runs that it joins, and how many these are.
fn beside(spots: &BTreeSet<Spot>, (group, position): &Spot) -> (Vec<Spot>, usize) {
    let (mut between, mut joined) = (Vec::new(), 0);
    let steps: [fn(u32, u32) -> Option<u32>; 2] = [u32::checked_sub, u32::checked_add];
    for step in steps {
        let at = |distance| step(*position, distance).map(|beside| (group.clone(), beside));
        let taken = |spot: &Option<Spot>| spot.as_ref().is_some_and(|spot| spots.contains(spot));
        let (next, second) = (at(1), at(2));
        if taken(&next) {
            joined += 1;
        } else if taken(&second) {
            joined += 1;
            between.extend(next);
        }
    }
    (between, joined)
}

/// The positions beside one, and what of its terms counts there.
fn around(position: u32) -> impl Iterator<Item = (f64, u32)> {
    (1..).zip(AHEAD.into_iter().zip(BEFORE)).flat_map(move |(distance, (ahead, before))| {
        let earlier = position.checked_sub(distance).map(|earlier| (ahead, earlier));
        let later = position.checked_add(distance).map(|later| (before, later));
        earlier.into_iter().chain(later)
    })
}
