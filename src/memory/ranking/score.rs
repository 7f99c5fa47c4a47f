//! Scores entries by their own terms, their neighbors', their group's and their speaker.

use super::{
    AFTER_SHARES, B, BEFORE_SHARES, GROUP_WEIGHT, K1, MAX_QUESTION_WORDS, NEIGHBOR_ROWS, QUESTION_PENALTY,
    ROWS_PER_RUN, SPEAKER_BONUS, WeightedQuery, weight,
};
use crate::memory::terms;
use crate::ports::memory::{Entry, Place};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The candidate entries of a search with their scores.
pub struct Ranking {
    terms: Vec<String>,
    /// Weight of each term in a part.
    weights: Vec<f64>,
    speakers: Vec<String>,
    average: f64,
    entries: BTreeMap<Slot, Scored>,
    groups: BTreeMap<String, f64>,
}

/// Position of an entry: its group and its place in it.
type Slot = (String, u32);

struct Scored {
    /// Best part of the entry.
    entry: Entry,
    /// Score of each term.
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
    /// Scores the parts that the queries have selected.
    pub fn new(weighted: &WeightedQuery, mut candidates: Vec<Entry>) -> Self {
        candidates.sort_by(|a, b| {
            (&a.group, a.position, a.part, &a.key).cmp(&(&b.group, b.position, b.part, &b.key))
        });
        candidates.dedup_by(|a, b| (&a.key, a.part) == (&b.key, b.part));
        let all = weighted.documents as f64;
        let mut ranking = Self {
            terms: weighted.terms.iter().map(|term| term.text.clone()).collect(),
            weights: weighted.terms.iter().map(|term| weight(all, term.frequency as f64)).collect(),
            speakers: weighted.speakers.iter().map(|term| term.text.clone()).collect(),
            average: (weighted.length as f64 / all.max(1.0)).max(1.0),
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        let mut counts = Vec::new();
        for entry in candidates {
            let count = ranking.count_terms(&entry);
            counts.push((entry.group.clone(), count.clone()));
            ranking.insert(entry, &count);
        }
        ranking.groups = ranking.score_groups(weighted, &counts);
        ranking
    }

    /// Counts the occurrences of each term in a part, including the terms of its date and speaker.
    fn count_terms(&self, entry: &Entry) -> Vec<u32> {
        let mut counts = terms::count(&entry.text, &self.terms);
        let joined_by = terms::date_terms(entry.at)
            .into_iter()
            .chain(entry.speaker.iter().flat_map(|name| terms::speaker_terms(name)));
        for term in joined_by {
            if let Some(at) = self.terms.iter().position(|known| *known == term) {
                counts[at] = 1;
            }
        }
        counts
    }

    fn insert(&mut self, entry: Entry, counts: &[u32]) {
        let length = K1 * (1.0 - B + B * f64::from(entry.length) / self.average);
        let share = |(at, count): (usize, &u32)| {
            let count = f64::from(*count);
            // Dates and speakers do not depend on the length of the text.
            let norm = if self.terms[at].contains('_') { K1 } else { length };
            self.weights[at] * count * (K1 + 1.0) / (count + norm)
        };
        let shares = counts.iter().enumerate().map(share).collect();
        let by = entry.speaker.as_deref().map(terms::speaker_terms).unwrap_or_default();
        let named = by.iter().any(|term| self.speakers.contains(term));
        let slot = (entry.group.clone(), entry.position);
        let scored = Scored { entry, shares, named };
        match self.entries.get(&slot) {
            Some(other) if other.own() >= scored.own() => {}
            _ => drop(self.entries.insert(slot, scored)),
        }
    }

    /// Computes BM25 of whole groups from the candidates. They contain all occurrences of a rare term; for a
    /// common term, the number of groups that contain it is estimated.
    fn score_groups(&self, weighted: &WeightedQuery, counts: &[(String, Vec<u32>)]) -> BTreeMap<String, f64> {
        let all = (weighted.groups as f64).max(1.0);
        let mut sums: BTreeMap<&String, Vec<u32>> = BTreeMap::new();
        let mut seen = vec![0_u64; self.terms.len()];
        for (group, count) in counts {
            let sum = sums.entry(group).or_insert_with(|| vec![0; count.len()]);
            for (at, count) in count.iter().enumerate().filter(|(at, _)| !self.terms[*at].contains('_')) {
                sum[at] += count;
                seen[at] += u64::from(*count > 0);
            }
        }
        let weights: Vec<f64> = (weighted.terms.iter().enumerate())
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

    /// Computes the score of each position that has a scored entry or a scored neighbor, without speaker
    /// bonuses.
    fn slot_scores(&self) -> BTreeMap<Slot, f64> {
        let mut shared: BTreeMap<Slot, Vec<f64>> = BTreeMap::new();
        let mut scores: BTreeMap<Slot, f64> = BTreeMap::new();
        for (slot, scored) in self.entries.iter().filter(|(_, scored)| scored.own() > 0.0) {
            *scores.entry(slot.clone()).or_default() += scored.own();
            for (share, position) in around(slot.1) {
                let best =
                    shared.entry((slot.0.clone(), position)).or_insert_with(|| vec![0.0; self.terms.len()]);
                for (best, own) in best.iter_mut().zip(&scored.shares) {
                    *best = best.max(share * own);
                }
            }
        }
        for (slot, shares) in shared {
            *scores.entry(slot).or_default() += shares.iter().sum::<f64>();
        }
        for (slot, score) in &mut scores {
            *score += GROUP_WEIGHT * self.groups.get(&slot.0).copied().unwrap_or_default();
        }
        scores
    }

    /// Returns the positions to read next to the candidates: the best positions that are not known, as many
    /// as [`NEIGHBOR_ROWS`] allows, with adjacent positions of a group as one range. A single position
    /// between two ranges is read too, known or not, because that costs less than a separate range.
    pub fn neighbors(&self) -> Vec<Place> {
        let mut scores = self.slot_scores();
        let top = scores.values().copied().fold(0.0, f64::max);
        scores.retain(|slot, _| !self.entries.contains_key(slot));
        let mut wanted: Vec<(f64, Slot)> = (scores.into_iter())
            .map(|(slot, score)| {
                (score + if self.is_speaker_likely(&slot) { SPEAKER_BONUS * top } else { 0.0 }, slot)
            })
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let (mut slots, mut left) = (BTreeSet::new(), NEIGHBOR_ROWS);
        for (_, slot) in wanted {
            if slots.contains(&slot) {
                continue;
            }
            let (between, joined) = joined_by(&slots, &slot);
            // Joining two ranges may save more rows than it costs.
            let Some(rest) = (left + ROWS_PER_RUN * joined).checked_sub(1 + between.len() + ROWS_PER_RUN)
            else {
                continue;
            };
            left = rest;
            slots.extend(between);
            slots.insert(slot);
        }
        let mut places: Vec<Place> = Vec::new();
        for (group, position) in slots {
            match places.last_mut() {
                Some(last) if last.group == group && last.positions.end == position => {
                    last.positions.end += 1
                }
                _ => places.push(Place { group, positions: position..position + 1 }),
            }
        }
        places
    }

    /// Guesses whether a named speaker is at a position that was not read: two speakers usually alternate.
    fn is_speaker_likely(&self, (group, position): &Slot) -> bool {
        let named = |position: u32| self.entries.get(&(group.clone(), position)).map(|scored| scored.named);
        let at = |distance: u32| {
            let joined_by = [position.checked_sub(distance), position.checked_add(distance)];
            let known: Vec<bool> = joined_by.into_iter().flatten().filter_map(named).collect();
            (!known.is_empty()).then(|| known.contains(&true) == distance.is_multiple_of(2))
        };
        !self.speakers.is_empty() && (1..=3).find_map(at).unwrap_or_default()
    }

    /// Adds the entries that were read at the positions of [`Ranking::neighbors`].
    pub fn add(&mut self, neighbors: Vec<Entry>) {
        for entry in neighbors {
            let counts = self.count_terms(&entry);
            self.insert(entry, &counts);
        }
    }

    /// Returns the entries with their scores, best first. Ties are broken by time (newest first), then by
    /// key.
    pub fn hits(mut self, limit: usize) -> Vec<(Entry, f64)> {
        let scores = self.slot_scores();
        let known = |slot: &Slot| self.entries.contains_key(slot);
        let top = scores.iter().filter(|(slot, _)| known(slot)).map(|(_, score)| *score).fold(0.0, f64::max);
        let mut hits = Vec::new();
        for (slot, score) in scores {
            let Some(Scored { entry, named, .. }) = self.entries.remove(&slot) else { continue };
            let asks = entry.length <= MAX_QUESTION_WORDS && entry.text.trim_end().ends_with(['?', '？']);
            let speaker = if named { SPEAKER_BONUS * top } else { 0.0 };
            let question = if asks { QUESTION_PENALTY * top } else { 0.0 };
            hits.push((entry, score + speaker - question));
        }
        hits.sort_by(|(a, x), (b, y)| {
            y.total_cmp(x).then_with(|| (Reverse(a.at), &a.key).cmp(&(Reverse(b.at), &b.key)))
        });
        hits.truncate(limit);
        hits
    }
}

/// Returns the positions between a new one and the ranges that it joins, and the number of these ranges.
fn joined_by(slots: &BTreeSet<Slot>, (group, position): &Slot) -> (Vec<Slot>, usize) {
    let (mut between, mut joined) = (Vec::new(), 0);
    let steps: [fn(u32, u32) -> Option<u32>; 2] = [u32::checked_sub, u32::checked_add];
    for step in steps {
        let at = |distance| step(*position, distance).map(|joined_by| (group.clone(), joined_by));
        let taken = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slots.contains(slot));
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

/// Returns the positions around one, with the share of its scores that counts there.
fn around(position: u32) -> impl Iterator<Item = (f64, u32)> {
    (1..).zip(AFTER_SHARES.into_iter().zip(BEFORE_SHARES)).flat_map(move |(distance, (ahead, before))| {
        let earlier = position.checked_sub(distance).map(|earlier| (ahead, earlier));
        let later = position.checked_add(distance).map(|later| (before, later));
        earlier.into_iter().chain(later)
    })
}
