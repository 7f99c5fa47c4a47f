//! What a child works for: a suspended call of its parent, or a background task.

use super::SessionHost;
use crate::ports::StoreError;
use crate::session::Session;
use crate::types::{
    BackgroundTask, CallId, ChildKey, ChildSettings, ChildTask, SessionId, SubagentSource, Suspension,
    Timestamp, TurnId,
};
use std::{collections::BTreeMap, rc::Rc};

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
    /// Returns what the child in session `child` works for; `None` if nothing waits for it, or its task was canceled.
    pub fn of(session: &Session, child: &SessionId) -> Result<Option<Self>, StoreError> {
        let suspensions = session.suspensions()?;
        let subagents = Rc::clone(&session.state().subagents);
        let Some(open) = OpenTask::first_of(&suspensions, subagents.open()).remove(child) else {
            return Ok(None);
        };
        let is_its = |own: &&Suspension| {
            own.call_id == open.call_id && own.child().is_some_and(|wait| wait.task.session == *child)
        };
        if let Some(suspension) = suspensions.iter().find(is_its).cloned() {
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
        let task = subagents.open_of(&ChildKey { session: child.clone(), call_id: open.call_id });
        let Some(task) = task.filter(|task| task.canceled_at.is_none()).cloned() else { return Ok(None) };
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

/// A task of a child that has not ended.
pub(super) struct OpenTask {
    number: u32,
    /// The call that gave it.
    pub call_id: CallId,
    /// The turn of that call.
    turn: TurnId,
    /// The kind of subagent.
    agent: String,
    /// The turn of the child that works on it.
    child_turn: TurnId,
    /// The hash of the rules that the child has acknowledged; `None` until it has the task.
    pub notified: Option<String>,
    /// Whether it is a background task.
    pub in_background: bool,
    /// Whether it was canceled, which the child has not confirmed yet.
    pub is_canceled: bool,
}

impl OpenTask {
    /// Returns the task that each child works on: its oldest one, of those that suspended calls and background tasks wait
    /// for. Its other tasks begin when nothing waits for that one.
    pub fn first_of<'a>(
        suspensions: &[Suspension],
        tasks: impl Iterator<Item = &'a BackgroundTask>,
    ) -> BTreeMap<SessionId, Self> {
        let called = suspensions.iter().filter_map(|own| Some((own, own.child()?))).map(|(own, child)| {
            let open = Self {
                number: child.task.number(),
                call_id: own.call_id.clone(),
                turn: own.turn.clone(),
                agent: child.task.agent.clone(),
                child_turn: child.task.turn(),
                notified: child.notified.clone(),
                in_background: false,
                is_canceled: false,
            };
            (child.task.session.clone(), open)
        });
        let tasks = tasks.map(|task| {
            let open = Self {
                number: task.number,
                call_id: task.call_id.clone(),
                turn: task.turn.clone(),
                agent: task.agent.clone(),
                child_turn: task.id.clone(),
                notified: task.notified.clone(),
                in_background: true,
                is_canceled: task.canceled_at.is_some(),
            };
            (task.session.clone(), open)
        });
        let mut first: BTreeMap<SessionId, Self> = BTreeMap::new();
        for (session, open) in called.chain(tasks) {
            if first.get(&session).is_none_or(|other| open.number < other.number) {
                first.insert(session, open);
            }
        }
        first
    }
}

impl SessionHost {
    /// Returns the tasks that children work on, of all turns or of this one.
    ///
    /// # Errors
    /// When the store fails.
    pub fn working_children(
        &self,
        session: &Session,
        turn: Option<&TurnId>,
    ) -> Result<Vec<SubagentSource>, StoreError> {
        let suspensions = session.suspensions()?;
        let subagents = Rc::clone(&session.state().subagents);
        let open = OpenTask::first_of(&suspensions, subagents.open()).into_iter();
        let open = open.filter(|(_, open)| turn.is_none_or(|turn| open.turn == *turn));
        let source = |(session, OpenTask { call_id, agent, child_turn, .. })| SubagentSource {
            session,
            agent,
            call_id,
            task: child_turn,
        };
        Ok(open.map(source).collect())
    }
}

/// Returns the open suspension whose task the child in session `child` works on.
pub(super) fn suspension_of(session: &Session, child: &SessionId) -> Result<Option<Suspension>, StoreError> {
    let of_child = |own: &Suspension| own.child().filter(|wait| wait.task.session == *child).cloned();
    let own = session.suspensions()?.into_iter().filter_map(|own| Some((of_child(&own)?.task.number(), own)));
    Ok(own.min_by_key(|(number, _)| *number).map(|(_, own)| own))
}
