//! Background tasks: subagents for which no call waits any longer.
//!
//! A call of `agent_spawn` is suspended like one of `subagent`. When its time runs out, the kernel's job `Promote` stores
//! the task in the parent's state and resolves the call. The same messages as before then concern the task: the child
//! notifies the parent of its status, and the parent the child of the rules. The first final status ends the task; the
//! parent refuses later ones.

use super::{
    Admittance, SessionHost,
    continuations::owner,
    resolved::{NewTask, ResolvedCalls, Settled},
};
use crate::ports::{PeerError, StoreError};
use crate::session::{
    Draft, Session, encode,
    kernel::{self, Input},
};
use crate::turn::TurnMachine;
use crate::types::{
    Acknowledgement, BackgroundTask, BackgroundTasks, BudgetPatch, ChildKey, ChildStatus, EventKind, Part,
    Problem, Promoted, Resolution, Suspension, TaskDetails, Timestamp, TurnId, TurnOptions, TurnStatus,
};
use std::{rc::Rc, time::Duration};

/// How long the cancellation of a child that cannot be reached is retried before its task counts as canceled.
const CANCEL_FOR: Duration = Duration::from_mins(1);

/// The message of a turn that finished tasks start.
const WOKEN: &str = "<system-reminder>\nThis message comes from the harness that runs you, not from the user. \
                     Background tasks have ended; their results follow. Continue the work that needed them, and tell the \
                     user the result.\n</system-reminder>";

impl SessionHost {
    /// Lets the subagents whose calls have waited long enough go on in the background.
    pub(super) fn promote(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let now = self.now();
        let is_due = |own: &Suspension| own.promote_at().is_some_and(|at| at <= now);
        let due = session.suspensions()?.into_iter().filter(is_due);
        let settled: Vec<Settled> = due.map(|own| self.promoted(own)).collect::<Result<_, _>>()?;
        if !settled.is_empty() {
            self.settle(session, ResolvedCalls::new(settled, "background"))?;
        }
        Ok(())
    }

    /// Returns the call as resolved by the task that takes its place.
    fn promoted(&self, suspension: Suspension) -> Result<Settled, Problem> {
        let found = suspension.child().and_then(|child| Some((child.clone(), child.settings.clone()?)));
        let Some((child, settings)) = found else {
            return Err(Problem::internal("the call waits for no subagent that may go on in the background"));
        };
        let id = child.task.turn();
        let task = BackgroundTask {
            id: id.clone(),
            session: child.task.session.clone(),
            agent: child.task.agent.clone(),
            label: child.task.label.clone(),
            number: child.task.number(),
            turn: suspension.turn.clone(),
            call_id: suspension.call_id.clone(),
            budget: settings.budget,
            started_at: suspension.asked_at,
            expires_at: suspension.expires_at,
            status: TurnStatus::Running,
            notified: child.notified,
            canceled_at: None,
            ended_at: None,
            shown_in: None,
            wakes: self.agent().settings.background == BackgroundTasks::Wake,
        };
        let details =
            TaskDetails { task: child.task, settings: *settings, pending: Vec::new(), result: None };
        let promotes = Some(Box::new(NewTask { task, details: encode(&details)? }));
        let answer = Promoted::answer(id);
        let suspension = suspension.resolved(Resolution::Answered { answer });
        Ok(Settled { suspension, record: None, charge: None, promotes })
    }

    /// Handles the status of a child that works on a background task.
    pub(super) async fn task_status(
        self: &Rc<Self>,
        session: &Rc<Session>,
        status: ChildStatus,
    ) -> Result<Acknowledgement, Problem> {
        let key = ChildKey { session: status.session.clone(), call_id: status.call_id.clone() };
        let task = session.state().subagents.open_of(&key).cloned();
        let Some(task) = task else { return Ok(Acknowledgement::NotWanted) };
        if status.asks_to_continue {
            return self.let_task_continue(session, &task).await;
        }
        if status.is_final() {
            self.finish_task(session, &task.id, status)?;
        } else {
            self.store_task_status(session, &task.id, status, None)?;
        }
        Ok(Acknowledgement::Recorded)
    }

