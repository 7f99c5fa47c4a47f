//! What a call that asks an agent returns.

use super::super::exchange::named;
use crate::types::{Pending, SessionId, StopReason, TurnEnd, TurnId, TurnStatus};
use serde_json::{Value, json};

/// Returns the result of a turn that has ended. `last` is the text of its last message.
pub(super) fn ended(session: &SessionId, turn: &TurnId, end: &TurnEnd, last: &str) -> Value {
    let reply = end.reply.as_ref().map_or(last, |reply| &reply.text);
    let (text, is_error) = match end.status {
        TurnStatus::Failed => {
            (end.error.as_ref().map_or("the turn failed", |error| error.message.as_str()), true)
        }
        TurnStatus::Canceled => ("the turn was canceled", true),
        TurnStatus::Completed | TurnStatus::Running | TurnStatus::Waiting => (reply, false),
    };
    let mut result = json!({
        "content": [{"type": "text", "text": text}],
        "structuredContent": about(session, turn, end.status, end.stop_reason),
    });
    if is_error {
        result["isError"] = true.into();
    }
    result
}

/// Returns the result of a turn that waits, for a client that cannot ask its user. `last` is the text of its last message.
pub(super) fn waiting(session: &SessionId, turn: &TurnId, pending: &[Pending], last: &str) -> Value {
    let text = format!("[{}]", waits_elsewhere(session, pending));
    let text = if last.is_empty() { text } else { format!("{last}\n\n{text}") };
    let mut about = about(session, turn, TurnStatus::Waiting, StopReason::Waiting);
    about["pending"] = json!(pending);
    json!({"content": [{"type": "text", "text": text}], "structuredContent": about})
}

/// Says what a turn waits for, to a client that cannot ask its user.
pub(super) fn waits_elsewhere(session: &SessionId, pending: &[Pending]) -> String {
    let calls = named(pending);
    format!(
        "The turn waits for a decision or an answer: {calls}. Give it in another client of the session {session}."
    )
}

fn about(session: &SessionId, turn: &TurnId, status: TurnStatus, reason: StopReason) -> Value {
    json!({"session": session, "turn": turn, "status": status, "stop_reason": reason})
}
