//! Lets notes take the place of messages. Notes are taken behind replies, so that a turn seldom waits.

use super::{
    NoteTaker,
    less::less,
    plan::{self, Thresholds},
};
use crate::context::{ContextHandle, ContextStrategy};
use crate::ports::{session_store::Select, within};
use crate::session::{fold, tokens};
use crate::types::{
    Chunk, CompactReason, EventKind, Message, Observed, Role, Timestamp, Trigger,
    observed::{NotTaken, Started, Taken, UNTOLD},
};
use async_trait::async_trait;
use std::rc::Rc;

/// How long a turn waits for all that is done at once, in milliseconds; half of the time that it has left at most.
const WAIT_MS: u64 = 60_000;
/// How long notes may take that nobody waits for, in milliseconds: all behind one reply, in less than what
/// follows replies may take, and one question. Nothing is begun with less than the last.
const AHEAD_MS: u64 = 150_000;
const QUESTION_MS: u64 = 120_000;
const MIN_REMAINING_MS: u64 = 60_000;
/// How long a turn waits for what must see messages before they leave, in milliseconds. It follows behind the
/// turn then: it reads the log.
const DROP_MS: u64 = 30_000;
/// Most observations that one turn's step waits for, and most behind one reply.
const ROUNDS: usize = 3;
const ROUNDS_AHEAD: usize = 8;
/// Most records that one observation reads.
const RECORDS: usize = 2_000;
/// Most cuts that make room where notes do not.
const CUTS: usize = 4;

/// Observation, as a strategy.
pub struct Observation(pub NoteTaker);

/// How an observation chooses its messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// A portion of about so many tokens, for notes that wait.
    Step(u64),
    /// All but so many tokens, for notes that are shown at once.
    But(u64),
}

impl Observation {
    fn thresholds(&self, cx: &ContextHandle) -> Thresholds {
        let fill = cx.fill();
        let room = fill.limit().saturating_sub(fill.fixed);
        Thresholds::scaled(self.0.settings().observe_at, self.0.settings().reflect_at, room)
    }

    /// Until when the turn waits, for whatever is done for it from now on.
    fn deadline(&self, cx: &ContextHandle) -> Timestamp {
        cx.clock.now().plus(cx.left_ms().map_or(WAIT_MS, |left| (left / 2).min(WAIT_MS)))
    }

    /// Why notes that wait should be shown now, if they should.
    fn trigger(&self, cx: &ContextHandle, is_full: bool) -> Option<Trigger> {
        if is_full {
            return Some(Trigger::Threshold);
        }
        let gauge = cx.session().state().gauge.model.clone();
        if !gauge.is_empty() && gauge != cx.model {
            return Some(Trigger::ProviderChange);
        }
        let messages = cx.messages();
        let mut newest = messages.iter().rev().map(|(message, _)| message);
        let said = newest.next().filter(|message| message.role == Role::User)?;
        let idle = said.created_at.since(newest.next()?.created_at);
        self.0.settings().idle_ms.filter(|ms| idle >= *ms).map(|_| Trigger::Idle)
    }

