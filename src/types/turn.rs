//! A turn's journal: what recovery needs to go on after the machine went away.

use super::{Budget, Thinking, Timestamp, TurnError, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a turn stands, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// Waits behind another turn or runs.
    Running,
    /// Waits for a person.
    Waiting,
    /// Ended with a reply.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended by the caller.
    Canceled,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had said what it wanted to say.
    End,
    /// Out of model calls.
    MaxSteps,
    /// Out of tool calls.
    MaxToolCalls,
    /// Out of time.
    Deadline,
    /// Out of tokens or money.
    Cost,
    /// Aborted.
    Canceled,
    /// Failed.
    Error,
    /// Waits for a person.
    Waiting,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// Asked for, not begun.
    Pending,
    /// Waits for a person, or for a subagent.
    Waiting,
    /// Begun, no outcome yet: after a crash nobody knows.
    Begun,
    /// Its outcome is in the log.
    Done,
}

/// One call of the step at hand. Its arguments are in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallState {
    /// The call.
    pub call_id: String,
    /// How far it has come.
    pub status: CallStatus,
    /// Whether a person was asked about it: what became of that has a row of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

/// What a caller may ask of one turn, beside its budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnOptions {
    /// Tools that the turn may use; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How much the model thinks; the agent's own setting when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Thinking>,
    /// Whether the reply names the sources that it used.
    pub show_citations: bool,
    /// The JSON Schema that the reply must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl Default for TurnOptions {
    fn default() -> Self {
        Self { tools: None, think: None, show_citations: true, output_schema: None }
    }
}

/// What the turn does next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnPhase {
    /// Calls the model.
    Model,
    /// Runs the calls of one response, in the response's order.
    Tools {
        /// The calls.
        calls: Vec<CallState>,
    },
    /// Thinks about the step that has ended.
    Reflect,
    /// Calls the model a last time, without tools, to sum up.
    Summary {
        /// Why the turn ends.
        reason: StopReason,
    },
    /// Ends.
    Done {
        /// Why.
        reason: StopReason,
        /// What failed, where something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnError>,
    },
}

/// A running turn, serialized into the state row at each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnState {
    /// The turn's id.
    pub id: String,
    /// Counts the (re)starts; a write that carries an older epoch is refused.
    pub epoch: u32,
    /// Restarts since the last finished step.
    pub attempts: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// When it must have ended.
    pub deadline: Timestamp,
    /// Its bounds.
    pub budget: Budget,
    /// Model calls finished.
    pub steps: u32,
    /// Tool calls asked for.
    pub tool_calls: u32,
    /// Reflections claimed.
    #[serde(default)]
    pub reflections: u32,
    /// Answers that did not fit the caller's schema.
    #[serde(default)]
    pub repairs: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// What they cost in US dollars; absent when the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// What the caller asked for.
    #[serde(default)]
    pub options: TurnOptions,
    /// Since when it waits, for a person or for subagents. Its time stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Whether it waits for subagents only, and none of these for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delegated: bool,
    /// What it does next.
    pub phase: TurnPhase,
}

impl TurnState {
    /// Whether it waits, and not just for subagents that are at work.
    pub fn waits_for_people(&self) -> bool {
        self.waiting_since.is_some() && !self.delegated
    }
}
