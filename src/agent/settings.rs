//! What an agent is set to, unless a message says otherwise.

use super::Judge;
use crate::turn::ToolSelection;
use crate::types::{FilePath, Mode, Policy, Rules, SubagentKind, Thinking};
use serde_json::{Map, Value};

/// An agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much the model thinks.
    pub think: Thinking,
    /// Reflects in every `n`th turn of a session; 0 for none but after a tool's failure.
    pub reflect_every: u32,
    /// How long a tool's large output is kept, in seconds.
    pub artifact_ttl_s: u64,
    /// Offers a turn the tools that fit what the user said, where there are many; none offers all.
    /// A tool that is not offered can be called all the same.
    pub select_tools: Option<ToolSelection>,
    /// Characters of a tool's output from which it is kept apart for as long as the session lives; never
    /// when absent.
    pub evict_over: Option<usize>,
    /// The agent's rules. Where no rule says anything the agent's default decides, and without one a person.
    pub permissions: Rules,
    /// How long somebody who is asked has time to answer, in seconds.
    pub approval_ttl_s: u64,
    /// The ways in which it works; there may be none.
    pub modes: Vec<Mode>,
    /// The kinds of subagents that it may send out, beside the general one; none at all when absent.
    pub subagents: Option<Vec<SubagentKind>>,
    /// The JSON Schema that the callers' own state of a session must fit; any state does when absent.
    pub state_schema: Option<Value>,
    /// What that state is in a new session.
    pub initial_state: Map<String, Value>,
    /// Who grades replies.
    pub judges: Vec<Judge>,
    /// What of the workspace stands in the prompt.
    pub context: ContextSettings,
}

/// What of the workspace stands in the prompt, and how much.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// Files beside the ones that always do, in this order.
    pub files: Vec<FilePath>,
    /// Tokens of all of it, at four characters each.
    pub max_tokens: usize,
    /// Tokens of one file.
    pub max_file_tokens: usize,
    /// Whether the agent has tools with which it looks memories up and saves them.
    pub memory_tools: bool,
    /// Whether the agent learns from conversations by itself.
    pub memory_hooks: bool,
}

impl Default for ContextSettings {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            max_tokens: 8_000,
            max_file_tokens: 4_000,
            memory_tools: true,
            memory_hooks: true,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            think: Thinking::Off,
            reflect_every: 0,
            artifact_ttl_s: 3_600,
            select_tools: None,
            evict_over: Some(80_000),
            permissions: Rules { default: Some(Policy::Allow), ..Rules::default() },
            approval_ttl_s: 7 * 24 * 3_600,
            modes: Vec::new(),
            subagents: None,
            state_schema: None,
            initial_state: Map::new(),
            judges: Vec::new(),
            context: ContextSettings::default(),
        }
    }
}
