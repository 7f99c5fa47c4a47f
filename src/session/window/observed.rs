//! The notes of a session, folded from its log.

use crate::types::{Chunk, EventKind, observed::NotesTaken};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The notes of a session and the range of records they cover.
///
/// Built by folding the log's records. A record that does not continue the current state is ignored, so that
/// concurrent and late writes can neither lose notes nor cover a message twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Sequence number of the first record without notes; 0 before the first observation.
    pub next: u64,
    /// Notes that replace their messages, oldest first. Each covers the records after the previous one.
    pub active: Vec<Rc<Chunk>>,
    /// Notes whose messages are still shown. They continue where the active notes end.
    pub buffered: Vec<Rc<Chunk>>,
    /// Generation number of the active notes; 0 before the first reflection.
    pub generation: u64,
    /// The next generation of the leading active notes, until it replaces them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection: Option<Rc<Chunk>>,
    /// Estimated tokens of the messages when an observation last failed; 0 after a success.
    pub failed_at: u64,
    /// Estimated tokens of the notes at the last reflection, successful or not.
    pub reflected_at: u64,
}

impl Observed {
    /// Returns the sequence number below which notes replace all messages.
    pub fn kept_from(&self) -> u64 {
        self.active.last().map_or(0, |chunk| chunk.to + 1)
    }

    /// Returns the estimated tokens of the active notes.
    pub fn tokens(&self) -> u64 {
        self.active.iter().map(|chunk| chunk.tokens).sum()
    }

    /// Returns all notes, oldest first.
    pub fn chunks(&self) -> impl DoubleEndedIterator<Item = &Rc<Chunk>> {
        self.active.iter().chain(&self.buffered)
    }

    /// Returns whether a record of this kind may change the notes.
    pub fn is_about(kind: &EventKind) -> bool {
        matches!(
            kind,
            EventKind::ObservationStarted(_)
                | EventKind::ObservationBuffered(_)
                | EventKind::ObservationActivated { .. }
                | EventKind::ObservationCompleted(_)
                | EventKind::ObservationFailed(_)
                | EventKind::ReflectionBuffered(_)
                | EventKind::ReflectionActivated { .. }
                | EventKind::ReflectionFailed(_)
        )
    }

