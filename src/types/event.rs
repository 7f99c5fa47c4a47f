//! The session's numbered log.

use super::{
    Approver, Category, CompactReason, Cut, Decision, Effect, Message, Pending, PendingKind, Source,
    StopReason, Task, Timestamp, ToolOutcome, Trigger, TurnEnd, TurnStatus, Usage, json,
    observed::{NotTaken, Started, Taken},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::rc::Rc;

/// A durable record of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Contiguous from 1 within a session, never reused.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The turn that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened: the closed set of durable events, named on the wire by `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum EventKind {
    /// The session was made.
    #[serde(rename = "session.created")]
    SessionCreated {
        /// Its id.
        session: String,
        /// Its agent.
        agent: String,
        /// Its user.
        user: String,
        /// The session that it was forked from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<String>,
    },
    /// Fields of the session changed.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        /// Their names and new values.
        changed: Value,
    },
    /// The mode changed.
    #[serde(rename = "mode.changed")]
    ModeChanged {
        /// The new one.
        mode: Option<String>,
        /// The old one.
        previous: Option<String>,
    },
    /// The model changed.
    #[serde(rename = "model.changed")]
    ModelChanged {
        /// The new one.
        model: Option<String>,
        /// The old one.
        previous: Option<String>,
    },
    /// The session's state changed.
    #[serde(rename = "state.changed")]
    StateChanged {
        /// The keys that changed.
        changed_keys: Vec<String>,
    },
    /// A message waits for its turn. What it says is in `turn.started`, or in `turn.canceled`
    /// when it never runs.
    #[serde(rename = "turn.queued")]
    TurnQueued {
        /// How many wait now, this one included.
        position: usize,
    },
    /// A turn started.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// What the user said.
        message: Rc<Message>,
    },
    /// The turn goes on, its current step from the start; text of it that was streamed before is void.
    #[serde(rename = "turn.resumed")]
    TurnResumed {
        /// The turn's epoch from here on.
        epoch: u32,
        /// Why: `restart`, a provider's failure in mid-answer, `decided`, `answered`, `expired` or `subagent`.
        reason: String,
    },
    /// The assistant finished a message. A step that only calls tools has none: its calls are in
    /// `tool.started`.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// The message.
        message: Rc<Message>,
    },
    /// The model asked for a call, and it was accepted.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The assistant message that the call belongs to.
        message: String,
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments as the model gave them.
        args: Value,
        /// Why the arguments are not JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invalid: Option<String>,
        /// What the tool may do.
        effect: Effect,
    },
    /// A call waits for somebody's consent. None of its step runs before.
    #[serde(rename = "tool.approval_required")]
    ToolApprovalRequired {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments that it would run with.
        args: Value,
        /// What an approval may name, so that it is about these arguments and no others.
        args_hash: String,
        /// The tool's category.
        category: Category,
        /// When it counts as declined.
        expires_at: Timestamp,
    },
    /// A call waits for an answer. None of its step runs before.
    #[serde(rename = "tool.suspended")]
    ToolSuspended {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// What kind of answer.
        kind: PendingKind,
        /// What is shown to whoever answers.
        payload: Value,
        /// When it counts as declined.
        expires_at: Timestamp,
    },
    /// Somebody, or time, decided on a call.
    #[serde(rename = "approval.decided")]
    ApprovalDecided {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// What was decided.
        decision: Decision,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The arguments that it is about; after an edit those of the new ones.
        args_hash: String,
        /// The arguments in place of the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// Who decided; nobody, when it is the harness's own doing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Approver>,
    },
    /// Somebody answered a call.
    #[serde(rename = "answer.given")]
    AnswerGiven {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The answer.
        answer: Value,
        /// Who answered; nobody, when the time was over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Approver>,
    },
    /// A subagent was sent out. What it does is told in its own session.
    #[serde(rename = "subagent.started")]
    SubagentStarted {
        /// The call.
        call_id: String,
        /// Its session.
        session: String,
        /// The kind of subagent.
        agent: String,
        /// What it is to do.
        task: String,
        /// Whether it began as a copy of this session.
        forked: bool,
    },
    /// What came of a subagent's errand.
    #[serde(rename = "subagent.completed")]
    SubagentCompleted {
        /// The call.
        call_id: String,
        /// Its session.
        session: String,
        /// The kind of subagent.
        agent: String,
        /// How its turn ended; `canceled` also when nobody waits for it any more.
        status: TurnStatus,
        /// What it used.
        usage: Usage,
        /// What that cost in US dollars, where there is a price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
    },
    /// The turn waits for somebody: it goes on, from here, when all of these calls are decided. Whoever it waited for
    /// before this, it does not wait for any more.
    #[serde(rename = "turn.waiting")]
    TurnWaiting {
        /// The calls.
        pending: Vec<Pending>,
    },
    /// The agent's list of tasks changed.
    #[serde(rename = "task.list_updated")]
    TaskListUpdated {
        /// All of it.
        tasks: Vec<Task>,
    },
    /// The number of messages that wait for their turn changed.
    #[serde(rename = "followup.queued")]
    FollowupQueued {
        /// How many wait now.
        count: usize,
    },
    /// A model call was counted, or what a subagent used.
    #[serde(rename = "usage.updated")]
    UsageUpdated {
        /// What it used.
        step: Usage,
        /// What the turn has used.
        total: Usage,
    },
    /// A tool ended after its call had its outcome, or after its turn had ended. It changed nothing.
    #[serde(rename = "tool.late_result")]
    ToolLateResult {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// How long the tool took.
        elapsed_ms: u64,
    },
    /// Something large was stored apart from the log.
    #[serde(rename = "artifact.stored")]
    ArtifactStored {
        /// Its id.
        r#ref: String,
        /// Its size.
        bytes: u64,
        /// What it is.
        mime_type: String,
        /// The file's name, for attachments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// When it is gone; never when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    /// The agent thought about its last step before going on.
    #[serde(rename = "reflection.completed")]
    ReflectionCompleted {
        /// Whether it goes on; if not it sums up and ends.
        should_continue: bool,
        /// What it thought; the model reads it in what follows of the turn.
        note: String,
        /// Set when there was no reflection after all: the budget was spent, or the model failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stub: bool,
    },
    /// A bound was hit.
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded {
        /// Which one, named by the reason to stop that it is.
        limit: StopReason,
    },
    /// A judge graded a reply.
    #[serde(rename = "judge.completed")]
    JudgeCompleted {
        /// Its name.
        judge: String,
        /// From 0 (bad) to 1 (good).
        score: f64,
        /// Why.
        reason: String,
    },
    /// Something that follows a reply failed. The reply stands.
    #[serde(rename = "turn.sub_step_failed")]
    SubStepFailed {
        /// What failed.
        step: String,
        /// Why.
        reason: String,
    },
    /// Facts were added to the day's log of the user's memory.
    #[serde(rename = "memory.flushed")]
    MemoryFlushed {
        /// How many.
        facts: usize,
    },
    /// What the days had taught was worked into `MEMORY.md`.
    #[serde(rename = "memory.consolidated")]
    MemoryConsolidated {
        /// When.
        consolidated_at: Timestamp,
    },
    /// The context is being made smaller.
    #[serde(rename = "compaction.started")]
    CompactionStarted {
        /// Why.
        reason: CompactReason,
    },
    /// The context was made smaller. What is not shown any more stays in the log.
    #[serde(rename = "compaction.completed")]
    CompactionCompleted {
        /// Why.
        reason: CompactReason,
        /// Messages that are not shown any more.
        dropped: usize,
        /// Tokens of the summary that stands for all that are not shown, by our estimate.
        summary_tokens: u64,
        /// Tokens of the conversation before, by our estimate.
        tokens_before: u64,
        /// Tokens of the conversation since.
        tokens_after: u64,
        /// What is shown from here on.
        cut: Cut,
    },
    /// The context could not be made smaller. It is as it was.
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        /// Why.
        reason: String,
    },
    /// Notes are being taken on messages.
    #[serde(rename = "observation.started")]
    ObservationStarted(Started),
    /// Notes wait to take the place of messages.
    #[serde(rename = "observation.buffered")]
    ObservationBuffered(Taken),
    /// Notes that waited are shown in the place of messages from here on.
    #[serde(rename = "observation.activated")]
    ObservationActivated {
        /// How many of those that waited.
        chunks: usize,
        /// Tokens of the messages, by our estimate.
        tokens: u64,
        /// Why.
        triggered_by: Trigger,
        /// The number of the first record that the notes are not about.
        kept_from: u64,
    },
    /// Notes were taken and are shown in the place of messages at once.
    #[serde(rename = "observation.completed")]
    ObservationCompleted(Taken),
    /// No notes could be taken. The messages are shown as before.
    #[serde(rename = "observation.failed")]
    ObservationFailed(NotTaken),
    /// All notes are being rewritten.
    #[serde(rename = "reflection.started")]
    ReflectionStarted(Started),
    /// A new generation of the notes waits to take their place.
    #[serde(rename = "reflection.buffered")]
    ReflectionBuffered(Taken),
    /// A new generation of the notes has taken their place.
    #[serde(rename = "reflection.activated")]
    ReflectionActivated {
        /// The how-manieth, from 1.
        generation: u64,
        /// Its tokens, by our estimate.
        tokens: u64,
    },
    /// The notes could not be rewritten. They are as they were.
    #[serde(rename = "reflection.failed")]
    ReflectionFailed(NotTaken),
    /// A call has its one outcome.
    #[serde(rename = "tool.completed")]
    ToolCompleted {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The outcome.
        #[serde(flatten)]
        outcome: ToolOutcome,
        /// How long it took.
        elapsed_ms: u64,
        /// Set when the arguments were brought into the schema's types, without loss, before the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_coerced: bool,
        /// The arguments that it ran with, where those are not the model's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran_with: Option<Value>,
        /// Where the answer comes from.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<Source>,
    },
    /// The turn ended with a reply.
    #[serde(rename = "turn.completed")]
    TurnCompleted(TurnEnd),
    /// The turn ended with an error.
    #[serde(rename = "turn.failed")]
    TurnFailed(TurnEnd),
    /// The turn was aborted, or taken from the queue.
    #[serde(rename = "turn.canceled")]
    TurnCanceled(TurnEnd),
}

