//! A response to a decision or a result after which the turn still waits for other calls. The log has no event for it, so
//! it is written from the calls of the last wait.

use super::id::ResponseId;
use super::writer::Writer;
use crate::ports::session_store::Select;
use crate::session::{Session, frame::Event, hub::Projection};
use crate::types::{EventKind, Problem, Record, Timestamp};

/// Writes the response as it was when it was created.
///
/// # Errors
/// `not_found` if there was no such response, or a failed store.
pub(super) fn write(
    session: &Session,
    id: &ResponseId,
    writer: &mut Writer,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let kinds = &["turn.waiting", "approval.decided", "answer.given"];
    let (mut waits, mut resolved, mut left, mut at) = (0, 0, Vec::new(), Timestamp(0));
    for record in session.records(Select { turn: Some(&id.turn), kinds, ..Select::default() }) {
        let record = record?;
        match record.kind {
            EventKind::TurnWaiting { pending } if waits < id.part => (waits, left) = (waits + 1, pending),
            EventKind::ApprovalDecided { call_id, .. } | EventKind::AnswerGiven { call_id, .. }
                if waits == id.part && resolved < id.resolved =>
            {
                left.retain(|call| call.call_id != call_id);
                (resolved, at) = (resolved + 1, record.at);
            }
            _ => {}
        }
    }
    if (waits, resolved) != (id.part, id.resolved) || left.is_empty() {
        return Err(Problem::not_found("response"));
    }
    let kind = EventKind::TurnWaiting { pending: left };
    writer.write(Event::Record(&Record { seq: 0, at, turn: Some(id.turn.clone()), kind }), out);
    Ok(())
}
