//! Subagents: the kinds that an agent may spawn, and the tasks of child sessions.

use super::{Budget, CallId, GeneratedId, SessionId, Thinking, TurnId, glob};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// The kind of subagent that always exists where an agent has subagents.
pub const GENERAL: &str = "general-purpose";

/// A kind of subagent, as a deployment declares it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubagentKind {
    /// The name by which the model selects it.
    pub id: String,
    /// Its purpose, for the model that spawns it.
    pub description: String,
    /// Instructions that follow the agent's own in its prompt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Its model, as `provider/model`; the parent session's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its tools, a subset of the tools of the parent's turn; all of them when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Maximum number of model calls; that of the parent's turn when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Its workspace; that of the user when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<SubagentWorkspace>,
    /// Which of the agent's skills it has; all of them when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<SubagentSkills>,
    /// The remote agent that does its work. It has its own instructions, model, tools, workspace and skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteAgent>,
}

/// An agent of another server, which does the work of a kind of subagent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteAgent {
    /// The address of its JSON-RPC endpoint of A2A 1.0. After the host, each request has a secret in place of
    /// `${secret:NAME}`.
    pub url: String,
    /// Headers of each request. In their values, each request has a secret in place of `${secret:NAME}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl SubagentKind {
    /// Returns whether it has settings that only a subagent of this server can have.
    pub fn has_local_settings(&self) -> bool {
        let (id, description, remote) = (self.id.clone(), self.description.clone(), self.remote.clone());
        *self != Self { id, description, remote, ..Self::default() }
    }

    /// Returns whether each subagent of this kind has a workspace of its own.
    pub fn is_isolated(&self) -> bool {
        self.workspace.as_ref().is_some_and(|workspace| workspace.mode == WorkspaceMode::Isolated)
    }
}

/// The workspace of a kind of subagent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct SubagentWorkspace {
    /// Whose files it works on.
    pub mode: WorkspaceMode,
}

/// Whose files a subagent works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WorkspaceMode {
    /// Those of the user, on which its parent works, too.
    #[default]
    Shared,
    /// Its own, over the shared files of the agent. They are erased with its session.
    Isolated,
}

/// Which of the agent's skills a kind of subagent has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct SubagentSkills {
    /// Names of skills, with `*` and other glob patterns. If there are any, it has no other skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Names of skills that it does not have, with `*` and other glob patterns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl SubagentSkills {
    /// Denies all skills.
    pub fn none() -> Self {
        Self { allow: Vec::new(), deny: vec!["*".into()] }
    }

    /// Returns whether the skill of this name, which the agent has, is among them.
    pub fn admit(&self, name: &str) -> bool {
        glob::admits(&self.allow, &self.deny, name)
    }
}

/// The task of a child: the arguments of the parent's call, and the payload of its suspension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTask {
    /// The kind of subagent.
    pub agent: String,
    /// What the child is asked to do.
    pub task: String,
    /// Whether the child's session starts as a copy of the parent's.
    #[serde(default)]
    pub forked: bool,
    /// The child's session.
    pub session: SessionId,
    /// The name that the model has given to the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// After how many seconds the task goes on in the background; absent if the call waits for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Set if the child exists, and its conversation continues with this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<FurtherTask>,
}

/// What a task has of its own in a child that has had others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherTask {
    /// The turn of the child's session that works on the task.
    pub turn: TurnId,
    /// Its number among the child's tasks. The first task has number 0.
    pub number: u32,
}

impl ChildTask {
    /// Returns the id of the session that works on the task of a call. Derived from the call, so that
    /// spawning twice reaches the same session.
    pub fn session_of(session: &SessionId, turn: &TurnId, call_id: &CallId) -> SessionId {
        SessionId::derive(&json!([session, turn, call_id]).to_string())
    }

    /// Returns the id of the turn that works on the task of a call.
    pub fn turn_of(session: &SessionId, turn: &TurnId, call_id: &CallId) -> TurnId {
        first_turn(&Self::session_of(session, turn, call_id))
    }

    /// Returns the turn of the child's session that works on the task.
    pub fn turn(&self) -> TurnId {
        self.further.as_ref().map_or_else(|| first_turn(&self.session), |further| further.turn.clone())
    }

    /// Returns the task's number among those of the child.
    pub fn number(&self) -> u32 {
        self.further.as_ref().map_or(0, |further| further.number)
    }
}

/// Returns the turn of the first task of the child in this session.
fn first_turn(session: &SessionId) -> TurnId {
    session.replacen(SessionId::PREFIX, TurnId::PREFIX, 1).into()
}

/// Names a task of a child: by the child's session, and the parent's call that gave it the task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildKey {
    /// The child's session.
    pub session: SessionId,
    /// The parent's call.
    pub call_id: CallId,
}

/// The subagent's task to which an event in the stream of its parent belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SubagentSource {
    /// The subagent's session.
    pub session: SessionId,
    /// The kind of subagent.
    pub agent: String,
    /// The parent's call that gave it the task.
    pub call_id: CallId,
    /// The task: the turn of the subagent's session that works on it.
    pub task: TurnId,
}

/// A subagent that the agent can send further tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Its session.
    pub session: SessionId,
    /// The kind of subagent.
    pub agent: String,
    /// The name that the model has given to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether its session started as a copy of the parent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
    /// Number of tasks that it was given.
    pub tasks: u32,
}

/// What a child gets from the turn that spawns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildSettings {
    /// Its model; the default of the deployment if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its share of the turn's budget.
    pub budget: Budget,
    /// Its tools; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How much it reasons; the agent's setting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Thinking>,
}

/// The link from a child's session to its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ParentSession")]
pub struct Parent {
    /// The parent's session.
    pub session: SessionId,
    /// The parent's turn.
    pub turn: TurnId,
    /// The parent's call, which waits for the result.
    pub call_id: CallId,
    /// The kind of subagent.
    pub agent: String,
    /// Whether this session started as a copy of the parent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
    /// The turn of this session that works on the task.
    #[serde(rename = "errand")]
    pub task_turn: TurnId,
    /// The number of the task among those of this session. The first task has number 0.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub number: u32,
}
