//! Settings of the agent.

use super::{Config, Kind, Setting, Topic, ValueError, faults, value};
use crate::agent::{ExternalTool, Judge, Tool, external_tool::Declared};
use crate::ports::outbound::Endpoint;
use crate::session::Modes;
use crate::tools::{LoadSkill, ReadArtifact, Recall};
use crate::types::{AgentId, FilePath, Mode, SubagentKind, glob, json};
use serde_json::Value;
use std::time::Duration;

/// Maximum number of context files in addition to the standard ones.
pub const MAX_CONTEXT_FILES: usize = 8;
/// Maximum number of agents besides `default`.
const MAX_AGENTS: usize = 100;
/// Minimum number of tokens for context files. With fewer, almost no content would fit.
const MIN_CONTEXT_TOKENS: usize = 2_000;

pub const TOPIC: Topic = Topic {
    title: "Agent",
    about: "The agent `default` always exists. [AGENTS](#agents) adds others. All agents of a deployment have these settings, \
            unless a tenant has stored [definitions](agents.md) of its own.",
    settings: &[
        Setting {
            name: "AGENTS",
            kind: Kind::Variable(agents),
            default: "",
            expects: "at most 100 ids separated by commas",
            doc: "The ids of agents besides `default`, for example `support, sales`. A request that names another agent \
                  gets 404 `unknown_agent`. All of them have the same settings; an agent with settings of its own is a \
                  [definition](agents.md), which needs no setting. Each agent has its own sessions and \
                  [shared files](http-api.md#workspace-files), and separate files and memory for each user.",
            example: "",
        },
        Setting {
            name: "INSTRUCTIONS",
            kind: Kind::Variable(|config, text| {
                config.instructions = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "text",
            doc: "The agent's instructions, which replace the built-in ones. The server always adds a warning to the model: \
                  text from tools, files and the web is data and not instructions. Among the \
                  [context files](memory.md#context-files), the shared ones other than `MEMORY.md` are an exception: \
                  they are part of the instructions.",
            example: "",
        },
        Setting {
            name: "CONTEXT_FILES",
            kind: Kind::Variable(context_files),
            default: "",
            expects: "at most 8 workspace paths separated by commas",
            doc: "Workspace files whose content is part of the prompt, in addition to `AGENTS.md`, `MEMORY.md` and \
                  `knowledge/KNOWLEDGE.md`. For example `SOUL.md, docs/style.md`.",
            example: "",
        },
        Setting {
            name: "CONTEXT_TOKENS",
            kind: Kind::Variable(|config, text| {
                config.agent.context.max_tokens = value::number(text, MIN_CONTEXT_TOKENS)?;
                Ok(())
            }),
            default: "8000",
            expects: "a whole number from 2000",
            doc: "Maximum number of tokens, at four characters each, of all context files in the prompt.",
            example: "",
        },
        Setting {
            name: "CONTEXT_FRESH_MS",
            kind: Kind::Variable(|config, text| {
                config.agent.context.fresh = Duration::from_millis(value::number(text, 0)?);
                Ok(())
            }),
            default: "1000",
            expects: "a whole number from 0",
            doc: "How long, in milliseconds, the server uses its copy of the context files before it reads the files \
                  again. A change that the same instance of the Worker makes takes effect at once. With 0, the files \
                  are read before each model call.",
            example: "",
        },
        Setting {
            name: "SKILLS",
            kind: Kind::Variable(|config, text| {
                config.agent.skills.enabled = match text {
                    "on" => true,
                    "0" => false,
                    other => return Err(ValueError::Unexpected(other.to_owned())),
                };
                Ok(())
            }),
            default: "on",
            expects: "on, or 0 to turn skills off",
            doc: "Whether the agent has the [skills](skills.md) in the folder `skills/` of its workspace, and the tool \
                  `load_skill`.",
            example: "",
        },
        Setting {
            name: "SKILL_DRAFTS",
            kind: Kind::Variable(|config, text| value::turn_on(&mut config.agent.skills.drafts, text)),
            default: "",
            expects: "1",
            doc: "With 1, the agent has the tool `propose_skill`, which writes a [draft of a skill](skills.md#drafts) for a \
                  person to promote.",
            example: "",
        },
        Setting {
            name: "THINK",
            kind: Kind::Variable(|config, text| {
                let level = Value::String(text.to_lowercase());
                config.agent.think =
                    json::from_value(level).map_err(|_| ValueError::Unexpected(text.to_owned()))?;
                Ok(())
            }),
            default: "off",
            expects: "off, low, medium or high",
            doc: "How much the model thinks, unless the message sets it. Each provider has its own scale.",
            example: "",
        },
        Setting {
            name: "REFLECT_EVERY",
            kind: Kind::Variable(|config, text| {
                config.agent.reflect_every = value::number(text, 0)?;
                Ok(())
            }),
            default: "0",
            expects: "a whole number from 0",
            doc: "Sets which steps the model reviews (self-critique). Turns without `think` have no reviews. In turns with \
                  `think`, the model reviews each step with a failed tool call. A number above 0 adds \
                  reviews: with 3, for example, the model reviews all steps with tool calls in every third turn of a \
                  session.",
            example: "",
        },
        Setting {
            name: "VERIFY",
            kind: Kind::Variable(|config, text| {
                config.agent.verify = Some(value::json(text)?);
                Ok(())
            }),
            default: "",
            expects: r#"JSON {"tool", "attempts"?}"#,
            doc: "How a turn that has changed files [verifies](extending.md#verification) them before it ends: by a call of \
                  `tool`, at most `attempts` times (default 3). Not set: turns verify nothing.",
            example: r#"{"tool": "local_verify", "attempts": 2}"#,
        },
        Setting {
            name: "SELECT_TOOLS",
            kind: Kind::Variable(select_tools),
            default: "",
            expects: "a whole number from 1",
            doc: "Maximum number of tools in a model request. The [control tools](reference.md#built-in-tools), such as \
                  `ask_user` and the tools for plans and tasks, are always offered and do not count. If the agent has more tools than this maximum, the server offers those that best \
                  match the user's words, which breaks the provider's cache of the prompt when the words change. `read_artifact`, \
                  `recall` and `load_skill` are always among them. Not set: all tools; with more than 40, \
                  [a stable selection](agents.md#many-tools).",
            example: "",
        },
        Setting {
            name: "MODES",
            kind: Kind::Variable(|config, text| {
                let modes: Vec<Mode> = value::list(text, faults::MAX_MODES)?;
                faults::first(faults::modes(&modes))?;
                Modes::new(modes.clone()).map_err(|error| ValueError::entry(error.mode, error.why))?;
                config.agent.modes = modes;
                Ok(())
            }),
            default: "",
            expects: r#"a JSON list of at most 16 modes, each {"id", …}"#,
            doc: "The agent's modes, see [permissions.md](permissions.md#modes). Not set: `build` and `plan`. `[]`: no \
                  modes.",
            example: r#"[{"id": "draft", "default": true, "transitions_to": ["review"], "available_tools": ["read_file", "write_file"]},
 {"id": "review", "read_only": true, "instructions": "Find faults.", "default_model": "openai/gpt-5-mini"}]"#,
        },
        Setting {
            name: "MAX_SUBAGENTS",
            kind: Kind::Variable(|config, text| {
                config.agent.max_subagents = value::number(text, 1)?;
                Ok(())
            }),
            default: "8",
            expects: "a whole number from 1",
            doc: "Maximum number of subagents at a time, including those in the background. If the model starts more in one step, they run in \
                  batches: the next batch starts when the whole current one has ended.",
            example: "",
        },
        Setting {
            name: "MAX_SUBAGENTS_PER_TURN",
            kind: Kind::Variable(|config, text| {
                config.agent.max_subagents_per_turn = value::number(text, 1)?;
                Ok(())
            }),
            default: "32",
            expects: "a whole number from 1",
            doc: "Maximum number of subagents that a turn starts. Calls that would start more are denied.",
            example: "",
        },
        Setting {
            name: "SUBAGENTS",
            kind: Kind::Variable(subagents),
            default: "",
            expects: r#"a JSON list of at most 16 {"id", "description", "instructions"?, "model"?, "tools"?, "max_steps"?, "workspace"?, "skills"?, "remote"?}"#,
            doc: "The kinds of subagents that the agent may start, see [extending.md](extending.md#subagents). The kind \
            `general-purpose` is always among them, so `[]` means only this one. Not set: the agent has no subagents.",
            example: r#"[{"id": "reviewer", "description": "Finds faults in a text.", "instructions": "Be strict.",
  "model": "openai/gpt-5-mini", "tools": ["read_file", "grep_files"], "max_steps": 20}]"#,
        },
        Setting {
            name: "BACKGROUND_TASKS",
            kind: Kind::Variable(|config, text| {
                let value = Value::String(text.to_owned());
                config.agent.background =
                    json::from_value(value).map_err(|_| ValueError::Unexpected(text.to_owned()))?;
                Ok(())
            }),
            default: "off",
            expects: "off, on or wake",
            doc: "Whether subagents may work in the background, see [extending.md](extending.md#background-tasks). With \
                  `wake`, a task that ends while the session is idle starts a turn. Needs [SUBAGENTS](#subagents).",
            example: "",
        },
        Setting {
            name: "EXTERNAL_TOOLS",
            kind: Kind::Variable(|config, text| {
                let declared: Vec<Declared> = value::list(text, faults::MAX_EXTERNAL)?;
                faults::first(faults::external_tools(&declared))?;
                let tools = declared.into_iter().map(ExternalTool::new);
                config.external_tools =
                    tools.collect::<Result<_, _>>().map_err(|why| ValueError::entry("parameters", why))?;
                Ok(())
            }),
            default: "",
            expects: r#"a JSON list of at most 32 {"name", "description", "parameters"?, "category"?, "effect"?, "idempotent"?}"#,
            doc: "Tools that the client runs, see [permissions.md](permissions.md#external-tools). `parameters` is a JSON \
                  Schema of the arguments.",
            example: r#"[{"name": "take_photo", "description": "Takes a photo with the user's camera.",
  "parameters": {"properties": {"zoom": {"type": "integer"}}}, "category": "read", "effect": "read_only"}]"#,
        },
        Setting {
            name: "STATE_SCHEMA",
            kind: Kind::Variable(|config, text| {
                config.agent.state_schema = Some(value::json(text)?);
                Ok(())
            }),
            default: "",
            expects: "a JSON Schema",
            doc: "The schema that a session's `state` must match. Not set: any object is valid.",
            example: r#"{"properties": {"step": {"type": "integer", "minimum": 0}}}"#,
        },
        Setting {
            name: "INITIAL_STATE",
            kind: Kind::Variable(|config, text| {
                config.agent.initial_state = value::json(text)?;
                Ok(())
            }),
            default: "{}",
            expects: "a JSON object",
            doc: "The `state` of a new session.",
            example: r#"{"step": 0}"#,
        },
        Setting {
            name: "JUDGES",
            kind: Kind::Variable(judges),
            default: "",
            expects: r#"a JSON list of at most 8 {"name", "instructions", "sample", "model"?}, with "sample" from 0 to 1"#,
            doc: "Models that grade replies after the turn. `sample` is the share of turns that a judge grades. \
                  Without `model`, a judge uses the default model. Grades are in the log (`judge.completed`) and in the \
                  turn (`judgements`).",
            example: r#"[{"name": "polite", "instructions": "Is the reply polite?", "sample": 0.1, "model": "openai/gpt-5-mini"}]"#,
        },
    ],
};

