//! Changes of background tasks.

use super::Draft;
use crate::session::DocumentKey;
use crate::types::{
    BackgroundTask, ChildStatus, EventKind, Message, Spawned, TaskEnd, Timestamp, TurnId, TurnState,
    TurnStatus,
    background::{MAX_SHOWN, MAX_TASKS},
};
use std::rc::Rc;

impl Draft {
    /// Adds a background task with its details. The oldest tasks whose results were shown make room for it.
    pub(crate) fn start_task(&mut self, task: BackgroundTask, details: String) {
        while self.state.subagents.tasks.len() >= MAX_TASKS {
            let tasks = &mut self.subagents().tasks;
            let Some(oldest) = tasks.iter().position(|task| task.shown_in.is_some()) else { break };
            let removed = tasks.remove(oldest);
            self.delete(DocumentKey::BackgroundTask(removed.id));
        }
        let (id, call_id, session) = (task.id.clone(), task.call_id.clone(), task.session.clone());
        let (agent, label) = (task.agent.clone(), task.label.clone());
        self.record(Some(&task.turn), EventKind::TaskStarted { task: id, call_id, session, agent, label });
        self.put_task_details(&task.id, details);
        self.subagents().tasks.push(task);
    }

    /// Sets the subagents that the agent can send further tasks.
    pub(crate) fn set_spawned(&mut self, spawned: Vec<Spawned>) {
        self.subagents().spawned = spawned;
    }

    /// Returns a task that has not ended.
    pub(crate) fn open_task_mut(&mut self, id: &TurnId) -> Option<&mut BackgroundTask> {
        self.subagents().tasks.iter_mut().find(|task| task.id == *id && !task.has_ended())
    }

    /// Writes the details of a task.
    pub(crate) fn put_task_details(&mut self, id: &TurnId, details: String) {
        self.put(DocumentKey::BackgroundTask(id.clone()), details);
    }

    /// Cancels a task. It ends when the child has confirmed it.
    pub(crate) fn cancel_task(&mut self, id: &TurnId, now: Timestamp) {
        if let Some(task) = self.open_task_mut(id) {
            task.canceled_at.get_or_insert(now);
            // A canceled task starts no turn.
            task.wakes = false;
        }
    }

    /// Ends a task with the final status of its child, and records its end.
    pub(crate) fn end_task(&mut self, id: &TurnId, ended: &ChildStatus, now: Timestamp) {
        let Some(task) = self.open_task_mut(id) else { return };
        (task.status, task.ended_at) = (ended.status, Some(now));
        let end = TaskEnd {
            task: id.clone(),
            session: task.session.clone(),
            agent: task.agent.clone(),
            label: task.label.clone(),
            usage: ended.usage,
            cost_usd: ended.cost_usd,
            error: ended.error.clone(),
        };
        let kind = match ended.status {
            TurnStatus::Failed => EventKind::TaskFailed(end),
            TurnStatus::Canceled => EventKind::TaskCanceled(end),
            _ => EventKind::TaskCompleted(end),
        };
        self.record(None, kind);
    }

    /// Stores that the model was shown the results of these tasks, in the commit of the step in which it was.
    pub(crate) fn tasks_shown(&mut self, turn: &TurnId, shown: &[TurnId]) {
        if shown.is_empty() {
            return;
        }
        let tasks = self.subagents().tasks.iter_mut();
        for task in tasks.filter(|task| task.is_unshown() && shown.contains(&task.id)) {
            task.shown_in = Some(turn.clone());
        }
    }

    /// Stores that the model lacks the results that were shown in a turn, because the turn did not complete: they are not
    /// part of the conversation.
    pub(crate) fn tasks_not_shown(&mut self, turn: &TurnId) {
        if self.state.subagents.tasks.iter().any(|task| task.shown_in.as_ref() == Some(turn)) {
            let tasks = self.subagents().tasks.iter_mut();
            tasks.filter(|task| task.shown_in.as_ref() == Some(turn)).for_each(|task| task.shown_in = None);
        }
    }

    /// Starts a turn because background tasks have ended. Each task does this at most once. Those whose results the first
    /// step does not show start a further turn, unless this turn shows them.
    pub(crate) fn start_woken_turn(&mut self, turn: TurnState, message: Rc<Message>) {
        let wakes = self.state.subagents.wakes + 1;
        self.start_turn(turn, message);
        let subagents = self.subagents();
        subagents.wakes = wakes;
        let mut ended: Vec<_> = subagents.tasks.iter_mut().filter(|task| task.is_unshown()).collect();
        ended.sort_by_key(|task| task.ended_at);
        ended.into_iter().take(MAX_SHOWN).for_each(|task| task.wakes = false);
    }

    /// Lets the results of the tasks that have ended wait for the next turn.
    pub(crate) fn wake_no_more(&mut self) {
        let tasks = self.subagents().tasks.iter_mut();
        tasks.filter(|task| task.has_ended()).for_each(|task| task.wakes = false);
    }
}
