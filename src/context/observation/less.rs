//! Showing less when nothing else helps: without a model, and without a note.

use super::plan::{Measured, aligned, but_tail};
use crate::types::{Cut, Part, observed::NO_SUMMARY};

/// Shortest that pieces of messages are shown, in characters.
const LEAST: u64 = 400;

/// The next cut of messages that are to take `room` tokens in all: first without what tools got and gave at
/// length, then without the older ones, at last with all pieces shortened. None behind the last.
///
/// `most` messages may leave; those behind belong to the step at hand.
pub fn less(cut: &Cut, messages: &Measured, most: usize, room: u64) -> Option<Cut> {
    let seq = |at: usize| messages.get(at).map(|(message, _)| message.seq);
    let next = Cut { number: cut.number + 1, ..cut.clone() };
    let open = seq(most).or_else(|| Some(messages.last()?.0.seq + 1))?;
    let is_used = |part: &Part| matches!(part, Part::ToolCall(_) | Part::ToolResult { .. });
    let used = messages.iter().take(most).any(|(message, _)| message.parts.iter().any(is_used));
    if used && cut.brief_before < open {
        return Some(Cut { brief_before: open, ..next });
    }
    let kept = seq(but_tail(messages, aligned(messages, most), room / 2)).unwrap_or(open);
    if cut.kept_from < kept && seq(0).is_some_and(|first| first < kept) {
        let summary = cut.summary.clone().or_else(|| Some(NO_SUMMARY.to_owned()));
        return Some(Cut { kept_from: kept, summary, ..next });
    }
    // A token has three characters or more, but for few texts; half of the room is left for these.
    let chars = usize::try_from((room / messages.len().max(1) as u64).max(LEAST)).unwrap_or(usize::MAX);
    let parted = messages.iter().map(|(message, _)| (message.seq, chars)).collect();
    let is_less = messages.iter().any(|(message, _)| cut.chars(message.seq).is_none_or(|old| old > chars));
    is_less.then_some(Cut { parted, ..next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Message, Role, Timestamp, ToolOutcome};
    use std::rc::Rc;

    fn message(seq: u64, role: Role, part: Part) -> (Rc<Message>, u64) {
        let (id, created_at, turn) = (String::new(), Timestamp(0), String::new());
        (Rc::new(Message { id, seq, role, parts: vec![part], created_at, turn, interrupted: false }), 100)
    }

    #[test]
    fn less_is_shown_step_by_step_and_not_for_ever() {
        let outcome = ToolOutcome::Result { result: "x".into() };
        let result = Part::ToolResult { call_id: "c".into(), name: "echo".into(), outcome };
        let talk = [
            message(3, Role::User, Part::text("a")),
            message(4, Role::Tool, result),
            message(6, Role::Assistant, Part::text("b")),
            message(8, Role::User, Part::text("c")),
        ];
        let first = less(&Cut::default(), &talk, 3, 250).expect("a cut");
        assert_eq!((first.number, first.brief_before, first.kept_from), (1, 8, 0));
        let second = less(&first, &talk, 3, 250).expect("a cut");
        assert_eq!((second.number, second.kept_from, second.summary.as_deref()), (2, 8, Some(NO_SUMMARY)));
        let third = less(&second, &talk[3..], 1, 250).expect("a cut");
        assert_eq!((third.number, third.chars(8)), (3, Some(400)));
        assert_eq!(less(&third, &talk[3..], 1, 250), None);
        assert_eq!(less(&Cut::default(), &[], 0, 250), None);
    }
}
