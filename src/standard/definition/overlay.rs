//! The settings of one agent: those of the deployment, with the fields that a definition sets.

use super::{Ceilings, ContextDefinition, Definition, ReflectionDefinition, SkillsDefinition};
use crate::agent::{ExternalTool, Settings, ToolFilter};
use crate::context::{compaction::CompactionSettings, observation::ObservationSettings};
use crate::standard::settings::{Config, Strategy};
use crate::standard::{ContextSettings, Standard};
use crate::tools::http_tool;
use crate::types::{FieldError, FilePath, Invalid, TenantLimits};
use std::collections::BTreeMap;

/// The settings of one agent.
#[derive(Clone)]
pub struct AgentConfig {
    /// Instructions in place of the built-in ones.
    pub instructions: Option<String>,
    /// The settings.
    pub settings: Settings,
    /// How the conversation is kept within the context window.
    pub context: ContextSettings,
    /// The tools that clients run.
    pub external_tools: Vec<ExternalTool>,
    /// The servers of MCP, by name.
    pub mcp_servers: Vec<String>,
    /// The tools that send HTTP requests.
    pub http_tools: Vec<http_tool::Checked>,
    /// Which tools the agent has.
    pub tools: ToolFilter,
    /// The agent's own files.
    pub files: BTreeMap<FilePath, String>,
}

impl AgentConfig {
    /// Returns the settings of the deployment.
    pub fn of_deployment(config: &Config) -> Self {
        Self {
            instructions: config.instructions.clone(),
            settings: config.agent.clone(),
            context: config.context(),
            external_tools: config.external_tools.clone(),
            mcp_servers: Vec::new(),
            http_tools: Vec::new(),
            tools: ToolFilter::default(),
            files: BTreeMap::new(),
        }
    }

    /// Returns the settings of the deployment with the fields that the definition sets.
    ///
    /// # Errors
    /// A tool that is not valid.
    pub fn of(config: &Config, definition: Definition) -> Result<Self, Invalid> {
        let mut own = Self::of_deployment(config);
        own.instructions = definition.instructions.or(own.instructions);
        if let Some(declared) = definition.external_tools {
            own.external_tools = declared.into_iter().map(ExternalTool::new).collect::<Result<_, _>>()?;
        }
        own.mcp_servers = definition.mcp_servers.into_keys().collect();
        let imported = definition.openapi.map(|import| import.tools()).transpose();
        let imported = imported.map_err(|faults| of_tool("openapi", &faults))?;
        for declared in definition.http_tools.into_iter().chain(imported).flatten() {
            let name = declared.name.clone();
            own.http_tools.push(http_tool::Checked::new(declared).map_err(|faults| of_tool(&name, &faults))?);
        }
        own.tools = definition.tools.unwrap_or_default();
        own.files = definition.files;
        let settings = &mut own.settings;
        settings.model = definition.model;
        set(&mut settings.fallback_models, definition.fallback_models);
        set(&mut settings.think, definition.thinking);
        if let Some(kinds) = definition.subagents {
            settings.subagents = Some(kinds);
        }
        settings.own_modes = definition.modes.as_ref().is_some_and(|modes| *modes != settings.modes);
        set(&mut settings.background, definition.background_tasks);
        set(&mut settings.modes, definition.modes);
        if let Some(skills) = definition.skills {
            // The operator may have turned skills off.
            settings.skills.enabled &= skills.enable.unwrap_or(true);
            set(&mut settings.skills.drafts, skills.drafts);
            set(&mut settings.skills.allow, skills.allow);
            set(&mut settings.skills.deny, skills.deny);
        }
        set(&mut settings.own_permissions, definition.permissions);
        set(&mut settings.reflect_every, definition.reflection.map(|reflection| reflection.every));
        set(&mut settings.workspace, definition.workspace.map(|workspace| workspace.kind));
        settings.verify = definition.verify.or(settings.verify.take());
        set(&mut settings.judges, definition.judges);
        if definition.state_schema.is_some() {
            // Another schema need not accept the deployment's initial state.
            settings.state_schema = definition.state_schema;
            settings.initial_state.clear();
        }
        set(&mut settings.initial_state, definition.initial_state);
        settings.output_schema = definition.output_schema;
        if let Some(budget) = definition.budget {
            settings.budget = budget.defaults;
            let Ceilings { max_steps, max_tool_calls, timeout_s, max_cost_usd } = budget.ceilings;
            settings.ceilings = TenantLimits {
                max_steps,
                max_tool_calls,
                timeout_s,
                max_cost_usd,
                ..TenantLimits::default()
            };
        }
        if let Some(memory) = definition.memory {
            settings.context.memory_tools = memory.tools;
            settings.context.memory_hooks = memory.learn;
        }
        if let Some(context) = definition.context {
            own.set_context(config, context);
        }
        Ok(own)
    }

