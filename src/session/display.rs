//! All that a user interface shows of a session, and the place in the event stream for which it is true.
//!
//! Who reads this and then follows the stream from its `cursor` ends with the same picture as who followed it from the
//! start. While a message is streamed its number is taken and records of others wait; what they tell is shown
//! already, and told once more behind the message: events say what is, so that hearing of it twice changes nothing.

use super::Session;
use crate::ports::{StoreError, session_store::Select};
use crate::types::{CallStatus, Cursor, EventKind, SessionStatus, TurnPhase, TurnStatus};
use serde_json::{Value, json};

impl Session {
    /// `GET /v1/sessions/{id}/view`. `has_begun` knows which calls were handed to their tool by this machine.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn display(&self, has_begun: impl Fn(&str) -> bool) -> Result<Value, StoreError> {
        let session = json!(self.view()?);
        let streaming = self.hub().streaming();
        let cursor = streaming.as_ref().map_or(Cursor::after(self.last_seq()), |message| message.cursor());
        let state = self.state();
        let turn = state.turn.as_ref().map(|turn| {
            let waits = turn.waits_for_people();
            json!({
                "id": turn.id,
                "status": if waits { TurnStatus::Waiting } else { TurnStatus::Running },
                "started_at": turn.started_at,
                "deadline": turn.deadline,
                "steps": turn.steps,
                "usage": turn.usage,
            })
        });
        let context = self.context();
        let observed = &context.state().observed;
        let memory = (observed.next > 0).then(|| {
            json!({
                "observed_to": observed.next - 1,
                "chunks": observed.active.len(),
                "buffered": observed.buffered.len(),
                "generation": observed.generation,
            })
        });
        let mut view = json!({
            "seq": self.last_seq(),
            "cursor": cursor.to_string(),
            "running": state.status() == SessionStatus::Running,
            "current_message": streaming.map(|message| {
                json!({"id": message.message, "text": message.text, "turn": message.turn})
            }),
            "active_tools": self.active_tools(has_begun)?,
            "pending": session["pending"],
            "queue": session["queue"],
            "tasks": state.tasks,
            "usage": state.meta.usage,
            "cost_usd": state.meta.cost_usd,
            "window": session["context"],
            "memory": memory,
            "current_turn": turn,
        });
        if let Some(error) = self.last_error()? {
            view["last_error"] = error;
        }
        view["session"] = session;
        Ok(view)
    }

    /// The open calls of the running turn, in their order.
    fn active_tools(&self, has_begun: impl Fn(&str) -> bool) -> Result<Vec<Value>, StoreError> {
        let state = self.state();
        let Some(turn) = &state.turn else { return Ok(Vec::new()) };
        let TurnPhase::Tools { calls } = &turn.phase else { return Ok(Vec::new()) };
        let kinds = &["tool.started"];
        let own = Select {
            turn: Some(&turn.id),
            kinds,
            newest_first: true,
            // The step at hand is the newest.
            limit: calls.len(),
            ..Select::default()
        };
        let mut active = Vec::new();
        for record in self.records(own)?.into_iter().rev() {
            let EventKind::ToolStarted { call_id, name, args, .. } = record.kind else { continue };
            let status = calls.iter().find(|call| call.call_id == call_id).map(|call| call.status);
            let status = match status {
                None | Some(CallStatus::Done) => continue,
                Some(CallStatus::Waiting) => "waiting",
                Some(CallStatus::Started) => "running",
                Some(CallStatus::NotStarted) if has_begun(&call_id) => "running",
                Some(CallStatus::NotStarted) => "pending",
            };
            active.push(json!({
                "call_id": call_id, "name": name, "args": args, "status": status, "started_at": record.at,
            }));
        }
        Ok(active)
    }

    /// What failed last, until the next turn starts.
    fn last_error(&self) -> Result<Option<Value>, StoreError> {
        let kinds = &["turn.started", "turn.failed"];
        let last = self.records(Select { kinds, newest_first: true, limit: 1, ..Select::default() })?.pop();
        Ok(match last.map(|record| record.kind) {
            Some(EventKind::TurnFailed(end)) => Some(json!(end.error)),
            _ => None,
        })
    }
}
