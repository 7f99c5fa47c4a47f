//! Checks of a definition: each fault has a pointer to its place.

use super::{ContextDefinition, Definition};
use crate::agent::{ExternalTool, HarnessAgent, StateRules, Toolkit, toolkit::is_of_servers};
use crate::mcp::{McpServer, tool_prefix};
use crate::ports::{AllowedHosts, outbound::Endpoint};
use crate::session::Modes;
use crate::standard::settings::{
    MAX_CONTEXT_FILES, MAX_FALLBACKS,
    faults::{self, EntryFault},
};
use crate::tools::http_tool;
use crate::turn::schema;
use crate::types::{BudgetPatch, FieldError, TenantLimits, WaitKind, budget::CEILING, glob};
use std::collections::BTreeSet;

/// Maximum size of a definition, in bytes of JSON. It is one row of a database.
pub const MAX_BYTES: usize = 1 << 20;
/// Maximum length of a name, in characters.
const MAX_NAME: usize = 200;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 2_000;
/// Maximum size of the instructions, in bytes.
const MAX_INSTRUCTIONS: usize = 100_000;
/// Minimum number of tokens for files in the prompt. With fewer, almost no content would fit.
const MIN_FILE_TOKENS: usize = 2_000;

/// The headers that the client of remote agents sets itself, besides those of all clients.
const REMOTE_HEADERS: [&str; 2] = ["a2a-version", "idempotency-key"];

/// The hosts to which tools of definitions may send requests.
pub struct Hosts<'a> {
    /// Of MCP servers.
    pub mcp: &'a AllowedHosts,
    /// Of HTTP tools.
    pub http_tools: &'a AllowedHosts,
    /// Of remote agents.
    pub remote_agents: &'a AllowedHosts,
}

/// Returns the faults of a definition. It can refer to the tools of the deployment's own agent, to those of its models that
/// these limits of the tenant allow, and to these hosts.
pub fn check(
    definition: &Definition,
    base: &HarnessAgent,
    limits: &TenantLimits,
    hosts: &Hosts<'_>,
) -> Vec<FieldError> {
    let mut found = Faults(Vec::new());
    let Definition { name, description, instructions, .. } = definition;
    found.longer("/name", name.as_deref().map(|name| name.chars().count()), MAX_NAME, "characters");
    let length = description.as_deref().map(|text| text.chars().count());
    found.longer("/description", length, MAX_DESCRIPTION, "characters");
    found.longer("/instructions", instructions.as_deref().map(str::len), MAX_INSTRUCTIONS, "bytes");
    found.models(definition, base, limits);
    let servers = McpServer::faults(&definition.mcp_servers, hosts.mcp);
    found.0.extend(servers.into_iter().map(|fault| fault.below("/mcp_servers")));
    found.tools(definition, base.toolkit(), hosts.http_tools);
    found.modes(definition);
    if let Some(Err(error)) = definition.permissions.as_ref().map(|rules| rules.check()) {
        found.0.push(error.below("/permissions"));
    }
    if let Some(budget) = &definition.budget {
        found.0.extend(budget.defaults.violations("/budget/defaults", &CEILING));
        let most = &budget.ceilings;
        let most = BudgetPatch {
            max_steps: most.max_steps,
            max_tool_calls: most.max_tool_calls,
            timeout_s: most.timeout_s,
            max_cost_usd: most.max_cost_usd,
            ..BudgetPatch::default()
        };
        found.0.extend(most.violations("/budget/ceilings", &CEILING));
    }
    if let Some(context) = &definition.context {
        found.context(context);
    }
    if let Some(own) = &definition.skills {
        found.patterns("/skills/allow", own.allow.as_deref().unwrap_or_default());
        found.patterns("/skills/deny", own.deny.as_deref().unwrap_or_default());
    }
    for (index, kind) in definition.subagents.iter().flatten().enumerate() {
        if let Some(own) = &kind.skills {
            found.patterns(&format!("/subagents/{index}/skills/allow"), &own.allow);
            found.patterns(&format!("/subagents/{index}/skills/deny"), &own.deny);
        }
        if let Some(remote) = &kind.remote {
            let own = |name: &str| REMOTE_HEADERS.contains(&name);
            let faults = Endpoint::faults(&remote.url, &remote.headers, own, hosts.remote_agents);
            let at = format!("/subagents/{index}/remote");
            found.0.extend(faults.into_iter().map(|fault| fault.below(&at)));
        }
    }
    found.entries("/judges", faults::judges(definition.judges.as_deref().unwrap_or_default()));
    found.state(definition);
    if let Some(Err(error)) = definition.output_schema.as_ref().map(schema::check) {
        found.0.push(error.below("/output_schema"));
    }
    found.0
}

struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.0.push(FieldError { pointer: pointer.into(), detail: detail.into() });
    }

    /// Adds the faults of entries of a list.
    fn entries(&mut self, at: &str, faults: Vec<EntryFault>) {
        for EntryFault { index, why, .. } in faults {
            self.add(format!("{at}/{index}"), why);
        }
    }

    fn patterns(&mut self, at: &str, patterns: &[String]) {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(fault) = glob::check(pattern) {
                self.add(format!("{at}/{index}"), fault);
            }
        }
    }

    fn longer(&mut self, at: &str, length: Option<usize>, most: usize, unit: &str) {
        if length.is_some_and(|length| length > most) {
            self.add(at, format!("longer than {most} {unit}"));
        }
    }

    /// Checks that each model is one that sessions of the tenant may use.
    fn models(&mut self, definition: &Definition, base: &HarnessAgent, limits: &TenantLimits) {
        let mut named: Vec<(String, &String)> = Vec::new();
        named.extend(definition.model.iter().map(|model| ("/model".to_owned(), model)));
        let fallbacks = definition.fallback_models.iter().flatten().enumerate();
        named.extend(fallbacks.map(|(index, model)| (format!("/fallback_models/{index}"), model)));
        let kinds = definition.subagents.iter().flatten().enumerate();
        named.extend(
            kinds.filter_map(|(index, kind)| {
                Some((format!("/subagents/{index}/model"), kind.model.as_ref()?))
            }),
        );
        let modes = definition.modes.iter().flatten().enumerate();
        named.extend(modes.filter_map(|(index, mode)| {
            Some((format!("/modes/{index}/default_model"), mode.default_model.as_ref()?))
        }));
        if let Some(context) = &definition.context {
            let own = [
                ("compaction_model", &context.compaction_model),
                ("observer_model", &context.observer_model),
                ("reflector_model", &context.reflector_model),
            ];
            named.extend(
                own.into_iter()
                    .filter_map(|(name, model)| Some((format!("/context/{name}"), model.as_ref()?))),
            );
        }
        let judges = definition.judges.iter().flatten().enumerate();
        named
            .extend(judges.filter_map(|(index, judge)| {
                Some((format!("/judges/{index}/model"), judge.model.as_ref()?))
            }));
        for (at, model) in named {
            if let Err(error) = base.find_model(model, limits) {
                self.add(at, error.message);
            }
        }
        if definition.fallback_models.as_ref().is_some_and(|models| models.len() > MAX_FALLBACKS) {
            self.add("/fallback_models", format!("expected at most {MAX_FALLBACKS} models"));
        }
    }

    /// Checks the tools: those that clients run, and each name of a tool.
    fn tools(&mut self, definition: &Definition, toolkit: &Toolkit, allow: &AllowedHosts) {
        // The definition's external tools replace those of the deployment.
        let is_replaced = |name: &&str| {
            let spec = toolkit.spec(name);
            definition.external_tools.is_some()
                && spec.is_some_and(|spec| spec.suspends == Some(WaitKind::External))
        };
        let mut names: BTreeSet<&str> = toolkit.names().filter(|name| !is_replaced(name)).collect();
        let external = definition.external_tools.as_deref().unwrap_or_default();
        self.entries("/external_tools", faults::external_tools(external));
        for (index, tool) in external.iter().enumerate() {
            if !names.insert(&tool.name) {
                self.add(format!("/external_tools/{index}/name"), "another tool has this name");
            } else if let Err(invalid) = ExternalTool::new(tool.clone()) {
                self.add(format!("/external_tools/{index}/parameters"), invalid.0);
            }
        }
        let http = definition.http_tools.as_deref().unwrap_or_default();
        for (index, tool) in http.iter().enumerate() {
            let at = format!("/http_tools/{index}");
            if index >= faults::MAX_HTTP {
                self.add(&at, format!("at most {} entries are allowed", faults::MAX_HTTP));
            }
            if !names.insert(&tool.name) {
                self.add(format!("{at}/name"), "another tool has this name");
            }
            self.http_tool(&at, tool, allow);
        }
        let imported = definition.openapi.as_ref().map_or(Ok(Vec::new()), http_tool::OpenApi::tools);
        let imported = imported.unwrap_or_else(|faults| {
            self.0.extend(faults.into_iter().map(|fault| fault.below("/openapi")));
            Vec::new()
        });
        for (index, tool) in imported.iter().enumerate() {
            let at = format!("/openapi/operations/{index}");
            if http.len() + index >= faults::MAX_HTTP {
                self.add(&at, format!("at most {} HTTP tools are allowed", faults::MAX_HTTP));
            }
            if !names.insert(&tool.name) {
                self.add(&at, format!("another tool has the name {:?}", tool.name));
            }
            self.imported_tool(&at, tool, allow);
        }
        let mut lists: Vec<(String, &[String])> = Vec::new();
        if let Some(filter) = &definition.tools {
            // Another deployment may have a tool that is denied.
            lists.push(("/tools/allow".into(), &*filter.allow));
        }
        for (index, kind) in definition.subagents.iter().flatten().enumerate() {
            let tools = kind.tools.as_deref().unwrap_or_default();
            lists.push((format!("/subagents/{index}/tools"), tools));
        }
        for (index, mode) in definition.modes.iter().flatten().enumerate() {
            let own = [
                ("tools", &mode.tools),
                ("additional_tools", &mode.additional_tools),
                ("available_tools", &mode.available_tools),
            ];
            for (name, tools) in own {
                lists.push((format!("/modes/{index}/{name}"), tools.as_deref().unwrap_or_default()));
            }
        }
        // Which tools a server has is not known here.
        let prefixes: Vec<String> = definition.mcp_servers.keys().map(|name| tool_prefix(name)).collect();
        for (at, tools) in lists {
            for (index, tool) in tools.iter().enumerate() {
                if !is_of_servers(tool, &prefixes) && !names.contains(tool.as_str()) {
                    self.add(format!("{at}/{index}"), format!("there is no tool {tool:?}"));
                }
            }
        }
        self.entries("/subagents", faults::subagents(definition.subagents.as_deref().unwrap_or_default()));
    }

    /// Checks an HTTP tool, and that the operator allows its host.
    fn http_tool(&mut self, at: &str, declared: &http_tool::Declared, allow: &AllowedHosts) {
        match http_tool::Checked::new(declared.clone()) {
            Ok(checked) => {
                if let Err(invalid) = checked.check_host(allow) {
                    self.add(format!("{at}/url"), invalid.0);
                }
            }
            Err(faults) => self.0.extend(faults.into_iter().map(|fault| fault.below(at))),
        }
    }

    /// Checks an HTTP tool that has no place of its own in the definition.
    fn imported_tool(&mut self, at: &str, declared: &http_tool::Declared, allow: &AllowedHosts) {
        let known = self.0.len();
        self.http_tool("", declared, allow);
        for fault in self.0.iter_mut().skip(known) {
            let detail = format!("its tool is not valid at {}: {}", fault.pointer, fault.detail);
            *fault = FieldError { pointer: at.to_owned(), detail };
        }
    }

    fn modes(&mut self, definition: &Definition) {
        let Some(modes) = &definition.modes else { return };
        self.entries("/modes", faults::modes(modes));
        if let Err(error) = Modes::new(modes.clone()) {
            let index = modes.iter().position(|mode| mode.id == error.mode).unwrap_or_default();
            self.add(format!("/modes/{index}"), error.why);
        }
    }

    fn context(&mut self, context: &ContextDefinition) {
        let ContextDefinition { files, file_tokens, messages, compact_at_messages, keep_messages, .. } =
            context;
        if files.as_ref().is_some_and(|files| files.len() > MAX_CONTEXT_FILES) {
            self.add("/context/files", format!("expected at most {MAX_CONTEXT_FILES} files"));
        }
        if file_tokens.is_some_and(|tokens| tokens < MIN_FILE_TOKENS) {
            self.add("/context/file_tokens", format!("expected {MIN_FILE_TOKENS} or more"));
        }
        if *messages == Some(0) {
            self.add("/context/messages", "expected 1 or more");
        }
        if let (Some(at), Some(keep)) = (compact_at_messages, keep_messages)
            && *at > 0
            && keep >= at
        {
            self.add("/context/keep_messages", "expected less than `compact_at_messages`");
        }
        for (name, tokens) in [("observe_at", context.observe_at), ("reflect_at", context.reflect_at)] {
            if tokens.is_some_and(|tokens| tokens < faults::MIN_OBSERVED) {
                self.add(format!("/context/{name}"), format!("expected {} or more", faults::MIN_OBSERVED));
            }
        }
    }

    fn state(&mut self, definition: &Definition) {
        let initial = definition.initial_state.clone().unwrap_or_default();
        if let Err((name, why)) = StateRules::new(definition.state_schema.clone(), initial) {
            let at = if name == "STATE_SCHEMA" { "/state_schema" } else { "/initial_state" };
            self.add(at, why);
        }
    }
}
