//! The settings of an agent. A message may override some of them for its turn.

use crate::turn::ToolSelection;
use crate::types::{
    BackgroundTasks, BudgetPatch, FilePath, Mode, Policy, Rules, SubagentKind, TenantLimits, Thinking,
    ToolSpec, WorkspaceKind, glob,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model of sessions that name none; the deployment's default if absent.
    pub model: Option<String>,
    /// The models that are asked, in this order, when the session's model fails before its first token.
    pub fallback_models: Vec<String>,
    /// Whether they are also asked when the provider refuses the account: its key, or its credit.
    pub fallback_for_account: bool,
    /// The model's thinking effort.
    pub think: Thinking,
    /// Every `n`th turn of a session critiques its steps; 0 does so only after a failed tool call.
    pub reflect_every: u32,
    /// How a turn verifies what it has changed; `None` for no verification.
    pub verify: Option<Verify>,
    /// Where the files of the agent's work are.
    pub workspace: WorkspaceKind,
    /// How long a large tool output is kept.
    pub artifact_ttl: Duration,
    /// Offers only the tools that match the user's message when there are many; `None` offers all. A tool
    /// that was not offered can still be called.
    pub select_tools: Option<ToolSelection>,
    /// Tool outputs with more characters than this are evicted to an artifact that lives as long as the
    /// session. `None` disables eviction.
    pub evict_over: Option<usize>,
    /// The agent's permission rules. Without a matching rule their default applies, and without a default a
    /// person is asked.
    pub permissions: Rules,
    /// The permission rules of the agent's definition, which can only restrict what `permissions` decide.
    pub own_permissions: Rules,
    /// How long a suspension stays open.
    pub approval_ttl: Duration,
    /// The agent's modes; may be empty.
    pub modes: Vec<Mode>,
    /// Whether the modes are those of the agent's definition, so that their rules too can only restrict.
    pub own_modes: bool,
    /// Further kinds of subagents besides the general one. `None` disables subagents.
    pub subagents: Option<Vec<SubagentKind>>,
    /// Whether subagents may work in the background.
    pub background: BackgroundTasks,
    /// Maximum number of subagents at a time, including those in the background. Further calls start when these have ended,
    /// but a call always starts if only background tasks work.
    pub max_subagents: usize,
    /// Maximum number of subagents that a turn starts.
    pub max_subagents_per_turn: u32,
    /// The JSON Schema of a session's state. `None` allows any state.
    pub state_schema: Option<Value>,
    /// The state of a new session.
    pub initial_state: Map<String, Value>,
    /// The judges of replies.
    pub judges: Vec<Judge>,
    /// The workspace files in the prompt.
    pub context: ContextSettings,
    /// The JSON Schema of replies, unless a message has its own.
    pub output_schema: Option<Value>,
    /// Changes to the limits of a new session.
    pub budget: BudgetPatch,
    /// The highest limits of a turn, in addition to the tenant's.
    pub ceilings: TenantLimits,
    /// Without a context strategy: maximum number of messages that the model is shown.
    pub context_messages: usize,
    /// The skills.
    pub skills: SkillSettings,
    /// The models of the tools for images and audio.
    pub media: MediaModels,
    /// The maximum number of sessions of a tenant that has no limit of its own.
    pub max_sessions: Option<u64>,
}

/// The models of the tools for images and audio, as `provider/model`. Without a model there is no tool.
#[derive(Clone, Debug, Default)]
pub struct MediaModels {
    /// Creates and changes images.
    pub image: Option<String>,
    /// Writes down what is said in recordings.
    pub transcription: Option<String>,
    /// Speaks texts.
    pub speech: Option<String>,
}

/// Which workspace files are part of the prompt, and how much of them.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// Files in addition to the standard ones, in this order.
    pub files: Vec<FilePath>,
    /// Maximum tokens of all files, at four characters each.
    pub max_tokens: usize,
    /// Maximum tokens of one file.
    pub max_file_tokens: usize,
    /// How long the files last read are used without reading them again, unless this isolate has changed one.
    pub fresh: Duration,
    /// Whether the agent has the tools to search and save memories.
    pub memory_tools: bool,
    /// Whether the agent learns from conversations automatically.
    pub memory_hooks: bool,
}

impl Default for ContextSettings {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            max_tokens: 8_000,
            max_file_tokens: 4_000,
            fresh: Duration::from_secs(1),
            memory_tools: true,
            memory_hooks: true,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            fallback_models: Vec::new(),
            fallback_for_account: false,
            think: Thinking::Off,
            reflect_every: 0,
            verify: None,
            workspace: WorkspaceKind::Server,
            artifact_ttl: Duration::from_hours(1),
            select_tools: None,
            evict_over: Some(80_000),
            permissions: Rules { default: Some(Policy::Allow), ..Rules::default() },
            own_permissions: Rules::new(),
            own_modes: false,
            approval_ttl: Duration::from_hours(7 * 24),
            modes: Vec::new(),
            subagents: None,
            background: BackgroundTasks::Off,
            max_subagents: 8,
            max_subagents_per_turn: 32,
            state_schema: None,
            initial_state: Map::new(),
            judges: Vec::new(),
            output_schema: None,
            budget: BudgetPatch::default(),
            ceilings: TenantLimits::default(),
            context_messages: 100,
            max_sessions: None,
            context: ContextSettings::default(),
            skills: SkillSettings::default(),
            media: MediaModels::default(),
        }
    }
}

