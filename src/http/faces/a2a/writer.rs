//! Writes a task as it changes: its events.

use super::super::sse;
use super::super::task_id::TaskId;
use super::rpc::Asked;
use super::task::{Change, State, Task, artifact};
use crate::session::{
    frame::{Event, Frame},
    hub::Projection,
};
use crate::types::EventKind;
use serde_json::{Value, json};
use std::rc::Rc;

/// Reads the task from the log.
pub(super) type ReadTask = Box<dyn Fn(&TaskId) -> Option<Value>>;

/// Writes the events of a task: first the task, then its changes.
pub(super) struct Writer {
    asked: Rc<Asked>,
    task: Task,
    /// How often the turn has waited before; the stream does not end there.
    pub earlier_waits: u32,
    /// Reads what happened before the stream, unless the stream begins with the turn.
    pub before: Option<ReadTask>,
    /// Whether the stream continues while the task waits for input.
    pub outlasts_waits: bool,
    has_begun: bool,
    has_ended: bool,
}

impl Writer {
    pub fn new(asked: Rc<Asked>, task: Task) -> Self {
        Self {
            asked,
            task,
            earlier_waits: 0,
            before: None,
            outlasts_waits: false,
            has_begun: false,
            has_ended: false,
        }
    }

    fn send(&self, result: &Value, out: &mut Vec<u8>) {
        sse::write(&self.asked.result(result), out);
    }
}

impl Projection for Writer {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if self.has_ended {
            return;
        }
        let is_start =
            matches!(event, Event::Record(record) if matches!(record.kind, EventKind::TurnStarted { .. }));
        let change = self.task.apply(event);
        if !std::mem::replace(&mut self.has_begun, true) {
            let earlier = self.before.take().filter(|_| !is_start);
            let task = earlier.and_then(|read| read(&self.task.id));
            self.send(&json!({"task": task.unwrap_or_else(|| self.task.view(None, true))}), out);
            // The task has its new state already.
            if is_start {
                return;
            }
        }
        let (id, context) = (self.task.id.to_string(), &self.task.id.session);
        match change {
            None => {}
            Some(Change::Text { artifact: of, text, is_added }) => {
                let update = json!({
                    "taskId": id, "contextId": context, "artifact": artifact(&of, text), "append": is_added,
                });
                self.send(&json!({"artifactUpdate": update}), out);
            }
            Some(Change::State) => {
                if self.task.state == State::InputRequired && self.earlier_waits > 0 {
                    self.earlier_waits -= 1;
                    return;
                }
                let update = json!({"taskId": id, "contextId": context, "status": self.task.status()});
                self.send(&json!({"statusUpdate": update}), out);
                self.has_ended = self.task.state.is_final()
                    || self.task.state == State::InputRequired && !self.outlasts_waits;
            }
        }
    }

    fn queue(&mut self, out: &mut Vec<u8>) {
        self.has_begun = true;
        self.send(&json!({"task": self.task.view(None, true)}), out);
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.has_ended
    }
}
