//! The messages between the objects of two sessions: a child's status, a snapshot of a session, and the
//! responses.

use super::{
    CallId, Pending, Reached, Record, SessionId, SessionMeta, TenantPolicy, ToolOutcome, TurnOptions,
    TurnStatus, Usage, session::Totals,
};
use serde::{Deserialize, Serialize};

/// The status of a child's task, as the child notifies its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildStatus {
    /// The child's session.
    pub session: SessionId,
    /// The parent's call.
    pub call_id: CallId,
    /// The status of the turn that works on the task.
    pub status: TurnStatus,
    /// The reply.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Why the task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The child's calls that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// Tokens consumed.
    #[serde(default)]
    pub usage: Usage,
    /// Cost in US dollars, if the model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Number of model calls.
    #[serde(default)]
    pub steps: u32,
    /// Number of tool calls.
    #[serde(default)]
    pub tool_calls: u32,
    /// Whether the child asks to continue: a person has resolved the calls for which it waits, but this is not stored yet.
    /// An older version of the parent does not read this, and allows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_to_continue: bool,
}

impl ChildStatus {
    /// Creates the status of a task that was canceled before it began.
    pub fn not_started(session: SessionId, call_id: CallId) -> Self {
        Self { status: TurnStatus::Canceled, ..Self::running(session, call_id) }
    }

    /// Creates the status of a task that has failed for this reason.
    pub fn failed(session: SessionId, call_id: CallId, why: &str) -> Self {
        let error = Some(why.to_owned());
        Self { status: TurnStatus::Failed, error, ..Self::running(session, call_id) }
    }

    /// Creates the status of a task that has not ended.
    pub fn running(session: SessionId, call_id: CallId) -> Self {
        Self {
            session,
            call_id,
            status: TurnStatus::Running,
            text: String::new(),
            error: None,
            pending: Vec::new(),
            usage: Usage::default(),
            cost_usd: None,
            steps: 0,
            tool_calls: 0,
            asks_to_continue: false,
        }
    }

    /// Returns the outcome of the parent's call. An aborted task is a result, not a failure: its text may
    /// suffice.
    pub fn outcome(&self) -> ToolOutcome {
        let result = |text: String| ToolOutcome::Result { result: text.into() };
        match (self.status, &self.error) {
            (TurnStatus::Failed, why) => {
                let why = why.as_deref().unwrap_or("no reason was given");
                ToolOutcome::failure(format!("the subagent failed: {why}"))
            }
            (TurnStatus::Canceled, _) => {
                result(format!("[Aborted by user]\n\n{}", self.text).trim_end().into())
            }
            _ => result(self.text.clone()),
        }
    }

    /// Returns whether the task has ended, so that no other status follows.
    pub fn is_final(&self) -> bool {
        !matches!(self.status, TurnStatus::Running | TurnStatus::Waiting)
    }
}

/// The parent's response to a child's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledgement {
    /// The parent has stored the status.
    Recorded,
    /// No call waits for this child.
    NotWanted,
    /// The parent's session was deleted.
    NoSession,
    /// The child may not continue now. The response only to a child that asks.
    Refused(Reached),
}

/// A message that creates a session in another object, or updates a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the stored shapes in it; 0 from a version that sent none.
    #[serde(default)]
    pub schema: u32,
    /// The new session.
    pub meta: SnapshotMeta,
    /// The session that it was forked from.
    #[serde(default)]
    pub forked_from: Option<SessionId>,
    /// The tenant's policy.
    #[serde(rename = "tenant_rules")]
    pub tenant_policy: TenantPolicy,
    /// The copied log, or the next page of it; `None` if the session should already exist.
    pub records: Option<Vec<Record>>,
    /// The first task, for a child.
    #[serde(default)]
    pub task: Option<(String, TurnOptions)>,
}

/// The metadata and the totals of a session, in one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotMeta {
    /// The metadata.
    #[serde(flatten)]
    pub meta: SessionMeta,
    /// The totals.
    #[serde(flatten)]
    pub totals: Totals,
}

/// The response to a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Imported {
    /// The session exists; its view as clients see it, in JSON.
    Session(String),
    /// The session does not exist, and the snapshot has no log to create it from.
    Missing,
    /// The task was canceled before it arrived; nothing was created.
    Canceled,
    /// A session of another user has this id.
    Taken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{EventKind, Owner, Parent, Timestamp, session::SCHEMA, subagent::GENERAL};

    #[test]
    fn messages_between_sessions_round_trip_through_json() {
        let owner = Owner { tenant: "t".into(), user: "u".into(), agent: "a".into() };
        let mut meta = SessionMeta::new("s".into(), owner, Timestamp(5));
        meta.parent = Some(Parent {
            session: "p".into(),
            turn: "t".into(),
            call_id: "c".into(),
            agent: GENERAL.into(),
            forked: true,
            task_turn: "t2".into(),
            number: 1,
        });
        let kind = EventKind::SessionCreated {
            session: "s".into(),
            agent: "a".into(),
            user: "u".into(),
            forked_from: None,
        };
        let record = Record { seq: 1, at: Timestamp(5), turn: None, kind };
        let snapshot = Snapshot {
            schema: SCHEMA,
            meta: SnapshotMeta { meta, totals: Totals { updated_at: Timestamp(5), ..Totals::default() } },
            forked_from: Some("p".into()),
            tenant_policy: TenantPolicy::default(),
            records: Some(vec![record]),
            task: Some(("Look.".into(), TurnOptions::default())),
        };
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
        let status = ChildStatus::not_started("s".into(), "c".into());
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<ChildStatus>(&json).unwrap(), status);
    }
}
