//! What of the standard agent a deployment sets by variables.

use super::{ContextSettings, modes};
use crate::agent::{BuildError, Judge, Settings, Tool};
use crate::memory::{
    Flush, MemorySettings, compaction::CompactionSettings, observation::ObservationSettings,
};
use crate::tools::{ExternalTool, ReadArtifact, Recall, external::Declared};
use crate::types::{FilePath, Mode, Modes, Rules, SubagentKind, Thinking, id, json};
use serde_json::Value;
use std::collections::BTreeSet;

/// Most judges.
const MAX_JUDGES: usize = 8;

/// Most modes.
const MAX_MODES: usize = 16;
/// Most kinds of subagents.
const MAX_SUBAGENTS: usize = 16;
/// Most tools that clients run themselves.
const MAX_EXTERNAL: usize = 32;

/// Most files of the workspace that a deployment puts into the prompt.
const MAX_CONTEXT_FILES: usize = 8;
/// Fewest tokens for what of the workspace stands in the prompt: below, nothing but cuts would.
const MIN_CONTEXT_TOKENS: usize = 2_000;

/// Fewest tokens at which messages are observed or notes rewritten: below, every few words would be.
const MIN_OBSERVED: u64 = 500;

/// Reads `THINK`, `REFLECT_EVERY`, `ARTIFACT_TTL_S`, `SELECT_TOOLS`, `EVICT_OVER`, `MODES`, `PERMISSIONS`,
/// `APPROVAL_TTL_S`, `JUDGES`, `SUBAGENTS`, `CONTEXT_FILES`, `CONTEXT_TOKENS`, `STATE_SCHEMA` and `INITIAL_STATE`. What is absent
/// stays as it is by default; `var` finds a variable by its name.
///
/// # Errors
/// Which variable is malformed, and how.
pub fn settings(var: &dyn Fn(&str) -> Option<String>) -> Result<Settings, BuildError> {
    let mut settings = Settings { modes: modes::standard(), ..Settings::default() };
    let read =
        |name: &'static str| var(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let bad = |name: &'static str, why: String| BuildError::Variable { name, why };
    if let Some(text) = read("THINK") {
        settings.think = thinking(&text)
            .ok_or_else(|| bad("THINK", format!("expected off, low, medium or high, found {text:?}")))?;
    }
    if let Some(text) = read("REFLECT_EVERY") {
        settings.reflect_every = text.parse().map_err(|_| {
            bad("REFLECT_EVERY", format!("expected a whole number, 0 for never, found {text:?}"))
        })?;
    }
    if let Some(text) = read("ARTIFACT_TTL_S") {
        settings.artifact_ttl_s = text
            .parse()
            .map_err(|_| bad("ARTIFACT_TTL_S", format!("expected a number of seconds, found {text:?}")))?;
    }
    if let Some(text) = read("SELECT_TOOLS") {
        let cap = text.parse().ok().filter(|cap| *cap > 0).ok_or_else(|| {
            bad("SELECT_TOOLS", format!("expected a whole number from 1, empty for all, found {text:?}"))
        })?;
        // What was kept apart or is not shown any more cannot be read without them, whatever the user said.
        let selection = settings.select_tools.get_or_insert_default();
        selection.cap = cap;
        selection.always.extend([ReadArtifact::NAME.to_owned(), Recall::NAME.to_owned()]);
    }
    if let Some(text) = read("EVICT_OVER") {
        let chars: usize = text.parse().map_err(|_| {
            bad("EVICT_OVER", format!("expected a number of characters, 0 for never, found {text:?}"))
        })?;
        settings.evict_over = Some(chars).filter(|chars| *chars > 0);
    }
    if let Some(text) = read("MODES") {
        settings.modes = own_modes(&text).map_err(|why| bad("MODES", why))?;
    }
    if let Some(text) = read("PERMISSIONS") {
        let usual = settings.permissions.default;
        settings.permissions = rules(&text).map_err(|why| bad("PERMISSIONS", why))?;
        settings.permissions.default = settings.permissions.default.or(usual);
    }
    if let Some(text) = read("APPROVAL_TTL_S") {
        settings.approval_ttl_s =
            text.parse::<u32>().ok().filter(|s| *s > 0).map(u64::from).ok_or_else(|| {
                bad("APPROVAL_TTL_S", format!("expected a number of seconds from 1, found {text:?}"))
            })?;
    }
    if let Some(text) = read("JUDGES") {
        settings.judges = judges(&text).map_err(|why| bad("JUDGES", why))?;
    }
    if let Some(text) = read("CONTEXT_FILES") {
        settings.context.files = context_files(&text).map_err(|why| bad("CONTEXT_FILES", why))?;
    }
    if let Some(text) = read("CONTEXT_TOKENS") {
        settings.context.max_tokens =
            text.parse().ok().filter(|tokens| *tokens >= MIN_CONTEXT_TOKENS).ok_or_else(|| {
                let why = format!("expected a whole number from {MIN_CONTEXT_TOKENS}, found {text:?}");
                bad("CONTEXT_TOKENS", why)
            })?;
    }
    let json = |name: &'static str| match read(name) {
        None => Ok(None),
        Some(text) => json::read::<Value>(text.as_bytes())
            .map(Some)
            .map_err(|error| bad(name, format!("expected JSON: {error}"))),
    };
    if let Some(text) = read("SUBAGENTS") {
        settings.subagents = Some(subagents(&text).map_err(|why| bad("SUBAGENTS", why))?);
    }
    settings.state_schema = json("STATE_SCHEMA")?;
    settings.initial_state = match json("INITIAL_STATE")? {
        None => settings.initial_state,
        Some(Value::Object(state)) => state,
        Some(_) => return Err(bad("INITIAL_STATE", "expected an object of JSON".into())),
    };
    Ok(settings)
}

