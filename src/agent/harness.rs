//! The agent: everything that all of its turns share.

use super::{
    ContextSource, FollowUp, HarnessBuilder, Interval, RuntimeContext, Settings, StateRules, Toolkit,
    builder::HookChain,
    context_manager::ContextManager,
    finalizer::{self, Ending},
    hook::{HookEvent, PreCall},
    preparer,
    react::ReactAgent,
};
use crate::fault::{self, Fault};
use crate::ports::session_store::Select;
use crate::ports::{Clock, Entropy, Models, StoreError};
use crate::session::{Modes, WriteError};
use crate::turn::{policy::Permissions, selector};
use crate::types::{Message, Mode, Role, Rules, SessionState, StopReason, ToolSpec, TurnError, WaitKind, id};
use futures::{
    FutureExt,
    future::{Either, select},
    pin_mut,
};
use std::rc::Rc;

/// The instructions added for a subagent.
const SUBAGENT: &str = "You are a subagent: another agent gave you one task, which is in the first message. Do the \
                        task, and reply with everything that agent needs to know; it sees nothing else of your \
                        work.";

/// An agent: a loop with hooks and tools. It holds no state of any turn.
pub struct HarnessAgent {
    pub(super) name: String,
    pub(super) instructions: String,
    pub(super) toolkit: Toolkit,
    pub(super) settings: Settings,
    pub(super) modes: Rc<Modes>,
    pub(super) state: Rc<StateRules>,
    pub(super) context: Vec<Rc<dyn ContextSource>>,
    pub(super) context_manager: Option<Rc<ContextManager>>,
    pub(super) follow_ups: Vec<Rc<dyn FollowUp>>,
    pub(super) intervals: Vec<Rc<dyn Interval>>,
    pub(super) hooks: HookChain,
    pub(super) models: Rc<dyn Models>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) entropy: Rc<dyn Entropy>,
}