    /// Applies a record. Returns whether it changed the state; a record out of order does not.
    pub fn fold(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::ObservationStarted(started) if self.next == 0 => self.next = started.from,
            EventKind::ObservationBuffered(NotesTaken { chunk, .. }) if self.follows(chunk) => {
                self.take(chunk);
                self.buffered.push(Rc::clone(chunk));
            }
            EventKind::ObservationCompleted(NotesTaken { chunk, .. })
                if self.follows(chunk) && self.buffered.is_empty() =>
            {
                self.take(chunk);
                self.active.push(Rc::clone(chunk));
            }
            EventKind::ObservationActivated { kept_from, .. } => {
                let last = self.buffered.iter().position(|chunk| chunk.to + 1 == *kept_from);
                let Some(last) = last else { return false };
                self.active.extend(self.buffered.drain(..=last));
            }
            EventKind::ObservationFailed(failed) => self.failed_at = failed.tokens,
            EventKind::ReflectionBuffered(NotesTaken { generation, chunk })
                if *generation == self.generation + 1
                    && self.reflection.is_none()
                    && self.replaced_by(chunk).is_some() =>
            {
                self.reflection = Some(Rc::clone(chunk));
            }
            EventKind::ReflectionActivated { generation, .. } if *generation == self.generation + 1 => {
                let Some(chunk) = self.reflection.take() else { return false };
                // Notes that were added after the reflection started follow it.
                let Some(last) = self.replaced_by(&chunk) else { return true };
                self.reflected_at = chunk.tokens;
                self.generation = *generation;
                self.active.splice(..=last, [chunk]);
            }
            EventKind::ReflectionFailed(failed) => self.reflected_at = failed.tokens,
            _ => return false,
        }
        true
    }

    fn follows(&self, chunk: &Chunk) -> bool {
        chunk.from == self.next && chunk.from > 0 && chunk.to >= chunk.from
    }

    fn take(&mut self, chunk: &Chunk) {
        self.next = chunk.to + 1;
        self.failed_at = 0;
    }

    /// Returns the index of the last active chunk that `chunk` is a rewrite of.
    fn replaced_by(&self, chunk: &Chunk) -> Option<usize> {
        let is_whole = self.active.first().is_some_and(|first| first.from == chunk.from);
        self.active.iter().position(|active| active.to == chunk.to).filter(|_| is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Trigger, observed::NotesStarted};
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn chunk(from: u64, to: u64) -> Rc<Chunk> {
        Rc::new(Chunk { from, to, text: format!("{from}-{to}"), tokens: to + 1 - from, ..Chunk::default() })
    }

    fn buffered(from: u64, to: u64) -> EventKind {
        EventKind::ObservationBuffered(NotesTaken::new(chunk(from, to)))
    }

    fn activated(kept_from: u64) -> EventKind {
        EventKind::ObservationActivated { chunks: 1, tokens: 1, triggered_by: Trigger::Threshold, kept_from }
    }

    fn reflected(generation: u64, to: u64) -> [EventKind; 2] {
        let chunk = Rc::new(Chunk { text: format!("all to {to}"), ..Chunk::clone(&chunk(1, to)) });
        let buffered = EventKind::ReflectionBuffered(NotesTaken { generation, chunk });
        [buffered, EventKind::ReflectionActivated { generation, tokens: 1 }]
    }

    fn texts(observed: &Observed) -> Vec<&str> {
        observed.active.iter().map(|chunk| chunk.text.as_str()).collect()
    }

    #[test]
    fn records_out_of_order_are_ignored() {
        let mut observed = Observed::default();
        assert!(!observed.fold(&buffered(1, 5)), "no observation has started");
        assert!(observed.fold(&EventKind::ObservationStarted(NotesStarted { from: 1, tokens: 9 })));
        assert!(!observed.fold(&EventKind::ObservationStarted(NotesStarted { from: 3, tokens: 9 })));
        assert!(observed.fold(&buffered(1, 5)) && !observed.fold(&buffered(1, 5)));
        assert!(!observed.fold(&buffered(7, 9)) && observed.fold(&buffered(6, 9)));
        assert!(
            !observed.fold(&EventKind::ObservationCompleted(NotesTaken::new(chunk(10, 12)))),
            "others wait"
        );
        assert!(
            !observed.fold(&activated(8)) && observed.fold(&activated(6)) && !observed.fold(&activated(6))
        );
        assert_eq!((texts(&observed), observed.kept_from(), observed.next), (vec!["1-5"], 6, 10));
        assert!(observed.fold(&activated(10)));
        assert!(observed.fold(&EventKind::ObservationCompleted(NotesTaken::new(chunk(10, 12)))));
        assert_eq!(texts(&observed), ["1-5", "6-9", "10-12"]);
    }

    #[test]
    fn a_chunk_added_during_a_reflection_follows_it() {
        let mut observed = Observed { next: 1, ..Observed::default() };
        for (from, to) in [(1, 5), (6, 9)] {
            observed.fold(&EventKind::ObservationCompleted(NotesTaken::new(chunk(from, to))));
        }
        let [waits, takes] = reflected(1, 9);
        assert!(observed.fold(&waits));
        assert!(observed.fold(&EventKind::ObservationCompleted(NotesTaken::new(chunk(10, 12)))));
        assert!(!observed.fold(&reflected(1, 12)[0]), "a reflection is already buffered");
        assert!(observed.fold(&takes) && !observed.fold(&takes));
        assert_eq!((texts(&observed), observed.generation), (vec!["all to 9", "10-12"], 1));
        assert!(!observed.fold(&reflected(2, 10)[0]), "the reflection ends within a chunk");
        assert_eq!(observed.kept_from(), 13);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn notes_have_no_gap_and_no_overlap_in_any_order_of_records(
            steps in prop::collection::vec((0..6u8, 1..9u64, 0..6u64), 0..60),
        ) {
            let mut observed = Observed::default();
            observed.fold(&EventKind::ObservationStarted(NotesStarted { from: 1, tokens: 0 }));
            let mut active_end = 0;
            for (what, from, more) in steps {
                // Close to a valid position, so that valid and invalid records are both frequent.
                let near = (observed.next + from).saturating_sub(4).max(1);
                let kind = match what {
                    0 => buffered(near, near + more),
                    1 => EventKind::ObservationCompleted(NotesTaken::new(chunk(near, near + more))),
                    2 => activated(near),
                    3 => reflected(observed.generation + from / 4, near)[0].clone(),
                    4 => reflected(observed.generation + from / 4, near)[1].clone(),
                    _ => buffered(observed.next, observed.next + more),
                };
                let before = observed.clone();
                let changed = observed.fold(&kind);
                prop_assert_eq!(changed, before != observed || what == 4 && changed);
                let mut next = 1;
                for chunk in observed.chunks() {
                    prop_assert_eq!(chunk.from, next);
                    next = chunk.to + 1;
                }
                prop_assert_eq!(observed.next, next);
                prop_assert!(observed.kept_from() >= active_end, "hidden messages are never shown again");
                active_end = observed.kept_from();
                prop_assert!(observed.next >= before.next && observed.generation >= before.generation);
                let json = serde_json::to_string(&observed).expect("JSON");
                prop_assert_eq!(serde_json::from_str::<Observed>(&json).expect("JSON"), observed.clone());
            }
        }
    }
}
