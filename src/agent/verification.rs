//! Verifies what a turn has changed, before the turn ends.
//!
//! When the model is about to end a turn that has changed files, the server adds a call of the agent's verification tool to
//! the model's response. From there on it is a call like any other: with permissions, approvals and a journal. If it fails,
//! the model reads why and goes on; otherwise the turn ends with what the model said.

use super::{
    HarnessAgent, RuntimeContext,
    ending::{Ending, cited},
    react::ReactAgent,
    settings::Verify,
};
use crate::ports::{StoreError, session_store::Select};
use crate::session::WriteError;
use crate::turn::{TurnMachine, citations, structured};
use crate::types::{
    Category, Effect, EventKind, Message, Part, Role, StopReason, ToolCall, ToolOutcome, ToolSpec,
    Verification,
};
use serde_json::{Value, json};
use std::rc::Rc;

/// The tools that edit something other than files of the agent's work.
const NO_FILES: [&str; 2] = ["memory_save", "propose_skill"];

/// What the log says about the changes of a turn.
#[derive(Default)]
struct Changes {
    /// Whether files have changed since the last call of the verification tool, whatever its outcome.
    are_new: bool,
    fault: Option<Verification>,
}

impl ReactAgent<'_> {
    /// Lets the turn go on with a verification in place of this ending, if one is due.
    pub(super) fn verify(&self, ending: Ending) -> Result<Option<Ending>, WriteError> {
        // A run has verified its steps.
        let is_end = ending.reason == StopReason::End
            && ending.error.is_none()
            && !self.cx.session.state().meta.id.is_run();
        let (Some(message), true) = (&ending.message, is_end) else { return Ok(Some(ending)) };
        let Some(verify) = available(self.agent, self.cx) else { return Ok(Some(ending)) };
        let made = self.cx.session.state().activity.turn.as_ref().map_or(0, |turn| turn.verifications);
        if made >= verify.attempts || !changes(self.agent, self.cx, verify)?.are_new {
            return Ok(Some(ending));
        }
        let mut message = Message::clone(message);
        let sources = cited(self.cx);
        if !sources.is_empty() {
            message.parts.push(Part::text(citations::render(&sources)));
        }
        message.parts.push(Part::ToolCall(ToolCall {
            call_id: self.agent.new_id(),
            name: verify.tool.clone(),
            args: json!({}),
            invalid: None,
        }));
        self.journal_step(&Rc::new(message), ending.spent, true)?;
        Ok(None)
    }

    /// Returns whether the turn can end after these outcomes of its step: the server has made the call, and it did not fail.
    /// Nothing can be repaired after a denial.
    pub(super) fn is_verified<'a>(&self, mut outcomes: impl Iterator<Item = &'a ToolOutcome>) -> bool {
        let state = self.cx.session.state();
        let is_good =
            |outcome: &ToolOutcome| matches!(outcome, ToolOutcome::Denied { .. }) || !outcome.is_error();
        state.activity.turn.as_ref().is_some_and(TurnMachine::is_verifying) && outcomes.any(is_good)
    }

    /// Returns the ending of a turn whose reply was complete before its verification.
    pub(super) fn verified(&self) -> Ending {
        Ending { output: output(self.cx), ..Ending::new(StopReason::End) }
    }
}

/// Returns whether the model has given a reply, whose changes the server then verified.
pub(super) fn has_reply(cx: &RuntimeContext) -> bool {
    cx.session.state().activity.turn.as_ref().is_some_and(|turn| turn.verifications > 0)
}

/// Returns the reply of a turn before its verification as JSON, if it was to match a schema.
pub(super) fn output(cx: &RuntimeContext) -> Option<Value> {
    let state = cx.session.state();
    let turn = state.activity.turn.as_ref().filter(|turn| turn.verifications > 0)?;
    let schema = turn.options.output_schema.as_ref()?;
    let messages = cx.session.messages();
    let spoke = |message: &&Rc<Message>| message.role == Role::Assistant && !message.text().is_empty();
    structured::parse(schema, &messages.iter().rev().find(spoke)?.text()).ok()
}

/// Returns why the changes of the turn do not count as verified.
///
/// # Errors
/// If the store fails.
pub(super) fn fault(agent: &HarnessAgent, cx: &RuntimeContext) -> Result<Option<Verification>, StoreError> {
    let Some(verify) = available(agent, cx) else { return Ok(None) };
    changes(agent, cx, verify).map(|changes| changes.fault)
}

/// Returns how the turn verifies its changes, if it has the tool. A turn without tool calls has nothing to verify.
fn available<'a>(agent: &'a HarnessAgent, cx: &RuntimeContext) -> Option<&'a Verify> {
    let verify = agent.settings.verify.as_ref()?;
    let state = cx.session.state();
    state.activity.turn.as_ref().filter(|turn| turn.tool_calls > 0)?;
    let spec = agent.spec(state.client_tools(), &verify.tool)?;
    let is_allowed = agent.allowed_tools(&state).is_none_or(|allowed| allowed.contains(&spec.name));
    let is_usable = cx.state.has_tool(spec) && !agent.permissions(&state).hides(spec);
    (is_allowed && is_usable).then_some(verify)
}

/// Reads from the log what the turn has changed and verified.
fn changes(agent: &HarnessAgent, cx: &RuntimeContext, verify: &Verify) -> Result<Changes, StoreError> {
    let kinds = &["tool.completed"];
    let own = Select { turn: Some(cx.turn()), kinds, newest_first: true, ..Select::default() };
    let state = cx.session.state();
    let (mut was_called, mut has_changed, mut found) = (false, false, Changes::default());
    // Whether the newest verification that ran failed, and whether files have changed since.
    let mut newest = None;
    for record in cx.session.records(own) {
        let EventKind::ToolCompleted { name, outcome, .. } = record?.kind else { continue };
        if name == verify.tool {
            was_called = true;
            if !matches!(outcome, ToolOutcome::Denied { .. }) {
                newest.get_or_insert((outcome.is_error(), has_changed));
            }
        } else if let Some(spec) = agent.spec(state.client_tools(), &name)
            && changes_files(spec)
            && may_have_run(spec, &outcome)
        {
            found.are_new |= !was_called;
            has_changed = true;
        }
    }
    found.fault = match newest {
        _ if !has_changed => None,
        Some((true, _)) => Some(Verification::Failed),
        Some((false, false)) => None,
        Some((false, true)) | None => Some(Verification::NotRun),
    };
    Ok(found)
}

/// Returns whether calls of the tool change files, as those of the workspace or of a runner do.
fn changes_files(spec: &ToolSpec) -> bool {
    matches!(spec.category, Category::Edit | Category::Execute)
        && matches!(spec.effect, Effect::LocalWrite | Effect::Destructive)
        && !spec.control
        && !NO_FILES.contains(&spec.name.as_str())
}

/// Returns whether a call with this outcome may have changed files. A tool that edits files fails before it changes any; a
/// command may fail in the middle.
fn may_have_run(spec: &ToolSpec, outcome: &ToolOutcome) -> bool {
    match outcome {
        ToolOutcome::Denied { .. } => false,
        ToolOutcome::Failure { .. } => spec.category == Category::Execute,
        _ => true,
    }
}
