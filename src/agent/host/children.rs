//! The parent's side of subagents. A child runs in its own session while the parent's tool call is suspended.
//! All state is durable, and both messages, the task with its rules and the child's status, are at-least-once
//! and idempotent.

use super::{
    SessionHost,
    delegation::{Delegation, Waiter, suspension_of},
    resolved::{ResolvedCalls, Settled},
};
use crate::ports::{PeerError, PeerRequest, PeerResponse, StoreError, session_store::Select, within};
use crate::session::{
    Session,
    kernel::{Input, SessionKernel},
    suspensions::{Row, child_completed, row},
};
use crate::turn::policy;
use crate::types::{
    Acknowledgement, CallId, ChildKey, ChildSettings, ChildStatus, ChildTask, ErrorCode, EventKind, Imported,
    Parent, Problem, Promoted, Resolution, SessionId, SessionMeta, Snapshot, SnapshotMeta, SubagentKind,
    Suspension, Timestamp, ToolOutcome, TurnOptions, TurnStatus, Wait,
    json::from_value,
    session::{SCHEMA, Totals},
};
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;
use std::{cell::RefCell, rc::Rc};

/// How long to retry sending a task that the child never acknowledged.
const GIVE_UP_AFTER: Duration = Duration::from_mins(5);
/// Timeout of a message to another session.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// How long an abort waits for the statuses of the children that it cancels.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(700);

