//! The agent: everything that all of its turns share.

use super::{
    ContextSource, DynTool, ExternalTool, FollowUp, Interval, RuntimeState, Settings, StateRules, Toolkit,
    context_manager::ContextManager,
    find_tools::{self, FindTools},
    hook::HookEvent,
    hook_chain::HookChain,
    runtime_state::Prefetch,
    settings::SkillSettings,
    tool::Tool,
    toolkit,
};
use crate::ports::{Clock, Entropy, Model, Models};
use crate::session::{Modes, window::Bounds};
use crate::turn::policy::{Permissions, Verdict};
use crate::types::{
    Budget, Effect, FilePath, GeneratedId, Message, Mode, ModelError, ModelErrorKind, Role, Rules,
    SessionMeta, SessionState, SubagentKind, SubagentSkills, TenantLimits, ToolSpec, Tools, WaitKind,
    WorkspaceOwner, subagent::GENERAL,
};
use futures::{FutureExt, future::join_all};
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// The instructions added for a subagent.
const SUBAGENT: &str = "You are a subagent: another agent gave you one task, which is in the first message. Do the \
                        task, and reply with everything that agent needs to know; it sees nothing else of your \
                        work.";

/// The tools that read artifacts, removed messages and skills, which only the server has.
const READERS: [&str; 3] = ["read_artifact", "recall", "load_skill"];

/// The tools for background tasks, which subagents do not have.
const BACKGROUND: [&str; 5] = ["agent_list", "task_output", "task_cancel", "task_list", "wait_async_results"];

/// An agent: a loop with hooks and tools. It holds no state of any turn.
pub struct HarnessAgent {
    pub(super) name: String,
    pub(super) instructions: String,
    pub(super) toolkit: Toolkit,
    pub(super) settings: Settings,
    pub(super) modes: Rc<Modes>,
    pub(super) state: Rc<StateRules>,
    pub(super) context_files: Vec<FilePath>,
    pub(super) context: Vec<Rc<dyn ContextSource>>,
    pub(super) context_manager: Option<Rc<ContextManager>>,
    pub(super) follow_ups: Vec<Rc<dyn FollowUp>>,
    pub(super) intervals: Vec<Rc<dyn Interval>>,
    pub(super) hooks: HookChain,
    pub(super) models: Rc<dyn Models>,
    /// The remote agents, by kind of subagent.
    pub(super) remotes: BTreeMap<String, Rc<dyn Model>>,
    /// The tools that only runs have.
    pub(super) run_tools: Vec<(ToolSpec, Rc<dyn DynTool>)>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) entropy: Rc<dyn Entropy>,
}

impl HarnessAgent {
    /// Returns the agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the agent's tools.
    pub fn toolkit(&self) -> &Toolkit {
        &self.toolkit
    }

    /// Returns whether a client may bring a tool with this name. It may replace a tool of the agent, for example by the
    /// `read_file` of an editor, but no tool that controls the session, such as `ask_user`, or that reads what only the
    /// session has. Nor may it replace an external tool: the program that runs it relies on the rules for its category.
    pub fn accepts_client_tool(&self, name: &str) -> bool {
        let is_replaceable = |spec: &ToolSpec| !spec.control && spec.suspends.is_none();
        self.spec(&[], name).is_none_or(|spec| is_replaceable(spec) && !READERS.contains(&name))
    }

