//! Builds an agent. Nothing can be added after [`HarnessBuilder::build`].

use super::{
    ContextSource, DynTool, FollowUp, HarnessAgent, Hook, Interval, Settings, StateRules, Tool, ToolFilter,
    Toolkit,
    context_manager::{ContextManager, Precompact},
    find_tools::{CallTool, FindTools, MAX_OFFERED},
    follow_up::FollowUpHook,
    hook::HookEvent,
    hook_chain::HookChain,
    interval,
    own_default::OwnDefault,
    toolkit::{ToolNameError, is_of_servers},
};
use crate::context::ContextStrategy;
use crate::ports::{Clock, Entropy, Model, Models};
use crate::session::{ModeError, Modes};
use crate::types::FilePath;
use std::{collections::BTreeMap, rc::Rc};
use thiserror::Error;

/// Why an agent could not be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A tool's name is used twice or invalid.
    #[error(transparent)]
    ToolName(#[from] ToolNameError),
    /// Two hooks have the same name.
    #[error("two hooks have the name `{0}`")]
    HookName(&'static str),
    /// Two intervals have the same name, or one is shorter than a second.
    #[error("the interval `{0}` is defined twice, or is shorter than a second")]
    Interval(&'static str),
    /// A required part is missing.
    #[error("the agent has no {0}")]
    Missing(&'static str),
    /// The modes are inconsistent, or name an unknown tool or model.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// A variable of the deployment is invalid.
    #[error("the variable {name} is malformed: {why}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// The reason.
        why: String,
    },
}

/// The origin of a hook. Variants are in the order in which their hooks run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Band {
    User,
    BuiltIn,
}

/// Builds a [`HarnessAgent`].
#[derive(Default)]
pub struct HarnessBuilder {
    name: String,
    instructions: String,
    models: Option<Rc<dyn Models>>,
    clock: Option<Rc<dyn Clock>>,
    entropy: Option<Rc<dyn Entropy>>,
    hooks: Vec<(Band, Rc<dyn Hook>)>,
    without: Vec<String>,
    tools: Vec<Rc<dyn DynTool>>,
    listed: Vec<Rc<dyn DynTool>>,
    prefixes: Vec<String>,
    filter: ToolFilter,
    settings: Settings,
    context_files: Vec<FilePath>,
    context: Vec<Rc<dyn ContextSource>>,
    follow_ups: Vec<Rc<dyn FollowUp>>,
    intervals: Vec<Rc<dyn Interval>>,
    remotes: BTreeMap<String, Rc<dyn Model>>,
    run_tools: Vec<Rc<dyn DynTool>>,
    /// The strategy, and its position among the follow-ups.
    strategy: Option<(Rc<dyn ContextStrategy>, usize)>,
}

impl HarnessAgent {
    /// Starts building an agent.
    pub fn builder() -> HarnessBuilder {
        HarnessBuilder::default()
    }
}

impl HarnessBuilder {
    /// Sets the agent's name and instructions.
    pub fn instructions(mut self, name: &str, instructions: &str) -> Self {
        self.name = name.to_owned();
        self.instructions = instructions.to_owned();
        self
    }

    /// Sets the available models.
    pub fn models(mut self, models: Rc<dyn Models>) -> Self {
        self.models = Some(models);
        self
    }

    /// Sets the sources of time and randomness.
    pub fn clock(mut self, clock: Rc<dyn Clock>, entropy: Rc<dyn Entropy>) -> Self {
        self.clock = Some(clock);
        self.entropy = Some(entropy);
        self
    }

    /// Sets the settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the model of a kind of subagent whose work a remote agent does.
    pub fn remote_agent(mut self, kind: &str, model: Rc<dyn Model>) -> Self {
        self.remotes.insert(kind.to_owned(), model);
        self
    }

    /// Adds a tool that only runs have.
    pub(crate) fn run_tool(mut self, tool: Rc<dyn DynTool>) -> Self {
        self.run_tools.push(tool);
        self
    }

    /// Names the files and folders of the workspace whose text is part of the prompt. By default, edits of them by
    /// tools need the user's approval.
    pub fn context_files(mut self, files: Vec<FilePath>) -> Self {
        self.context_files = files;
        self
    }

    /// Adds a context source, which is loaded when a turn starts.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.context.push(Rc::new(source));
        self
    }

    /// Adds a follow-up, and the hook that requests it. Follow-ups run in the order in which they were added.
    pub fn follow_up(mut self, follow_up: impl FollowUp + 'static) -> Self {
        let hook = self.following(follow_up);
        self.hooks.push((Band::User, hook));
        self
    }

    /// Adds a built-in follow-up.
    pub(crate) fn built_in_follow_up(mut self, follow_up: impl FollowUp + 'static) -> Self {
        let hook = self.following(follow_up);
        self.built_in(hook)
    }

    fn following(&mut self, follow_up: impl FollowUp + 'static) -> Rc<dyn Hook> {
        let follow_up: Rc<dyn FollowUp> = Rc::new(follow_up);
        self.follow_ups.push(Rc::clone(&follow_up));
        Rc::new(FollowUpHook(follow_up))
    }

    /// Adds work that each session repeats at an interval.
    pub fn interval(mut self, interval: impl Interval + 'static) -> Self {
        self.intervals.push(Rc::new(interval));
        self
    }

    /// Sets the context strategy. Its background work runs after the follow-ups added so far.
    pub fn context_strategy(mut self, strategy: impl ContextStrategy + 'static) -> Self {
        self.strategy = Some((Rc::new(strategy), self.follow_ups.len()));
        self
    }

    /// Adds a tool.
    pub fn tool(self, tool: impl Tool) -> Self {
        self.dyn_tool(Rc::new(tool))
    }

    /// Adds a tool that is not known at compile time.
    pub fn dyn_tool(mut self, tool: Rc<dyn DynTool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools that servers have listed. One whose name is taken is left out. Modes and kinds of subagents may name tools
    /// with these prefixes that are not listed at the moment, and the tools for what servers offer besides tools.
    pub fn listed_tools(mut self, tools: Vec<Rc<dyn DynTool>>, prefixes: Vec<String>) -> Self {
        self.listed.extend(tools);
        self.prefixes.extend(prefixes);
        self
    }

    /// Removes all tools that the filter does not keep, in whatever order they are added.
    pub fn only_tools(mut self, filter: ToolFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Adds a hook. At every event it runs before the built-in hooks.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push((Band::User, Rc::new(hook)));
        self
    }

    /// Adds a built-in hook.
    pub(crate) fn built_in(mut self, hook: Rc<dyn Hook>) -> Self {
        self.hooks.push((Band::BuiltIn, hook));
        self
    }

    /// Removes the hook, built-in or not, with this name.
    pub fn without_hook(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

    /// Validates the parts and builds the agent.
    ///
    /// # Errors
    /// If names clash, a required part is missing, or the settings are invalid.
    pub fn build(self) -> Result<HarnessAgent, BuildError> {
        let without = |name: &str| self.without.iter().any(|without| without == name);
        let mut toolkit = Toolkit::default();
        for tool in self.tools {
            toolkit.add(tool)?;
        }
        for tool in self.listed {
            // A server must not make the agent unusable.
            let _ = toolkit.add_listed(tool);
        }
        let is_unknown = |toolkit: &Toolkit, name: &str| {
            toolkit.get(name).is_none() && !is_of_servers(name, &self.prefixes)
        };
        toolkit.retain(|spec| self.filter.keeps(spec));
        let all = toolkit.specs(None);
        let has_many = all.iter().filter(|spec| !spec.control).count() > MAX_OFFERED;
        if has_many && self.settings.select_tools.is_none() {
            toolkit.add_reserved(Rc::new(FindTools))?;
            toolkit.add_reserved(Rc::new(CallTool))?;
        }
        let modes = Rc::new(Modes::new(self.settings.modes.clone())?);
        for mode in modes.all() {
            let lists = [&mode.tools, &mode.additional_tools, &mode.available_tools];
            let unknown = lists.into_iter().flatten().flatten().find(|name| is_unknown(&toolkit, name));
            if let Some(name) = unknown {
                let why = format!("it names the tool {name:?}, which does not exist");
                return Err(ModeError { mode: mode.id.clone(), why }.into());
            }
        }
        let models = self.models.ok_or(BuildError::Missing("models"))?;
        for mode in modes.all() {
            if let Some(Err(error)) = mode.default_model.as_ref().map(|model| models.offered(model)) {
                return Err(ModeError { mode: mode.id.clone(), why: error.message }.into());
            }
        }
        let models: Rc<dyn Models> = match self.settings.model.clone() {
            Some(default) => match models.offered(&default) {
                Ok(_) => Rc::new(OwnDefault { models, default }),
                Err(error) => return Err(BuildError::Variable { name: "DEFAULT_MODEL", why: error.message }),
            },
            None => models,
        };
        let mut fallbacks = self.settings.fallback_models.iter();
        if let Some(error) = fallbacks.find_map(|model| models.offered(model).err()) {
            return Err(BuildError::Variable { name: "FALLBACK_MODELS", why: error.message });
        }
        for kind in self.settings.subagents.iter().flatten() {
            let unknown = kind.tools.iter().flatten().find(|name| is_unknown(&toolkit, name));
            let tool = unknown.map(|name| format!("the tool {name:?}, which does not exist"));
            let model = kind.model.as_ref().and_then(|model| models.offered(model).err());
            if let Some(why) = tool.or(model.map(|error| error.message)) {
                let why = format!("the kind {:?} names {why}", kind.id);
                return Err(BuildError::Variable { name: "SUBAGENTS", why });
            }
        }
        let (mut hooks, mut follow_ups) = (self.hooks, self.follow_ups);
        let strategy = self.strategy.filter(|(strategy, _)| !without(strategy.name()));
        let context_manager = strategy.map(|(strategy, place)| {
            let before = follow_ups
                .iter()
                .filter(|work| work.before_drop() && !without(work.name()))
                .cloned()
                .collect();
            let context_manager = Rc::new(ContextManager { strategy, before, models: Rc::clone(&models) });
            let ahead: Rc<dyn FollowUp> = Rc::new(Precompact(Rc::clone(&context_manager)));
            follow_ups.insert(place, Rc::clone(&ahead));
            hooks.push((Band::BuiltIn, Rc::new(FollowUpHook(ahead))));
            context_manager
        });
        hooks.retain(|(_, hook)| !without(hook.name()));
        for (index, (_, hook)) in hooks.iter().enumerate() {
            if hooks.iter().skip(index + 1).any(|(_, other)| other.name() == hook.name()) {
                return Err(BuildError::HookName(hook.name()));
            }
        }
        for (index, handler) in self.intervals.iter().enumerate() {
            let twice = self.intervals.iter().skip(index + 1).any(|other| other.name() == handler.name());
            if twice || handler.every() < interval::MIN_INTERVAL {
                return Err(BuildError::Interval(handler.name()));
            }
        }
        // The sort is stable, so that hooks of equal priority keep their order of registration.
        hooks.sort_by_key(|(band, hook)| (*band, hook.priority()));
        let lists = HookEvent::ALL.map(|event| {
            let registered = hooks.iter().filter(|(_, hook)| hook.events().contains(&event));
            registered.map(|(_, hook)| Rc::clone(hook)).collect()
        });
        let (schema, initial) = (self.settings.state_schema.clone(), self.settings.initial_state.clone());
        let state = StateRules::new(schema, initial);
        let state = state.map_err(|(name, why)| BuildError::Variable { name, why })?;
        Ok(HarnessAgent {
            name: self.name,
            instructions: self.instructions,
            toolkit,
            settings: self.settings,
            modes,
            state: Rc::new(state),
            context_files: self.context_files,
            context: self.context,
            context_manager,
            follow_ups,
            intervals: self.intervals,
            hooks: HookChain { lists },
            models,
            remotes: self.remotes,
            run_tools: self.run_tools.into_iter().map(|tool| (tool.spec(), tool)).collect(),
            clock: self.clock.ok_or(BuildError::Missing("clock"))?,
            entropy: self.entropy.ok_or(BuildError::Missing("entropy"))?,
        })
    }
}