/// Which of the available tools an agent has. Denial takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ToolFilter {
    /// The only tools; all if empty. Tools that control the session, such as `ask_user`, need not be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Tools that the agent does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Returns whether the agent has a tool.
    pub fn keeps(&self, tool: &ToolSpec) -> bool {
        let names = |list: &[String]| list.contains(&tool.name);
        !names(&self.deny) && (self.allow.is_empty() || tool.control || names(&self.allow))
    }
}

/// How a turn verifies what it has changed, before it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Verify")]
pub struct Verify {
    /// The tool that verifies, such as the runner's `local_verify`. It is called without arguments, and fails if the changes
    /// are not good.
    pub tool: String,
    /// Maximum number of calls that the server makes in a turn.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
}

/// Returns the default of [`Verify::attempts`].
fn default_attempts() -> u32 {
    3
}

/// Which skills an agent has, and whether it proposes new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSettings {
    /// Whether the agent has skills.
    pub enabled: bool,
    /// Whether the agent may propose skills, as drafts.
    pub drafts: bool,
    /// Names of skills, with `*` and other glob patterns. If there are any, the agent has no other skills.
    pub allow: Vec<String>,
    /// Names of skills that the agent does not have, with `*` and other glob patterns.
    pub deny: Vec<String>,
}

impl Default for SkillSettings {
    fn default() -> Self {
        Self { enabled: true, drafts: false, allow: Vec::new(), deny: Vec::new() }
    }
}

impl SkillSettings {
    /// Returns whether the agent may have the skill of this name.
    pub fn admits(&self, name: &str) -> bool {
        self.enabled && glob::admits(&self.allow, &self.deny, name)
    }
}

/// Grades a share of the replies. Its usage is not added to the session's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Judge {
    /// The name, shown in the log and in turns.
    pub name: String,
    /// The criterion, such as "Does the reply answer the question?".
    pub instructions: String,
    /// The share of turns to grade, from 0 to 1.
    pub sample: f64,
    /// The model, or the deployment's default model if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Judge {
    /// Returns whether this judge grades `turn`. Depends only on the names of judge and turn.
    pub fn is_for(&self, turn: &str) -> bool {
        let mut hash = Sha256::new();
        hash.update(&self.name);
        hash.update([0]);
        hash.update(turn);
        let first =
            hash.finalize().iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        // An `f64` holds 53 bits. Rounding up to 1 would exclude turns even from a share of 1.
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let place = (first >> 11) as f64 / (1u64 << 53) as f64;
        place < self.sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_skill_is_not_admitted_even_if_it_is_allowed() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let settings = |allow: &[&str], deny: &[&str]| SkillSettings {
            allow: list(allow),
            deny: list(deny),
            ..SkillSettings::default()
        };
        for (allow, deny, admitted) in [
            (&[][..], &[][..], &["pdf", "pdf-forms", "mail"][..]),
            (&["pdf*"], &[], &["pdf", "pdf-forms"]),
            (&["pdf", "mail"], &["m*"], &["pdf"]),
            (&[], &["*"], &[]),
        ] {
            let settings = settings(allow, deny);
            let names = ["pdf", "pdf-forms", "mail"].into_iter().filter(|name| settings.admits(name));
            assert_eq!(names.collect::<Vec<_>>(), admitted, "{settings:?}");
        }
        assert!(!SkillSettings { enabled: false, ..SkillSettings::default() }.admits("pdf"));
    }

    #[test]
    fn the_sample_of_a_judge_is_deterministic() {
        let chosen = |name: &str, sample: f64| {
            let judge = Judge { name: name.into(), instructions: String::new(), sample, model: None };
            (0..1_000).filter(|n| judge.is_for(&format!("trn_{n}"))).collect::<Vec<_>>()
        };
        assert_eq!((chosen("a", 0.0).len(), chosen("a", 1.0).len()), (0, 1_000));
        let quarter = chosen("a", 0.25);
        assert!((200..300).contains(&quarter.len()), "{}", quarter.len());
        assert_eq!(quarter, chosen("a", 0.25));
        // A larger share includes every turn of a smaller one; each judge samples independently.
        assert!(quarter.iter().all(|turn| chosen("a", 0.5).contains(turn)));
        assert!(quarter != chosen("b", 0.25));
    }
}