    /// Ends a task with the final status of its child. If it has ended, nothing changes.
    pub(super) fn finish_task(
        &self,
        session: &Session,
        id: &TurnId,
        ended: ChildStatus,
    ) -> Result<(), Problem> {
        let now = self.now();
        let Some(details) = session.task_details(id)? else { return Ok(()) };
        let details = encode(&TaskDetails { pending: Vec::new(), result: Some(ended.clone()), ..details })?;
        let is_streaming = session.hub().is_streaming();
        session.commit(now, |draft| {
            let Some(task) = draft.open_task_mut(id).map(|task| task.clone()) else { return };
            draft.put_task_details(id, details);
            draft.end_task(id, &ended, now);
            let turn = draft.turn_mut().filter(|turn| turn.id == task.turn && !is_streaming);
            match turn {
                Some(turn) => {
                    TurnMachine(turn).give_back(&task.budget);
                    let charged = TurnMachine(turn).charge_subagent(&ended);
                    draft.record(Some(&task.turn), charged);
                }
                // The turn that started it is over, or its end may be stored before this record. Then the share stays set
                // aside.
                None => draft.add_usage(ended.usage, ended.cost_usd),
            }
        })?;
        Ok(())
    }

    /// Stores a status that is not final. `slot_until` is until when the session holds a slot that it was admitted to
    /// because of this change.
    pub(super) fn store_task_status(
        &self,
        session: &Session,
        id: &TurnId,
        reported: ChildStatus,
        slot_until: Option<Timestamp>,
    ) -> Result<(), Problem> {
        let Some(details) = session.task_details(id)? else { return Ok(()) };
        let (status, pending) = (reported.status, reported.pending);
        let known = session.state().subagents.get(id).map(|task| task.status);
        if known == Some(status) && details.pending == pending {
            return Ok(());
        }
        let details = encode(&TaskDetails { pending: pending.clone(), ..details })?;
        session.commit(self.now(), |draft| {
            let Some(task) = draft.open_task_mut(id) else { return };
            task.status = status;
            let (session, agent) = (task.session.clone(), task.agent.clone());
            draft.put_task_details(id, details);
            draft.hold_slot(slot_until);
            draft.record(None, EventKind::TaskProgress { task: id.clone(), session, agent, status, pending });
        })?;
        Ok(())
    }

    /// Cancels a background task. Returns `false` if there is no such task, or it has ended.
    ///
    /// # Errors
    /// When the store fails.
    pub fn cancel_background_task(&self, session: &Session, id: &TurnId) -> Result<bool, Problem> {
        if session.state().subagents.open().all(|task| task.id != *id) {
            return Ok(false);
        }
        let now = self.now();
        session.commit(now, |draft| draft.cancel_task(id, now))?;
        Ok(true)
    }

    /// Cancels all background tasks, and lets no task start a turn any more. Returns whether a task was canceled.
    ///
    /// # Errors
    /// When the store fails.
    pub fn cancel_background_tasks(&self, session: &Session) -> Result<bool, Problem> {
        let subagents = Rc::clone(&session.state().subagents);
        let open = subagents.open().filter(|task| task.canceled_at.is_none());
        let open: Vec<TurnId> = open.map(|task| task.id.clone()).collect();
        if open.is_empty() && !subagents.tasks.iter().any(BackgroundTask::wants_turn) {
            return Ok(false);
        }
        let now = self.now();
        session.commit(now, |draft| {
            open.iter().for_each(|id| draft.cancel_task(id, now));
            draft.wake_no_more();
        })?;
        Ok(!open.is_empty())
    }

