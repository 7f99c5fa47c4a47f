//! The observation strategy, which replaces older messages by notes. Most notes are taken after replies, so
//! that turns rarely wait.

use super::{
    NoteTaker,
    selection::{self, Thresholds},
    shrink::shrink,
};
use crate::context::{ContextHandle, ContextStrategy};
use crate::ports::{session_store::Select, within};
use crate::session::{
    fold, tokens,
    window::{NO_SUMMARY, Observed},
};
use crate::types::BoxError;
use crate::types::{
    Chunk, CompactReason, EventKind, Message, Role, Timestamp, Trigger,
    observed::{NotesFailed, NotesStarted, NotesTaken},
};
use async_trait::async_trait;
use std::rc::Rc;
use std::time::Duration;

/// Maximum time a turn waits for observation; also at most half of its remaining time.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// Maximum time of all notes after a reply; below the timeout of follow-ups.
const MAX_AFTER_TURN: Duration = Duration::from_secs(150);
/// Timeout of one model call.
const MODEL_CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Remaining time needed to start another model call.
const MIN_REMAINING: Duration = Duration::from_mins(1);
/// Maximum time a turn waits for follow-ups that must process messages before they are hidden. After that
/// they run after the turn, from the log.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of observations before one model call of a turn.
const MAX_ROUNDS: usize = 3;
/// Maximum number of observations after one reply.
const MAX_ROUNDS_AFTER_TURN: usize = 8;
/// Maximum number of records per observation.
const MAX_RECORDS: usize = 2_000;
/// Size of the messages above which no more are read, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of cuts if notes do not make enough room.
const MAX_CUTS: usize = 4;

/// The observation strategy.
pub struct Observation(pub NoteTaker);

/// Which messages an observation covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// About this many tokens, for notes that are buffered.
    Step(u64),
    /// All but about this many tokens, for notes that are shown at once.
    But(u64),
}

impl Observation {
    fn thresholds(&self, cx: &ContextHandle) -> Thresholds {
        let fill = cx.fill();
        let room = fill.limit().saturating_sub(fill.fixed);
        Thresholds::scaled(self.0.settings().observe_at, self.0.settings().reflect_at, room)
    }

    /// Returns until when the turn waits.
    fn deadline(&self, cx: &ContextHandle) -> Timestamp {
        cx.clock.now() + cx.time_left().map_or(MAX_WAIT, |left| (left / 2).min(MAX_WAIT))
    }

    /// Returns why buffered notes should be activated now, if they should.
    fn trigger(&self, cx: &ContextHandle, is_full: bool) -> Option<Trigger> {
        if is_full {
            return Some(Trigger::Threshold);
        }
        let gauge = cx.session().state().activity.gauge.model.clone();
        if !gauge.is_empty() && gauge != cx.model {
            return Some(Trigger::ProviderChange);
        }
        let messages = cx.messages();
        let mut newest = messages.iter().rev().map(|(message, _)| message);
        let said = newest.next().filter(|message| message.role == Role::User)?;
        let idle = said.created_at.since(newest.next()?.created_at);
        self.0.settings().idle_after.filter(|limit| idle >= *limit).map(|_| Trigger::Idle)
    }

    /// Replaces messages by the first `count` buffered notes.
    async fn activate(
        &self,
        cx: &ContextHandle,
        trigger: Trigger,
        count: usize,
        deadline: Timestamp,
    ) -> Result<(), BoxError> {
        let last = cx.state().observed.buffered.iter().take(count).next_back().cloned();
        let Some(until) = last.map(|chunk| chunk.to) else { return Ok(()) };
        self.before_drop(cx, until, deadline).await;
        // Some of them may have been activated during the wait.
        let shown = {
            let state = cx.state();
            let waiting = state.observed.buffered.iter().take_while(|chunk| chunk.to <= until);
            waiting.map(|chunk| (chunk.of, chunk.to)).collect::<Vec<_>>()
        };
        let Some((_, to)) = shown.last() else { return Ok(()) };
        cx.record(vec![EventKind::ObservationActivated {
            chunks: shown.len(),
            tokens: shown.iter().map(|(of, _)| of).sum(),
            triggered_by: trigger,
            kept_from: to + 1,
        }])
    }

    /// Runs the follow-ups that must process messages before they are hidden. Those that do not finish in
    /// time read the messages from the log later.
    async fn before_drop(&self, cx: &ContextHandle, until: u64, deadline: Timestamp) {
        let left = deadline.since(cx.clock.now()).min(DROP_TIMEOUT);
        let _ = within(self.0.clock(), left, cx.before_drop(until)).await;
    }