    /// Finds a tool among those of the client, which replace tools of the same name, or else among those of the agent.
    pub(super) fn tool<'a>(
        &'a self,
        of_client: &'a [ToolSpec],
        name: &str,
    ) -> Option<(&'a ToolSpec, Rc<dyn DynTool>)> {
        if let Some(spec) = named(of_client, name) {
            return Some((spec, Rc::new(ExternalTool::from(spec.clone()))));
        }
        let of_run =
            || self.run_tools.iter().find(|(spec, _)| spec.name == name).map(|(spec, tool)| (spec, tool));
        self.toolkit.get(name).or_else(of_run).map(|(spec, tool)| (spec, Rc::clone(tool)))
    }

    /// Finds the specification of a tool; see [`HarnessAgent::tool`].
    pub(super) fn spec<'a>(&'a self, of_client: &'a [ToolSpec], name: &str) -> Option<&'a ToolSpec> {
        named(of_client, name).or_else(|| self.toolkit.spec(name)).or_else(|| self.run_tool(name))
    }

    /// Finds the specification of a tool that only runs have.
    pub(super) fn run_tool(&self, name: &str) -> Option<&ToolSpec> {
        self.run_tools.iter().map(|(spec, _)| spec).find(|spec| spec.name == name)
    }

    /// Returns the agent's modes.
    pub fn modes(&self) -> &Rc<Modes> {
        &self.modes
    }

    /// Returns the current mode of a session, if the agent has modes.
    pub(super) fn mode(&self, state: &SessionState) -> Option<&Mode> {
        self.modes.current(state.meta.mode.as_deref())
    }

    /// Returns the names of the tools that the session's turn may currently use: those that both the caller
    /// and the mode allow. `None` means all.
    pub(super) fn allowed_tools(&self, state: &SessionState) -> Option<Vec<String>> {
        let asked = state.activity.turn.as_ref().and_then(|turn| turn.options.tools.clone());
        let mut has = match self.modes.tools(self.mode(state), self.toolkit.names()) {
            Some(mut has) => {
                has.retain(|name| asked.as_ref().is_none_or(|asked| asked.contains(name)));
                has
            }
            None => asked?,
        };
        has.extend(toolkit::RESERVED.map(str::to_owned));
        has.extend(self.run_tools.iter().map(|(spec, _)| spec.name.clone()));
        has.extend(state.client_tools().iter().map(|spec| spec.name.clone()));
        Some(has)
    }

    /// Returns the names of the tools for subagents of the session's turn: its own tools, restricted to
    /// `only` if present.
    pub(super) fn tools_of_subagents(&self, state: &SessionState, only: Option<&[String]>) -> Vec<String> {
        let allowed = self.allowed_tools(state);
        let has = |name: &&str| {
            let is_for_them = self
                .toolkit
                .get(name)
                .is_some_and(|(spec, _)| !matches!(spec.suspends, Some(WaitKind::Plan | WaitKind::Subagent)));
            let among = |list: &[String]| list.iter().any(|own| own == name);
            // Only the turn itself reaches the client.
            let is_replaced = named(state.client_tools(), name).is_some();
            is_for_them
                && !BACKGROUND.contains(name)
                && !is_replaced
                && allowed.as_deref().is_none_or(among)
                && only.is_none_or(among)
        };
        self.toolkit.names().filter(has).map(str::to_owned).collect()
    }

    /// Returns the tools of a fork of the session for a subagent; `None` for all. It has no tools that the client replaces.
    pub(super) fn tools_of_fork(&self, state: &SessionState) -> Option<Vec<String>> {
        let of_client = state.client_tools();
        let asked = state.activity.turn.as_ref().and_then(|turn| turn.options.tools.clone());
        if !self.toolkit.names().any(|name| named(of_client, name).is_some()) {
            return asked;
        }
        let mut tools = asked.unwrap_or_else(|| self.toolkit.names().map(str::to_owned).collect());
        tools.retain(|name| named(of_client, name).is_none());
        Some(tools)
    }

    /// Returns the stable start of the prompt: the agent's instructions, followed by those of the caller, the mode or
    /// the subagent.
    pub(super) fn system(&self, state: &SessionState) -> String {
        let mut system = self.instructions.clone();
        let mut add = |more: &str| {
            if !more.trim().is_empty() {
                system.push_str("\n\n");
                system.push_str(more.trim());
            }
        };
        add(state.activity.turn.as_ref().map_or("", |turn| &turn.options.instructions));
        add(self.mode(state).and_then(|mode| mode.instructions.as_deref()).unwrap_or_default());
        if state.meta.parent.as_ref().is_some_and(|parent| !parent.forked) {
            add(SUBAGENT);
            add(self.kind_of(&state.meta).map_or("", |kind| &kind.instructions));
        }
        system
    }

    /// Returns the kind of subagent of a session, if the agent declares it. A fork of its parent is of no kind.
    pub(super) fn kind_of(&self, meta: &SessionMeta) -> Option<&SubagentKind> {
        let parent = meta.parent.as_ref().filter(|parent| !parent.forked)?;
        self.settings.subagents.iter().flatten().find(|kind| kind.id == parent.agent)
    }

    /// Returns the kind of a subagent whose work a remote agent does.
    pub(super) fn remote_kind_of(&self, meta: &SessionMeta) -> Option<&str> {
        self.kind_of(meta).filter(|kind| kind.remote.is_some()).map(|kind| kind.id.as_str())
    }

    /// Finds the remote agent of a kind of subagent.
    ///
    /// # Errors
    /// The agent was built without it.
    pub(super) fn find_remote(&self, kind: &str) -> Result<Rc<dyn Model>, ModelError> {
        let none = || ModelError::new(ModelErrorKind::Invalid, "this server has no client for remote agents");
        self.remotes.get(kind).cloned().ok_or_else(none)
    }

    /// Returns which of the agent's skills a session has. A subagent whose kind is no longer declared has none.
    pub(super) fn skills_of(&self, meta: &SessionMeta) -> SubagentSkills {
        let own = meta.parent.as_ref().filter(|parent| !parent.forked && parent.agent != GENERAL);
        match (self.kind_of(meta), own) {
            (Some(kind), _) => kind.skills.clone().unwrap_or_default(),
            (None, Some(_)) => SubagentSkills::none(),
            (None, None) => SubagentSkills::default(),
        }
    }

    /// Returns the rules for the state of a session.
    pub fn state(&self) -> &StateRules {
        &self.state
    }

    /// Returns the agent's hooks.
    pub fn hooks(&self) -> &HookChain {
        &self.hooks
    }

    /// Returns whether the agent has a strategy that keeps conversations within the model's window.
    pub fn manages_context(&self) -> bool {
        self.context_manager.is_some()
    }

    /// Returns the agent's follow-ups.
    pub fn follow_ups(&self) -> &[Rc<dyn FollowUp>] {
        &self.follow_ups
    }

    /// Starts the reads of the hooks for a turn that works on this workspace.
    pub(super) fn prefetch(&self, workspace: &WorkspaceOwner) -> Option<Prefetch> {
        let hooks = self.hooks.at(HookEvent::PreReasoning).iter();
        let reads: Vec<_> = hooks.filter_map(|hook| hook.prefetch(workspace)).collect();
        if reads.is_empty() {
            return None;
        }
        let prefetch = join_all(reads).map(drop).boxed_local().shared();
        // Sends the requests. The turn polls it again.
        let _ = prefetch.clone().now_or_never();
        Some(prefetch)
    }

    /// Returns the available models.
    pub fn models(&self) -> &Rc<dyn Models> {
        &self.models
    }

    /// Returns the model of a session.
    pub(super) fn model_of(&self, meta: &SessionMeta) -> String {
        meta.model.clone().unwrap_or_else(|| self.models.default_model())
    }

    /// Returns the bounds of the context window: wide if a strategy keeps it small.
    pub fn bounds(&self) -> Bounds {
        if self.manages_context() { Bounds::wide() } else { Bounds::messages(self.settings.context_messages) }
    }

    /// Returns the JSON Schema of replies to messages that have none.
    pub fn output_schema(&self) -> Option<&Value> {
        self.settings.output_schema.as_ref()
    }

    /// Returns which skills the agent has.
    pub fn skills(&self) -> &SkillSettings {
        &self.settings.skills
    }

    /// Returns the limits of new sessions.
    pub fn budget(&self) -> Budget {
        Budget::default().patched(&self.settings.budget)
    }

    /// Finds the model `provider/model`, if sessions of the tenant may use it. Returns it with the provider's own name
    /// for it.
    ///
    /// # Errors
    /// The model is unknown, not configured, or outside the limits of the deployment or the tenant.
    pub fn find_model(&self, id: &str, limits: &TenantLimits) -> Result<(Rc<dyn Model>, String), ModelError> {
        let found = self.models.offered(id)?;
        limits.check_model(id)?;
        Ok(found)
    }

    /// Returns the tools offered to the model, without those that the rules hide: those of the agent, preselected by the
    /// user's message, and those of the client. The selection changes within a turn only when the mode or a hook's filter
    /// changes.
    pub(super) fn tools_for(
        &self,
        state: &SessionState,
        turn: &RuntimeState,
        messages: &[Rc<Message>],
    ) -> Tools {
        let own = self.own_tools_for(state, turn, messages);
        let of_client = state.client_tools();
        if of_client.is_empty() {
            return own;
        }
        let permissions = self.permissions(state);
        let own = own.iter().filter(|spec| named(of_client, &spec.name).is_none()).cloned();
        let is_usable = |spec: &&ToolSpec| !permissions.hides(spec) && turn.has_tool(spec);
        let of_client = of_client.iter().filter(is_usable).cloned().map(Rc::new);
        let mut tools: Vec<_> = own.chain(of_client).collect();
        tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        tools.into()
    }

    /// Returns the agent's tools that the session has now and that the rules do not hide.
    pub(super) fn usable_tools(&self, state: &SessionState, turn: &RuntimeState) -> Tools {
        let tools = self.toolkit.specs(self.allowed_tools(state).as_deref());
        let permissions = self.permissions(state);
        let is_usable = |tool: &&Rc<ToolSpec>| !permissions.hides(tool) && turn.has_tool(tool);
        match tools.iter().all(|tool| is_usable(&tool)) {
            true => tools,
            false => tools.iter().filter(is_usable).cloned().collect(),
        }
    }

    fn own_tools_for(&self, state: &SessionState, turn: &RuntimeState, messages: &[Rc<Message>]) -> Tools {
        let tools = self.usable_tools(state, turn);
        if self.toolkit.get(FindTools::NAME).is_some() {
            let names = find_tools::offered(state.meta.title.as_deref(), &tools, self.toolkit.index());
            return self.toolkit.specs(Some(&names));
        }
        let Some(selection) = self.settings.select_tools.as_ref().filter(|s| tools.len() > s.cap) else {
            return tools;
        };
        let newest = messages.iter().rev().find(|message| message.role == Role::User);
        let query = newest.map(|message| message.text()).unwrap_or_default();
        self.toolkit.specs(Some(&self.toolkit.index().select(&query, &tools, selection)))
    }

    /// Returns the permission rules that apply in this session.
    pub fn permissions<'a>(&'a self, state: &'a SessionState) -> Permissions<'a> {
        let mode = self.mode(state);
        static NONE: Rules = Rules::new();
        let of_mode = mode.map_or(&NONE, |mode| &mode.permissions);
        let Settings { permissions, own_permissions, own_modes, .. } = &self.settings;
        let (operator_mode, agent_mode) = if *own_modes { (&NONE, of_mode) } else { (of_mode, &NONE) };
        Permissions::new(
            [&state.guidance.tenant_policy.rules, permissions, operator_mode],
            [own_permissions, agent_mode],
            &state.meta.permissions,
            &self.context_files,
            mode.is_some_and(Mode::is_planning),
        )
    }

    /// Returns what the rules of a session decide on a call.
    pub fn verdict(&self, state: &SessionState, spec: &ToolSpec, args: &Value) -> Verdict {
        let permissions = self.permissions(state);
        let tool = self.toolkit.get(&spec.name).filter(|_| !self.remotes.is_empty());
        let kind = tool.and_then(|(_, tool)| tool.subagent_kind(args, &state.subagents.spawned));
        if kind.is_none_or(|kind| !self.remotes.contains_key(&kind)) {
            return permissions.decide(spec, args);
        }
        // The tools for subagents only control the session, because rules decide on each call of a subagent. The calls of a
        // remote agent are decided elsewhere.
        permissions.decide(&ToolSpec { control: false, effect: Effect::Network, ..spec.clone() }, args)
    }

    pub(super) fn new_id<I: GeneratedId>(&self) -> I {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        I::generate(self.clock.now(), &random)
    }
}

/// Finds a tool by its name.
fn named<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a ToolSpec> {
    tools.iter().find(|spec| spec.name == name)
}