/// Reads `MEMORY_MODEL` and `MEMORY_FLUSH`.
///
/// # Errors
/// Which variable is malformed, and how.
pub fn memory_settings(var: &dyn Fn(&str) -> Option<String>) -> Result<MemorySettings, BuildError> {
    let read = |name: &str| var(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let flush = match read("MEMORY_FLUSH").as_deref() {
        None | Some("always") => Flush::Every(0),
        Some("never") => Flush::Never,
        Some(text) => Flush::Every(text.parse::<u32>().map(|s| u64::from(s) * 1_000).map_err(|_| {
            let why = format!("expected always, never or a number of seconds, found {text:?}");
            BuildError::Variable { name: "MEMORY_FLUSH", why }
        })?),
    };
    Ok(MemorySettings { model: read("MEMORY_MODEL"), flush })
}

/// Reads `CONTEXT_STRATEGY`, `COMPACT_AT_MESSAGES`, `COMPACT_AT_TOKENS`, `COMPACT_KEEP_MESSAGES`,
/// `COMPACT_KEEP_TOKENS`, `CONTEXT_RESERVE`, `COMPACTION_MODEL`, `OBSERVE_AT`, `REFLECT_AT`,
/// `OBSERVER_MODEL`, `REFLECTOR_MODEL` and `OBSERVE_IDLE_MINUTES`.
///
/// # Errors
/// Which variable is malformed, and how.
pub fn context_settings(var: &dyn Fn(&str) -> Option<String>) -> Result<ContextSettings, BuildError> {
    let read = |name: &str| var(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    match read("CONTEXT_STRATEGY").as_deref() {
        None | Some("compaction") => compaction(&read).map(ContextSettings::Compaction),
        Some("observation") => observation(&read).map(ContextSettings::Observation),
        Some("none") => Ok(ContextSettings::None),
        Some(text) => {
            let why = format!("expected compaction, observation or none, found {text:?}");
            Err(BuildError::Variable { name: "CONTEXT_STRATEGY", why })
        }
    }
}

fn compaction(read: &dyn Fn(&str) -> Option<String>) -> Result<CompactionSettings, BuildError> {
    let number = |name: &'static str, usual: u64| match read(name) {
        None => Ok(usual),
        Some(text) => text.parse::<u32>().map(u64::from).map_err(|_| {
            let why = format!("expected a whole number, found {text:?}");
            BuildError::Variable { name, why }
        }),
    };
    let usual = CompactionSettings::default();
    let at_messages = number("COMPACT_AT_MESSAGES", usual.at_messages as u64)?;
    // More than half of what is too much is not much of a change.
    let keep = if at_messages == 0 { usual.keep_messages as u64 } else { 20.min(at_messages / 2) };
    let keep_messages = number("COMPACT_KEEP_MESSAGES", keep)?;
    if at_messages > 0 && keep_messages >= at_messages {
        let why = format!("expected less than COMPACT_AT_MESSAGES, {at_messages}, found {keep_messages}");
        return Err(BuildError::Variable { name: "COMPACT_KEEP_MESSAGES", why });
    }
    Ok(CompactionSettings {
        at_messages: usize::try_from(at_messages).unwrap_or(usize::MAX),
        keep_messages: usize::try_from(keep_messages).unwrap_or(usize::MAX),
        at_tokens: number("COMPACT_AT_TOKENS", usual.at_tokens)?,
        keep_tokens: number("COMPACT_KEEP_TOKENS", usual.keep_tokens)?,
        reserve: number("CONTEXT_RESERVE", usual.reserve)?,
        model: read("COMPACTION_MODEL"),
    })
}

fn observation(read: &dyn Fn(&str) -> Option<String>) -> Result<ObservationSettings, BuildError> {
    let number = |name: &'static str, least: u64| {
        let Some(text) = read(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number >= least);
        let why = || format!("expected a whole number from {least}, found {text:?}");
        number.map(Some).ok_or_else(|| BuildError::Variable { name, why: why() })
    };
    let usual = ObservationSettings::default();
    Ok(ObservationSettings {
        observe_at: number("OBSERVE_AT", MIN_OBSERVED)?.unwrap_or(usual.observe_at),
        reflect_at: number("REFLECT_AT", MIN_OBSERVED)?.unwrap_or(usual.reflect_at),
        observer: read("OBSERVER_MODEL"),
        reflector: read("REFLECTOR_MODEL"),
        idle_ms: number("OBSERVE_IDLE_MINUTES", 1)?.map(|minutes: u64| minutes.saturating_mul(60_000)),
    })
}

