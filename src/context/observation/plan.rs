//! When to observe, what, and which notes take the place of their messages.

use crate::types::{Message, Part, Role};
use std::rc::Rc;

/// Messages with their tokens, oldest first.
pub type Measured = [(Rc<Message>, u64)];

/// However small the window, fewer tokens are not worth a note.
const LEAST: u64 = 500;

/// The numbers that an observation goes by, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Messages of so many are observed.
    pub observe: u64,
    /// Notes of so many are rewritten.
    pub reflect: u64,
}

impl Thresholds {
    /// These, but in a window with `room` for the conversation at most half of that for messages, and a
    /// third for notes.
    pub fn scaled(observe: u64, reflect: u64, room: u64) -> Self {
        let fits = |share: u64| share.max(LEAST);
        Self { observe: observe.min(fits(room / 2)), reflect: reflect.min(fits(room / 3)) }
    }

    /// Messages of about so many stay as they are.
    pub fn tail(&self) -> u64 {
        self.observe / 5
    }

    /// Notes are taken ahead on messages of about so many: less where the threshold is near.
    pub fn step(&self, pending: u64) -> u64 {
        let step = (self.observe / 5).max(1);
        if pending + step >= self.observe { step.div_ceil(2) } else { step }
    }

    /// Whether notes may be taken now, after they could not with `failed` tokens of messages, if not 0: what
    /// failed fails again, as long as there is neither much more nor much less.
    pub fn is_worth_a_try(&self, pending: u64, failed: u64) -> bool {
        failed == 0 || pending.abs_diff(failed) >= self.step(0)
    }

    /// Whether notes are to be rewritten ahead: half of what is allowed, and grown since the last time.
    pub fn is_reflection_due(&self, notes: u64, last: u64) -> bool {
        notes >= self.reflect / 2 && notes >= last + self.reflect / 5
    }
}

/// How many of the messages may be observed: all that came to an end. A call without a result has not;
/// within a turn the last step has not, since the model has yet to read its results.
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

/// The most messages, of the first `most`, that may be parted from the rest: results stay with their calls.
pub fn aligned(messages: &Measured, most: usize) -> usize {
    let is_result = |at: usize| messages.get(at).is_some_and(|(message, _)| message.role == Role::Tool);
    let mut count = most.min(messages.len());
    while count > 0 && is_result(count) {
        count -= 1;
    }
    count
}

/// The same number of messages, or as many as one question holds: some in any case, and parted from the rest
/// where that can be done.
pub fn capped(messages: &Measured, count: usize, most: u64) -> usize {
    let mut tokens = 0;
    let fits = messages.iter().take_while(|(_, own)| {
        tokens += own;
        tokens <= most
    });
    let fits = fits.count();
    if count <= fits {
        return count;
    }
    let is_end = |end: &usize| aligned(messages, *end) == *end;
    (1..=fits).rfind(is_end).or_else(|| (1..=count).find(is_end)).unwrap_or(0)
}

/// How many messages to observe so that about `tail` tokens stay behind them.
pub fn but_tail(messages: &Measured, most: usize, tail: u64) -> usize {
    let mut count = messages.len();
    let mut stays = 0;
    for (at, (_, tokens)) in messages.iter().enumerate().rev() {
        stays += tokens;
        if stays > tail {
            break;
        }
        count = at;
    }
    aligned(messages, count.min(most))
}

/// How many messages of the first `most` make a portion of about `step` tokens: the fewest that reach it
/// and can be parted from the rest. None if they do not reach it.
pub fn portion(messages: &Measured, most: usize, step: u64) -> Option<usize> {
    let mut tokens = 0;
    let mut count = 0;
    for (_, own) in messages.iter().take(most) {
        tokens += own;
        count += 1;
        if tokens >= step && aligned(messages, count) == count {
            return Some(count);
        }
    }
    None
}