impl SessionHost {
    /// Sends a child its task and the current rules.
    pub(super) async fn notify_child(
        self: &Rc<Self>,
        session: &Rc<Session>,
        child: &SessionId,
    ) -> Result<(), Problem> {
        let Some(delegation) = Delegation::of(session, child)? else { return Ok(()) };
        let key = ChildKey { session: child.clone(), call_id: delegation.call_id.clone() };
        let tenant = session.state().meta.tenant.clone();
        let rules = rules_hash(session);
        let snapshot = self.snapshot(session, &delegation)?;
        // A fork gets the log, until it has acknowledged its task.
        let is_copy = delegation.task.forked && delegation.task.further.is_none();
        let imported = if is_copy && delegation.notified.is_none() {
            self.export(session, fork_point(session, &delegation)?, child, snapshot).await
        } else {
            let imported = self.ports.peers.import(&tenant, child, snapshot);
            let imported = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, imported).await;
            imported.unwrap_or_else(|unfinished| Err(PeerError(unfinished.to_string())))
        };
        // While the message was in flight, the call may have been resolved and its turn may have ended, and the child may
        // have got another task.
        let own = Delegation::of(session, child)?.filter(|own| own.call_id == key.call_id);
        let Some(delegation) = own else {
            self.handle(Input::Cancel(vec![key]));
            return Ok(());
        };
        match imported {
            Ok(Imported::Session(_)) => {
                self.handle(Input::ChildNotified(child.to_owned()));
                self.store_notified(session, delegation, rules)
            }
            Ok(Imported::Canceled) => {
                let status = ChildStatus::not_started(child.clone(), delegation.call_id.clone());
                match delegation.waiter {
                    Waiter::Call(suspension) => self.resolve_child(session, *suspension, status).map(drop),
                    Waiter::Task(id) => self.finish_task(session, &id, status),
                }
            }
            Ok(Imported::Taken) => self.fail_child(session, delegation, "another session has its id"),
            Ok(Imported::Missing) => self.fail_child(session, delegation, "its session was deleted"),
            // A child that has acknowledged a task keeps it, and can be reached again, however long this takes.
            Err(error) => {
                let late = self.now().since(delegation.since) > GIVE_UP_AFTER;
                let exists = delegation.notified.is_some() || delegation.task.further.is_some();
                if !late || exists {
                    return Err(Problem::internal(error.to_string()));
                }
                self.handle(Input::Cancel(vec![key]));
                self.fail_child(session, delegation, &format!("it could not be reached: {error}"))
            }
        }
    }

    /// Stores that a child has acknowledged its task and these rules.
    fn store_notified(
        &self,
        session: &Session,
        delegation: Delegation,
        rules: String,
    ) -> Result<(), Problem> {
        if delegation.notified.as_ref() == Some(&rules) {
            return Ok(());
        }
        let mut suspension = match delegation.waiter {
            Waiter::Call(suspension) => *suspension,
            Waiter::Task(id) => return Ok(self.store_task_notified(session, &id, rules)?),
        };
        let Wait::Child(child) = &mut suspension.wait else { return Ok(()) };
        child.notified = Some(rules);
        let (key, json) = row(&suspension)?;
        session.commit(self.now(), |draft| draft.put(key, json))?;
        Ok(())
    }

    fn fail_child(
        self: &Rc<Self>,
        session: &Rc<Session>,
        delegation: Delegation,
        why: &str,
    ) -> Result<(), Problem> {
        let suspension = match delegation.waiter {
            Waiter::Call(suspension) => *suspension,
            Waiter::Task(id) => {
                let failed = ChildStatus::failed(delegation.task.session, delegation.call_id, why);
                return self.finish_task(session, &id, failed);
            }
        };
        let failed = Resolution::Failed { reason: format!("the subagent failed: {why}") };
        let record = match suspension.child() {
            Some(child) => child_completed(&suspension.call_id, child, TurnStatus::Failed, None),
            None => return Ok(()),
        };
        let settled = Settled::new(suspension.resolved(failed), record);
        self.settle(session, ResolvedCalls::new(vec![settled], "subagent")).map(drop)
    }

    /// Resolves the call that waits for a child with the child's final status.
    fn resolve_child(
        self: &Rc<Self>,
        session: &Rc<Session>,
        suspension: Suspension,
        status: ChildStatus,
    ) -> Result<(), Problem> {
        let Some(child) = suspension.child() else { return Ok(()) };
        let record = child_completed(&suspension.call_id, child, status.status, Some(&status));
        let answered = Resolution::Answered { answer: json!(status) };
        let settled = Settled { charge: Some(status), ..Settled::new(suspension.resolved(answered), record) };
        self.settle(session, ResolvedCalls::new(vec![settled], "subagent")).map(drop)
    }

    /// Handles a status sent by a child.
    ///
    /// # Errors
    /// When the store fails, or the ledger if the child asks to continue. The child then sends the status again.
    pub async fn child_status(self: &Rc<Self>, status: ChildStatus) -> Result<Acknowledgement, Problem> {
        if self.kernel.borrow().erasing {
            // The erasure misses a child that is created late. It erases itself once it finds no parent.
            return Err(Problem::new(ErrorCode::Unavailable, "this session is being erased"));
        }
        let Some(session) = self.recover()? else { return Ok(Acknowledgement::NoSession) };
        if !status.asks_to_continue {
            self.asks.borrow_mut().remove(&status.call_id);
        }
        let Some(suspension) = session.child_suspension(&status.call_id, &status.session)? else {
            return self.task_status(&session, status).await;
        };
        if status.asks_to_continue {
            return self.let_child_continue(&session, &suspension).await;
        }
        if status.is_final() {
            self.resolve_child(&session, suspension, status)?;
        } else {
            self.store_pending(&session, suspension, status.pending, None)?;
        }
        Ok(Acknowledgement::Recorded)
    }

    /// Stores the child's calls that wait for a person. While there are any, the parent's turn waits for a
    /// person too. `slot_until` is until when the session holds a slot that it was admitted to because of this change.
    pub(super) fn store_pending(
        &self,
        session: &Session,
        suspension: Suspension,
        pending: Vec<crate::types::Pending>,
        slot_until: Option<Timestamp>,
    ) -> Result<(), Problem> {
        let mut suspension = suspension;
        let Wait::Child(child) = &mut suspension.wait else { return Ok(()) };
        if child.pending == pending {
            return Ok(());
        }
        child.pending = pending;
        let mut all = session.suspensions()?;
        for own in all.iter_mut().filter(|own| own.call_id == suspension.call_id && own.child().is_some()) {
            *own = suspension.clone();
        }
        let (key, json) = row(&suspension)?;
        session.commit(self.now(), |draft| {
            draft.put(key, json);
            draft.hold_slot(slot_until);
            let Some(turn) = draft.turn_mut() else { return };
            turn.set_waits(all.iter());
            if !turn.delegated {
                let people = all.iter().filter(|own| !own.is_delegated());
                let pending = people.map(Suspension::pending).collect();
                draft.record(Some(&suspension.turn), EventKind::TurnWaiting { pending });
            }
        })?;
        Ok(())
    }

    /// Sends what a caller says to call `call_id` of a child. Returns the child's response; `None` if no call of the current
    /// turn waits for such a child.
    ///
    /// # Errors
    /// A failed store, and `unavailable` if the child cannot be reached.
    pub async fn post_to_child(
        &self,
        session: &Session,
        child: &SessionId,
        call_id: &CallId,
        request: PeerRequest,
    ) -> Result<Option<PeerResponse>, Problem> {
        if suspension_of(session, child)?.is_none() {
            return Ok(None);
        }
        let posted = self.ports.peers.post(child, request);
        let posted = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, posted).await;
        let posted = posted.unwrap_or_else(|unfinished| Err(PeerError(unfinished.to_string())));
        let response = posted
            .map_err(|error| Problem::unavailable("the subagent cannot be reached; try again", error))?;
        // The child reports the same. Without waiting for that, the caller sees at once what the turn still waits for.
        if (200..300).contains(&response.status)
            && let Some(suspension) = suspension_of(session, child)?
            && let Some(wait) = suspension.child()
        {
            let left = wait.pending.iter().filter(|own| own.call_id != *call_id).cloned().collect();
            self.store_pending(session, suspension, left, None)?;
        }
        Ok(Some(response))
    }

    /// Cancels the children of the current turn before an abort, and returns the statuses that arrive in
    /// time. If the abort fails, the children send their statuses again.
    pub async fn cancel_children(self: &Rc<Self>, session: &Session) -> Vec<ChildStatus> {
        let suspensions = session.suspensions().unwrap_or_default();
        let calls: Vec<(CallId, SessionId)> = suspensions
            .iter()
            .filter_map(|own| Some((own.call_id.clone(), own.child()?.task.session.clone())))
            .collect();
        let canceling = Canceling::new(&self.kernel);
        let tenant = session.state().meta.tenant.clone();
        let canceled = calls.iter().map(|(call_id, child)| async {
            let canceled = self.ports.peers.cancel(&tenant, child, call_id);
            within(self.ports.clock.as_ref(), CANCEL_TIMEOUT, canceled).await.ok()?.ok()
        });
        let statuses = join_all(canceled).await.into_iter().flatten().collect();
        drop(canceling);
        // Continues what was held back, in case the caller does not abort. A turn starts with the next task, so an
        // abort without an await in between still comes first.
        self.run_due();
        statuses
    }

    /// Cancels the tasks of these suspensions in the background.
    pub(super) fn cancel_later(self: &Rc<Self>, suspensions: &[Suspension]) {
        let key = |own: &Suspension| {
            let session = own.child()?.task.session.clone();
            Some(ChildKey { session, call_id: own.call_id.clone() })
        };
        let tasks: Vec<_> = suspensions.iter().filter_map(key).collect();
        if !tasks.is_empty() {
            self.handle(Input::Cancel(tasks));
        }
    }

    /// Cancels a task of a child for which nothing waits.
    pub(super) async fn cancel_child(
        self: &Rc<Self>,
        session: &Session,
        task: &ChildKey,
    ) -> Result<(), PeerError> {
        let tenant = session.state().meta.tenant.clone();
        let canceled = self.ports.peers.cancel(&tenant, &task.session, &task.call_id);
        let canceled = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, canceled).await;
        let canceled = canceled.unwrap_or_else(|unfinished| Err(PeerError(unfinished.to_string())));
        self.task_canceled(session, task, canceled)
    }

    /// Returns the outcomes of the calls of the current step whose subagents have ended, or have gone on in the background,
    /// while the step still waits for other calls.
    pub(super) fn known_outcomes(&self, session: &Session) -> Vec<(CallId, ToolOutcome)> {
        let known = |(call_id, _)| {
            let own = session.suspension(Row::Answer, &call_id).ok()??;
            let own = session.is_current_turn(&own.turn).then_some(own)?;
            Some((call_id, child_outcome(own)?))
        };
        session.open_calls().into_iter().filter_map(known).collect()
    }

    /// Builds the snapshot from which a child is created: rules, mode, task, and its share of the turn's
    /// remaining budget. It has no log; [`SessionHost::export`] adds that of a fork.
    fn snapshot(&self, session: &Session, delegation: &Delegation) -> Result<Snapshot, StoreError> {
        let ChildTask { agent, task, forked, session: child, further, .. } = &delegation.task;
        let state = session.state();
        let ChildSettings { model, budget, tools, think } = match &delegation.settings {
            Some(settings) => settings.clone(),
            None => {
                let suspensions = session.suspensions()?;
                let siblings = suspensions.iter().filter(|own| own.child().is_some()).count().max(1) as u64;
                let own = state.activity.turn.as_ref().filter(|turn| turn.id == delegation.turn);
                let Some(turn) = own else { return Err(StoreError("the turn is over".into())) };
                self.agent().child_settings(&state, turn, &delegation.task, siblings)
            }
        };
        let options = TurnOptions { tools, think, show_citations: false, ..TurnOptions::default() };
        let now = self.now();
        let mut meta = SessionMeta {
            id: child.clone(),
            title: None,
            title_pinned: false,
            model,
            metadata: Default::default(),
            budget,
            parent: Some(Parent {
                session: state.meta.id.clone(),
                turn: delegation.turn.clone(),
                call_id: delegation.call_id.clone(),
                agent: agent.clone(),
                forked: *forked,
                task_turn: delegation.task.turn(),
                number: delegation.task.number(),
            }),
            created_at: now,
            permissions: state.meta.permissions.clone(),
            ..SessionMeta::clone(&state.meta)
        };
        meta.isolated = self.agent().kind_of(&meta).is_some_and(SubagentKind::is_isolated);
        Ok(Snapshot {
            schema: SCHEMA,
            meta: SnapshotMeta { meta, totals: Totals { updated_at: now, ..Totals::default() } },
            forked_from: forked.then(|| state.meta.id.clone()),
            tenant_policy: state.guidance.tenant_policy.clone(),
            // A child that has acknowledged a task exists.
            records: (delegation.notified.is_none() && further.is_none()).then(Vec::new),
            task: Some((task.clone(), options)),
        })
    }
}