fn thinking(text: &str) -> Option<Thinking> {
    json::from_value(Value::String(text.to_lowercase())).ok()
}

fn context_files(text: &str) -> Result<Vec<FilePath>, String> {
    let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
    let files: Result<Vec<FilePath>, String> =
        paths.map(|path| FilePath::parse(path).map_err(|error| format!("{path:?}: {error}"))).collect();
    let files = files?;
    if files.len() > MAX_CONTEXT_FILES {
        return Err(format!("expected at most {MAX_CONTEXT_FILES} paths, found {}", files.len()));
    }
    Ok(files)
}

fn own_modes(text: &str) -> Result<Vec<Mode>, String> {
    let modes: Vec<Mode> = json::read(text.as_bytes())
        .map_err(|error| format!(r#"expected a list of modes, each {{"id", …}}, in JSON: {error}"#))?;
    if modes.len() > MAX_MODES {
        return Err(format!("expected at most {MAX_MODES} modes, found {}", modes.len()));
    }
    Modes::new(modes.clone()).map_err(|error| error.to_string())?;
    Ok(modes)
}

/// Reads `EXTERNAL_TOOLS`: tools that clients run themselves.
///
/// # Errors
/// How it is malformed.
pub fn external_tools(var: &dyn Fn(&str) -> Option<String>) -> Result<Vec<ExternalTool>, BuildError> {
    let name = "EXTERNAL_TOOLS";
    let Some(text) = var(name).filter(|text| !text.trim().is_empty()) else { return Ok(Vec::new()) };
    declared(&text).map_err(|why| BuildError::Variable { name, why })
}

fn declared(text: &str) -> Result<Vec<ExternalTool>, String> {
    let tools: Vec<Declared> = json::read(text.as_bytes()).map_err(|error| {
        format!(r#"expected a list of {{"name", "description", "parameters", "category"?, "effect"?}} in JSON: {error}"#)
    })?;
    if tools.len() > MAX_EXTERNAL {
        return Err(format!("expected at most {MAX_EXTERNAL} tools, found {}", tools.len()));
    }
    tools.into_iter().map(ExternalTool::new).collect()
}

fn subagents(text: &str) -> Result<Vec<SubagentKind>, String> {
    let kinds: Vec<SubagentKind> = json::read(text.as_bytes()).map_err(|error| {
        format!(r#"expected a list of {{"id", "description", "instructions"?, "model"?, "tools"?, "max_steps"?}} in JSON: {error}"#)
    })?;
    if kinds.len() > MAX_SUBAGENTS {
        return Err(format!("expected at most {MAX_SUBAGENTS} kinds, found {}", kinds.len()));
    }
    let mut ids = BTreeSet::new();
    for kind in &kinds {
        if !id::is_valid(&kind.id) || !ids.insert(&kind.id) {
            return Err(format!("the id {:?} is taken twice or not an id", kind.id));
        }
        if kind.max_steps == Some(0) {
            return Err(format!("the `max_steps` of {:?} are none", kind.id));
        }
    }
    Ok(kinds)
}

fn rules(text: &str) -> Result<Rules, String> {
    let rules: Rules = json::read(text.as_bytes()).map_err(|error| {
        format!(r#"expected {{"default"?, "categories"?, "tools"?, "patterns"?}} in JSON: {error}"#)
    })?;
    rules.check().map_err(|(pointer, fault)| format!("{pointer}: {fault}"))?;
    Ok(rules)
}

fn judges(text: &str) -> Result<Vec<Judge>, String> {
    let judges: Vec<Judge> = json::read(text.as_bytes()).map_err(|error| {
        format!(r#"expected a list of {{"name", "instructions", "sample", "model"?}} in JSON: {error}"#)
    })?;
    if judges.len() > MAX_JUDGES {
        return Err(format!("expected at most {MAX_JUDGES} judges, found {}", judges.len()));
    }
    let mut names = BTreeSet::new();
    for judge in &judges {
        if !id::is_valid(&judge.name) || !names.insert(&judge.name) {
            return Err(format!("the name {:?} is taken twice or not an id", judge.name));
        }
        if !(0.0..=1.0).contains(&judge.sample) {
            return Err(format!("the sample of {:?} is not between 0 and 1", judge.name));
        }
    }
    Ok(judges)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::agent::DynTool;
    use crate::types::Policy;
    use pretty_assertions::assert_eq;

    fn with(name: &str, value: &str) -> Result<Settings, String> {
        settings(&|asked| (asked == name).then(|| value.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_become_settings() {
        assert_eq!(with("THINK", " High ").unwrap().think, Thinking::High);
        assert_eq!(with("REFLECT_EVERY", "3").unwrap().reflect_every, 3);
        assert_eq!(with("ARTIFACT_TTL_S", "60").unwrap().artifact_ttl_s, 60);
        let chosen = with("SELECT_TOOLS", "12").unwrap().select_tools.unwrap();
        assert_eq!((chosen.cap, chosen.always), (12, vec!["read_artifact".to_owned(), "recall".to_owned()]));
        assert_eq!(with("SELECT_TOOLS", "").unwrap().select_tools, None);
        let evicts = |text: &str| with("EVICT_OVER", text).unwrap().evict_over;
        assert_eq!((evicts(""), evicts("0"), evicts("100")), (Some(80_000), None, Some(100)));
        let context = with("CONTEXT_FILES", "/SOUL.md, docs/style.md,").unwrap().context;
        assert_eq!(
            context.files.iter().map(FilePath::as_str).collect::<Vec<_>>(),
            ["SOUL.md", "docs/style.md"]
        );
        assert_eq!(context.max_tokens, 8_000);
        assert_eq!(with("CONTEXT_TOKENS", "2000").unwrap().context.max_tokens, 2_000);
        let usual = with("PERMISSIONS", "").unwrap();
        assert_eq!((usual.permissions.default, usual.approval_ttl_s), (Some(Policy::Allow), 7 * 24 * 3_600));
        let rules = with("PERMISSIONS", r#"{"tools": {"echo": "ask"}}"#).unwrap().permissions;
        assert_eq!((rules.default, rules.tools.get("echo")), (Some(Policy::Allow), Some(&Policy::Ask)));
        assert_eq!(
            with("PERMISSIONS", r#"{"default": "deny"}"#).unwrap().permissions.default,
            Some(Policy::Deny)
        );
        assert_eq!(with("APPROVAL_TTL_S", "60").unwrap().approval_ttl_s, 60);
        let none = with("JUDGES", " ").unwrap();
        assert_eq!((none.think, none.reflect_every, none.judges.len()), (Thinking::Off, 0, 0));
        let text = r#"[{"name": "polite", "instructions": "Be strict.", "sample": 0.1}]"#;
        let polite =
            Judge { name: "polite".into(), instructions: "Be strict.".into(), sample: 0.1, model: None };
        assert_eq!(with("JUDGES", text).unwrap().judges, [polite]);
    }

    #[test]
    fn modes_are_the_standard_ones_or_the_deployments_own() {
        let ids = |text: &str| {
            let modes = with("MODES", text).unwrap().modes;
            modes.into_iter().map(|mode| (mode.id, mode.read_only)).collect::<Vec<_>>()
        };
        assert_eq!(ids(" "), [("build".to_owned(), false), ("plan".to_owned(), true)]);
        assert_eq!(ids("[]"), []);
        assert_eq!(ids(r#"[{"id": "a", "read_only": true}]"#), [("a".to_owned(), true)]);
        let list =
            r#"[{"id": "a"}, {"id": "b", "permissions": {"tools": {"echo": "deny"}}, "metadata": {"x": 1}}]"#;
        let own = with("MODES", list).unwrap().modes;
        assert_eq!(own[1].permissions.tools["echo"], Policy::Deny);
    }

    #[test]
    fn external_tools_are_declared_by_a_variable() {
        let tools = |text: &str| {
            let tools = external_tools(&|name| (name == "EXTERNAL_TOOLS").then(|| text.to_owned()));
            let named =
                |tools: Vec<ExternalTool>| tools.iter().map(|tool| tool.spec().name).collect::<Vec<_>>();
            tools.map(named).map_err(|error| error.to_string())
        };
        assert_eq!(tools(" "), Ok(vec![]));
        assert_eq!(tools(r#"[{"name": "a", "description": "Does."}]"#), Ok(vec!["a".into()]));
        for (text, told) in [
            ("{}", "expected a list of"),
            (r#"[{"name": "a"}]"#, "expected a list of"),
            (
                r#"[{"name": "a", "description": "", "parameters": {"type": "string"}}]"#,
                "the `parameters` of \"a\" are no schema of an object",
            ),
        ] {
            let error = tools(text).unwrap_err();
            assert!(
                error.starts_with(&format!("the variable EXTERNAL_TOOLS is malformed: {told}")),
                "{error}"
            );
        }
    }

    #[test]
    fn memory_is_flushed_as_the_variable_says() {
        let flush = |text: &str| {
            let settings = memory_settings(&|name| (name == "MEMORY_FLUSH").then(|| text.to_owned()));
            settings.map(|settings| settings.flush).map_err(|error| error.to_string())
        };
        assert_eq!((flush(""), flush("always")), (Ok(Flush::Every(0)), Ok(Flush::Every(0))));
        assert_eq!((flush("never"), flush(" 30 ")), (Ok(Flush::Never), Ok(Flush::Every(30_000))));
        assert!(flush("-1").unwrap_err().contains("expected always, never or a number of seconds"));
    }

    #[test]
    fn strategies_are_set_by_variables() {
        let with = |vars: &[(&str, &str)]| {
            let find = |asked: &str| vars.iter().find(|(name, _)| *name == asked);
            let settings = context_settings(&|asked| find(asked).map(|(_, value)| (*value).to_owned()));
            settings.map_err(|error| error.to_string())
        };
        assert_eq!(with(&[("CONTEXT_STRATEGY", " ")]), Ok(ContextSettings::default()));
        assert_eq!(
            with(&[("CONTEXT_STRATEGY", "none"), ("COMPACT_AT_MESSAGES", "x")]),
            Ok(ContextSettings::None)
        );
        let set = [
            ("COMPACT_AT_MESSAGES", "10"),
            ("COMPACT_AT_TOKENS", "50000"),
            ("COMPACT_KEEP_TOKENS", "900"),
            ("CONTEXT_RESERVE", "0"),
            ("COMPACTION_MODEL", "demo/echo"),
        ];
        let expected = CompactionSettings {
            at_messages: 10,
            at_tokens: 50_000,
            keep_messages: 5,
            keep_tokens: 900,
            reserve: 0,
            model: Some("demo/echo".into()),
        };
        assert_eq!(with(&set), Ok(ContextSettings::Compaction(expected)));
        let strategy = ("CONTEXT_STRATEGY", "observation");
        let usual = ObservationSettings::default();
        assert_eq!(with(&[strategy]), Ok(ContextSettings::Observation(usual.clone())));
        let set = [strategy, ("OBSERVE_AT", "600"), ("OBSERVER_MODEL", "a/b"), ("OBSERVE_IDLE_MINUTES", "5")];
        let (observe_at, observer, idle_ms) = (600, Some("a/b".to_owned()), Some(300_000));
        let expected = ObservationSettings { observe_at, observer, idle_ms, ..usual };
        assert_eq!(with(&set), Ok(ContextSettings::Observation(expected)));
        for (vars, told) in [
            (
                &[("CONTEXT_STRATEGY", "some")][..],
                "CONTEXT_STRATEGY is malformed: expected compaction, observation or none",
            ),
            (
                &[("COMPACT_AT_TOKENS", "-1")],
                "COMPACT_AT_TOKENS is malformed: expected a whole number, found",
            ),
            (
                &[("COMPACT_AT_MESSAGES", "8"), ("COMPACT_KEEP_MESSAGES", "8")],
                "COMPACT_KEEP_MESSAGES is malformed: expected less than COMPACT_AT_MESSAGES, 8, found 8",
            ),
            (&[strategy, ("REFLECT_AT", "499")], "REFLECT_AT is malformed: expected a whole number from 500"),
        ] {
            let error = with(vars).unwrap_err();
            assert!(error.starts_with(&format!("the variable {told}")), "{error}");
        }
    }

    #[test]
    fn malformed_ones_are_told() {
        let judge = |name: &str, sample: &str| {
            format!(r#"{{"name": "{name}", "instructions": "", "sample": {sample}}}"#)
        };
        let list = |judges: &[String]| format!("[{}]", judges.join(","));
        for (name, value, told) in [
            ("THINK", "hard", "expected off, low, medium or high, found \"hard\""),
            ("REFLECT_EVERY", "-1", "expected a whole number, 0 for never, found \"-1\""),
            ("ARTIFACT_TTL_S", "1h", "expected a number of seconds, found \"1h\""),
            ("SELECT_TOOLS", "0", "expected a whole number from 1, empty for all, found \"0\""),
            ("EVICT_OVER", "80k", "expected a number of characters, 0 for never, found \"80k\""),
            ("PERMISSIONS", "ask", "expected {\"default\"?"),
            ("PERMISSIONS", r#"{"default": "never"}"#, "expected {\"default\"?"),
            ("PERMISSIONS", r#"{"patterns": [{"pattern": "[a", "policy": "ask"}]}"#, "/patterns/0/pattern: "),
            ("APPROVAL_TTL_S", "0", "expected a number of seconds from 1, found \"0\""),
            ("APPROVAL_TTL_S", "7d", "expected a number of seconds from 1, found \"7d\""),
            ("JUDGES", "{}", "expected a list of"),
            ("JUDGES", &list(&[judge("a", "2")]), "the sample of \"a\" is not between 0 and 1"),
            ("JUDGES", &list(&[judge("a", "0"), judge("a", "1")]), "the name \"a\" is taken twice"),
            ("JUDGES", &list(&[judge("a b", "0")]), "the name \"a b\" is taken twice or not an id"),
            ("JUDGES", &list(&vec![judge("a", "0"); 9]), "expected at most 8 judges, found 9"),
            ("MODES", "{}", "expected a list of modes"),
            ("MODES", r#"[{"id": 1}]"#, "expected a list of modes"),
            ("MODES", r#"[{"id": "a"}, {"id": "a"}]"#, "the mode \"a\": two have this id"),
            ("CONTEXT_FILES", "a, ../b", "\"../b\": `.` and `..` are not allowed"),
            ("CONTEXT_FILES", "1,2,3,4,5,6,7,8,9", "expected at most 8 paths, found 9"),
            ("STATE_SCHEMA", "{", "expected JSON: EOF"),
            ("INITIAL_STATE", "[]", "expected an object of JSON"),
            ("CONTEXT_TOKENS", "1999", "expected a whole number from 2000, found \"1999\""),
        ] {
            let error = with(name, value).unwrap_err();
            assert!(error.starts_with(&format!("the variable {name} is malformed: {told}")), "{error}");
        }
    }
}
