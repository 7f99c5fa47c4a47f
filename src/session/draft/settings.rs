//! Changes of what callers, tools and parents set: title, model, permissions, state, plan, tasks.

use super::Draft;
use crate::types::{
    AgentVersion, CallId, EventKind, Grants, PlanRef, SessionMeta, SessionPermissions, Task, TenantPolicy,
    Timestamp, TurnId,
};
use serde_json::{Map, Value, json};

/// Maximum number of canceled calls that a child keeps.
const MAX_REFUSED: usize = 64;

/// A change of a session by its caller. `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionChange {
    /// The title. A title set by a caller is replaced only by a caller; `Some(None)` derives it again.
    pub title: Option<Option<String>>,
    /// The caller's data.
    pub metadata: Option<Map<String, Value>>,
    /// The permission rules and grants.
    pub permissions: Option<SessionPermissions>,
}

impl Draft {
    /// Applies a change by the caller, and records the fields that have new values.
    pub fn update(&mut self, change: SessionChange) {
        if change.title.is_some() {
            self.relist();
        }
        let SessionChange { title, metadata, permissions } = change;
        let pinned = title.as_ref().map(Option::is_some);
        let SessionMeta { title: own_title, title_pinned, metadata: own_metadata, permissions: own, .. } =
            self.meta();
        let mut changed = Map::new();
        set(title_pinned, pinned, |new| drop(changed.insert("title_pinned".into(), json!(new))));
        set(own_title, title, |new| drop(changed.insert("title".into(), json!(new))));
        set(own_metadata, metadata, |new| drop(changed.insert("metadata".into(), json!(new))));
        set(own, permissions, |new| drop(changed.insert("permissions".into(), json!(new))));
        if !changed.is_empty() {
            self.record(None, EventKind::SessionUpdated { changed: Value::Object(changed) });
        }
    }

    /// Sets the model, and records the change if it is another one.
    pub fn set_model(&mut self, model: Option<String>) {
        if self.state.meta.model != model {
            let previous = std::mem::replace(&mut self.meta().model, model.clone());
            self.record(None, EventKind::ModelChanged { model, previous });
        }
    }

    /// Moves the session to a version of its agent, and records the change if it is another one.
    pub fn set_agent_version(&mut self, version: AgentVersion) {
        if self.state.meta.agent_version != version {
            let previous = std::mem::replace(&mut self.meta().agent_version, version);
            self.record(None, EventKind::AgentChanged { version, previous });
        }
    }

    /// Stores the model to use in a mode.
    pub(crate) fn remember_model(&mut self, mode: &str, model: Option<String>) {
        self.guidance().mode_models.insert(mode.to_owned(), model);
    }

    /// Sets the caller's state, and records which of its keys changed. The caller has applied the rules for it.
    pub(crate) fn set_state(
        &mut self,
        turn: Option<&TurnId>,
        state: Map<String, Value>,
        changed_keys: Vec<String>,
    ) {
        self.meta().state = state;
        if !changed_keys.is_empty() {
            self.record(turn, EventKind::StateChanged { changed_keys });
        }
    }

    /// Sets the approved plan.
    pub(crate) fn set_plan(&mut self, plan: Option<PlanRef>) {
        self.guidance().plan = plan;
    }

    /// Replaces the task list, and records it.
    pub(crate) fn set_tasks(&mut self, turn: &TurnId, tasks: Vec<Task>) {
        self.guidance().tasks.clone_from(&tasks);
        self.record(Some(turn), EventKind::TaskListUpdated { tasks });
    }

    /// Adds grants. A child keeps its own apart, because its other permissions are the parent's.
    pub(crate) fn grant(&mut self, granted: &Grants) {
        self.meta().permissions.grant(granted);
        if let Some(child) = self.child() {
            child.granted.join(granted);
        }
    }

    /// Sets the tenant's policy, unless the session has a newer one.
    pub(crate) fn set_tenant_policy(&mut self, policy: TenantPolicy) {
        let guidance = self.guidance();
        if guidance.tenant_policy.is_replaced_by(&policy) {
            guidance.tenant_policy = policy;
        }
    }

    /// Stores when the parent sent its permissions, if the session is a child.
    pub(crate) fn set_ruled_at(&mut self, at: Timestamp) {
        if let Some(child) = self.child() {
            child.ruled_at = at;
        }
    }

    /// Sets the permissions of a child, which are the parent's and its own grants, and its mode.
    pub(crate) fn follow_parent(&mut self, permissions: SessionPermissions, mode: Option<String>) {
        let meta = self.meta();
        meta.permissions = permissions;
        meta.mode = mode;
    }

    /// Gives a child a further task, and the settings for it.
    pub(crate) fn take_task(&mut self, given: SessionMeta) {
        let meta = self.meta();
        (meta.parent, meta.model, meta.budget) = (given.parent, given.model, given.budget);
        if let Some(child) = self.child() {
            child.reported = false;
        }
    }

    /// Stores that the task of this call of the parent is refused when it arrives.
    pub(crate) fn refuse(&mut self, call_id: CallId) {
        if let Some(child) = self.child() {
            child.refused.push(call_id);
            let surplus = child.refused.len().saturating_sub(MAX_REFUSED);
            child.refused.drain(..surplus);
        }
    }

    /// Stores that the parent has acknowledged the final status of the task.
    pub(crate) fn set_reported(&mut self) {
        if let Some(child) = self.child() {
            child.reported = true;
        }
    }
}

/// Sets a field if the value is new, and reports the change.
fn set<T: PartialEq>(field: &mut T, new: Option<T>, changed: impl FnOnce(&T)) {
    if let Some(new) = new.filter(|new| new != field) {
        changed(&new);
        *field = new;
    }
}