    fn set_context(&mut self, config: &Config, context: ContextDefinition) {
        let settings = &mut self.settings;
        set(&mut settings.context.files, context.files);
        set(&mut settings.context.max_tokens, context.file_tokens);
        set(&mut settings.context_messages, context.messages);
        self.context = match context.strategy.unwrap_or(config.strategy()) {
            Strategy::Compaction => {
                let mut own: CompactionSettings = config.compaction().clone();
                set(&mut own.at_tokens, context.compact_at_tokens);
                if let Some(at) = context.compact_at_messages {
                    own.compact_at(at);
                }
                set(&mut own.keep_messages, context.keep_messages);
                own.model = context.compaction_model.or(own.model);
                ContextSettings::Compaction(own)
            }
            Strategy::Observation => {
                let mut own: ObservationSettings = config.observation().clone();
                set(&mut own.observe_at, context.observe_at);
                set(&mut own.reflect_at, context.reflect_at);
                own.observer = context.observer_model.or(own.observer);
                own.reflector = context.reflector_model.or(own.reflector);
                ContextSettings::Observation(own)
            }
            Strategy::None => ContextSettings::None,
        };
    }

    /// Returns the parts of the standard agent with these settings.
    pub fn apply(self, parts: Standard) -> Standard {
        Standard { instructions: self.instructions, settings: self.settings, context: self.context, ..parts }
    }
}

fn of_tool(name: &str, faults: &[FieldError]) -> Invalid {
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    Invalid(format!("the tool {name:?} is not valid: {}", faults.join("; ")))
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl Definition {
    /// Returns the settings of the deployment as a definition.
    pub fn of_deployment(config: &Config) -> Self {
        let settings = &config.agent;
        let external = config.external_tools.iter().map(ExternalTool::declared).collect::<Vec<_>>();
        let (compaction, observation) = (config.compaction(), config.observation());
        Self {
            instructions: config.instructions.clone(),
            model: config.models.default.clone(),
            fallback_models: some(&settings.fallback_models),
            thinking: Some(settings.think),
            external_tools: some(&external),
            subagents: settings.subagents.clone(),
            background_tasks: settings.subagents.as_ref().map(|_| settings.background),
            modes: Some(settings.modes.clone()),
            skills: Some(SkillsDefinition {
                enable: Some(settings.skills.enabled),
                drafts: Some(settings.skills.drafts),
                allow: some(&settings.skills.allow),
                deny: some(&settings.skills.deny),
            }),
            permissions: Some(settings.permissions.clone()),
            context: Some(ContextDefinition {
                strategy: Some(config.strategy()),
                messages: Some(settings.context_messages),
                files: some(&settings.context.files),
                file_tokens: Some(settings.context.max_tokens),
                compact_at_messages: Some(compaction.at_messages),
                compact_at_tokens: Some(compaction.at_tokens),
                keep_messages: Some(compaction.keep_messages),
                compaction_model: compaction.model.clone(),
                observe_at: Some(observation.observe_at),
                reflect_at: Some(observation.reflect_at),
                observer_model: observation.observer.clone(),
                reflector_model: observation.reflector.clone(),
            }),
            reflection: Some(ReflectionDefinition { every: settings.reflect_every }),
            verify: settings.verify.clone(),
            judges: some(&settings.judges),
            state_schema: settings.state_schema.clone(),
            initial_state: Some(settings.initial_state.clone()).filter(|state| !state.is_empty()),
            ..Self::default()
        }
    }
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    Some(list.to_vec()).filter(|list| !list.is_empty())
}