    /// Activates a buffered reflection.
    fn show_reflection(&self, cx: &ContextHandle) -> Result<(), BoxError> {
        let kind = {
            let state = cx.state();
            let Some(chunk) = &state.observed.reflection else { return Ok(()) };
            let generation = state.observed.generation + 1;
            EventKind::ReflectionActivated { generation, tokens: chunk.tokens }
        };
        cx.record(vec![kind])
    }

    /// Takes notes on messages without notes. Returns whether there are more notes now. Records a failure in
    /// the log.
    async fn observe(
        &self,
        cx: &ContextHandle,
        choice: Choice,
        deadline: Timestamp,
    ) -> Result<bool, BoxError> {
        let left = deadline.since(cx.clock.now()).min(MODEL_CALL_TIMEOUT);
        if left.is_zero() {
            return Ok(false);
        }
        let Some(chosen) = self.choose(cx, choice)? else { return Ok(false) };
        let Chosen { from, to, messages } = chosen;
        let tokens = messages.iter().map(|message| tokens::of_message(message)).sum();
        cx.record(vec![EventKind::ObservationStarted(NotesStarted { from, tokens })])?;
        let earlier: Vec<_> = cx.state().observed.chunks().cloned().collect();
        let notes = self.0.observe(&cx.model, &earlier, &messages, left, &cx.spent).await;
        let chunk = match notes {
            Ok(chunk) => Rc::new(Chunk { from, to, ..chunk }),
            Err(error) => {
                let (reason, tokens) = (error.to_string(), pending(cx));
                cx.record(vec![EventKind::ObservationFailed(NotesFailed { reason, tokens })])?;
                return Err(error);
            }
        };
        let is_wait = matches!(choice, Choice::Step(_));
        if !is_wait {
            self.before_drop(cx, to, deadline).await;
        }
        // If another observation finished first, these notes are discarded. `next` is 0 while the start of
        // the first observation is deferred until a streamed message ends.
        if [0, from].contains(&cx.state().observed.next) {
            cx.record(vec![match is_wait {
                true => EventKind::ObservationBuffered(NotesTaken::new(chunk)),
                false => EventKind::ObservationCompleted(NotesTaken::new(chunk)),
            }])?;
        }
        Ok(cx.state().observed.next > from)
    }

    /// Selects the messages to observe next, complete and from the log, whether they are shown or not.
    fn choose(&self, cx: &ContextHandle, choice: Choice) -> Result<Option<Chosen>, BoxError> {
        let from = match cx.state().observed.next {
            // Messages hidden before the first observation stay without notes, in particular if there is a
            // summary.
            0 => {
                let first = cx.messages().first().map_or(0, |(message, _)| message.seq);
                let state = cx.state();
                let is_summed_up = state.cut.summary.as_deref().is_some_and(|text| text != NO_SUMMARY);
                if is_summed_up { first.max(state.cut.kept_from) } else { first }
            }
            next => next,
        };
        let select =
            Select { after: from.saturating_sub(1), kinds: fold::MESSAGE_KINDS, ..Select::default() };
        let (last, session) = (cx.session().last_seq(), cx.session());
        let mut messages: Vec<Rc<Message>> = Vec::new();
        let (mut count, mut bytes, mut is_cut) = (0, 0, false);
        for record in session.records(select) {
            let before = messages.len();
            fold::fold(&mut messages, &record?);
            count += 1;
            bytes += messages.last().filter(|_| messages.len() > before).map_or(0, |new| new.weight());
            // At least two, because the last one may be incomplete.
            is_cut = count == MAX_RECORDS || (bytes > MAX_BYTES && messages.len() > 1);
            if is_cut {
                break;
            }
        }
        let measure = |message: Rc<Message>| {
            let tokens = tokens::of_message(&message);
            (message, tokens)
        };
        let messages: Vec<_> = messages.into_iter().map(measure).collect();
        let mut most = selection::completed(&messages, cx.running_turn().is_some());
        if is_cut {
            // The last message may continue in later records.
            most = selection::align(&messages, most.min(messages.len().saturating_sub(1)));
        }
        let count = match choice {
            Choice::Step(step) => selection::portion(&messages, most, step).unwrap_or(0),
            Choice::But(tail) => selection::all_but_tail(&messages, most, tail),
        };
        let count = selection::limit_to_request(&messages, count, self.0.max_input(&cx.model));
        if count == 0 {
            return Ok(None);
        }
        let to = messages.get(count).map_or(last, |(next, _)| next.seq - 1);
        let messages = messages.into_iter().take(count).map(|(message, _)| message).collect();
        Ok(Some(Chosen { from, to, messages }))
    }

