//! The child's side of subagents: starts its task under the parent's rules, and notifies the parent of its
//! status until the parent has acknowledged the final one.

use super::{SessionHost, children::MESSAGE_TIMEOUT};
use crate::agent::ending::Ending;
use crate::ports::{Batch, PeerError, StoreError, within};
use crate::session::{DocumentKey, Session, discard_copy, document_key, kernel::Input};
use crate::turn::TurnMachine;
use crate::types::{
    Acknowledgement, CallId, ChildStatus, ErrorCode, Message, Part, Problem, SessionId, SessionMeta,
    Snapshot, SnapshotMeta, StopReason, TenantLimits, TurnOptions, TurnState, TurnStatus,
};
use std::rc::Rc;

impl SessionHost {
    /// Applies the parent's current rules to a child's session. Grants of the child's own approvals stay.
    pub(super) fn follow_rules(&self, session: &Session, snapshot: &Snapshot) -> Result<(), Problem> {
        let Snapshot { meta: SnapshotMeta { meta, totals }, tenant_policy, .. } = snapshot;
        let permissions = {
            let own = session.state();
            if own.meta.parent != meta.parent {
                return Err(Problem::new(
                    ErrorCode::AlreadyExists,
                    "another session has the id of this subagent",
                ));
            }
            let Some(child) = &own.child else { return Ok(()) };
            let mut permissions = meta.permissions.clone();
            permissions.grant(&child.granted);
            let is_same = own.meta.permissions == permissions
                && own.meta.mode == meta.mode
                && !own.guidance.tenant_policy.is_replaced_by(tenant_policy);
            // A delayed message may carry older permissions than the stored ones.
            if totals.updated_at < child.ruled_at || is_same {
                return Ok(());
            }
            permissions
        };
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
        if session.state().meta.parent.is_none() {
            return Err(not_found());
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
            Acknowledgement::Recorded if status.is_final() => self.store_reported(session),
            // Only a child that asks to continue is refused.
            Acknowledgement::Recorded | Acknowledgement::Refused(_) => {
                self.handle(Input::Acknowledged(status));
                Ok(())
            }
            Acknowledgement::NotWanted => {
                self.end_task(session)?;
                self.store_reported(session)
            }
            // The parent was erased before this session was created, so the erasure missed it.
            Acknowledgement::NoSession => {
                let id = session.state().meta.id.clone();
                self.erase(&tenant, &id).await
            }
        }
    }

    fn store_reported(&self, session: &Session) -> Result<(), Problem> {
        session.commit(self.now(), |draft| draft.set_reported())?;
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
