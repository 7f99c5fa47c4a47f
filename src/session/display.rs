//! The session as a user interface shows it, with the position in the event stream for which it is valid.
//!
//! A client that reads the view and then follows the stream from its `cursor` ends up with the same state as
//! one that followed the stream from the start. While a message is streamed, other records are deferred. The
//! view already contains them, and the stream repeats them after the message; each event describes a state,
//! so applying it twice changes nothing.

use super::{Session, tokens};
use crate::ports::{StoreError, session_store::Select};
use crate::types::{CallId, CallStatus, Cursor, EventKind, SessionStatus, TurnPhase, TurnStatus};
use serde_json::{Value, json};

impl Session {
    /// Builds `GET /v1/sessions/{id}/view`. `has_begun` returns whether a call was passed to its tool since
    /// the turn (re)started.
    ///
    /// # Errors
    /// If the store fails.
    pub fn display(&self, has_begun: impl Fn(&CallId) -> bool) -> Result<Value, StoreError> {
        let session = json!(self.view()?);
        let streaming = self.hub().streaming();
        let cursor = streaming.as_ref().map_or(Cursor::after(self.last_seq()), |message| message.cursor());
        let state = self.state();
        let turn = state.activity.turn.as_ref().map(|turn| {
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
            "tasks": state.guidance.tasks,
            "usage": state.activity.totals.usage,
            "cost_usd": state.activity.totals.cost_usd,
            "window": self.window_view(&session["context"]),
            "memory": self.memory_view(),
            "current_turn": turn,
        });
        if let Some(error) = self.last_error()? {
            view["last_error"] = error;
        }
        view["session"] = session;
        Ok(view)
    }

    /// Returns what the model is shown, with the progress of observation if there is one.
    fn window_view(&self, progress: &Value) -> Value {
        let context = self.context();
        let (shown, measured) = (context.messages(), context.measured());
        // The first messages may be a summary or notes.
        let head = shown
            .iter()
            .take(shown.len().saturating_sub(measured.len()))
            .map(|message| tokens::of_message(message));
        let tokens = head.sum::<u64>() + measured.iter().map(|(_, tokens)| tokens).sum::<u64>();
        let mut window = json!({ "messages": shown.len(), "tokens": tokens });
        for (name, value) in progress.as_object().into_iter().flatten() {
            window[name] = value.clone();
        }
        window
    }

    /// Returns what a summary or notes replace.
    fn memory_view(&self) -> Value {
        let context = self.context();
        let (cut, observed) = (&context.state().cut, &context.state().observed);
        json!({
            "summarized_to": cut.kept_from.saturating_sub(1),
            "observed_to": observed.next.saturating_sub(1),
            "chunks": observed.active.len(),
            "buffered": observed.buffered.len(),
            "generation": observed.generation,
        })
    }

    /// Returns the open calls of the running turn, in order.
    fn active_tools(&self, has_begun: impl Fn(&CallId) -> bool) -> Result<Vec<Value>, StoreError> {
        let state = self.state();
        let Some(turn) = &state.activity.turn else { return Ok(Vec::new()) };
        let TurnPhase::Tools { calls } = &turn.phase else { return Ok(Vec::new()) };
        let kinds = &["tool.started"];
        let own = Select { turn: Some(&turn.id), kinds, newest_first: true, ..Select::default() };
        // The calls of the current step are the newest ones.
        let started: Result<Vec<_>, _> = self.records(own).take(calls.len()).collect();
        let mut active = Vec::new();
        for record in started?.into_iter().rev() {
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

    /// Returns the error of the last turn, if it failed and no turn has started since.
    fn last_error(&self) -> Result<Option<Value>, StoreError> {
        let kinds = &["turn.started", "turn.failed"];
        let last = self.first(Select { kinds, newest_first: true, ..Select::default() })?;
        Ok(match last.map(|record| record.kind) {
            Some(EventKind::TurnFailed(end)) => Some(json!(end.error)),
            _ => None,
        })
    }
}
