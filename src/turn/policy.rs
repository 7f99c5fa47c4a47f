//! Decides whether a call may run, from the permission rules of all layers, the session's grants and the
//! subjects of the call.
//!
//! The order of precedence is: any denial, of any layer; the policy of the tool; the session's grants for the
//! tool and for its category; matching patterns; for control tools, permission; the policy of the category;
//! the default. For edits of context files, whose text reaches every prompt, there is a built-in default, to
//! ask the user. If none of them applies, a person is asked. Of several policies at the same level the
//! strictest applies. A pattern asks for approval of a control tool only if it names the tool.
//!
//! What the layers of the tenant and the deployment alone ask about or deny holds, whatever the agent's definition
//! says: a tenant writes it. With the definition's, they hold whatever the session's rules and grants say, because the
//! user of the session may change those.

mod subject;
#[cfg(test)]
mod tests;

use super::schema;
use crate::types::{
    Category, Decider, FilePath, Grants, PatternRule, Policy, Rules, SessionPermissions, ToolSpec,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use subject::Subject;

/// Number of layers of the operator: those of the tenant, the deployment and its mode.
const OPERATOR: usize = 3;
/// Number of layers that the user of the session cannot change: besides the operator's, those of the agent's definition
/// and its mode.
const FIXED: usize = OPERATOR + 2;

/// Everything that decides on a call.
#[derive(Clone, Debug)]
pub struct Permissions<'a> {
    /// The rules of the operator; those of the agent's definition, which can only restrict what the former decide; those of
    /// the session.
    layers: [Layer<'a>; FIXED + 1],
    /// The rules and grants of the session.
    session: &'a SessionPermissions,
    /// The files and folders whose edits by tools need the user's approval unless a rule of the operator says otherwise.
    context_files: &'a [FilePath],
    /// Whether only read-only and control tools may run.
    read_only: bool,
}

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// A person decides.
    Ask(Decider),
    /// The call does not run, for this reason, which the model receives.
    Deny(String),
}

/// The rules of one layer.
#[derive(Clone, Copy, Debug)]
struct Layer<'a> {
    name: &'static str,
    default: Option<Policy>,
    categories: &'a BTreeMap<Category, Policy>,
    tools: &'a BTreeMap<String, Policy>,
    patterns: &'a [PatternRule],
}

impl<'a> Layer<'a> {
    fn new(name: &'static str, rules: &'a Rules) -> Self {
        let Rules { default, categories, tools, patterns } = rules;
        Self { name, default: *default, categories, tools, patterns }
    }

    fn of_session(session: &'a SessionPermissions) -> Self {
        let SessionPermissions { default, categories, tools, patterns, .. } = session;
        Self { name: "session", default: *default, categories, tools, patterns }
    }

    /// Returns the patterns that apply to the tool, without malformed ones.
    fn patterns_of(&self, tool: &ToolSpec) -> impl Iterator<Item = &PatternRule> {
        let is_about = |rule: &&PatternRule| rule.tool.as_ref().is_none_or(|name| *name == tool.name);
        self.patterns.iter().filter(is_about).filter(|rule| rule.fault().is_none())
    }
}

