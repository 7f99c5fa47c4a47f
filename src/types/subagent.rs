//! Subagents: what an agent may send out to do a part of the work, and what ties their sessions to its own.

use super::{Pending, PendingKind, ToolOutcome, TurnStatus, Usage, id, json::from_value};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The kind of subagent that there always is where there are any.
pub const GENERAL: &str = "general-purpose";

/// A kind of subagent, as a deployment declares it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubagentKind {
    /// What the model calls it by.
    pub id: String,
    /// What it is good for, for the model that sends it out.
    pub description: String,
    /// What stands behind the agent's own instructions in its prompt.
    pub instructions: String,
    /// Its model, as `provider/model`; the sending session's when absent.
    pub model: Option<String>,
    /// The tools that it has, of those that the sending turn has; all when absent.
    pub tools: Option<Vec<String>>,
    /// The model calls that it may make; as many as the sending turn when absent.
    pub max_steps: Option<u32>,
}

/// An errand, as a model gives it, and as its call shows it while it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// The kind of subagent.
    pub agent: String,
    /// What it is to do.
    pub task: String,
    /// Whether it begins as a copy of the session that sends it out.
    #[serde(default)]
    pub forked: bool,
    /// Its session; empty before it is sent out.
    #[serde(default)]
    pub session: String,
}

impl Errand {
    /// The session in which the errand of a call is done: the same each time it is asked.
    pub fn session(session: &str, turn: &str, call_id: &str) -> String {
        id::derive(id::SESSION, &json!([session, turn, call_id]).to_string())
    }

    /// The errand whose end a call waits for.
    pub fn of(pending: &Pending) -> Option<Self> {
        (pending.kind == PendingKind::Subagent).then(|| from_value(pending.payload.clone()).ok())?
    }
}

/// What makes a session a subagent's: whose it is, and what it was sent out for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The session that sent it out.
    pub session: String,
    /// The turn there.
    pub turn: String,
    /// The call there. It waits for what comes of the errand.
    pub call_id: String,
    /// The kind of subagent.
    pub agent: String,
    /// Whether it began as a copy of that session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
    /// The turn in which the errand is done.
    pub errand: String,
}

/// How an errand stands, as the subagent's session tells it to the one that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The subagent's session.
    pub session: String,
    /// The call that waits.
    pub call_id: String,
    /// Where the errand's turn stands.
    pub status: TurnStatus,
    /// What it said last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Why it failed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The calls there that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// What it used.
    #[serde(default)]
    pub usage: Usage,
    /// What that cost in US dollars, where there is a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Report {
    /// What the call that waits for it comes to. What was aborted is no failure: it may have said enough.
    pub fn outcome(&self) -> ToolOutcome {
        let result = |text: String| ToolOutcome::Result { result: text.into() };
        match (self.status, &self.error) {
            (TurnStatus::Failed, why) => {
                let why = why.as_deref().unwrap_or("it did not say why");
                ToolOutcome::failure(format!("the subagent failed: {why}"))
            }
            (TurnStatus::Canceled, _) => {
                result(format!("[Aborted by user]\n\n{}", self.text).trim_end().into())
            }
            _ => result(self.text.clone()),
        }
    }

    /// Whether nothing comes of the errand any more but this.
    pub fn is_last(&self) -> bool {
        !matches!(self.status, TurnStatus::Running | TurnStatus::Waiting)
    }
}
