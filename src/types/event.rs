//! Records and events of the session's log.

mod json;

use super::{
    AgentId, AgentVersion, Approver, ArtifactId, CallId, Category, CompactReason, Cut, Decision, Effect,
    Message, MessageId, Pending, RequestId, RunTurn, SessionId, Source, StopReason, Task, Timestamp,
    ToolOutcome, Trigger, TurnEnd, TurnId, TurnStatus, Usage, UserId, WaitKind,
    observed::{NotesFailed, NotesStarted, NotesTaken},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::rc::Rc;

/// One stored entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Record {
    /// Sequence number within the session: contiguous from 1, never reused.
    pub seq: u64,
    /// When the record was written.
    pub at: Timestamp,
    /// The turn that the record belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The end of a background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TaskEnd {
    /// The task.
    pub task: TurnId,
    /// The child's session.
    pub session: SessionId,
    /// The kind of subagent.
    pub agent: String,
    /// The name that the model has given to the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Tokens that the child consumed.
    pub usage: Usage,
    /// Cost in US dollars, if the model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Why the task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The durable events. On the wire, `type` names the event.
// `remote` makes the derived functions inherent, so that the trait's can handle `Other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", remote = "Self")]
pub enum EventKind {
    /// The session was created.
    #[serde(rename = "session.created")]
    SessionCreated {
        /// The session's id.
        session: SessionId,
        /// The session's agent.
        agent: AgentId,
        /// The session's user.
        user: UserId,
        /// The session that it was forked from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<SessionId>,
    },
    /// Fields of the session's metadata changed.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        /// The changed fields with their new values.
        changed: Value,
    },
    /// The session's mode changed.
    #[serde(rename = "mode.changed")]
    ModeChanged {
        /// The new mode.
        mode: Option<String>,
        /// The old mode.
        previous: Option<String>,
    },
    /// The session's model changed.
    #[serde(rename = "model.changed")]
    ModelChanged {
        /// The new model.
        model: Option<String>,
        /// The old model.
        previous: Option<String>,
    },
    /// The session moved to another version of its agent.
    #[serde(rename = "agent.changed")]
    AgentChanged {
        /// The new version.
        version: AgentVersion,
        /// The old version.
        previous: AgentVersion,
    },
    /// The model of the turn failed before its first token, and another one takes its place until the end of the turn.
    #[serde(rename = "model.fallback")]
    ModelFallback {
        /// The model that is asked from now on.
        model: String,
        /// The model that failed.
        previous: String,
        /// The code of its error, such as `provider_unavailable`.
        reason: String,
    },
    /// The caller-defined state of the session changed.
    #[serde(rename = "state.changed")]
    StateChanged {
        /// The keys that changed.
        changed_keys: Vec<String>,
    },
    /// A message was queued. Its text is in `turn.started`, or in `turn.canceled` if the turn never starts.
    #[serde(rename = "turn.queued")]
    TurnQueued {
        /// Number of queued messages, including this one.
        position: usize,
    },
    /// A turn started.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// The user message.
        message: Rc<Message>,
    },
    /// The turn that has just started does a run, or continues one.
    #[serde(rename = "run.requested")]
    RunRequested(RunTurn),
    /// The turn continues at the start of its current step. Text already streamed for that step is void.
    #[serde(rename = "turn.resumed")]
    TurnResumed {
        /// The turn's new epoch.
        epoch: u32,
        /// Why: `restart`, a provider failure during a response, `decided`, `answered`, `expired`,
        /// `subagent`, or `background`.
        reason: String,
    },
    /// The assistant completed a message. A step without text has no such record; its calls are in
    /// `tool.started`.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// The message.
        message: Rc<Message>,
    },
    /// A tool call of the model was accepted.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The assistant message that the call belongs to.
        message: MessageId,
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The arguments as the model gave them.
        args: Value,
        /// Why the arguments could not be parsed as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invalid: Option<String>,
        /// The tool's effect.
        effect: Effect,
    },
    /// A call waits for approval. No call of its step runs before that.
    #[serde(rename = "tool.approval_required")]
    ToolApprovalRequired {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The arguments the call would run with.
        args: Value,
        /// Hash of the arguments. A decision can name it, so that it applies to these arguments only.
        args_hash: String,
        /// The tool's category.
        category: Category,
        /// When the call counts as declined.
        expires_at: Timestamp,
    },
    /// A call waits for an answer. No call of its step runs before that.
    #[serde(rename = "tool.suspended")]
    ToolSuspended {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// What the call waits for.
        kind: WaitKind,
        /// What the client shows to the person or program that answers.
        payload: Value,
        /// When the call counts as declined.
        expires_at: Timestamp,
    },
    /// An approval was decided, or it expired.
    #[serde(rename = "approval.decided")]
    ApprovalDecided {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The decision.
        decision: Decision,
        /// The reason given for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Hash of the arguments the decision applies to; of the edited ones after an edit.
        args_hash: String,
        /// The edited arguments that replace the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// The person or key that decided; absent if the decision was automatic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Approver>,
        /// The request with the decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    },
    /// A suspended call was answered, or it expired.
    #[serde(rename = "answer.given")]
    AnswerGiven {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The answer.
        answer: Value,
        /// The person or key that answered; absent if the call expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Approver>,
        /// The request with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    },
    /// A subagent was spawned. Its work is logged in its own session.
    #[serde(rename = "subagent.started")]
    SubagentStarted {
        /// The call's id.
        call_id: CallId,
        /// The child's session.
        session: SessionId,
        /// The kind of subagent.
        agent: String,
        /// The child's task.
        task: String,
        /// Whether the child's session started as a fork of this one.
        forked: bool,
    },
    /// A subagent completed its task.
    #[serde(rename = "subagent.completed")]
    SubagentCompleted {
        /// The call's id.
        call_id: CallId,
        /// The child's session.
        session: SessionId,
        /// The kind of subagent.
        agent: String,
        /// How the child's turn ended; also `canceled` if the parent stopped waiting.
        status: TurnStatus,
        /// Tokens the child consumed.
        usage: Usage,
        /// Cost in US dollars, if the model has a price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// A subagent goes on in the background: its task no longer belongs to the call that spawned it.
    #[serde(rename = "task.started")]
    TaskStarted {
        /// The task.
        task: TurnId,
        /// The call that spawned the subagent.
        call_id: CallId,
        /// The child's session.
        session: SessionId,
        /// The kind of subagent.
        agent: String,
        /// The name that the model has given to the subagent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    /// A background task waits for a person, or goes on after that.
    #[serde(rename = "task.progress")]
    TaskProgress {
        /// The task.
        task: TurnId,
        /// The child's session, in which its calls can be decided.
        session: SessionId,
        /// The kind of subagent.
        agent: String,
        /// Its status.
        status: TurnStatus,
        /// The child's calls that wait for a person.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pending: Vec<Pending>,
    },
    /// A background task ended with a reply. Each background task has exactly one record of its end.
    #[serde(rename = "task.completed")]
    TaskCompleted(TaskEnd),
    /// A background task failed.
    #[serde(rename = "task.failed")]
    TaskFailed(TaskEnd),
    /// A background task was canceled.
    #[serde(rename = "task.canceled")]
    TaskCanceled(TaskEnd),
    /// The turn waits, and resumes after all of these calls are resolved. Replaces any earlier list of
    /// pending calls.
    #[serde(rename = "turn.waiting")]
    TurnWaiting {
        /// The calls that wait.
        pending: Vec<Pending>,
    },
    /// The agent's task list changed.
    #[serde(rename = "task.list_updated")]
    TaskListUpdated {
        /// The complete list.
        tasks: Vec<Task>,
    },
    /// The number of queued messages changed.
    #[serde(rename = "followup.queued")]
    FollowupQueued {
        /// Number of queued messages.
        count: usize,
    },
    /// Tokens were consumed, by a model call or by a subagent.
    #[serde(rename = "usage.updated")]
    UsageUpdated {
        /// Tokens of this call or subagent.
        step: Usage,
        /// Tokens of the turn so far.
        total: Usage,
        /// The model, as `provider/model`; absent for a subagent, whose session reports its own usage, and in records of
        /// earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Cost of this call or subagent in US dollars, if the model has a price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// Tokens were consumed by a model call outside of the steps of a turn.
    #[serde(rename = "usage.other")]
    UsageOther {
        /// What the call was for: `compaction`, `observation`, `judge`, `memory_flush`, or the name of a tool.
        purpose: String,
        /// The model, as `provider/model`.
        model: String,
        /// Tokens of the call.
        usage: Usage,
        /// Cost in US dollars, if the model has a price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// A tool returned after its call or its turn had ended. The result was discarded.
    #[serde(rename = "tool.late_result")]
    ToolLateResult {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// How long the tool ran, in milliseconds.
        elapsed_ms: u64,
    },
    /// A large value was stored as an artifact.
    #[serde(rename = "artifact.stored")]
    ArtifactStored {
        /// The artifact's id.
        r#ref: ArtifactId,
        /// Size in bytes.
        bytes: u64,
        /// The media type.
        mime_type: String,
        /// The file name, for attachments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// When the artifact is deleted; absent if it never expires.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    /// The model reviewed its own last step.
    #[serde(rename = "turn.reflected", alias = "reflection.completed")]
    TurnReflected {
        /// Whether the turn continues; if not, it ends with a summary.
        should_continue: bool,
        /// The model's critique, which is part of the prompt for the rest of the turn.
        note: String,
        /// Set if there was no critique: the budget was used up, or the model failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stub: bool,
    },
    /// The turn reached a limit.
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded {
        /// The limit, as a stop reason.
        limit: StopReason,
    },
    /// A judge graded a reply.
    #[serde(rename = "judge.completed")]
    JudgeCompleted {
        /// The judge's name.
        judge: String,
        /// The score, from 0 (bad) to 1 (good).
        score: f64,
        /// The judge's explanation.
        reason: String,
    },
    /// A follow-up or hook failed after the turn ended. The reply remains valid.
    #[serde(rename = "turn.sub_step_failed")]
    SubStepFailed {
        /// The step that failed.
        step: String,
        /// Why it failed.
        reason: String,
    },
    /// Facts were added to the daily log of the user's memory.
    #[serde(rename = "memory.flushed")]
    MemoryFlushed {
        /// Number of facts.
        facts: usize,
    },
    /// The daily logs were consolidated into `MEMORY.md`.
    #[serde(rename = "memory.consolidated")]
    MemoryConsolidated {
        /// When the consolidation finished.
        consolidated_at: Timestamp,
    },
    /// A compaction started.
    #[serde(rename = "compaction.started")]
    CompactionStarted {
        /// Why the context is compacted.
        reason: CompactReason,
    },
    /// A compaction completed. Messages that are no longer shown stay in the log.
    #[serde(rename = "compaction.completed")]
    CompactionCompleted {
        /// Why the context was compacted.
        reason: CompactReason,
        /// Number of messages that are no longer shown.
        dropped: usize,
        /// Estimated tokens of the summary of all hidden messages.
        summary_tokens: u64,
        /// Estimated tokens of the conversation before.
        tokens_before: u64,
        /// Estimated tokens of the conversation after.
        tokens_after: u64,
        /// The new cut.
        cut: Cut,
    },
    /// A compaction failed. The context is unchanged.
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        /// Why it failed.
        reason: String,
    },
    /// The model started to take notes on messages.
    #[serde(rename = "observation.started")]
    ObservationStarted(NotesStarted),
    /// Notes were taken and buffered. Their messages are still shown.
    #[serde(rename = "observation.buffered")]
    ObservationBuffered(NotesTaken),
    /// Buffered notes now replace their messages.
    #[serde(rename = "observation.activated")]
    ObservationActivated {
        /// Number of chunks activated.
        chunks: usize,
        /// Estimated tokens of the replaced messages.
        tokens: u64,
        /// Why the notes were activated.
        triggered_by: Trigger,
        /// Sequence number of the first record that the notes do not cover.
        kept_from: u64,
    },
    /// Notes were taken and replace their messages at once.
    #[serde(rename = "observation.completed")]
    ObservationCompleted(NotesTaken),
    /// No notes could be taken. The messages are still shown.
    #[serde(rename = "observation.failed")]
    ObservationFailed(NotesFailed),
    /// The model started to rewrite the notes.
    #[serde(rename = "reflection.started")]
    ReflectionStarted(NotesStarted),
    /// A new generation of the notes was written and buffered.
    #[serde(rename = "reflection.buffered")]
    ReflectionBuffered(NotesTaken),
    /// A new generation of the notes replaced the previous one.
    #[serde(rename = "reflection.activated")]
    ReflectionActivated {
        /// Generation number, starting at 1.
        generation: u64,
        /// Estimated tokens of the new generation.
        tokens: u64,
    },
    /// The notes could not be rewritten. They are unchanged.
    #[serde(rename = "reflection.failed")]
    ReflectionFailed(NotesFailed),
    /// A tool call ended. Each call has exactly one such record.
    #[serde(rename = "tool.completed")]
    ToolCompleted {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The outcome.
        #[serde(flatten)]
        outcome: ToolOutcome,
        /// How long the call took, in milliseconds.
        elapsed_ms: u64,
        /// Set if the arguments were converted, without loss, to the types of the schema.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_coerced: bool,
        /// The arguments the call ran with, if they are not the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran_with: Option<Value>,
        /// The sources of the result.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<Source>,
    },
    /// The turn ended with a reply.
    #[serde(rename = "turn.completed")]
    TurnCompleted(TurnEnd),
    /// The turn ended with an error.
    #[serde(rename = "turn.failed")]
    TurnFailed(TurnEnd),
    /// The turn was aborted, or removed from the queue before it started.
    #[serde(rename = "turn.canceled")]
    TurnCanceled(TurnEnd),
    /// An event of a version with more event types. It is kept unchanged.
    #[serde(skip)]
    Other {
        /// The `type`.
        kind: String,
        /// All other fields.
        fields: Map<String, Value>,
    },
}

impl EventKind {
    /// Creates the outcome of a call that did not run.
    pub fn completed(call_id: CallId, name: String, outcome: ToolOutcome) -> Self {
        Self::ToolCompleted {
            call_id,
            name,
            outcome,
            elapsed_ms: 0,
            was_coerced: false,
            ran_with: None,
            sources: Vec::new(),
        }
    }

    /// Returns the turn's end if this event is terminal.
    pub fn turn_end(&self) -> Option<&TurnEnd> {
        match self {
            Self::TurnCompleted(end) | Self::TurnFailed(end) | Self::TurnCanceled(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the turn's end if this event is terminal.
    pub fn turn_end_mut(&mut self) -> Option<&mut TurnEnd> {
        match self {
            Self::TurnCompleted(end) | Self::TurnFailed(end) | Self::TurnCanceled(end) => Some(end),
            _ => None,
        }
    }
}