/// Returns the sequence number of the record up to which a fork gets the log. What follows while it works in the background
/// does not concern it.
fn fork_point(session: &Session, delegation: &Delegation) -> Result<u64, StoreError> {
    let select = Select { turn: Some(&delegation.turn), kinds: &["subagent.started"], ..Select::default() };
    for record in session.records(select) {
        let record = record?;
        if matches!(&record.kind, EventKind::SubagentStarted { call_id, .. } if *call_id == delegation.call_id)
        {
            return Ok(record.seq);
        }
    }
    Ok(session.last_seq())
}

/// Returns the outcome of a call if its subagent has ended, or has gone on in the background.
fn child_outcome(own: Suspension) -> Option<ToolOutcome> {
    let task = &own.child()?.task;
    match own.resolution.clone()? {
        Resolution::Answered { answer } => match from_value::<Promoted>(answer.clone()) {
            Ok(promoted) => Some(promoted.outcome(task)),
            Err(_) => Some(from_value::<ChildStatus>(answer).ok()?.outcome()),
        },
        Resolution::Failed { reason } => Some(ToolOutcome::failure(reason)),
        Resolution::Approved { .. } | Resolution::Declined { .. } | Resolution::Unknown { .. } => None,
    }
}

/// Returns the hash of the rules that children of this session must acknowledge.
pub(super) fn rules_hash(session: &Session) -> String {
    let state = session.state();
    policy::args_hash(&json!([state.meta.permissions, state.meta.mode, state.guidance.tenant_policy]))
}

/// Keeps the kernel from sending tasks to children, and from continuing the turn, until it is dropped.
struct Canceling<'a>(&'a RefCell<SessionKernel>);

impl<'a> Canceling<'a> {
    fn new(kernel: &'a RefCell<SessionKernel>) -> Self {
        kernel.borrow_mut().canceling = true;
        Self(kernel)
    }
}

impl Drop for Canceling<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().canceling = false;
    }
}