impl HarnessAgent {
    /// Starts building an agent.
    pub fn builder() -> HarnessBuilder {
        HarnessBuilder::default()
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The agent's tools.
    pub fn toolkit(&self) -> &Toolkit {
        &self.toolkit
    }

    /// The agent's modes.
    pub fn modes(&self) -> &Rc<Modes> {
        &self.modes
    }

    /// The current mode of a session, if the agent has modes.
    pub(super) fn mode(&self, state: &SessionState) -> Option<&Mode> {
        self.modes.current(state.meta.mode.as_deref())
    }

    /// The names of the tools that the session's turn may currently use: those that both the caller and the
    /// mode allow. `None` means all.
    pub(super) fn allowed_tools(&self, state: &SessionState) -> Option<Vec<String>> {
        let asked = state.turn.as_ref().and_then(|turn| turn.options.tools.clone());
        let Some(mut has) = self.modes.tools(self.mode(state), self.toolkit.names()) else { return asked };
        has.retain(|name| asked.as_ref().is_none_or(|asked| asked.contains(name)));
        Some(has)
    }

    /// The names of the tools for subagents of the session's turn: its own tools, restricted to `named` if
    /// present.
    pub(super) fn tools_of_subagents(&self, state: &SessionState, named: Option<&[String]>) -> Vec<String> {
        let allowed = self.allowed_tools(state);
        let has = |name: &&str| {
            let is_for_them = self
                .toolkit
                .get(name)
                .is_some_and(|(spec, _)| !matches!(spec.suspends, Some(WaitKind::Plan | WaitKind::Subagent)));
            let among = |list: &[String]| list.iter().any(|own| own == name);
            is_for_them && allowed.as_deref().is_none_or(among) && named.is_none_or(among)
        };
        self.toolkit.names().filter(has).map(str::to_owned).collect()
    }

    /// The stable start of the prompt: the agent's instructions, followed by those of the mode or the
    /// subagent.
    pub(super) fn system(&self, state: &SessionState) -> String {
        let mut system = self.instructions.clone();
        let mut add = |more: &str| {
            if !more.trim().is_empty() {
                system.push_str("\n\n");
                system.push_str(more.trim());
            }
        };
        add(self.mode(state).and_then(|mode| mode.instructions.as_deref()).unwrap_or_default());
        if let Some(parent) = state.meta.parent.as_ref().filter(|parent| !parent.forked) {
            add(SUBAGENT);
            let kind = self.settings.subagents.iter().flatten().find(|kind| kind.id == parent.agent);
            add(kind.map_or("", |kind| &kind.instructions));
        }
        system
    }

    /// The rules for the state of a session.
    pub fn state(&self) -> &StateRules {
        &self.state
    }

    /// The agent's hooks.
    pub fn hooks(&self) -> &HookChain {
        &self.hooks
    }

    /// Whether the agent has a strategy that keeps conversations within the model's window.
    pub fn manages_context(&self) -> bool {
        self.context_manager.is_some()
    }

    /// The agent's follow-ups.
    pub fn follow_ups(&self) -> &[Rc<dyn FollowUp>] {
        &self.follow_ups
    }

    /// The available models.
    pub fn models(&self) -> &Rc<dyn Models> {
        &self.models
    }

    /// Runs a turn from the state in its journal until it ends or is suspended, and stores its end.
    ///
    /// The turn must have been started or resumed in the session under the context's permit.
    ///
    /// # Errors
    /// If the turn was sealed or restarted in the meantime, or the store fails. The journal then holds what
    /// is needed to continue.
    pub async fn call(&self, message: Rc<Message>, cx: Rc<RuntimeContext>) -> Result<(), WriteError> {
        self.restore_state(&cx)?;
        let deadline = cx.session.state().turn.as_ref().map_or(cx.clock.now(), |turn| turn.deadline);
        let never = fault::active(Fault::IgnoreDeadline);
        let left = if never { u64::MAX } else { deadline.since(cx.clock.now()) };
        let outcome = {
            let run = self.run(message, &cx).fuse();
            let timer = cx.clock.sleep(left).fuse();
            pin_mut!(run, timer);
            match select(run, timer).await {
                Either::Left((result, _)) => result?,
                Either::Right(((), _)) => Some(Ending::new(StopReason::Deadline)),
            }
        };
        match outcome {
            Some(ending) => finalizer::seal(self, &cx, ending),
            // Suspended: a decision or an answer resumes the turn.
            None => Ok(()),
        }
    }

    /// Rebuilds the runtime state of a restarted turn from its records. A first start has none.
    pub(super) fn restore_state(&self, cx: &RuntimeContext) -> Result<(), StoreError> {
        if cx.permit.epoch > 1 && cx.state.take_needs_restore() {
            // Logs stored before `turn.reflected` was named so have it as `reflection.completed`.
            let kinds = &["tool.started", "tool.completed", "turn.reflected", "reflection.completed"];
            let own = Select { turn: Some(cx.turn()), kinds, limit: usize::MAX, ..Select::default() };
            for record in cx.session.records(own)? {
                cx.state.observe(&self.toolkit, &record.kind);
            }
        }
        Ok(())
    }

    async fn run(&self, message: Rc<Message>, cx: &Rc<RuntimeContext>) -> Result<Option<Ending>, WriteError> {
        let mut event = PreCall { message: Message::clone(&message) };
        for hook in self.hooks.at(HookEvent::PreCall) {
            if let Err(error) = hook.pre_call(&mut event, cx).await {
                return Ok(Some(Ending::failed(error)));
            }
        }
        let message = if event.message == *message { message } else { Rc::new(event.message) };
        cx.state.set_user_message(&message);
        preparer::show_tasks(cx, &message)?;
        if !self.context.is_empty() {
            preparer::load_context(self, cx, &message).await;
        }
        ReactAgent { agent: self, cx }.run().await
    }

    /// The tools offered to the model: those that the rules do not hide, preselected by the user's message.
    /// The selection changes within a turn only when the mode changes.
    pub(super) fn tools_for(&self, state: &SessionState, messages: &[Rc<Message>]) -> Rc<[ToolSpec]> {
        let mut tools = self.toolkit.specs(self.allowed_tools(state).as_deref());
        let permissions = self.permissions(state);
        if tools.iter().any(|tool| permissions.hides(tool)) {
            tools = tools.iter().filter(|tool| !permissions.hides(tool)).cloned().collect();
        }
        let Some(selection) = self.settings.select_tools.as_ref().filter(|s| tools.len() > s.cap) else {
            return tools;
        };
        let newest = messages.iter().rev().find(|message| message.role == Role::User);
        let query = newest.map(|message| message.text()).unwrap_or_default();
        self.toolkit.specs(Some(&selector::select(&query, &tools, selection)))
    }

    /// The permission rules that apply in this session.
    pub fn permissions<'a>(&'a self, state: &'a SessionState) -> Permissions<'a> {
        let mode = self.mode(state);
        static NONE: Rules = Rules::new();
        let of_mode = mode.map_or(&NONE, |mode| &mode.permissions);
        let layers = vec![&state.tenant_rules, &self.settings.permissions, of_mode, &state.sent_rules];
        let read_only = mode.is_some_and(Mode::is_planning);
        Permissions { layers, session: &state.meta.permissions, read_only }
    }

    pub(super) fn new_artifact_id(&self) -> String {
        self.new_id(id::ARTIFACT)
    }

    pub(super) fn new_id(&self, prefix: &str) -> String {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        id::make(prefix, self.clock.now(), &random)
    }
}

impl Ending {
    /// The ending of a turn that failed.
    pub(super) fn failed(error: TurnError) -> Self {
        Self { error: Some(error), ..Self::new(StopReason::Error) }
    }
}
