//! Builds messages from records: the conversation as a projection of the log.

use crate::types::{EventKind, Message, MessageId, Part, Record, Role, ToolCall, TurnId};
use std::rc::Rc;

/// The types of the records that make up messages.
pub const MESSAGE_KINDS: &[&str] = &["turn.started", "message.completed", "tool.started", "tool.completed"];

/// Applies `record` to `messages`. Returns whether it was part of the conversation.
pub fn fold(messages: &mut Vec<Rc<Message>>, record: &Record) -> bool {
    let turn = record.turn.clone().unwrap_or_else(TurnId::none);
    let message = |id: MessageId, role: Role, part: Part| {
        let (seq, created_at) = (record.seq, record.at);
        Rc::new(Message { id, seq, role, parts: vec![part], created_at, turn, interrupted: false })
    };
    match &record.kind {
        EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } => {
            messages.push(Rc::clone(message));
        }
        EventKind::ToolStarted { message: id, call_id, name, args, invalid, .. } => {
            let call = ToolCall {
                call_id: call_id.clone(),
                name: name.clone(),
                args: args.clone(),
                invalid: invalid.clone(),
            };
            match messages.last_mut() {
                Some(last) if last.id == *id => {
                    if !last.calls().any(|known| known.call_id == *call_id) {
                        Rc::make_mut(last).parts.push(Part::ToolCall(call));
                    }
                }
                _ => messages.push(message(id.clone(), Role::Assistant, Part::ToolCall(call))),
            }
        }
        EventKind::ToolCompleted { call_id, name, outcome, .. } => {
            let part =
                Part::ToolResult { call_id: call_id.clone(), name: name.clone(), outcome: outcome.clone() };
            messages.push(message(format!("msg_{}", record.seq).into(), Role::Tool, part));
        }
        _ => return false,
    }
    true
}
