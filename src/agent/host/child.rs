//! The child's side of subagents: starts its task under the parent's rules, and notifies the parent of its
//! status until the parent has acknowledged the final one.

use super::{SessionHost, children::MESSAGE_TIMEOUT};
use crate::agent::ending::Ending;
use crate::ports::{Batch, PeerError, StoreError, within};
use crate::session::{DocumentKey, Draft, Session, discard_copy, document_key, kernel::Input};
use crate::turn::TurnMachine;
use crate::types::{
    Acknowledgement, CallId, ChildStatus, ErrorCode, Message, Part, Problem, SessionId, SessionMeta,
    SessionPermissions, Snapshot, SnapshotMeta, StopReason, TenantLimits, TurnOptions, TurnState, TurnStatus,
};
use std::{cmp::Ordering, rc::Rc};

impl SessionHost {
    /// Begins the task of a snapshot if it is a further one, or else applies the parent's current rules. Returns `false` if
    /// the task was canceled before it arrived.
    pub(super) fn follow_parent(
        self: &Rc<Self>,
        session: &Rc<Session>,
        snapshot: Snapshot,
    ) -> Result<bool, Problem> {
        let own = session.state().meta.parent.clone();
        let (Some(own), Some(given)) = (own, &snapshot.meta.meta.parent) else { return Err(taken()) };
        if own.session != given.session {
            return Err(taken());
        }
        match given.number.cmp(&own.number) {
            // A delayed message about an earlier task.
            Ordering::Less => Ok(true),
            Ordering::Equal if own != *given => Err(taken()),
            Ordering::Equal => self.follow_rules(session, &snapshot).map(|()| true),
            Ordering::Greater => {
                if is_refused(session, &given.call_id) {
                    return Ok(false);
                }
                self.begin_further_task(session, snapshot).map(|()| true)
            }
        }
    }

    fn begin_further_task(self: &Rc<Self>, session: &Rc<Session>, snapshot: Snapshot) -> Result<(), Problem> {
        let Snapshot { meta: SnapshotMeta { meta, totals }, tenant_policy, task, .. } = snapshot;
        let task =
            task.and_then(|(task, options)| self.task_turn(&meta, &tenant_policy.limits, task, options));
        let Some((turn, message)) = task else { return Ok(()) };
        // Nothing waits for the earlier task, which may still run because its cancellation was lost.
        self.end_task(session)?;
        let permissions = permissions_of_child(session, &meta);
        session.commit(self.now(), |draft| {
            draft.follow_parent(permissions, meta.mode.clone());
            draft.set_tenant_policy(tenant_policy);
            draft.set_ruled_at(totals.updated_at);
            draft.take_task(meta);
            draft.start_turn(turn, message);
        })?;
        Ok(())
    }

    /// Applies the parent's current rules to a child's session. Grants of the child's own approvals stay.
    fn follow_rules(&self, session: &Session, snapshot: &Snapshot) -> Result<(), Problem> {
        let Snapshot { meta: SnapshotMeta { meta, totals }, tenant_policy, .. } = snapshot;
        let permissions = permissions_of_child(session, meta);
        let (is_old, is_same) = {
            let own = session.state();
            let is_same = own.meta.permissions == permissions
                && own.meta.mode == meta.mode
                && !own.guidance.tenant_policy.is_replaced_by(tenant_policy);
            // A delayed message may carry older permissions than the stored ones.
            (own.child.as_ref().is_some_and(|child| totals.updated_at < child.ruled_at), is_same)
        };
        if is_old || is_same {
            return Ok(());
        }
        session.commit(self.now(), |draft| {
            draft.follow_parent(permissions, meta.mode.clone());
            draft.set_tenant_policy(tenant_policy.clone());
            draft.set_ruled_at(totals.updated_at);
        })?;
        Ok(())
    }

    /// Returns the turn that works on the task, and its message; `None` if `meta` is not of a child.
    pub(super) fn task_turn(
        &self,
        meta: &SessionMeta,
        limits: &TenantLimits,
        task: String,
        options: TurnOptions,
    ) -> Option<(TurnState, Rc<Message>)> {
        let turn = meta.parent.as_ref()?.task_turn.clone();
        let message = self.user_message(&turn, vec![Part::text(task)]);
        let budget = limits.lower(meta.budget);
        Some((TurnMachine::start(turn, self.now(), budget, options), message))
    }

    /// Cancels the task of this child, for call `call_id` of its parent, and returns its final status. If the
    /// task has not arrived yet, it is refused when it does.
    ///
    /// # Errors
    /// When the store fails.
    pub fn cancel_task(self: &Rc<Self>, id: &SessionId, call_id: &CallId) -> Result<ChildStatus, Problem> {
        let Some(session) = self.recover()? else {
            discard_copy(self.ports.store.as_ref())?;
            let put = vec![(DocumentKey::Canceled.to_string(), "null".to_owned())];
            self.ports.store.commit(Batch { put, ..Batch::default() })?;
            return Ok(ChildStatus::not_started(id.to_owned(), call_id.to_owned()));
        };
        let not_found = || Problem::not_found("subagent");
        let own = session.state().meta.parent.as_ref().map(|parent| parent.call_id.clone());
        let own = own.ok_or_else(not_found)?;
        // An earlier version sent no call for a child that no call waited for.
        if !call_id.is_empty() && own != *call_id {
            let refuse = |draft: &mut Draft| draft.refuse(call_id.clone());
            if !is_refused(&session, call_id) {
                session.commit(self.now(), refuse)?;
            }
            return Ok(ChildStatus::not_started(id.to_owned(), call_id.to_owned()));
        }
        self.end_task(&session)?;
        self.status(&session)?.ok_or_else(not_found)
    }

