//! Whether a call may run: rules of all layers, what people have granted, and what the call is about.
//!
//! What decides, first to last: any denial, whoever wrote it; the tool's own policy; what was granted in the
//! session, to the tool and to its category; patterns that fit; the category's policy; the default. Where none
//! says anything, a person is asked. Of several policies of one kind the strictest counts.

mod subject;
#[cfg(test)]
mod tests;

use super::schema;
use crate::types::{Category, PatternRule, Policy, Rules, SessionPermissions, ToolSpec};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use subject::Subject;

/// Whose rules [`Permissions::layers`] are, in that order.
const LAYERS: [&str; 4] = ["tenant", "agent", "mode", "tenant"];

/// All that decides on calls.
#[derive(Clone, Debug)]
pub struct Permissions<'a> {
    /// The rules of the tenant, the agent and the mode; in a subagent's session then the tenant's as the session that
    /// sent it out knows them.
    pub layers: Vec<&'a Rules>,
    /// Those of the session, and what was granted in it.
    pub session: &'a SessionPermissions,
    /// Whether only what reads may run, and what steers the session.
    pub read_only: bool,
}

/// What is to become of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person decides.
    Ask,
    /// It does not run; this is why, for the model.
    Deny(String),
}

/// One layer's rules, wherever they stand.
struct Layer<'a> {
    name: &'static str,
    default: Option<Policy>,
    categories: &'a BTreeMap<Category, Policy>,
    tools: &'a BTreeMap<String, Policy>,
    patterns: &'a [PatternRule],
}

impl Layer<'_> {
    /// The patterns that are about the tool, those out that are none.
    fn patterns_of(&self, tool: &ToolSpec) -> impl Iterator<Item = &PatternRule> {
        let is_about = |rule: &&PatternRule| rule.tool.as_ref().is_none_or(|name| *name == tool.name);
        self.patterns.iter().filter(is_about).filter(|rule| rule.fault().is_none())
    }
}

impl Permissions<'_> {
    /// Decides on a call of a tool with these arguments.
    pub fn decide(&self, tool: &ToolSpec, args: &Value) -> Verdict {
        let subjects = Subject::all(args);
        if let Some(reason) = self.forbidden(tool).or_else(|| self.forbidden_here(tool, &subjects)) {
            return Verdict::Deny(reason);
        }
        match self.policy(tool, &subjects) {
            Some((Policy::Allow, _)) => Verdict::Allow,
            Some((Policy::Deny, name)) => {
                Verdict::Deny(format!("{} is not among what the rules of the {name} allow", tool.name))
            }
            Some((Policy::Ask, _)) | None if self.session.yolo => Verdict::Allow,
            Some((Policy::Ask, _)) | None => Verdict::Ask,
        }
    }

    /// Whether no call of the tool could ever run, so that it need not be offered.
    pub fn hides(&self, tool: &ToolSpec) -> bool {
        // A pattern says nothing of calls that it does not fit.
        let may_fit =
            || self.layers().any(|layer| layer.patterns_of(tool).any(|rule| rule.policy != Policy::Deny));
        self.forbidden(tool).is_some()
            || matches!(self.policy(tool, &[]), Some((Policy::Deny, _))) && !may_fit()
    }

    fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        let session = self.session;
        let names = LAYERS.into_iter().chain(std::iter::repeat("mode"));
        let layers = self.layers.iter().zip(names).map(|(rules, name)| Layer {
            name,
            default: rules.default,
            categories: &rules.categories,
            tools: &rules.tools,
            patterns: &rules.patterns,
        });
        layers.chain([Layer {
            name: "session",
            default: session.default,
            categories: &session.categories,
            tools: &session.tools,
            patterns: &session.patterns,
        }])
    }

    /// Why no call of the tool runs, whatever it is about.
    fn forbidden(&self, tool: &ToolSpec) -> Option<String> {
        let ToolSpec { name, category, .. } = tool;
        if self.read_only && !tool.control && !tool.effect.is_read() {
            return Some(format!("only what reads may run now, and {name} changes something"));
        }
        self.layers().find_map(|layer| {
            if layer.tools.get(name) == Some(&Policy::Deny) {
                return Some(format!("a rule of the {} forbids {name}", layer.name));
            }
            let denied = layer.categories.get(category) == Some(&Policy::Deny);
            denied.then(|| format!("a rule of the {} forbids all {} tools", layer.name, category.name()))
        })
    }

    /// Why a call of the tool that is about this does not run.
    fn forbidden_here(&self, tool: &ToolSpec, subjects: &[Subject]) -> Option<String> {
        self.layers().find_map(|layer| {
            let mut denials = layer.patterns_of(tool).filter(|rule| rule.policy == Policy::Deny);
            let denied = denials.any(|rule| subjects.iter().any(|subject| subject.is_met_by(rule)));
            denied.then(|| {
                format!("a rule of the {} forbids what this call of {} is about", layer.name, tool.name)
            })
        })
    }

    /// What holds for a call that nothing forbids, and the layer that says so where that is a layer's default.
    fn policy(&self, tool: &ToolSpec, subjects: &[Subject]) -> Option<(Policy, &'static str)> {
        let said = |policy| Some((policy, ""));
        if let Some(policy) = self.layers().filter_map(|layer| layer.tools.get(&tool.name).copied()).max() {
            return said(policy);
        }
        let grants = &self.session.grants;
        if grants.tools.contains(&tool.name) || grants.categories.contains(&tool.category) {
            return said(Policy::Allow);
        }
        if let Some(policy) = self.pattern_policy(tool, subjects) {
            return said(policy);
        }
        if tool.control {
            return said(Policy::Allow);
        }
        if let Some(policy) =
            self.layers().filter_map(|layer| layer.categories.get(&tool.category).copied()).max()
        {
            return said(policy);
        }
        self.layers().filter_map(|layer| layer.default.map(|policy| (policy, layer.name))).max()
    }

    fn pattern_policy(&self, tool: &ToolSpec, subjects: &[Subject]) -> Option<Policy> {
        let layers: Vec<_> = self.layers().collect();
        let rules = || layers.iter().flat_map(|layer| layer.patterns_of(tool));
        // What steers the session is asked about only where a rule names it.
        let asks = |rule: &&PatternRule| rule.policy == Policy::Ask && (!tool.control || rule.tool.is_some());
        if rules().filter(asks).any(|rule| subjects.iter().any(|subject| subject.is_met_by(rule))) {
            return Some(Policy::Ask);
        }
        let allowing: Vec<_> = rules().filter(|rule| rule.policy == Policy::Allow).collect();
        let all = !subjects.is_empty() && subjects.iter().all(|subject| subject.is_covered_by(&allowing));
        all.then_some(Policy::Allow)
    }
}

/// What names the exact arguments of a call: SHA-256 of their canonical JSON, in hex.
pub fn args_hash(args: &Value) -> String {
    Sha256::digest(schema::canonical(args)).iter().map(|byte| format!("{byte:02x}")).collect()
}