fn context_files(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let parse = |path| FilePath::parse(path).map_err(|why| ValueError::entry(path, why));
    let files = value::names(text).map(parse).collect::<Result<Vec<_>, _>>()?;
    config.agent.context.files = value::bounded(files, MAX_CONTEXT_FILES)?;
    Ok(())
}

fn agents(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let id = |id| AgentId::parse(id).ok_or_else(|| ValueError::Unexpected(id.to_owned()));
    config.agents = value::bounded(value::names(text).map(id).collect::<Result<_, _>>()?, MAX_AGENTS)?;
    Ok(())
}

fn select_tools(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let cap = value::number(text, 1)?;
    let selection = config.agent.select_tools.get_or_insert_default();
    selection.cap = cap;
    // No other tools read artifacts, messages that left the context window, or skills.
    selection.always.extend([ReadArtifact::NAME, Recall::NAME, LoadSkill::NAME].map(str::to_owned));
    Ok(())
}

fn subagents(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let kinds: Vec<SubagentKind> = value::list(text, faults::MAX_SUBAGENTS)?;
    faults::first(faults::subagents(&kinds))?;
    for kind in &kinds {
        if let Some(remote) = &kind.remote {
            // Which hosts are allowed is another setting, which is checked when the agent is asked.
            Endpoint::parse(&remote.url, &remote.headers)
                .map_err(|fault| ValueError::entry(&kind.id, format!("`remote`: {}", fault.0)))?;
        }
        let skills = kind.skills.iter();
        for pattern in skills.flat_map(|skills| skills.allow.iter().chain(&skills.deny)) {
            glob::check(pattern)
                .map_err(|fault| ValueError::entry(&kind.id, format!("{pattern:?}: {fault}")))?;
        }
    }
    config.agent.subagents = Some(kinds);
    Ok(())
}

fn judges(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let judges: Vec<Judge> = value::list(text, faults::MAX_JUDGES)?;
    faults::first(faults::judges(&judges))?;
    config.agent.judges = judges;
    Ok(())
}