impl<'a> Permissions<'a> {
    /// Collects the rules of the tenant, the deployment and its mode; those of the agent's definition and its mode; and
    /// those of the session.
    pub fn new(
        [tenant, deployment, mode]: [&'a Rules; OPERATOR],
        [agent, agent_mode]: [&'a Rules; FIXED - OPERATOR],
        session: &'a SessionPermissions,
        context_files: &'a [FilePath],
        read_only: bool,
    ) -> Self {
        let layers = [
            Layer::new("tenant", tenant),
            Layer::new("deployment", deployment),
            Layer::new("mode", mode),
            Layer::new("agent", agent),
            Layer::new("mode", agent_mode),
            Layer::of_session(session),
        ];
        Self { layers, session, context_files, read_only }
    }

    /// Decides on a call of `tool` with these arguments.
    pub fn decide(&self, tool: &ToolSpec, args: &Value) -> Verdict {
        let subjects = Subject::all(args);
        if let Some(reason) = self.deny_tool(tool).or_else(|| self.deny_subjects(tool, &subjects)) {
            return Verdict::Deny(reason);
        }
        let built_in = self.built_in_default(tool, &subjects);
        let fixed = self.fixed_layers();
        let fixed =
            fixed.iter().filter_map(|layers| policy(layers, &Grants::default(), tool, &subjects, built_in));
        let all = policy(&self.layers, &self.session.grants, tool, &subjects, built_in);
        match (fixed.max(), all) {
            (Some((Policy::Deny, name)), _) | (_, Some((Policy::Deny, name))) => {
                Verdict::Deny(format!("the rules of the {name} do not allow {}", tool.name))
            }
            (Some((Policy::Ask, _)), _) => Verdict::Ask(Decider::Approver),
            (Some((Policy::AskUser, _)), _) => Verdict::Ask(Decider::User),
            (_, Some((Policy::Allow, _))) => Verdict::Allow,
            _ if self.session.yolo => Verdict::Allow,
            _ => Verdict::Ask(Decider::User),
        }
    }

    /// Returns whether every call of the tool would be denied, so that the tool is not offered.
    pub fn hides(&self, tool: &ToolSpec) -> bool {
        let denies = |layers: &[Layer], grants: &Grants| {
            // A default denial does not apply to calls that an allow or ask pattern matches.
            let may_match =
                || layers.iter().any(|layer| layer.patterns_of(tool).any(|rule| rule.policy != Policy::Deny));
            matches!(policy(layers, grants, tool, &[], None), Some((Policy::Deny, _))) && !may_match()
        };
        self.deny_tool(tool).is_some()
            || self.fixed_layers().iter().any(|layers| denies(layers, &Grants::default()))
            || denies(&self.layers, &self.session.grants)
    }

    /// Returns the layers that the user of the session cannot change: first those of the operator, then these with those of
    /// the agent's definition.
    fn fixed_layers(&self) -> [&[Layer<'_>]; 2] {
        [&self.layers[..OPERATOR], &self.layers[..FIXED]]
    }

    /// Returns the built-in default for a call, if it may edit a context file.
    fn built_in_default(&self, tool: &ToolSpec, subjects: &[Subject]) -> Option<Policy> {
        let edits =
            tool.category == Category::Edit && subjects.iter().any(|at| at.may_be(self.context_files));
        edits.then_some(Policy::AskUser)
    }

    /// Returns the reason why every call of the tool is denied, if it is.
    fn deny_tool(&self, tool: &ToolSpec) -> Option<String> {
        let ToolSpec { name, category, .. } = tool;
        if self.read_only && !tool.control && !tool.effect.is_read() {
            return Some(format!("only read-only tools may run now, and {name} is not read-only"));
        }
        self.layers.iter().find_map(|layer| {
            if layer.tools.get(name) == Some(&Policy::Deny) {
                return Some(format!("a rule of the {} forbids {name}", layer.name));
            }
            let denied = layer.categories.get(category) == Some(&Policy::Deny);
            denied.then(|| format!("a rule of the {} forbids all {} tools", layer.name, category.name()))
        })
    }

    /// Returns the reason why a call with these subjects is denied by a pattern, if it is.
    fn deny_subjects(&self, tool: &ToolSpec, subjects: &[Subject]) -> Option<String> {
        self.layers.iter().find_map(|layer| {
            let mut denials = layer.patterns_of(tool).filter(|rule| rule.policy == Policy::Deny);
            let denied = denials.any(|rule| subjects.iter().any(|subject| subject.is_restricted_by(rule)));
            denied.then(|| format!("a rule of the {} forbids this call of {}", layer.name, tool.name))
        })
    }
}

/// Returns what layers and grants decide on a call that no rule denies, with the name of the layer if it is a
/// layer's default.
fn policy<'a>(
    layers: &[Layer<'a>],
    grants: &Grants,
    tool: &ToolSpec,
    subjects: &[Subject],
    built_in: Option<Policy>,
) -> Option<(Policy, &'static str)> {
    let explicit = |policy| Some((policy, ""));
    if let Some(policy) = layers.iter().filter_map(|layer| layer.tools.get(&tool.name).copied()).max() {
        return explicit(policy);
    }
    if grants.tools.contains(&tool.name) || grants.categories.contains(&tool.category) {
        return explicit(Policy::Allow);
    }
    if let Some(policy) = pattern_policy(layers, tool, subjects) {
        return explicit(policy);
    }
    if tool.control {
        return explicit(Policy::Allow);
    }
    if let Some(policy) =
        layers.iter().filter_map(|layer| layer.categories.get(&tool.category).copied()).max()
    {
        return explicit(policy);
    }
    let defaults = layers.iter().filter_map(|layer| layer.default.map(|policy| (policy, layer.name)));
    defaults.chain(built_in.map(|policy| (policy, "server"))).max()
}

fn pattern_policy(layers: &[Layer<'_>], tool: &ToolSpec, subjects: &[Subject]) -> Option<Policy> {
    let rules = || layers.iter().flat_map(|layer| layer.patterns_of(tool));
    // Control tools need an approval only if a rule names them.
    let asking = rules().filter(|rule| rule.policy.asks() && (!tool.control || rule.tool.is_some()));
    let asking = asking.filter(|rule| subjects.iter().any(|subject| subject.is_restricted_by(rule)));
    if let Some(policy) = asking.map(|rule| rule.policy).max() {
        return Some(policy);
    }
    let allowing: Vec<_> = rules().filter(|rule| rule.policy == Policy::Allow).collect();
    let all = !subjects.is_empty() && subjects.iter().all(|subject| subject.is_allowed_by(&allowing));
    all.then_some(Policy::Allow)
}

/// Returns the hash that identifies the arguments of a call: SHA-256 of their canonical JSON, in hexadecimal.
pub fn args_hash(args: &Value) -> String {
    Sha256::digest(schema::canonical(args)).iter().map(|byte| format!("{byte:02x}")).collect()
}