    /// Returns whether the task was canceled before it started.
    pub(super) fn is_canceled(&self) -> Result<bool, StoreError> {
        // An empty store has no tables to read from.
        let store = self.ports.store.as_ref();
        Ok(store.exists()? && document_key::read(store, &DocumentKey::Canceled)?.is_some())
    }

    /// Ends the task. The parent is still notified until it acknowledges the final status.
    fn end_task(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        self.end_with(session, Ending::new(StopReason::Canceled))?;
        Ok(())
    }

    /// Returns the status to send to the parent; `None` once the parent has acknowledged the final one.
    pub(super) fn unacknowledged_status(&self, session: &Session) -> Result<Option<ChildStatus>, StoreError> {
        let owes = session.state().child.as_ref().is_some_and(|child| !child.reported);
        if !owes {
            return Ok(None);
        }
        self.status(session)
    }

    /// Notifies the parent of the current status.
    pub(super) async fn notify_parent(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let Some(status) = self.unacknowledged_status(session)? else { return Ok(()) };
        let (tenant, parent) = {
            let meta = &session.state().meta;
            let Some(parent) = &meta.parent else { return Ok(()) };
            (meta.tenant.clone(), parent.session.clone())
        };
        let notified = self.ports.peers.notify(&tenant, &parent, status.clone());
        let notified = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, notified).await;
        let notified = notified.unwrap_or_else(|unfinished| Err(PeerError(unfinished.to_string())));
        match notified.map_err(|error| Problem::internal(error.to_string()))? {
            Acknowledgement::Recorded if status.is_final() => self.store_reported(session, &status.call_id),
            // Only a child that asks to continue is refused.
            Acknowledgement::Recorded | Acknowledgement::Refused(_) => {
                self.handle(Input::Acknowledged(status));
                Ok(())
            }
            Acknowledgement::NotWanted => {
                if has_task(session, &status.call_id) {
                    self.end_task(session)?;
                }
                self.store_reported(session, &status.call_id)
            }
            // The parent was erased before this session was created, so the erasure missed it.
            Acknowledgement::NoSession => self.erase_own(session).await,
        }
    }

    /// Stores that the parent needs no further status of the task of this call.
    fn store_reported(&self, session: &Session, call_id: &CallId) -> Result<(), Problem> {
        // The parent may have given the child a further task since.
        if has_task(session, call_id) {
            session.commit(self.now(), |draft| draft.set_reported())?;
        }
        Ok(())
    }

    /// Returns the status of the task; `None` if this session is not a child.
    fn status(&self, session: &Session) -> Result<Option<ChildStatus>, StoreError> {
        let state = session.state();
        let Some(parent) = state.meta.parent.clone() else { return Ok(None) };
        let mut status = ChildStatus::running(state.meta.id.clone(), parent.call_id);
        if let Some(turn) = state.activity.turn.as_ref().filter(|turn| turn.id == parent.task_turn) {
            if turn.waits_for_people() {
                status.status = TurnStatus::Waiting;
                status.pending = session.pending()?;
            }
            return Ok(Some(status));
        }
        let Some(end) = session.turn_ended(&parent.task_turn)? else {
            // Version 2 stored a child before its task, and its process ended in between.
            status.status = TurnStatus::Failed;
            status.error = Some("the task was not started".into());
            return Ok(Some(status));
        };
        status.status = end.status;
        status.text = end.reply.map(|reply| reply.text).unwrap_or_default();
        status.error = end.error.map(|error| error.message);
        status.usage = end.usage;
        status.cost_usd = end.cost_usd;
        status.steps = end.steps;
        // Calls over the budget were denied.
        status.tool_calls = end.outcomes.values().sum::<u32>().min(state.meta.budget.max_tool_calls);
        Ok(Some(status))
    }
}

/// Returns the permissions of a child: the parent's, which are in `given`, and what the child's own approvals granted.
fn permissions_of_child(session: &Session, given: &SessionMeta) -> SessionPermissions {
    let mut permissions = given.permissions.clone();
    if let Some(child) = &session.state().child {
        permissions.grant(&child.granted);
    }
    permissions
}

/// Returns whether the task of this call was canceled before it arrived.
fn is_refused(session: &Session, call_id: &CallId) -> bool {
    session.state().child.as_ref().is_some_and(|child| child.refused.contains(call_id))
}

/// Returns whether the child's task is that of this call of the parent.
fn has_task(session: &Session, call_id: &CallId) -> bool {
    session.state().meta.parent.as_ref().is_some_and(|parent| parent.call_id == *call_id)
}

fn taken() -> Problem {
    Problem::new(ErrorCode::AlreadyExists, "another session has the id of this subagent")
}
