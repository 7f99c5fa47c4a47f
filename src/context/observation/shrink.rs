//! Reduces a conversation as a last resort, without model calls and without notes.

use super::selection::{Measured, align, all_but_tail};
use crate::session::window::NO_SUMMARY;
use crate::types::{Cut, Part};

/// Minimum length of pieces of messages, in characters. A step with many calls must fit into a small window.
const MIN_PIECE_CHARS: u64 = 64;

/// Returns the next stronger reduction of messages that must fit into `room` tokens: first shortened tool
/// calls and results, then without the older messages, finally with all pieces shortened. Returns `None`
/// after the last stage.
///
/// At most the first `most` messages may be dropped; the ones after them belong to the current step.
pub fn shrink(cut: &Cut, messages: &Measured, most: usize, room: u64) -> Option<Cut> {
    let seq = |at: usize| messages.get(at).map(|(message, _)| message.seq);
    let next = Cut { number: cut.number + 1, ..cut.clone() };
    let open = seq(most).or_else(|| Some(messages.last()?.0.seq + 1))?;
    let is_used = |part: &Part| matches!(part, Part::ToolCall(_) | Part::ToolResult { .. });
    let used = messages.iter().take(most).any(|(message, _)| message.parts.iter().any(is_used));
    if used && cut.brief_before < open {
        return Some(Cut { brief_before: open, ..next });
    }
    let kept = seq(all_but_tail(messages, align(messages, most), room / 2)).unwrap_or(open);
    if cut.kept_from < kept && seq(0).is_some_and(|first| first < kept) {
        let summary = cut.summary.clone().or_else(|| Some(NO_SUMMARY.to_owned()));
        return Some(Cut { kept_from: kept, summary, ..next });
    }
    // A token usually has at least three characters; half of the room is reserved for exceptions.
    let chars =
        usize::try_from((room / messages.len().max(1) as u64).max(MIN_PIECE_CHARS)).unwrap_or(usize::MAX);
    let parted = messages.iter().map(|(message, _)| (message.seq, chars)).collect();
    let is_less = messages.iter().any(|(message, _)| cut.chars(message.seq).is_none_or(|old| old > chars));
    is_less.then_some(Cut { parted, ..next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Message, Role, Timestamp, ToolOutcome, TurnId};
    use std::rc::Rc;

    fn message(seq: u64, role: Role, part: Part) -> (Rc<Message>, u64) {
        let (id, created_at, turn) = ("".into(), Timestamp(0), TurnId::none());
        (Rc::new(Message { id, seq, role, parts: vec![part], created_at, turn, interrupted: false }), 100)
    }

    #[test]
    fn reductions_become_stronger_and_end() {
        let outcome = ToolOutcome::Result { result: "x".into() };
        let result = Part::ToolResult { call_id: "c".into(), name: "echo".into(), outcome };
        let talk = [
            message(3, Role::User, Part::text("a")),
            message(4, Role::Tool, result),
            message(6, Role::Assistant, Part::text("b")),
            message(8, Role::User, Part::text("c")),
        ];
        let first = shrink(&Cut::default(), &talk, 3, 250).expect("a cut");
        assert_eq!((first.number, first.brief_before, first.kept_from), (1, 8, 0));
        let second = shrink(&first, &talk, 3, 250).expect("a cut");
        assert_eq!((second.number, second.kept_from, second.summary.as_deref()), (2, 8, Some(NO_SUMMARY)));
        let third = shrink(&second, &talk[3..], 1, 250).expect("a cut");
        assert_eq!((third.number, third.chars(8)), (3, Some(250)));
        assert_eq!(shrink(&third, &talk[3..], 1, 250), None);
        assert_eq!(shrink(&Cut::default(), &[], 0, 250), None);
    }
}
