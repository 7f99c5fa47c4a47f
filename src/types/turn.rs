//! The journal of a turn, from which recovery continues it.

use super::{Budget, CallId, RunTurn, Suspension, Thinking, Timestamp, ToolSpec, TurnId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The status of a turn, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// Queued or running.
    Running,
    /// Waiting for a person or a client.
    Waiting,
    /// Ended with a reply.
    Completed,
    /// Ended with an error.
    Failed,
    /// Canceled by a caller.
    Canceled,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model completed its reply.
    End,
    /// The limit of model calls was reached.
    MaxSteps,
    /// The limit of tool calls was reached.
    MaxToolCalls,
    /// The deadline passed.
    Deadline,
    /// The limit of tokens was reached.
    Tokens,
    /// The limit of cost was reached.
    Cost,
    /// The response was cut off at the model's own output limit.
    Length,
    /// The provider filtered or refused the response.
    ContentFilter,
    /// The turn was aborted.
    Canceled,
    /// The turn failed.
    Error,
    /// The turn waits for a person or a client.
    Waiting,
}

/// The progress of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// Requested, not started.
    #[serde(rename = "pending")]
    NotStarted,
    /// Suspended, for a person, a client, or a subagent.
    Waiting,
    /// Started, without an outcome yet. After a crash, its effect is unknown.
    #[serde(rename = "begun")]
    Started,
    /// The outcome is in the log.
    Done,
}

/// One call of the current step. Its arguments are in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallState {
    /// The call's id.
    pub call_id: CallId,
    /// The progress of the call.
    pub status: CallStatus,
    /// Whether the call was suspended; its suspension is a row of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// Whether the server has made the call, to verify what the turn has changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verifies: bool,
}

/// Options of one turn, in addition to its budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnOptions {
    /// The tools that the turn may use; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How much the model should reason; the agent's setting if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Thinking>,
    /// Whether the reply cites its sources.
    pub show_citations: bool,
    /// The JSON Schema that the reply must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The tools that the client runs, besides the agent's tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolSpec>,
    /// Instructions of the caller, which follow those of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Maximum number of tokens of each response of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The name of the client's request that started the turn, for a protocol in which a later message cancels it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What the turn does of a run, in the session of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunTurn>,
}

impl Default for TurnOptions {
    fn default() -> Self {
        Self {
            tools: None,
            think: None,
            show_citations: true,
            output_schema: None,
            client_tools: Vec::new(),
            instructions: String::new(),
            max_output_tokens: None,
            request: None,
            run: None,
        }
    }
}

/// The next phase of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnPhase {
    /// Call the model.
    Model,
    /// Run the tool calls of one response, in order.
    Tools {
        /// The calls.
        calls: Vec<CallState>,
    },
    /// Critique the step that has ended.
    Reflect,
    /// Call the model a last time, without tools, for a summary.
    Summary {
        /// Why the turn ends.
        reason: StopReason,
    },
    /// End the turn.
    Done {
        /// Why the turn ends.
        reason: StopReason,
        /// The error, if the turn failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnError>,
    },
}

/// The journal of the current turn, stored in the session's state at each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnState {
    /// The turn's id.
    pub id: TurnId,
    /// Counts the starts of the turn. A write with an older epoch is refused.
    pub epoch: u32,
    /// Number of restarts since the last completed step.
    pub attempts: u32,
    /// When the turn started.
    pub started_at: Timestamp,
    /// When the turn must end.
    pub deadline: Timestamp,
    /// The limits of the turn.
    pub budget: Budget,
    /// Number of completed model calls.
    pub steps: u32,
    /// Number of requested tool calls.
    pub tool_calls: u32,
    /// Number of self-critiques started.
    #[serde(default)]
    pub reflections: u32,
    /// Number of replies that did not match the output schema.
    #[serde(default)]
    pub repairs: u32,
    /// Number of responses without text and calls in a row.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub empty_responses: u32,
    /// Number of calls that the server has made to verify what the turn has changed.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub verifications: u32,
    /// Number of subagents started.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub subagents: u32,
    /// Number of model calls of subagents that have ended.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub steps_of_subagents: u32,
    /// Number of tool calls of subagents that have ended.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub tool_calls_of_subagents: u32,
    /// Number of tool calls of subagents that the current step has started. They count from the next step on, so that they
    /// change no decision on the calls of this one.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub tool_calls_of_step: u32,
    /// Tokens consumed so far.
    pub usage: Usage,
    /// Cost in US dollars so far; absent if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The caller's options.
    #[serde(default)]
    pub options: TurnOptions,
    /// Since when the turn has been waiting. Its deadline is extended by that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Whether the turn waits only for subagents that do not themselves wait for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delegated: bool,
    /// Whether the turn waits for such a subagent, perhaps among other calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_running_child: bool,
    /// The next phase.
    pub phase: TurnPhase,
}

impl TurnState {
    /// Returns the number of model calls that count toward the budget.
    pub fn used_steps(&self) -> u32 {
        self.steps.saturating_add(self.steps_of_subagents)
    }

    /// Returns the number of tool calls that count toward the budget.
    pub fn used_tool_calls(&self) -> u32 {
        self.tool_calls.saturating_add(self.tool_calls_of_subagents)
    }

    /// Stores what the turn waits for.
    pub fn set_waits<'a>(&mut self, open: impl Iterator<Item = &'a Suspension> + Clone) {
        self.delegated = open.clone().all(Suspension::is_delegated);
        self.has_running_child = open.clone().any(Suspension::is_delegated);
    }

    /// Returns whether the turn, or a subagent of it, works. Otherwise it waits for people.
    pub fn works(&self) -> bool {
        !self.waits_for_people() || self.has_running_child
    }

    /// Returns whether the turn waits for a person or a client, and not only for running subagents.
    pub fn waits_for_people(&self) -> bool {
        self.waiting_since.is_some() && !self.delegated
    }
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TurnError {
    /// A stable code, such as `provider_billing`.
    pub code: String,
    /// An explanation for people.
    pub message: String,
    /// Whether sending the message again may succeed.
    pub retryable: bool,
    /// The cause for the operator's log; never stored or shown.
    #[serde(skip)]
    pub cause: Option<String>,
}

impl TurnError {
    /// Creates an error without a cause.
    pub fn new(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        Self { code: code.to_owned(), message: message.into(), retryable, cause: None }
    }
}
