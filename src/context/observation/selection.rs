//! Selects the messages to observe and the notes to activate.

use crate::types::{Message, Part, Role};
use std::rc::Rc;

/// Messages with their tokens, oldest first.
pub type Measured = [(Rc<Message>, u64)];

/// Minimum number of tokens of messages for an observation, for any window size.
const MIN_TOKENS: u64 = 500;

/// The thresholds of observation, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Messages of this many tokens are observed.
    pub observe: u64,
    /// Notes of this many tokens are rewritten.
    pub reflect: u64,
}

impl Thresholds {
    /// Returns these thresholds, limited to half (messages) and a third (notes) of the `room` for the
    /// conversation.
    pub fn scaled(observe: u64, reflect: u64, room: u64) -> Self {
        let fits = |share: u64| share.max(MIN_TOKENS);
        Self { observe: observe.min(fits(room / 2)), reflect: reflect.min(fits(room / 3)) }
    }

    /// Returns about how many tokens of messages stay visible.
    pub fn tail(&self) -> u64 {
        self.observe / 5
    }

    /// Returns about how many tokens of messages are observed ahead at once: less if the threshold is near.
    pub fn step(&self, pending: u64) -> u64 {
        let step = (self.observe / 5).max(1);
        if pending + step >= self.observe { step.div_ceil(2) } else { step }
    }

    /// Returns whether observation should be attempted with `pending` tokens of messages. After a failure
    /// with `failed` tokens (0 for none) it waits until the number has changed enough for another result.
    pub fn should_try(&self, pending: u64, failed: u64) -> bool {
        failed == 0 || pending.abs_diff(failed) >= self.step(0)
    }

    /// Returns whether notes should be rewritten ahead: they have reached half of their threshold and have
    /// grown since the last time.
    pub fn is_reflection_due(&self, notes: u64, last: u64) -> bool {
        notes >= self.reflect / 2 && notes >= last + self.reflect / 5
    }
}

/// Returns how many messages may be observed: all that are complete. A call without its result is not
/// complete, and neither is the last step of a running turn, whose results the model has not read yet.
pub fn completed(messages: &Measured, in_turn: bool) -> usize {
    let role = |role: Role| messages.iter().rposition(|(message, _)| message.role == role);
    let step =
        role(Role::Assistant).filter(|step| in_turn && role(Role::User).is_none_or(|user| user < *step));
    let has_result = |id: &str| {
        messages.iter().flat_map(|(message, _)| &message.parts).any(|part| match part {
            Part::ToolResult { call_id, .. } => call_id == id,
            _ => false,
        })
    };
    let is_open = |message: &Message| message.calls().any(|call| !has_result(&call.call_id));
    let open = messages.iter().position(|(message, _)| is_open(message));
    step.into_iter().chain(open).min().unwrap_or(messages.len())
}

/// Returns the largest number of messages, up to `most`, that can be separated from the rest without
/// separating results from their calls.
pub fn align(messages: &Measured, most: usize) -> usize {
    let is_result = |at: usize| messages.get(at).is_some_and(|(message, _)| message.role == Role::Tool);
    let mut count = most.min(messages.len());
    while count > 0 && is_result(count) {
        count -= 1;
    }
    count
}

/// Limits a number of messages to what fits into one request of `most` tokens. Returns at least one message,
/// and separates results from their calls only if there is no other way.
pub fn limit_to_request(messages: &Measured, count: usize, most: u64) -> usize {
    let mut tokens = 0;
    let fits = messages.iter().take_while(|(_, own)| {
        tokens += own;
        tokens <= most
    });
    let fits = fits.count();
    if count <= fits {
        return count;
    }
    let is_end = |end: &usize| align(messages, *end) == *end;
    (1..=fits).rfind(is_end).or_else(|| (1..=count).find(is_end)).unwrap_or(0)
}

/// Returns how many messages to observe so that about `tail` tokens remain after them.
pub fn all_but_tail(messages: &Measured, most: usize, tail: u64) -> usize {
    let mut count = messages.len();
    let mut stays = 0;
    for (at, (_, tokens)) in messages.iter().enumerate().rev() {
        stays += tokens;
        if stays > tail {
            break;
        }
        count = at;
    }
    align(messages, count.min(most))
}

/// Returns the smallest number of messages, up to `most`, that have at least `step` tokens and can be
/// separated from the rest. Returns `None` if there are not enough tokens.
pub fn portion(messages: &Measured, most: usize, step: u64) -> Option<usize> {
    let mut tokens = 0;
    let mut count = 0;
    for (_, own) in messages.iter().take(most) {
        tokens += own;
        count += 1;
        if tokens >= step && align(messages, count) == count {
            return Some(count);
        }
    }
    None
}