json::tagged!(EventKind, "type");

impl EventKind {
    /// The `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SessionCreated { .. } => "session.created",
            Self::SessionUpdated { .. } => "session.updated",
            Self::ModeChanged { .. } => "mode.changed",
            Self::ModelChanged { .. } => "model.changed",
            Self::StateChanged { .. } => "state.changed",
            Self::TurnQueued { .. } => "turn.queued",
            Self::TurnStarted { .. } => "turn.started",
            Self::TurnResumed { .. } => "turn.resumed",
            Self::MessageCompleted { .. } => "message.completed",
            Self::ToolStarted { .. } => "tool.started",
            Self::ToolApprovalRequired { .. } => "tool.approval_required",
            Self::ToolSuspended { .. } => "tool.suspended",
            Self::ApprovalDecided { .. } => "approval.decided",
            Self::AnswerGiven { .. } => "answer.given",
            Self::SubagentStarted { .. } => "subagent.started",
            Self::SubagentCompleted { .. } => "subagent.completed",
            Self::TurnWaiting { .. } => "turn.waiting",
            Self::TaskListUpdated { .. } => "task.list_updated",
            Self::FollowupQueued { .. } => "followup.queued",
            Self::UsageUpdated { .. } => "usage.updated",
            Self::ToolLateResult { .. } => "tool.late_result",
            Self::ArtifactStored { .. } => "artifact.stored",
            Self::ReflectionCompleted { .. } => "reflection.completed",
            Self::BudgetExceeded { .. } => "budget.exceeded",
            Self::JudgeCompleted { .. } => "judge.completed",
            Self::SubStepFailed { .. } => "turn.sub_step_failed",
            Self::MemoryFlushed { .. } => "memory.flushed",
            Self::MemoryConsolidated { .. } => "memory.consolidated",
            Self::CompactionStarted { .. } => "compaction.started",
            Self::CompactionCompleted { .. } => "compaction.completed",
            Self::CompactionFailed { .. } => "compaction.failed",
            Self::ObservationStarted(_) => "observation.started",
            Self::ObservationBuffered(_) => "observation.buffered",
            Self::ObservationActivated { .. } => "observation.activated",
            Self::ObservationCompleted(_) => "observation.completed",
            Self::ObservationFailed(_) => "observation.failed",
            Self::ReflectionStarted(_) => "reflection.started",
            Self::ReflectionBuffered(_) => "reflection.buffered",
            Self::ReflectionActivated { .. } => "reflection.activated",
            Self::ReflectionFailed(_) => "reflection.failed",
            Self::ToolCompleted { .. } => "tool.completed",
            Self::TurnCompleted(_) => "turn.completed",
            Self::TurnFailed(_) => "turn.failed",
            Self::TurnCanceled(_) => "turn.canceled",
        }
    }

    /// The outcome of a call that did not run.
    pub fn completed(call_id: String, name: String, outcome: ToolOutcome) -> Self {
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

    /// The end of a turn, if this is one.
    pub fn turn_end(&self) -> Option<&TurnEnd> {
        match self {
            Self::TurnCompleted(end) | Self::TurnFailed(end) | Self::TurnCanceled(end) => Some(end),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_read_as_it_was_written() {
        let cut = Cut { parted: [(7, 400)].into(), ..Cut::default() };
        let (reason, dropped, summary_tokens, tokens_before, tokens_after) =
            (CompactReason::Tokens, 1, 2, 3, 4);
        let kind = EventKind::CompactionCompleted {
            reason,
            dropped,
            summary_tokens,
            tokens_before,
            tokens_after,
            cut,
        };
        let record = Record { seq: 1, at: Timestamp(0), turn: None, kind };
        let json = serde_json::to_vec(&record).expect("JSON");
        assert_eq!(crate::types::json::read::<Record>(&json).expect("a record"), record);
    }
}