/// How many of the waiting notes to show, given the tokens of the messages that each is about, so that of
/// `pending` tokens of messages about `tail` stay: up to the nearest end of notes that leaves no more than
/// that, unless it leaves next to nothing; then to the one before.
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
        // One that takes too much is better than none.
        return if (overshoots || leaves_nothing) && under > 0 { under } else { at + 1 };
    }
    under
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Timestamp, ToolCall, ToolOutcome};
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn notes_are_shown_so_that_a_fifth_of_the_messages_stays() {
        assert_eq!(activate(&[6_000; 5], 30_000, 6_000), 4);
        assert_eq!(activate(&[6_000; 4], 30_000, 6_000), 4);
        assert_eq!(activate(&[6_000; 3], 30_000, 6_000), 3, "all that there is");
        assert_eq!(activate(&[20_000, 9_900], 30_000, 6_000), 1, "the second leaves next to nothing");
        assert_eq!(activate(&[20_000, 9_000], 30_000, 6_000), 2);
        assert_eq!(activate(&[40_000], 30_000, 6_000), 1, "too much is better than nothing");
        assert_eq!(activate(&[], 30_000, 6_000), 0);
        assert_eq!(activate(&[6_000, 6_000], 12_000, 6_000), 1);
    }

    #[test]
    fn thresholds_fit_the_window() {
        let wide = Thresholds::scaled(30_000, 40_000, 120_000);
        assert_eq!(wide, Thresholds { observe: 30_000, reflect: 40_000 });
        assert_eq!((wide.tail(), wide.step(0), wide.step(25_000)), (6_000, 6_000, 3_000));
        let small = Thresholds::scaled(30_000, 40_000, 6_000);
        assert_eq!(small, Thresholds { observe: 3_000, reflect: 2_000 });
        assert_eq!(Thresholds::scaled(30_000, 400, 0), Thresholds { observe: 500, reflect: 400 });
        assert!(wide.is_reflection_due(20_000, 0) && !wide.is_reflection_due(19_999, 0));
        assert!(wide.is_worth_a_try(30_000, 0) && !wide.is_worth_a_try(35_999, 30_000));
        assert!(wide.is_worth_a_try(36_000, 30_000) && wide.is_worth_a_try(31_000, 90_000), "after a cut");
        assert!(!wide.is_reflection_due(24_000, 18_000) && wide.is_reflection_due(26_000, 18_000));
    }

    fn message(role: Role, parts: Vec<Part>, tokens: u64) -> (Rc<Message>, u64) {
        let (id, created_at, turn) = (String::new(), Timestamp(0), String::new());
        (Rc::new(Message { id, seq: 0, role, parts, created_at, turn, interrupted: false }), tokens)
    }

    fn talk() -> Vec<(Rc<Message>, u64)> {
        let call = |id: &str| {
            let (call_id, name) = (id.to_owned(), "echo".to_owned());
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
    fn what_has_not_come_to_an_end_is_not_observed() {
        let talk = talk();
        assert_eq!((completed(&talk, false), completed(&talk, true)), (8, 6));
        assert_eq!(completed(&talk[..6], true), 6, "the prompt has");
        assert_eq!(completed(&talk[..7], false), 6, "a call without a result");
        assert_eq!(completed(&talk[..3], false), 1);
        assert_eq!(completed(&[], true), 0);
    }

    #[test]
    fn results_stay_with_their_calls() {
        let talk = talk();
        let cuts: Vec<usize> = (0..=8).map(|most| aligned(&talk, most)).collect();
        assert_eq!(cuts, [0, 1, 1, 1, 4, 5, 6, 6, 8]);
        assert_eq!((but_tail(&talk, 8, 0), but_tail(&talk, 8, 25), but_tail(&talk, 8, 45)), (8, 6, 4));
        let capped: Vec<usize> = [0, 10, 25, 45, 99].map(|most| capped(&talk, 8, most)).into();
        assert_eq!(capped, [1, 1, 1, 4, 8]);
        assert_eq!(super::capped(&talk[1..], 7, 10), 3, "a step is not parted");
        assert_eq!((but_tail(&talk, 6, 0), but_tail(&talk, 8, 999)), (6, 0));
        assert_eq!(
            (portion(&talk, 8, 5), portion(&talk, 8, 15), portion(&talk, 8, 99)),
            (Some(1), Some(4), None)
        );
    }
}
