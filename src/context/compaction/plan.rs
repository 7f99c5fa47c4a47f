//! What is still shown of a conversation: decided from its messages and their tokens alone.

use super::Limits;
use crate::fault::{self, Fault};
use crate::session::{tokens, window::shorten};
use crate::types::{CompactReason, Cut, Message, Part, Role};
use std::rc::Rc;

/// Tokens of the newest output of tools that stay whole where there is room for them.
const PROTECTED: u64 = 40_000;
/// Fewest tokens for which the conversation is touched; less where the window is small.
const WORTHWHILE: u64 = 20_000;
/// Share of the bound that a request may have so that nothing more needs to be done, in percent.
const CLEARLY: u64 = 80;
/// What a summary takes beside its text, in tokens.
const HEAD: u64 = 96;
/// To this many characters all else is shortened before what the user asked last is.
const SHORT: usize = 512;
/// Shortest piece of a message that is shown in part, in characters.
const SHORTEST: usize = 64;

/// A conversation as it is shown now.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What decides on it.
    pub cut: &'a Cut,
    /// Its messages, oldest first, with their tokens; the summary is not among them.
    pub messages: &'a [(Rc<Message>, u64)],
    /// Tokens of the request beside the conversation.
    pub fixed: u64,
    /// Tokens of the summary.
    pub head: u64,
    /// From here on messages belong to a turn that runs beside this, and stay as they are.
    pub open_from: usize,
}

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What decides on it; the summary is the one before.
    pub cut: Cut,
    /// So many of the messages stand before what is kept: they are to be summed up.
    pub before: usize,
    /// How many of them are not shown any more.
    pub dropped: usize,
    /// Tokens of the messages that are shown.
    pub after: u64,
}

impl View<'_> {
    /// Tokens of the whole request.
    pub fn total(&self) -> u64 {
        self.fixed + self.head + self.messages.iter().map(|(_, tokens)| tokens).sum::<u64>()
    }

    /// The last message of the user: it is always shown.
    fn asked(&self) -> Option<usize> {
        if fault::active(Fault::DropUserMessage) {
            return None;
        }
        self.messages.iter().rposition(|(message, _)| message.role == Role::User)
    }

    fn next(&self) -> Cut {
        Cut { number: self.cut.number + 1, ..self.cut.clone() }
    }
}

/// Makes the conversation shorter: by what costs nothing if that is enough, else by leaving out what is
/// before its end. `most` is what the request must not have more of, whatever that costs; without it messages
/// stay whole. None when there is nothing to leave out.
pub fn plan(view: &View<'_>, limits: &Limits, reason: CompactReason, most: Option<u64>) -> Option<Plan> {
    let shows_less = matches!(reason, CompactReason::Tokens | CompactReason::Overflow);
    if shows_less && let Some(plan) = briefer(view, limits, most) {
        return Some(plan);
    }
    let room = most.map(|most| most.saturating_sub(view.fixed + limits.summary + HEAD));
    let start = tail(view, limits, room.unwrap_or(u64::MAX)).min(view.open_from);
    let asked = view.asked().filter(|asked| *asked < start);
    let dropped = start - usize::from(asked.is_some());
    let (left, kept) = view.messages.split_at_checked(start)?;
    let won: u64 = left.iter().map(|(_, tokens)| tokens).sum();
    let spared = asked.and_then(|asked| view.messages.get(asked));
    let won = won - spared.map_or(0, |(_, tokens)| *tokens);
    let few = reason == CompactReason::Tokens && most.is_none() && won < worthwhile(limits);
    if dropped == 0 || few {
        return most.and_then(|most| squeezed(view, limits, most));
    }
    let mut cut = view.next();
    cut.kept_from = kept.first().map_or(cut.kept_from, |(message, _)| message.seq);
    if cut.brief_before <= cut.kept_from {
        cut.brief_before = 0;
    }
    let spared_seq = spared.map(|(message, _)| message.seq);
    cut.parted.retain(|(seq, _)| *seq >= cut.kept_from || Some(*seq) == spared_seq);
    let shown: Vec<_> = spared.into_iter().chain(kept).cloned().collect();
    let after = fit(&shown, room.unwrap_or(u64::MAX), &mut cut);
    Some(Plan { cut, before: start, dropped, after })
}

