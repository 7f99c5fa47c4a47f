//! Decides which part of a conversation stays visible, from its messages and their tokens.

use super::Limits;
use crate::session::{tokens, window::shorten};
use crate::types::{CompactReason, Cut, Message, Part, Role};
use std::rc::Rc;

/// Tokens of the newest tool output that stays complete if there is room.
const PROTECTED_TOKENS: u64 = 40_000;
/// Minimum saving in tokens for which the conversation is changed; less if the window is small.
const MIN_SAVING: u64 = 20_000;
/// Share of the limit below which no further reduction is needed, in percent.
const TARGET_PERCENT: u64 = 80;
/// Tokens that a summary takes in addition to its text.
const SUMMARY_OVERHEAD: u64 = 96;
/// Other messages are shortened to this many characters before the user's last message is shortened.
const OTHERS_MIN_CHARS: usize = 512;
/// Minimum length of a piece of a shortened message, in characters.
const MIN_CHARS: usize = 64;

/// A conversation as it is currently shown.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The current cut.
    pub cut: &'a Cut,
    /// Messages with their tokens, oldest first, without the summary.
    pub messages: &'a [(Rc<Message>, u64)],
    /// Tokens of the request that are not part of the conversation.
    pub fixed: u64,
    /// Tokens of the summary.
    pub head: u64,
    /// Index from which messages belong to a running turn and stay unchanged.
    pub open_from: usize,
}

/// The result of reducing a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The new cut, with the summary still to be replaced.
    pub cut: Cut,
    /// Number of messages before the kept ones: these must be summarized.
    pub before: usize,
    /// Number of these messages that are no longer shown.
    pub dropped: usize,
    /// Tokens of the messages that are shown.
    pub after: u64,
}

impl View<'_> {
    /// Returns the tokens of the entire request.
    pub fn total(&self) -> u64 {
        self.fixed + self.head + self.messages.iter().map(|(_, tokens)| tokens).sum::<u64>()
    }

    /// Returns the index of the user's last message, which is always shown.
    fn last_user(&self) -> Option<usize> {
        self.messages.iter().rposition(|(message, _)| message.role == Role::User)
    }

    fn next(&self) -> Cut {
        Cut { number: self.cut.number + 1, ..self.cut.clone() }
    }
}

/// Reduces the conversation: without loss of messages if that suffices, otherwise by dropping the messages
/// before the kept end. `most` is a hard limit for the tokens of the request; without it no message is
/// shortened. Returns `None` when there is nothing to drop.
pub fn reduce(
    view: &View<'_>,
    limits: &Limits,
    reason: CompactReason,
    most: Option<u64>,
) -> Option<Reduction> {
    let shows_less = matches!(reason, CompactReason::Tokens | CompactReason::Overflow);
    if shows_less && let Some(reduction) = shorten_tool_output(view, limits, most) {
        return Some(reduction);
    }
    let room = most.map(|most| most.saturating_sub(view.fixed + limits.summary + SUMMARY_OVERHEAD));
    let start = kept_start(view, limits, room.unwrap_or(u64::MAX)).min(view.open_from);
    let last_user = view.last_user().filter(|last_user| *last_user < start);
    let dropped = start - usize::from(last_user.is_some());
    let (left, kept) = view.messages.split_at_checked(start)?;
    let saved: u64 = left.iter().map(|(_, tokens)| tokens).sum();
    let kept_user = last_user.and_then(|last_user| view.messages.get(last_user));
    let saved = saved - kept_user.map_or(0, |(_, tokens)| *tokens);
    let few = reason == CompactReason::Tokens && most.is_none() && saved < min_saving(limits);
    if dropped == 0 || few {
        return most.and_then(|most| shorten_messages(view, limits, most));
    }
    let mut cut = view.next();
    cut.kept_from = kept.first().map_or(cut.kept_from, |(message, _)| message.seq);
    if cut.brief_before <= cut.kept_from {
        cut.brief_before = 0;
    }
    let spared_seq = kept_user.map(|(message, _)| message.seq);
    cut.parted.retain(|(seq, _)| *seq >= cut.kept_from || Some(*seq) == spared_seq);
    let shown: Vec<_> = kept_user.into_iter().chain(kept).cloned().collect();
    let after = fit(&shown, room.unwrap_or(u64::MAX), &mut cut);
    Some(Reduction { cut, before: start, dropped, after })
}

/// Shortens messages that are too long for a request of `most` tokens, without dropping any. Returns `None`
/// when this gains nothing.
fn shorten_messages(view: &View<'_>, limits: &Limits, most: u64) -> Option<Reduction> {
    let (mut cut, mut head) = (view.next(), view.head);
    if view.total() > most && head > limits.summary + SUMMARY_OVERHEAD {
        // The summary was made for a larger window.
        cut.summary = cut.summary.map(|summary| tokens::within(summary, limits.summary).0);
        head = limits.summary + SUMMARY_OVERHEAD;
    }
    let after = fit(view.messages, most.saturating_sub(view.fixed + head), &mut cut);
    let less = cut.parted != view.cut.parted || cut.summary != view.cut.summary;
    less.then_some(Reduction { cut, before: 0, dropped: 0, after })
}

