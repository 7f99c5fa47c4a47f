//! What stands for the messages that were observed: notes, and what waits to take messages' place.

use super::{EventKind, Timestamp};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// What stands, as a cut's summary, for messages that nobody has taken notes on.
pub const UNTOLD: &str =
    "Earlier messages are not shown, because they did not fit any more. Nothing stands for them here.";

/// Notes on a stretch of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The number of the first record that they are about.
    pub from: u64,
    /// The number of the last one.
    pub to: u64,
    /// When they were taken.
    pub at: Timestamp,
    /// The notes.
    pub text: String,
    /// Tokens of the notes, by our estimate.
    pub tokens: u64,
    /// Tokens of the messages that they are about.
    pub of: u64,
    /// What the assistant was at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What it was about to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// Notes are being taken, or rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The number of the first record that new notes are about.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: u64,
    /// Tokens of the messages, or of the notes that are rewritten, by our estimate.
    pub tokens: u64,
}

/// Notes were taken, or rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The how-manieth edition of all notes, from 1, where they were rewritten.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// The notes.
    pub chunk: Rc<Chunk>,
}

impl Taken {
    /// New notes.
    pub fn new(chunk: Rc<Chunk>) -> Self {
        Self { generation: 0, chunk }
    }
}

/// No notes could be taken, or they could not be rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTaken {
    /// Why.
    pub reason: String,
    /// Tokens of the messages that are shown, or of the notes, by our estimate.
    pub tokens: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why notes took the place of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// There were too many tokens of messages.
    Threshold,
    /// Nothing was said for so long that no provider has the prompt any more.
    Idle,
    /// Another model answers, which never had the prompt.
    ProviderChange,
    /// The request did not fit the model's window.
    Overflow,
    /// Somebody asked for it.
    Request,
}

/// The notes of a session, and how far they go.
///
/// A fold of the log's records: each is checked against what is there, and one that does not follow from it
/// is void. So notes are neither lost nor taken twice, whoever writes at the same time and whatever is
/// written late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// The number of the first record that nobody has taken notes on; 0 before the first observation.
    pub next: u64,
    /// Notes that are shown in the place of messages, oldest first. Each begins behind the one before.
    pub active: Vec<Rc<Chunk>>,
    /// Notes whose messages are still shown. They go on where the active ones end.
    pub buffered: Vec<Rc<Chunk>>,
    /// How often the active notes were rewritten.
    pub generation: u64,
    /// The next generation of the first of the active notes, while it waits to take their place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection: Option<Rc<Chunk>>,
    /// Tokens of messages with which an observation failed; 0 when the last one did not.
    pub failed_at: u64,
    /// Tokens of notes when they were last rewritten, or could not be.
    pub reflected_at: u64,
}

impl Observed {
    /// Messages below this number are not shown: there are notes on them.
    pub fn kept_from(&self) -> u64 {
        self.active.last().map_or(0, |chunk| chunk.to + 1)
    }

    /// Tokens of the active notes.
    pub fn tokens(&self) -> u64 {
        self.active.iter().map(|chunk| chunk.tokens).sum()
    }

    /// All notes, oldest first.
    pub fn chunks(&self) -> impl DoubleEndedIterator<Item = &Rc<Chunk>> {
        self.active.iter().chain(&self.buffered)
    }

    /// Whether a record of this kind may change what is observed.
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