/// Shows in part what is too long for a request of `most` tokens, and leaves out nothing. None when nothing
/// gets shorter by that.
fn squeezed(view: &View<'_>, limits: &Limits, most: u64) -> Option<Plan> {
    let (mut cut, mut head) = (view.next(), view.head);
    if view.total() > most && head > limits.summary + HEAD {
        // It was made for a larger window.
        cut.summary = cut.summary.map(|summary| tokens::within(summary, limits.summary).0);
        head = limits.summary + HEAD;
    }
    let after = fit(view.messages, most.saturating_sub(view.fixed + head), &mut cut);
    let less = cut.parted != view.cut.parted || cut.summary != view.cut.summary;
    less.then_some(Plan { cut, before: 0, dropped: 0, after })
}

/// Shows short what tools got and gave some time ago, if that is worth it and enough.
fn briefer(view: &View<'_>, limits: &Limits, most: Option<u64>) -> Option<Plan> {
    let last = (*boundaries(view.messages).last()?).min(view.open_from);
    let protected = if most.is_some() { 0 } else { PROTECTED.min(limits.at_tokens / 4) };
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
    let won: u64 = older.map(|(message, tokens)| tokens - brief_tokens(message, *tokens)).sum();
    let worth = if most.is_some() { 1 } else { worthwhile(limits) };
    let bound = most.unwrap_or(limits.at_tokens * CLEARLY / 100);
    let enough = won >= worth && view.total() - won < bound;
    let messages: u64 = view.messages.iter().map(|(_, tokens)| tokens).sum();
    enough.then_some(Plan { cut, before: 0, dropped: 0, after: messages - won })
}

fn worthwhile(limits: &Limits) -> u64 {
    WORTHWHILE.min(limits.at_tokens / 8)
}

fn brief_tokens(message: &Rc<Message>, tokens: u64) -> u64 {
    let mut brief = Rc::clone(message);
    shorten::brief(&mut brief);
    if Rc::ptr_eq(&brief, message) { tokens } else { tokens::of_message(&brief).min(tokens) }
}

/// Where the end that is kept starts: as far back as its bounds and `room` allow, but no later than the last
/// step.
fn tail(view: &View<'_>, limits: &Limits, room: u64) -> usize {
    let (asked, most) = (view.asked(), limits.keep_tokens.min(room));
    let cost = |start: usize| {
        let kept = view.messages.iter().skip(start).map(|(_, tokens)| tokens).sum::<u64>();
        let asked = asked.filter(|asked| *asked < start).and_then(|asked| view.messages.get(asked));
        kept + asked.map_or(0, |(_, tokens)| *tokens)
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

/// Where the conversation may be cut: no call is parted from its results.
fn boundaries(messages: &[(Rc<Message>, u64)]) -> Vec<usize> {
    if fault::active(Fault::SplitPairs) {
        return (0..messages.len()).collect();
    }
    let mut open: Vec<bool> = messages.iter().map(|(message, _)| message.role != Role::Tool).collect();
    for (index, (message, _)) in messages.iter().enumerate() {
        for part in &message.parts {
            let Part::ToolResult { call_id, .. } = part else { continue };
            // Mostly right before it.
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

/// Shows the longest messages in part, half as much of each piece again and again, until all have `room`
/// tokens; what the user asked last only when the others have become short. Returns how many they have.
fn fit(messages: &[(Rc<Message>, u64)], room: u64, cut: &mut Cut) -> u64 {
    let mut sizes: Vec<u64> = messages.iter().map(|(_, tokens)| *tokens).collect();
    let asked = messages.iter().rposition(|(message, _)| message.role == Role::User);
    for (spared, shortest) in [(asked, SHORT), (None, SHORTEST)] {
        halve(messages, &mut sizes, spared, shortest, room, cut);
    }
    sizes.iter().sum()
}

fn halve(
    messages: &[(Rc<Message>, u64)],
    sizes: &mut [u64],
    spared: Option<usize>,
    shortest: usize,
    room: u64,
    cut: &mut Cut,
) {
    let mut chars = messages.iter().map(|(message, _)| message.weight()).max().unwrap_or(0);
    while sizes.iter().sum::<u64>() > room && chars > shortest {
        chars = (chars / 2).max(shortest);
        for (index, ((message, whole), size)) in messages.iter().zip(sizes.iter_mut()).enumerate() {
            if spared == Some(index) {
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