/// Returns how many buffered chunks to activate so that about `tail` of the `pending` tokens of messages
/// remain. `chunks` holds the tokens of the messages of each chunk. Prefers the first end of a chunk that
/// leaves no more than `tail`; if that leaves next to nothing, the one before.
pub fn activate(chunks: &[u64], pending: u64, tail: u64) -> usize {
    let target = pending.saturating_sub(tail);
    let (mut taken, mut under) = (0, 0);
    for (at, tokens) in chunks.iter().enumerate() {
        taken += tokens;
        if taken < target {
            under = at + 1;
            continue;
        }
        let overshoots = (taken - target) * 100 > tail * 95;
        let leaves_nothing = pending.saturating_sub(taken) < tail.min(1_000);
        // One chunk that takes too much is better than none.
        return if (overshoots || leaves_nothing) && under > 0 { under } else { at + 1 };
    }
    under
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Timestamp, ToolCall, ToolOutcome, TurnId};
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn activation_leaves_a_fifth_of_the_messages() {
        assert_eq!(activate(&[6_000; 5], 30_000, 6_000), 4);
        assert_eq!(activate(&[6_000; 4], 30_000, 6_000), 4);
        assert_eq!(activate(&[6_000; 3], 30_000, 6_000), 3, "all there are");
        assert_eq!(activate(&[20_000, 9_900], 30_000, 6_000), 1, "the second leaves next to nothing");
        assert_eq!(activate(&[20_000, 9_000], 30_000, 6_000), 2);
        assert_eq!(activate(&[40_000], 30_000, 6_000), 1, "too much is better than nothing");
        assert_eq!(activate(&[], 30_000, 6_000), 0);
        assert_eq!(activate(&[6_000, 6_000], 12_000, 6_000), 1);
    }

    #[test]
    fn thresholds_are_scaled_to_the_window() {
        let wide = Thresholds::scaled(30_000, 40_000, 120_000);
        assert_eq!(wide, Thresholds { observe: 30_000, reflect: 40_000 });
        assert_eq!((wide.tail(), wide.step(0), wide.step(25_000)), (6_000, 6_000, 3_000));
        let small = Thresholds::scaled(30_000, 40_000, 6_000);
        assert_eq!(small, Thresholds { observe: 3_000, reflect: 2_000 });
        assert_eq!(Thresholds::scaled(30_000, 400, 0), Thresholds { observe: 500, reflect: 400 });
        assert!(wide.is_reflection_due(20_000, 0) && !wide.is_reflection_due(19_999, 0));
        assert!(wide.should_try(30_000, 0) && !wide.should_try(35_999, 30_000));
        assert!(wide.should_try(36_000, 30_000) && wide.should_try(31_000, 90_000), "after a cut");
        assert!(!wide.is_reflection_due(24_000, 18_000) && wide.is_reflection_due(26_000, 18_000));
    }

    fn message(role: Role, parts: Vec<Part>, tokens: u64) -> (Rc<Message>, u64) {
        let (id, created_at, turn) = ("".into(), Timestamp(0), TurnId::none());
        (Rc::new(Message { id, seq: 0, role, parts, created_at, turn, interrupted: false }), tokens)
    }

    fn talk() -> Vec<(Rc<Message>, u64)> {
        let call = |id: &str| {
            let (call_id, name) = (id.into(), "echo".to_owned());
            Part::ToolCall(ToolCall { call_id, name, args: json!({}), invalid: None })
        };
        let result = |id: &str| {
            let outcome = ToolOutcome::Result { result: json!("x") };
            Part::ToolResult { call_id: id.into(), name: "echo".into(), outcome }
        };
        vec![
            message(Role::User, vec![Part::text("a")], 10),
            message(Role::Assistant, vec![call("1"), call("2")], 10),
            message(Role::Tool, vec![result("1")], 10),
            message(Role::Tool, vec![result("2")], 10),
            message(Role::Assistant, vec![Part::text("b")], 10),
            message(Role::User, vec![Part::text("c")], 10),
            message(Role::Assistant, vec![call("3")], 10),
            message(Role::Tool, vec![result("3")], 10),
        ]
    }

    #[test]
    fn incomplete_steps_are_not_observed() {
        let talk = talk();
        assert_eq!((completed(&talk, false), completed(&talk, true)), (8, 6));
        assert_eq!(completed(&talk[..6], true), 6, "the prompt is complete");
        assert_eq!(completed(&talk[..7], false), 6, "a call without a result");
        assert_eq!(completed(&talk[..3], false), 1);
        assert_eq!(completed(&[], true), 0);
    }

    #[test]
    fn results_stay_with_their_calls() {
        let talk = talk();
        let cuts: Vec<usize> = (0..=8).map(|most| align(&talk, most)).collect();
        assert_eq!(cuts, [0, 1, 1, 1, 4, 5, 6, 6, 8]);
        assert_eq!(
            (all_but_tail(&talk, 8, 0), all_but_tail(&talk, 8, 25), all_but_tail(&talk, 8, 45)),
            (8, 6, 4)
        );
        let limited: Vec<usize> = [0, 10, 25, 45, 99].map(|most| limit_to_request(&talk, 8, most)).into();
        assert_eq!(limited, [1, 1, 1, 4, 8]);
        assert_eq!(super::limit_to_request(&talk[1..], 7, 10), 3, "a step is not split");
        assert_eq!((all_but_tail(&talk, 6, 0), all_but_tail(&talk, 8, 999)), (6, 0));
        assert_eq!(
            (portion(&talk, 8, 5), portion(&talk, 8, 15), portion(&talk, 8, 99)),
            (Some(1), Some(4), None)
        );
    }
}