    /// Shows the first `count` of the notes that wait in the place of their messages.
    async fn activate(
        &self,
        cx: &ContextHandle,
        trigger: Trigger,
        count: usize,
        deadline: Timestamp,
    ) -> Result<(), String> {
        let last = cx.state().observed.buffered.iter().take(count).next_back().cloned();
        let Some(until) = last.map(|chunk| chunk.to) else { return Ok(()) };
        self.before_drop(cx, until, deadline).await;
        // Others may have shown them meanwhile: what is there now counts.
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

    /// Has those see messages who must before they leave. Whoever cannot now reads them in the log later.
    async fn before_drop(&self, cx: &ContextHandle, until: u64, deadline: Timestamp) {
        let ms = deadline.since(cx.clock.now()).min(DROP_MS);
        let _ = within(self.0.clock(), ms, cx.before_drop(until)).await;
    }

    /// Shows rewritten notes that wait.
    fn show_reflection(&self, cx: &ContextHandle) -> Result<(), String> {
        let kind = {
            let state = cx.state();
            let Some(chunk) = &state.observed.reflection else { return Ok(()) };
            let generation = state.observed.generation + 1;
            EventKind::ReflectionActivated { generation, tokens: chunk.tokens }
        };
        cx.record(vec![kind])
    }

    /// Takes notes on the messages that nobody has taken notes on. Returns whether there are more notes now.
    /// A failure is told in the log.
    async fn observe(&self, cx: &ContextHandle, choice: Choice, deadline: Timestamp) -> Result<bool, String> {
        let ms = deadline.since(cx.clock.now()).min(QUESTION_MS);
        if ms == 0 {
            return Ok(false);
        }
        let Some(chosen) = self.choose(cx, choice)? else { return Ok(false) };
        let Chosen { from, to, messages } = chosen;
        let tokens = messages.iter().map(|message| tokens::of_message(message)).sum();
        cx.record(vec![EventKind::ObservationStarted(Started { from, tokens })])?;
        let earlier: Vec<_> = cx.state().observed.chunks().cloned().collect();
        let notes = self.0.observe(&cx.model, &earlier, &messages, ms).await;
        let chunk = match notes {
            Ok(chunk) => Rc::new(Chunk { from, to, ..chunk }),
            Err(reason) => {
                cx.record(vec![EventKind::ObservationFailed(NotTaken {
                    reason: reason.clone(),
                    tokens: pending(cx),
                })])?;
                return Err(reason);
            }
        };
        let is_wait = matches!(choice, Choice::Step(_));
        if !is_wait {
            self.before_drop(cx, to, deadline).await;
        }
        // Somebody else may have been faster: then these notes are of no use. Zero is where the record of the
        // beginning waits for the end of a message.
        if [0, from].contains(&cx.state().observed.next) {
            cx.record(vec![match is_wait {
                true => EventKind::ObservationBuffered(Taken::new(chunk)),
                false => EventKind::ObservationCompleted(Taken::new(chunk)),
            }])?;
        }
        Ok(cx.state().observed.next > from)
    }

    /// The messages to take notes on next, whole and from the log, whatever of them is shown.
    fn choose(&self, cx: &ContextHandle, choice: Choice) -> Result<Option<Chosen>, String> {
        let from = match cx.state().observed.next {
            // What had left the context before is not gone back to; less still where a summary stands for it.
            0 => {
                let first = cx.messages().first().map_or(0, |(message, _)| message.seq);
                let state = cx.state();
                let is_summed_up = state.cut.summary.as_deref().is_some_and(|text| text != UNTOLD);
                if is_summed_up { first.max(state.cut.kept_from) } else { first }
            }
            next => next,
        };
        let select = Select {
            after: from.saturating_sub(1),
            kinds: fold::MESSAGE_KINDS,
            limit: RECORDS,
            ..Select::default()
        };
        let (last, session) = (cx.session().last_seq(), cx.session());
        let records = session.records(select).map_err(|error| error.to_string())?;
        let mut messages = Vec::new();
        for record in &records {
            fold::fold(&mut messages, record);
        }
        let measure = |message: Rc<Message>| {
            let tokens = tokens::of_message(&message);
            (message, tokens)
        };
        let messages: Vec<_> = messages.into_iter().map(measure).collect();
        let mut most = plan::completed(&messages, cx.running_turn().is_some());
        if records.len() == RECORDS {
            // The last one may go on in the records behind.
            most = plan::aligned(&messages, most.min(messages.len().saturating_sub(1)));
        }
        let count = match choice {
            Choice::Step(step) => plan::portion(&messages, most, step).unwrap_or(0),
            Choice::But(tail) => plan::but_tail(&messages, most, tail),
        };
        let count = plan::capped(&messages, count, self.0.most(&cx.model));
        if count == 0 {
            return Ok(None);
        }
        let to = messages.get(count).map_or(last, |(next, _)| next.seq - 1);
        let messages = messages.into_iter().take(count).map(|(message, _)| message).collect();
        Ok(Some(Chosen { from, to, messages }))
    }

    /// Rewrites the notes that are shown, and lets the new ones wait. A failure is told in the log.
    async fn reflect(&self, cx: &ContextHandle, target: u64, deadline: Timestamp) -> Result<(), String> {
        let ms = deadline.since(cx.clock.now()).min(QUESTION_MS);
        if ms == 0 {
            return Ok(());
        }
        let (chunks, generation) = {
            let state = cx.state();
            (state.observed.active.clone(), state.observed.generation + 1)
        };
        let tokens = cx.state().observed.tokens();
        cx.record(vec![EventKind::ReflectionStarted(Started { from: 0, tokens })])?;
        let kind = match self.0.reflect(&cx.model, &chunks, target, ms).await {
            Ok(chunk) => EventKind::ReflectionBuffered(Taken { generation, chunk: Rc::new(chunk) }),
            Err(reason) => EventKind::ReflectionFailed(NotTaken { reason, tokens }),
        };
        cx.record(vec![kind])
    }

    /// Observes while the turn waits, until the messages are few enough or nothing more can be observed.
    async fn observe_now(
        &self,
        cx: &ContextHandle,
        at: Thresholds,
        trigger: Trigger,
        deadline: Timestamp,
    ) -> Result<(), String> {
        for _ in 0..ROUNDS {
            if pending(cx) < at.observe || !is_worth_a_try(cx, at) {
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

    /// Tokens of what is shown and may be observed now.
    fn pending_to_observe(&self, cx: &ContextHandle) -> u64 {
        let (messages, next) = (cx.messages(), cx.state().observed.next);
        let most = plan::completed(&messages, cx.running_turn().is_some());
        messages.iter().take(most).filter(|(message, _)| message.seq >= next).map(|(_, tokens)| tokens).sum()
    }

    async fn keep(&self, cx: &ContextHandle) -> Result<(), String> {
        let (at, deadline) = (self.thresholds(cx), self.deadline(cx));
        if cx.state().observed.tokens() >= at.reflect {
            self.show_reflection(cx)?;
        }
        let hidden = {
            let state = cx.state();
            let is_hidden = |chunk: &&Rc<Chunk>| chunk.from < state.cut.kept_from;
            state.observed.buffered.iter().take_while(is_hidden).count()
        };
        // Of what is not shown anyway, notes are better than nothing.
        self.activate(cx, Trigger::Overflow, hidden, deadline).await?;
        let Some(trigger) = self.trigger(cx, pending(cx) >= at.observe) else { return Ok(()) };
        let of: Vec<u64> = cx.state().observed.buffered.iter().map(|chunk| chunk.of).collect();
        self.activate(cx, trigger, plan::activate(&of, pending(cx), at.tail()), deadline).await?;
        self.observe_now(cx, at, trigger, deadline).await
    }

    /// Makes the request fit, whatever it takes.
    async fn make_fit(&self, cx: &ContextHandle, reason: CompactReason) -> Result<(), String> {
        let (at, deadline, before) = (self.thresholds(cx), self.deadline(cx), cx.fill());
        // What was estimated to fit did not, and nobody knows by how much.
        let most = match reason {
            CompactReason::Overflow => before.limit().min(before.fixed + before.messages / 2),
            _ => before.limit(),
        };
        let fits = || cx.fill().total() <= most;
        let trigger = if reason == CompactReason::Request { Trigger::Request } else { Trigger::Overflow };
        self.activate(cx, trigger, usize::MAX, deadline).await?;
        if !fits() || reason == CompactReason::Request {
            self.show_reflection(cx)?;
            let tried = match reason == CompactReason::Request || is_worth_a_try(cx, at) {
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
        for _ in 0..CUTS {
            if fits() || !self.cut(cx, reason, most)? {
                break;
            }
        }
        Ok(())
    }

    /// Shows less of the messages, without a note, so that a request has `most` tokens.
    fn cut(&self, cx: &ContextHandle, reason: CompactReason, most: u64) -> Result<bool, String> {
        let (messages, fill) = (cx.messages(), cx.fill());
        let shown: u64 = messages.iter().map(|(_, tokens)| tokens).sum();
        let room = most.saturating_sub(fill.fixed + fill.messages.saturating_sub(shown));
        let whole = plan::completed(&messages, cx.running_turn().is_some());
        let Some(cut) = less(&cx.state().cut, &messages, whole, room) else { return Ok(false) };
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

/// What was chosen to be observed.
struct Chosen {
    from: u64,
    to: u64,
    messages: Vec<Rc<Message>>,
}

/// Whether notes may be taken now, after they could not: what failed fails again, as long as little has changed.
fn is_worth_a_try(cx: &ContextHandle, at: Thresholds) -> bool {
    at.is_worth_a_try(pending(cx), cx.state().observed.failed_at)
}

/// Tokens of the messages that are shown and that no note stands for.
fn pending(cx: &ContextHandle) -> u64 {
    let kept_from = cx.state().observed.kept_from();
    cx.messages().iter().filter(|(message, _)| message.seq >= kept_from).map(|(_, tokens)| tokens).sum()
}

/// Tokens of those of them that no note waits for.
fn unseen(cx: &ContextHandle, observed: &Observed) -> u64 {
    cx.messages().iter().filter(|(message, _)| message.seq >= observed.next).map(|(_, tokens)| tokens).sum()
}

#[async_trait(?Send)]
impl ContextStrategy for Observation {
    fn name(&self) -> &'static str {
        "observation"
    }

    async fn before_call(&self, cx: &ContextHandle) {
        // What failed stands in the log; the messages are shown as before.
        let _ = self.keep(cx).await;
    }

    async fn make_room(&self, cx: &ContextHandle, reason: CompactReason) -> Result<bool, String> {
        let before = cx.fill().messages;
        self.make_fit(cx, reason).await?;
        Ok(cx.fill().messages < before)
    }

    async fn after_turn(&self, cx: &ContextHandle) {
        let (at, deadline) = (self.thresholds(cx), cx.clock.now().plus(AHEAD_MS));
        let has_time = || deadline.since(cx.clock.now()) >= MIN_REMAINING_MS;
        for _ in 0..ROUNDS_AHEAD {
            let step = at.step(pending(cx));
            let unseen = unseen(cx, &cx.state().observed);
            // It is told in the log, and tried again behind the next reply.
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
