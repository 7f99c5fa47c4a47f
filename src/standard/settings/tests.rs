#![allow(clippy::unwrap_used)]

use super::*;
use crate::agent::DynTool;
use crate::memory::Flush;
use crate::types::{FilePath, Policy, Thinking};
use pretty_assertions::assert_eq;
use std::time::Duration;

fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().flat_map(|topic| topic.settings)
}

fn parser(setting: &Setting) -> Option<Parse> {
    match setting.kind {
        Kind::Secret(parse) | Kind::Variable(parse) => Some(parse),
        Kind::Binding => None,
    }
}

fn read(vars: &[(&str, &str)]) -> (Config, Vec<String>) {
    let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    let (config, errors) = Config::read(&find);
    (config, errors.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn with(name: &str, value: &str) -> Config {
    let (config, errors) = read(&[(name, value)]);
    assert_eq!(errors, Vec::<String>::new());
    config
}

/// Everything but secrets, which have no default.
fn shown(config: &Config) -> String {
    let Config { models, instructions, agent, external_tools, web_fetch_allow, memory, .. } = config;
    let tools: Vec<_> = external_tools.iter().map(|tool| tool.spec().name).collect();
    format!(
        "{:?}",
        (
            (
                (&models.default, &models.prices, &models.windows, &models.media, &models.media_prices),
                (&models.custom, instructions, agent, tools),
            ),
            (web_fetch_allow, memory, config.agent.context_messages, config.context()),
            (&config.compaction, &config.observation, &config.cors_origins, &config.limits)
        )
    )
}

#[test]
fn the_table_is_consistent() {
    let mut names: Vec<_> = all().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all().count(), "two settings have one name");
    for setting in all() {
        let Some(parse) = parser(setting) else { continue };
        let mut config = Config::default();
        if !setting.default.is_empty() {
            parse(&mut config, setting.default).unwrap();
            assert_eq!(shown(&config), shown(&Config::default()), "{}: another default", setting.name);
        }
        if !setting.example.is_empty() {
            parse(&mut config, setting.example).unwrap();
            assert_ne!(shown(&config), shown(&Config::default()), "{}", setting.name);
        }
    }
}

#[test]
fn every_provider_with_a_key_has_its_settings() {
    use crate::model::{TABLE, Transport};
    for provider in TABLE {
        let Transport::Http { key, .. } = provider.transport else { continue };
        let parse = all().find(|setting| setting.name == key).and_then(parser).unwrap();
        let mut config = Config::default();
        parse(&mut config, "k").unwrap();
        assert_eq!(config.models.credentials(provider.name).key.as_deref(), Some("k"));
    }
}

#[test]
fn blank_values_are_absent() {
    let blank = |name: &str| Some(" \n".to_owned()).filter(|_| !name.is_empty());
    let (config, errors) = Config::read(&blank);
    assert!(errors.is_empty());
    assert_eq!(shown(&config), shown(&Config::default()));
    assert!(config.admin_key.is_none() && config.dev_api_key.is_none());
}

#[test]
fn values_become_settings() {
    assert_eq!(with("THINK", " High ").agent.think, Thinking::High);
    assert_eq!(with("REFLECT_EVERY", "3").agent.reflect_every, 3);
    assert_eq!(with("ARTIFACT_TTL_S", "60").agent.artifact_ttl, Duration::from_secs(60));
    let chosen = with("SELECT_TOOLS", "12").agent.select_tools.unwrap();
    assert_eq!(
        (chosen.cap, chosen.always),
        (12, ["read_artifact", "recall", "load_skill"].map(str::to_owned).to_vec())
    );
    let evicts = |text: &str| with("EVICT_OVER", text).agent.evict_over;
    assert_eq!((evicts("0"), evicts("100")), (None, Some(100)));
    let files = with("CONTEXT_FILES", "/SOUL.md, docs/style.md,").agent.context.files;
    assert_eq!(files.iter().map(FilePath::as_str).collect::<Vec<_>>(), ["SOUL.md", "docs/style.md"]);
    let rules = with("PERMISSIONS", r#"{"tools": {"echo": "ask"}}"#).agent.permissions;
    assert_eq!((rules.default, rules.tools.get("echo")), (Some(Policy::Allow), Some(&Policy::Ask)));
    let denies = with("PERMISSIONS", r#"{"default": "deny"}"#).agent.permissions;
    assert_eq!(denies.default, Some(Policy::Deny));
    let flush = |text: &str| with("MEMORY_FLUSH", text).memory.flush;
    assert_eq!((flush("never"), flush("30")), (Flush::Never, Flush::Every(Duration::from_secs(30))));
    assert!(!with("SKILLS", "0").agent.skills.enabled && with("SKILLS", "on").agent.skills.enabled);
    assert!(with("SKILL_DRAFTS", "1").agent.skills.drafts);
    assert_eq!(with("MODES", "[]").agent.modes, []);
    assert_eq!(with("SUBAGENTS", "[]").agent.subagents, Some(vec![]));
    assert_eq!(with("CORS_ORIGINS", "https://a.example, ,").cors_origins, ["https://a.example"]);
    let key = "k".repeat(32);
    assert_eq!(with("ADMIN_KEY", &format!("{key}\n")).admin_key, Some(key));
    assert!(with("DEV", "1").dev && !with("DEV", "").dev);
    assert_eq!(with("DEFAULT_MODEL", "workers-ai/@cf/x").models.default.as_deref(), Some("workers-ai/@cf/x"));
}

#[test]
fn a_custom_provider_has_a_secret_of_its_own() {
    let list = r#"[{"name": "mine", "base_url": "http://localhost:1/v1", "key": "MINE_KEY"}]"#;
    let set = [("PROVIDERS", list), ("MINE_KEY", "k\n"), ("COMPACTION_MODEL", "mine/x")];
    let (mut config, errors) = read(&set);
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(config.models.credentials("mine").key.as_deref(), Some("k"));
    let (mut config, errors) = read(&set[..1]);
    assert_eq!((errors.len(), config.models.credentials("mine").key.take()), (0, None));
}

#[test]
fn the_context_strategy_has_its_own_settings() {
    let (config, _) = read(&[("CONTEXT_STRATEGY", "none"), ("COMPACT_AT_MESSAGES", "10")]);
    assert_eq!(config.context(), ContextSettings::None);
    let (config, errors) = read(&[
        ("COMPACT_AT_MESSAGES", "10"),
        ("COMPACT_AT_TOKENS", "50000"),
        ("COMPACT_KEEP_TOKENS", "900"),
        ("CONTEXT_RESERVE", "0"),
        ("COMPACTION_MODEL", "demo/echo"),
    ]);
    assert!(errors.is_empty());
    let expected = CompactionSettings {
        at_messages: 10,
        at_tokens: 50_000,
        keep_messages: 5,
        keep_tokens: 900,
        reserve: 0,
        model: Some("demo/echo".into()),
    };
    assert_eq!(config.context(), ContextSettings::Compaction(expected));
    let (config, errors) = read(&[
        ("CONTEXT_STRATEGY", "observation"),
        ("OBSERVE_AT", "600"),
        ("OBSERVER_MODEL", "openai/b"),
        ("OBSERVE_IDLE_MINUTES", "5"),
    ]);
    assert!(errors.is_empty());
    let (observe_at, observer) = (600, Some("openai/b".to_owned()));
    let idle_after = Some(Duration::from_mins(5));
    let expected = ObservationSettings { observe_at, observer, idle_after, ..ObservationSettings::default() };
    assert_eq!(config.context(), ContextSettings::Observation(expected));
}

#[test]
fn errors_name_the_setting_the_mistake_and_the_valid_values() {
    let judge =
        |name: &str, sample: &str| format!(r#"{{"name": "{name}", "instructions": "", "sample": {sample}}}"#);
    let list = |judges: &[String]| format!("[{}]", judges.join(","));
    let tool = r#"[{"name": "a", "description": "", "parameters": {"type": "string"}}]"#;
    for (name, value, why) in [
        ("THINK", "hard", "found \"hard\"; expected off, low, medium or high"),
        ("REFLECT_EVERY", "-1", "found \"-1\"; expected a whole number from 0"),
        ("ARTIFACT_TTL_S", "1h", "found \"1h\"; expected a whole number of seconds"),
        ("SELECT_TOOLS", "0", "found \"0\"; expected a whole number from 1"),
        ("EVICT_OVER", "80k", "found \"80k\""),
        ("DEFAULT_MODEL", "gpt-5", "found \"gpt-5\"; expected provider/model"),
        ("DEMO_MODEL", "yes", "found \"yes\"; expected 1"),
        ("MODELS_ALLOW", "openai/*, gpt-5", "\"gpt-5\": expected `provider/model` or a pattern like it"),
        ("MEMORY_MODEL", "other/gpt-5", "found \"other/gpt-5\"; expected provider/model"),
        (
            "MODEL_PRICES",
            r#"{"a/b": {"input": -1, "output": 1}}"#,
            "negative price for \"a/b\"; expected JSON",
        ),
        ("MODEL_PRICES", "{", "EOF"),
        ("PROVIDERS", r#"[{"name": "a/b", "base_url": "http://x"}]"#, "\"a/b\": the name must be 1 to 64"),
        (
            "PROVIDERS",
            r#"[{"name": "demo", "base_url": "http://x"}]"#,
            "\"demo\": a built-in provider has this name",
        ),
        ("PROVIDERS", r#"[{"name": "a", "base_url": "x"}]"#, "\"a\": `base_url` must start with"),
        ("PROVIDERS", r#"[{"name": "a"}]"#, "missing field `base_url`"),
        ("MEDIA_PRICES", r#"{"a/b": {"image": -1}}"#, "negative price for \"a/b\"; expected JSON"),
        ("MODEL_WINDOWS", r#"{"a/b": 1999}"#, "the window of \"a/b\" is below 2000 tokens; expected JSON"),
        ("PERMISSIONS", "ask", "expected value"),
        ("PERMISSIONS", r#"{"tools": {"a": "deny"}, "tools": {}}"#, "duplicate field `tools`"),
        ("PERMISSIONS", r#"{"patterns": [{"pattern": "[a", "policy": "ask"}]}"#, "\"/patterns/0/pattern\": "),
        ("APPROVAL_TTL_S", "0", "found \"0\"; expected a whole number of seconds from 1"),
        ("JUDGES", &list(&[judge("a", "2")]), "\"a\": `sample` must be from 0 to 1"),
        ("JUDGES", &list(&[judge("a", "0"), judge("a", "1")]), "\"a\": occurs twice"),
        ("JUDGES", &list(&[judge("a b", "0")]), "\"a b\": is not an id"),
        ("JUDGES", &list(&vec![judge("a", "0"); 9]), "found 9 entries, at most 8 are allowed"),
        ("MODES", r#"[{"id": "a"}, {"id": "a"}]"#, "\"a\": "),
        ("EXTERNAL_TOOLS", tool, "\"parameters\": "),
        ("CONTEXT_FILES", "a, ../b", "\"../b\": "),
        ("CONTEXT_FILES", "1,2,3,4,5,6,7,8,9", "found 9 entries, at most 8 are allowed"),
        ("CONTEXT_STRATEGY", "some", "found \"some\"; expected compaction, observation or none"),
        ("COMPACT_KEEP_MESSAGES", "100", "found \"100\"; expected a whole number of messages, less than"),
        ("REFLECT_AT", "499", "found \"499\"; expected a whole number of tokens from 500"),
        ("MEMORY_FLUSH", "-1", "found \"-1\"; expected always, never or a whole number of seconds"),
        ("INITIAL_STATE", "[]", ""),
        (
            "ADMIN_KEY",
            "a-key-of-31-bytes-is-too-short!",
            "found 31 bytes; expected a random text of at least 32",
        ),
        ("DEV", "yes", "found \"yes\"; expected 1"),
        ("CONTEXT_TOKENS", "1999", "found \"1999\"; expected a whole number from 2000"),
    ] {
        let (config, errors) = read(&[(name, value)]);
        let [error] = &errors[..] else { panic!("{name}: {errors:?}") };
        assert!(error.starts_with(&format!("the setting {name} is malformed: {why}")), "{error}");
        assert_eq!(shown(&config), shown(&Config::default()), "{name} keeps its default");
    }
    assert_eq!(read(&[("THINK", "x"), ("MODES", "x"), ("REFLECT_AT", "x")]).1.len(), 3);
}

#[test]
fn limits_of_tenants_are_numbers_from_0() {
    let (config, errors) = read(&[
        ("TENANT_REQUESTS_PER_MIN", "600"),
        ("TENANT_CONCURRENT_TURNS", "4"),
        ("TENANT_TURNS_PER_DAY", "0"),
        ("TENANT_TOKENS_PER_DAY", "-1"),
        ("TENANT_COST_USD_PER_DAY", "2.5"),
    ]);
    let limits = TenantLimits {
        requests_per_min: Some(600),
        concurrent_turns: Some(4),
        turns_per_day: Some(0),
        cost_usd_per_day: Some(2.5),
        ..TenantLimits::default()
    };
    assert_eq!((config.limits, errors.len()), (limits, 1));
    let own = TenantLimits { turns_per_day: Some(9), ..TenantLimits::default() };
    let effective = own.or(&with("TENANT_TURNS_PER_DAY", "3").limits);
    assert_eq!(effective, TenantLimits { turns_per_day: Some(9), ..TenantLimits::default() });
}
