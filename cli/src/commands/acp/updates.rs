//! Events of a session as updates of the protocol.

use crate::wire::{Event, Outcome, Received, Task};
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, CurrentModeUpdate, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};

/// Turns events into updates.
pub(super) struct Updates {
    /// Whether the messages of the user are sent, too: the editor has those that it has sent.
    with_user: bool,
    /// The message that is being written, as far as it was sent.
    sent: String,
}

impl Updates {
    /// Of a turn that the editor has begun.
    pub(super) fn live() -> Self {
        Self { with_user: false, sent: String::new() }
    }

    /// Of an earlier conversation.
    pub(super) fn replay() -> Self {
        Self { with_user: true, sent: String::new() }
    }

    /// Returns the updates of an event.
    pub(super) fn of(&mut self, received: &Received) -> Vec<SessionUpdate> {
        match &received.event {
            Event::TurnStarted { message } if self.with_user => {
                vec![SessionUpdate::UserMessageChunk(chunk(&message.text()))]
            }
            Event::Text { delta, .. } => {
                self.sent.push_str(delta);
                vec![SessionUpdate::AgentMessageChunk(chunk(delta))]
            }
            Event::MessageCompleted { message } => {
                let text = message.text();
                let rest = text.strip_prefix(self.sent.as_str()).unwrap_or_default().to_owned();
                self.sent.clear();
                if rest.is_empty() {
                    Vec::new()
                } else {
                    vec![SessionUpdate::AgentMessageChunk(chunk(&rest))]
                }
            }
            Event::TurnResumed { .. } if !self.sent.is_empty() => {
                self.sent.clear();
                // The protocol cannot take text back.
                vec![SessionUpdate::AgentMessageChunk(chunk("\n\n*The message begins again.*\n\n"))]
            }
            Event::Reasoning { delta, .. } => vec![SessionUpdate::AgentThoughtChunk(chunk(delta))],
            Event::ToolStarted { call_id, name, args } => {
                let call = ToolCall::new(call_id.clone(), name.clone()).kind(kind(name));
                vec![SessionUpdate::ToolCall(call.status(ToolCallStatus::InProgress).raw_input(args.clone()))]
            }
            Event::ToolCompleted(outcome) => vec![SessionUpdate::ToolCallUpdate(completed(outcome))],
            Event::TasksUpdated { tasks } => {
                vec![SessionUpdate::Plan(Plan::new(tasks.iter().map(entry).collect::<Vec<_>>()))]
            }
            Event::ModeChanged { mode: Some(mode), .. } => {
                vec![SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.clone()))]
            }
            _ => Vec::new(),
        }
    }
}

/// Returns a piece of a message.
pub(super) fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::from(text))
}

fn completed(outcome: &Outcome) -> ToolCallUpdate {
    let is_success = matches!(outcome.outcome.as_str(), "result" | "artifact");
    let status = if is_success { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
    let result = &outcome.result;
    let text = match &outcome.reason {
        Some(reason) => format!("{}: {reason}", outcome.outcome),
        None => result.as_str().map_or_else(|| result.to_string(), str::to_owned),
    };
    let fields =
        ToolCallUpdateFields::new().status(status).content(vec![ToolCallContent::from(text.as_str())]);
    ToolCallUpdate::new(outcome.call_id.clone(), fields)
}

fn entry(task: &Task) -> PlanEntry {
    let status = match task.status.as_str() {
        "completed" => PlanEntryStatus::Completed,
        "in_progress" => PlanEntryStatus::InProgress,
        _ => PlanEntryStatus::Pending,
    };
    PlanEntry::new(task.content.clone(), PlanEntryPriority::Medium, status)
}

/// Returns the kind of a tool, by which editors choose a symbol.
fn kind(tool: &str) -> ToolKind {
    match tool {
        "web_fetch" => ToolKind::Fetch,
        "delete_file" => ToolKind::Delete,
        "move_file" => ToolKind::Move,
        "plan_enter" | "plan_exit" => ToolKind::SwitchMode,
        _ if tool.contains("search") || tool.starts_with("grep") || tool.starts_with("glob") => {
            ToolKind::Search
        }
        _ if tool.starts_with("read") || tool.starts_with("list") || tool == "recall" => ToolKind::Read,
        _ if tool.starts_with("write") || tool.starts_with("edit") => ToolKind::Edit,
        _ => ToolKind::Other,
    }
}