    /// Rewrites the active notes and buffers the result. Records a failure in the log.
    async fn reflect(&self, cx: &ContextHandle, target: u64, deadline: Timestamp) -> Result<(), BoxError> {
        let left = deadline.since(cx.clock.now()).min(MODEL_CALL_TIMEOUT);
        if left.is_zero() {
            return Ok(());
        }
        let (chunks, generation) = {
            let state = cx.state();
            (state.observed.active.clone(), state.observed.generation + 1)
        };
        let tokens = cx.state().observed.tokens();
        cx.record(vec![EventKind::ReflectionStarted(NotesStarted { from: 0, tokens })])?;
        let kind = match self.0.reflect(&cx.model, &chunks, target, left, &cx.spent).await {
            Ok(chunk) => EventKind::ReflectionBuffered(NotesTaken { generation, chunk: Rc::new(chunk) }),
            Err(error) => EventKind::ReflectionFailed(NotesFailed { reason: error.to_string(), tokens }),
        };
        cx.record(vec![kind])
    }

    /// Takes notes while the turn waits, until the messages are below the threshold or no more can be
    /// observed.
    async fn observe_now(
        &self,
        cx: &ContextHandle,
        at: Thresholds,
        trigger: Trigger,
        deadline: Timestamp,
    ) -> Result<(), BoxError> {
        for _ in 0..MAX_ROUNDS {
            if pending(cx) < at.observe || !should_try(cx, at) {
                break;
            }
            self.activate(cx, trigger, usize::MAX, deadline).await?;
            if self.pending_to_observe(cx) < at.step(0)
                || !self.observe(cx, Choice::But(at.tail()), deadline).await?
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the tokens of visible messages without notes that can be observed now.
    fn pending_to_observe(&self, cx: &ContextHandle) -> u64 {
        let (messages, next) = (cx.messages(), cx.state().observed.next);
        let most = selection::completed(&messages, cx.running_turn().is_some());
        messages.iter().take(most).filter(|(message, _)| message.seq >= next).map(|(_, tokens)| tokens).sum()
    }

    async fn keep(&self, cx: &ContextHandle) -> Result<(), BoxError> {
        let (at, deadline) = (self.thresholds(cx), self.deadline(cx));
        if cx.state().observed.tokens() >= at.reflect {
            self.show_reflection(cx)?;
        }
        let hidden = {
            let state = cx.state();
            let is_hidden = |chunk: &&Rc<Chunk>| chunk.from < state.cut.kept_from;
            state.observed.buffered.iter().take_while(is_hidden).count()
        };
        // Their messages are hidden already, so activating these notes loses nothing.
        self.activate(cx, Trigger::Overflow, hidden, deadline).await?;
        let Some(trigger) = self.trigger(cx, pending(cx) >= at.observe) else { return Ok(()) };
        let of: Vec<u64> = cx.state().observed.buffered.iter().map(|chunk| chunk.of).collect();
        self.activate(cx, trigger, selection::activate(&of, pending(cx), at.tail()), deadline).await?;
        self.observe_now(cx, at, trigger, deadline).await
    }

    /// Makes the request fit, by notes if possible and by cuts otherwise.
    async fn make_fit(&self, cx: &ContextHandle, reason: CompactReason) -> Result<(), BoxError> {
        let (at, deadline, before) = (self.thresholds(cx), self.deadline(cx), cx.fill());
        // After an overflow the estimate was wrong by an unknown amount.
        let most = match reason {
            CompactReason::Overflow => before.limit().min(before.fixed + before.messages / 2),
            _ => before.limit(),
        };
        let fits = || cx.fill().total() <= most;
        let trigger = if reason == CompactReason::Request { Trigger::Request } else { Trigger::Overflow };
        self.activate(cx, trigger, usize::MAX, deadline).await?;
        if !fits() || reason == CompactReason::Request {
            self.show_reflection(cx)?;
            let tried = match reason == CompactReason::Request || should_try(cx, at) {
                true => self.observe(cx, Choice::But(at.tail()), deadline).await,
                false => Ok(false),
            };
            let (notes, last) = (cx.state().observed.tokens(), cx.state().observed.reflected_at);
            if !fits() && at.is_reflection_due(notes, last) {
                self.reflect(cx, at.reflect / 2, deadline).await?;
                self.show_reflection(cx)?;
            }
            if reason == CompactReason::Request {
                tried?;
            }
        }
        for _ in 0..MAX_CUTS {
            if fits() || !self.cut(cx, reason, most)? {
                break;
            }
        }
        Ok(())
    }

    /// Hides or shortens messages without notes, so that a request has at most `most` tokens.
    fn cut(&self, cx: &ContextHandle, reason: CompactReason, most: u64) -> Result<bool, BoxError> {
        let (messages, fill) = (cx.messages(), cx.fill());
        let shown: u64 = messages.iter().map(|(_, tokens)| tokens).sum();
        let room = most.saturating_sub(fill.fixed + fill.messages.saturating_sub(shown));
        let whole = selection::completed(&messages, cx.running_turn().is_some());
        let Some(cut) = shrink(&cx.state().cut, &messages, whole, room) else { return Ok(false) };
        let dropped = messages.iter().filter(|(message, _)| message.seq < cut.kept_from).count();
        let left = messages.iter().filter(|(message, _)| message.seq >= cut.kept_from);
        let tokens_after = left.map(|(_, tokens)| tokens).sum();
        let summary_tokens = cut.summary.as_deref().map_or(0, tokens::of_text);
        cx.record(vec![EventKind::CompactionCompleted {
            reason,
            dropped,
            summary_tokens,
            tokens_before: shown,
            tokens_after,
            cut,
        }])?;
        Ok(true)
    }
}

/// The messages selected for an observation, and the records they span.
struct Chosen {
    from: u64,
    to: u64,
    messages: Vec<Rc<Message>>,
}

/// Returns whether to observe now. A failed observation is not retried until the context has grown.
fn should_try(cx: &ContextHandle, at: Thresholds) -> bool {
    at.should_try(pending(cx), cx.state().observed.failed_at)
}

/// Returns the tokens of visible messages without active notes.
fn pending(cx: &ContextHandle) -> u64 {
    let kept_from = cx.state().observed.kept_from();
    cx.messages().iter().filter(|(message, _)| message.seq >= kept_from).map(|(_, tokens)| tokens).sum()
}

/// Returns the tokens of visible messages with neither active nor buffered notes.
fn unseen(cx: &ContextHandle, observed: &Observed) -> u64 {
    cx.messages().iter().filter(|(message, _)| message.seq >= observed.next).map(|(_, tokens)| tokens).sum()
}

#[async_trait(?Send)]
impl ContextStrategy for Observation {
    fn name(&self) -> &'static str {
        "observation"
    }

    async fn before_call(&self, cx: &ContextHandle) {
        // A failure is recorded in the log; the messages are shown as before.
        let _ = self.keep(cx).await;
    }

    async fn make_room(&self, cx: &ContextHandle, reason: CompactReason) -> Result<bool, BoxError> {
        let before = cx.fill().messages;
        self.make_fit(cx, reason).await?;
        Ok(cx.fill().messages < before)
    }

    fn has_work(&self, cx: &ContextHandle) -> bool {
        let at = self.thresholds(cx);
        let state = cx.state();
        let observed = &state.observed;
        let is_reflection_due = || {
            observed.reflection.is_none() && at.is_reflection_due(observed.tokens(), observed.reflected_at)
        };
        unseen(cx, observed) >= at.step(pending(cx)) || is_reflection_due()
    }

    async fn after_turn(&self, cx: &ContextHandle) {
        let (at, deadline) = (self.thresholds(cx), cx.clock.now() + MAX_AFTER_TURN);
        let has_time = || deadline.since(cx.clock.now()) >= MIN_REMAINING;
        for _ in 0..MAX_ROUNDS_AFTER_TURN {
            let step = at.step(pending(cx));
            let unseen = unseen(cx, &cx.state().observed);
            // A failure is recorded in the log, and retried after the next reply.
            if unseen < step
                || !has_time()
                || !self.observe(cx, Choice::Step(step), deadline).await.unwrap_or(false)
            {
                break;
            }
        }
        let (notes, waits, last) = {
            let observed = &cx.state().observed;
            (observed.tokens(), observed.reflection.is_some(), observed.reflected_at)
        };
        if !waits && has_time() && at.is_reflection_due(notes, last) {
            let _ = self.reflect(cx, at.reflect / 2, deadline).await;
        }
    }
}
