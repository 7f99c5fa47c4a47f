//! What a child works for: a suspended call of its parent, or a background task.

use crate::ports::StoreError;
use crate::session::Session;
use crate::types::{CallId, ChildSettings, ChildTask, SessionId, Suspension, Timestamp, TurnId};

/// What a child works for.
pub(super) struct Delegation {
    /// The call that spawned the child.
    pub call_id: CallId,
    /// The turn of the call.
    pub turn: TurnId,
    /// The child's task.
    pub task: ChildTask,
    /// The child's settings, if they are stored.
    pub settings: Option<ChildSettings>,
    /// The hash of the rules that the child has acknowledged; `None` until it has its task.
    pub notified: Option<String>,
    /// Since when the child should work.
    pub since: Timestamp,
    /// What waits for the result.
    pub waiter: Waiter,
}

/// What waits for the result of a child.
pub(super) enum Waiter {
    /// A call.
    Call(Box<Suspension>),
    /// A background task.
    Task(TurnId),
}

impl Delegation {
    /// Returns what the child in session `child` works for; `None` if nothing waits for it.
    pub fn of(session: &Session, child: &SessionId) -> Result<Option<Self>, StoreError> {
        if let Some(suspension) = suspension_of(session, child)? {
            let Some(wait) = suspension.child().cloned() else { return Ok(None) };
            return Ok(Some(Self {
                call_id: suspension.call_id.clone(),
                turn: suspension.turn.clone(),
                task: wait.task,
                settings: wait.settings.map(|settings| *settings),
                notified: wait.notified,
                since: suspension.asked_at,
                waiter: Waiter::Call(Box::new(suspension)),
            }));
        }
        let Some(task) = session.state().subagents.open_of(child).cloned() else { return Ok(None) };
        let Some(details) = session.task_details(&task.id)? else { return Ok(None) };
        Ok(Some(Self {
            call_id: task.call_id,
            turn: task.turn,
            task: details.task,
            settings: Some(details.settings),
            notified: task.notified,
            since: task.started_at,
            waiter: Waiter::Task(task.id),
        }))
    }
}

/// Returns the open suspension that waits for the child in session `child`.
pub(super) fn suspension_of(session: &Session, child: &SessionId) -> Result<Option<Suspension>, StoreError> {
    let is_its = |own: &Suspension| own.child().is_some_and(|wait| wait.task.session == *child);
    Ok(session.suspensions()?.into_iter().find(is_its))
}
