//! The settings of a deployment: one table, from which the parser, its errors and
//! `docs/configuration.md` derive. To add a setting, add a row to the topic that it belongs to.

mod access;
mod agent;
mod context;
mod control;
pub(super) mod faults;
mod limits;
mod memory;
mod models;
mod platform;
mod storage;
mod value;

use super::{ContextSettings, modes};
use crate::agent::{ExternalTool, Settings};
use crate::context::{compaction::CompactionSettings, observation::ObservationSettings};
use crate::memory::MemorySettings;
use crate::model::ModelSettings;
use crate::ports::AllowedHosts;
use crate::types::{AgentId, StorageLimits, TenantLimits};
pub(super) use agent::MAX_CONTEXT_FILES;
pub(super) use context::Strategy;
pub(super) use models::MAX_FALLBACKS;
use thiserror::Error;
pub use value::ValueError;

/// One row of the table.
pub struct Setting {
    /// The name of the variable, secret or binding.
    pub name: &'static str,
    /// Where the value comes from and how it is parsed.
    pub kind: Kind,
    /// The value of an absent or blank setting; empty when `doc` describes how it is derived.
    pub default: &'static str,
    /// The valid values. Completes the sentence "expected …".
    pub expects: &'static str,
    /// What the setting does, in Markdown.
    pub doc: &'static str,
    /// A valid value, for settings whose values are JSON; otherwise empty.
    pub example: &'static str,
}

/// Where a setting comes from.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A secret: `.dev.vars` on a developer's machine, `wrangler secret put` in a deployment.
    Secret(Parse),
    /// A variable below `[vars]` in `wrangler.toml`.
    Variable(Parse),
    /// A resource that `wrangler.toml` binds. The platform folder reads it.
    Binding,
}

/// Parses a value, trimmed and not empty, into the configuration.
type Parse = fn(&mut Config, &str) -> Result<(), ValueError>;

/// Settings that belong together.
pub struct Topic {
    /// Its heading.
    pub title: &'static str,
    /// An introduction to its settings, in Markdown.
    pub about: &'static str,
    /// Its settings, in the order in which they are parsed: a row may use the values of those before it.
    pub settings: &'static [Setting],
}

/// All settings.
pub const SETTINGS: &[Topic] = &[
    models::TOPIC,
    agent::TOPIC,
    control::TOPIC,
    context::TOPIC,
    memory::TOPIC,
    storage::TOPIC,
    access::TOPIC,
    limits::TOPIC,
    platform::TOPIC,
];

/// A setting whose value is invalid.
#[derive(Debug, Error)]
#[error("the setting {name} is malformed: {why}; expected {expects}")]
pub struct SettingError {
    /// The setting.
    pub name: &'static str,
    /// What is wrong with its value.
    #[source]
    pub why: ValueError,
    /// The valid values.
    pub expects: &'static str,
}

/// The configuration of a deployment.
pub struct Config {
    /// The models.
    pub models: ModelSettings,
    /// Instructions in place of the built-in ones.
    pub instructions: Option<String>,
    /// The agents besides `default`.
    pub agents: Vec<AgentId>,
    /// The agent's settings.
    pub agent: Settings,
    /// Tools that clients run.
    pub external_tools: Vec<ExternalTool>,
    /// Hosts that `web_fetch` may read, separated by commas.
    pub web_fetch_allow: String,
    /// Where HTTP tools may send requests to.
    pub http_tools_allow: AllowedHosts,
    /// Where push notifications may be sent to.
    pub push_allow: AllowedHosts,
    /// The hosts on which definitions of agents may name servers of MCP.
    pub mcp_allow: AllowedHosts,
    /// The hosts on which definitions of agents may name remote agents.
    pub remote_agents_allow: AllowedHosts,
    /// The address of the deployment, without a slash at the end.
    pub public_url: Option<String>,
    /// Memory across sessions.
    pub memory: MemorySettings,
    strategy: Strategy,
    compaction: CompactionSettings,
    observation: ObservationSettings,
    /// What a tenant may store, unless it has limits of its own.
    pub storage: StorageLimits,
    /// The key of the tenant `dev`.
    pub dev_api_key: Option<String>,
    /// Whether that key is valid for every host.
    pub dev: bool,
    /// The operator's key.
    pub admin_key: Option<String>,
    /// Origins of web pages that may call.
    pub cors_origins: Vec<String>,
    /// The limits of tenants that do not have their own.
    pub limits: TenantLimits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            models: ModelSettings::default(),
            instructions: None,
            agents: Vec::new(),
            agent: Settings { modes: modes::standard(), ..Settings::default() },
            external_tools: Vec::new(),
            web_fetch_allow: String::new(),
            http_tools_allow: AllowedHosts::parse("*"),
            push_allow: AllowedHosts::default(),
            mcp_allow: AllowedHosts::parse("*"),
            remote_agents_allow: AllowedHosts::parse("*"),
            public_url: None,
            memory: MemorySettings::default(),
            strategy: Strategy::default(),
            compaction: CompactionSettings::default(),
            observation: ObservationSettings::default(),
            storage: StorageLimits { storage_bytes: Some(1_000_000_000), ..StorageLimits::default() },
            dev_api_key: None,
            dev: false,
            admin_key: None,
            cors_origins: Vec::new(),
            limits: TenantLimits::default(),
        }
    }
}

impl Config {
    /// Reads all settings. `find` returns the value of a variable or secret by its name. A malformed setting
    /// keeps its default and is listed in the errors, so that an operator sees all of them at once.
    pub fn read(find: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<SettingError>) {
        let (mut config, mut errors) = (Self::default(), Vec::new());
        for setting in SETTINGS.iter().flat_map(|topic| topic.settings) {
            let (Kind::Secret(parse) | Kind::Variable(parse)) = setting.kind else { continue };
            let Some(text) = find(setting.name) else { continue };
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            if let Err(why) = parse(&mut config, text) {
                errors.push(SettingError { name: setting.name, why, expects: setting.expects });
            }
        }
        config.read_custom_keys(find);
        (config, errors)
    }

    /// Reads the secrets that `PROVIDERS` names.
    fn read_custom_keys(&mut self, find: &dyn Fn(&str) -> Option<String>) {
        let secret =
            |name: &String| find(name).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        for provider in self.models.custom.clone() {
            self.models.credentials(&provider.name).key = provider.key.as_ref().and_then(secret);
        }
    }

    /// Returns the context strategy that was chosen.
    pub(super) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns the settings of compaction, whichever strategy was chosen.
    pub(super) fn compaction(&self) -> &CompactionSettings {
        &self.compaction
    }

    /// Returns the settings of observation, whichever strategy was chosen.
    pub(super) fn observation(&self) -> &ObservationSettings {
        &self.observation
    }

    /// Returns the settings of the context strategy that was chosen.
    pub fn context(&self) -> ContextSettings {
        match self.strategy {
            Strategy::Compaction => ContextSettings::Compaction(self.compaction.clone()),
            Strategy::Observation => ContextSettings::Observation(self.observation.clone()),
            Strategy::None => ContextSettings::None,
        }
    }
}

#[cfg(test)]
mod tests;