/// Shortens older tool calls and results, if that gains enough.
fn shorten_tool_output(view: &View<'_>, limits: &Limits, most: Option<u64>) -> Option<Reduction> {
    let last = (*boundaries(view.messages).last()?).min(view.open_from);
    let protected = if most.is_some() { 0 } else { PROTECTED_TOKENS.min(limits.at_tokens / 4) };
    let mut output = 0;
    let first = view.messages.iter().enumerate().rev().find(|(index, (message, tokens))| {
        let has_calls = message.calls().next().is_some();
        output += if message.role == Role::Tool || has_calls { *tokens } else { 0 };
        *index < last && output > protected
    });
    let (index, _) = first?;
    let mut cut = view.next();
    cut.brief_before = view.messages.get(index + 1).map_or(0, |(message, _)| message.seq);
    let older = view.messages.get(..=index)?.iter();
    let saved: u64 = older.map(|(message, tokens)| tokens - brief_tokens(message, *tokens)).sum();
    let worth = if most.is_some() { 1 } else { min_saving(limits) };
    let bound = most.unwrap_or(limits.at_tokens * TARGET_PERCENT / 100);
    let enough = saved >= worth && view.total() - saved < bound;
    let messages: u64 = view.messages.iter().map(|(_, tokens)| tokens).sum();
    enough.then_some(Reduction { cut, before: 0, dropped: 0, after: messages - saved })
}

fn min_saving(limits: &Limits) -> u64 {
    MIN_SAVING.min(limits.at_tokens / 8)
}

fn brief_tokens(message: &Rc<Message>, tokens: u64) -> u64 {
    let mut brief = Rc::clone(message);
    shorten::brief(&mut brief);
    if Rc::ptr_eq(&brief, message) { tokens } else { tokens::of_message(&brief).min(tokens) }
}

/// Returns the index at which the kept end starts: as early as the limits and `room` allow, but not after the
/// start of the last step.
fn kept_start(view: &View<'_>, limits: &Limits, room: u64) -> usize {
    let (last_user, most) = (view.last_user(), limits.keep_tokens.min(room));
    let cost = |start: usize| {
        let kept = view.messages.iter().skip(start).map(|(_, tokens)| tokens).sum::<u64>();
        let last_user = last_user
            .filter(|last_user| *last_user < start)
            .and_then(|last_user| view.messages.get(last_user));
        kept + last_user.map_or(0, |(_, tokens)| *tokens)
    };
    let mut starts = boundaries(view.messages).into_iter().rev();
    let mut start = starts.next().unwrap_or(0);
    for earlier in starts {
        let messages = view.messages.len() - earlier;
        if messages > limits.keep_messages || cost(earlier) > most {
            break;
        }
        start = earlier;
    }
    start
}

/// Returns the indices at which the conversation may be cut: those that do not separate a call from its
/// results.
fn boundaries(messages: &[(Rc<Message>, u64)]) -> Vec<usize> {
    let mut open: Vec<bool> = messages.iter().map(|(message, _)| message.role != Role::Tool).collect();
    for (index, (message, _)) in messages.iter().enumerate() {
        for part in &message.parts {
            let Part::ToolResult { call_id, .. } = part else { continue };
            // The call is usually the message before.
            let call = messages.get(..index).unwrap_or_default().iter().rposition(|(message, _)| {
                let mut calls = message.calls();
                calls.any(|call| call.call_id == *call_id)
            });
            let between = call.map_or(index, |call| call + 1);
            open.iter_mut().take(index + 1).skip(between).for_each(|open| *open = false);
        }
    }
    if let Some(first) = open.first_mut() {
        *first = true;
    }
    open.into_iter().enumerate().filter_map(|(index, open)| open.then_some(index)).collect()
}

/// Shortens the longest messages until all fit into `room` tokens, halving the length of their pieces each
/// time. The user's last message comes last. Returns the resulting tokens.
fn fit(messages: &[(Rc<Message>, u64)], room: u64, cut: &mut Cut) -> u64 {
    let mut sizes: Vec<u64> = messages.iter().map(|(_, tokens)| *tokens).collect();
    let last_user = messages.iter().rposition(|(message, _)| message.role == Role::User);
    for (kept_user, shortest) in [(last_user, OTHERS_MIN_CHARS), (None, MIN_CHARS)] {
        halve(messages, &mut sizes, kept_user, shortest, room, cut);
    }
    sizes.iter().sum()
}

fn halve(
    messages: &[(Rc<Message>, u64)],
    sizes: &mut [u64],
    kept_user: Option<usize>,
    shortest: usize,
    room: u64,
    cut: &mut Cut,
) {
    let mut chars = messages.iter().map(|(message, _)| message.weight()).max().unwrap_or(0);
    while sizes.iter().sum::<u64>() > room && chars > shortest {
        chars = (chars / 2).max(shortest);
        for (index, ((message, whole), size)) in messages.iter().zip(sizes.iter_mut()).enumerate() {
            if kept_user == Some(index) {
                continue;
            }
            let thinks = message.parts.iter().any(|part| matches!(part, Part::Reasoning { .. }));
            if message.weight() <= chars && !thinks {
                continue;
            }
            let mut part = Rc::clone(message);
            shorten::part(&mut part, chars);
            let tokens = tokens::of_message(&part);
            if tokens < *whole {
                *size = tokens.min(*size);
                if cut.chars(message.seq).is_none_or(|shown| chars < shown) {
                    cut.parted.retain(|(seq, _)| *seq != message.seq);
                    cut.parted.push((message.seq, chars));
                }
            }
        }
    }
}