    /// Takes note of a record. Returns whether it changed anything; one that does not fit is void.
    pub fn fold(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::ObservationStarted(started) if self.next == 0 => self.next = started.from,
            EventKind::ObservationBuffered(Taken { chunk, .. }) if self.follows(chunk) => {
                self.take(chunk);
                self.buffered.push(Rc::clone(chunk));
            }
            EventKind::ObservationCompleted(Taken { chunk, .. })
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
            EventKind::ReflectionBuffered(Taken { generation, chunk })
                if *generation == self.generation + 1
                    && self.reflection.is_none()
                    && self.replaced_by(chunk).is_some() =>
            {
                self.reflection = Some(Rc::clone(chunk));
            }
            EventKind::ReflectionActivated { generation, .. } if *generation == self.generation + 1 => {
                let Some(chunk) = self.reflection.take() else { return false };
                // What was added since it was written stays behind it.
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

    /// The place of the last of the active notes that this is a new generation of.
    fn replaced_by(&self, chunk: &Chunk) -> Option<usize> {
        let is_whole = self.active.first().is_some_and(|first| first.from == chunk.from);
        self.active.iter().position(|active| active.to == chunk.to).filter(|_| is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn chunk(from: u64, to: u64) -> Rc<Chunk> {
        Rc::new(Chunk { from, to, text: format!("{from}-{to}"), tokens: to + 1 - from, ..Chunk::default() })
    }

    fn buffered(from: u64, to: u64) -> EventKind {
        EventKind::ObservationBuffered(Taken::new(chunk(from, to)))
    }

    fn activated(kept_from: u64) -> EventKind {
        EventKind::ObservationActivated { chunks: 1, tokens: 1, triggered_by: Trigger::Threshold, kept_from }
    }

    fn reflected(generation: u64, to: u64) -> [EventKind; 2] {
        let chunk = Rc::new(Chunk { text: format!("all to {to}"), ..Chunk::clone(&chunk(1, to)) });
        let buffered = EventKind::ReflectionBuffered(Taken { generation, chunk });
        [buffered, EventKind::ReflectionActivated { generation, tokens: 1 }]
    }

    fn texts(observed: &Observed) -> Vec<&str> {
        observed.active.iter().map(|chunk| chunk.text.as_str()).collect()
    }

    #[test]
    fn what_does_not_follow_is_void() {
        let mut observed = Observed::default();
        assert!(!observed.fold(&buffered(1, 5)), "nothing was begun");
        assert!(observed.fold(&EventKind::ObservationStarted(Started { from: 1, tokens: 9 })));
        assert!(!observed.fold(&EventKind::ObservationStarted(Started { from: 3, tokens: 9 })));
        assert!(observed.fold(&buffered(1, 5)) && !observed.fold(&buffered(1, 5)));
        assert!(!observed.fold(&buffered(7, 9)) && observed.fold(&buffered(6, 9)));
        assert!(!observed.fold(&EventKind::ObservationCompleted(Taken::new(chunk(10, 12)))), "others wait");
        assert!(
            !observed.fold(&activated(8)) && observed.fold(&activated(6)) && !observed.fold(&activated(6))
        );
        assert_eq!((texts(&observed), observed.kept_from(), observed.next), (vec!["1-5"], 6, 10));
        assert!(observed.fold(&activated(10)));
        assert!(observed.fold(&EventKind::ObservationCompleted(Taken::new(chunk(10, 12)))));
        assert_eq!(texts(&observed), ["1-5", "6-9", "10-12"]);
    }

    #[test]
    fn a_chunk_that_came_during_a_reflection_stays_behind_it() {
        let mut observed = Observed { next: 1, ..Observed::default() };
        for (from, to) in [(1, 5), (6, 9)] {
            observed.fold(&EventKind::ObservationCompleted(Taken::new(chunk(from, to))));
        }
        let [waits, takes] = reflected(1, 9);
        assert!(observed.fold(&waits));
        assert!(observed.fold(&EventKind::ObservationCompleted(Taken::new(chunk(10, 12)))));
        assert!(!observed.fold(&reflected(1, 12)[0]), "one waits already");
        assert!(observed.fold(&takes) && !observed.fold(&takes));
        assert_eq!((texts(&observed), observed.generation), (vec!["all to 9", "10-12"], 1));
        assert!(!observed.fold(&reflected(2, 10)[0]), "it ends inside of notes");
        assert_eq!(observed.kept_from(), 13);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn notes_have_no_gap_and_no_overlap_whatever_is_written(
            steps in prop::collection::vec((0..6u8, 1..9u64, 0..6u64), 0..60),
        ) {
            let mut observed = Observed::default();
            observed.fold(&EventKind::ObservationStarted(Started { from: 1, tokens: 0 }));
            let mut active_end = 0;
            for (what, from, more) in steps {
                // Near where something would fit, so that much does and much does not.
                let near = (observed.next + from).saturating_sub(4).max(1);
                let kind = match what {
                    0 => buffered(near, near + more),
                    1 => EventKind::ObservationCompleted(Taken::new(chunk(near, near + more))),
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
                prop_assert!(observed.kept_from() >= active_end, "notes never give messages back");
                active_end = observed.kept_from();
                prop_assert!(observed.next >= before.next && observed.generation >= before.generation);
                let json = serde_json::to_string(&observed).expect("JSON");
                prop_assert_eq!(serde_json::from_str::<Observed>(&json).expect("JSON"), observed.clone());
            }
        }
    }
}