    /// Ends the canceled background task `task` with the response to the cancellation. If the child cannot be reached
    /// for a while, the task ends all the same, and the child is canceled when it can be reached.
    pub(super) fn task_canceled(
        self: &Rc<Self>,
        session: &Session,
        task: &ChildKey,
        canceled: Result<ChildStatus, PeerError>,
    ) -> Result<(), PeerError> {
        let task = session.state().subagents.open_of(task).cloned();
        let Some((task, since)) = task.and_then(|task| task.canceled_at.map(|at| (task, at))) else {
            return canceled.map(drop);
        };
        let not_started = ChildStatus::not_started(task.session.clone(), task.call_id.clone());
        let ended = |status| {
            self.finish_task(session, &task.id, status).map_err(|error| PeerError(error.to_string()))
        };
        match canceled {
            Ok(status) => ended(if status.is_final() { status } else { not_started }),
            Err(error) => {
                if self.now().since(since) >= CANCEL_FOR {
                    ended(not_started)?;
                    self.handle(Input::Cancel(vec![task.key()]));
                }
                Err(error)
            }
        }
    }

    /// Gives up the background tasks that have expired, and returns them.
    pub(super) fn expire_tasks(&self, session: &Session) -> Result<Vec<ChildKey>, Problem> {
        let now = self.now();
        let expired: Vec<BackgroundTask> =
            session.state().subagents.open().filter(|task| task.expires_at <= now).cloned().collect();
        for task in &expired {
            let why = "the task did not end in time";
            let failed = ChildStatus::failed(task.session.clone(), task.call_id.clone(), why);
            self.finish_task(session, &task.id, failed)?;
        }
        Ok(expired.iter().map(BackgroundTask::key).collect())
    }

    /// Starts a turn because background tasks have ended. If the agent was deleted, its tasks start no turns any more, or the
    /// tenant has reached a limit of the day, the results wait for the next message of the user.
    pub(super) async fn start_woken(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        self.read_deletion().await;
        let may_wake =
            self.check_agent().is_ok() && self.agent().settings.background == BackgroundTasks::Wake;
        let admitted = if may_wake { self.admit_woken(session).await } else { Ok(None) };
        // What running turns hold of a limit becomes free.
        let is_over = |problem: &Problem| problem.reached.as_ref().is_some_and(|reached| !reached.held);
        let admittance = match admitted {
            Ok(admittance) if may_wake => admittance,
            Err(problem) if !is_over(&problem) => return Err(problem),
            _ => return Ok(session.commit(self.now(), Draft::wake_no_more)?),
        };
        // A message may have arrived during the await.
        let is_idle = kernel::wakes(&session.state());
        let stored = if is_idle {
            let turn = self.new_id::<TurnId>();
            let message = self.user_message(&turn, vec![Part::text(WOKEN)]);
            let budget = self.limits_of(session).lower(session.state().meta.budget);
            let turn = TurnMachine::start(turn, self.now(), budget, TurnOptions::default());
            session.commit(self.now(), |draft| {
                draft.hold_slot(admittance.as_ref().and_then(|admittance| admittance.slot_until));
                draft.start_woken_turn(turn, message);
            })
        } else {
            Ok(())
        };
        self.settle_admittance(session, admittance, is_idle && stored.is_ok());
        Ok(stored?)
    }

    async fn admit_woken(self: &Rc<Self>, session: &Rc<Session>) -> Result<Option<Admittance>, Problem> {
        if !self.needs_admission() {
            return Ok(None);
        }
        let (tenant, id) = owner(session);
        self.admit(&tenant, &id, Some(session), &BudgetPatch::default()).await.map(Some)
    }

    /// Stores that a child has acknowledged its background task and these rules.
    pub(super) fn store_task_notified(
        &self,
        session: &Session,
        id: &TurnId,
        rules: String,
    ) -> Result<(), StoreError> {
        session.commit(self.now(), |draft| {
            if let Some(task) = draft.open_task_mut(id) {
                task.notified = Some(rules);
            }
        })
    }
}
