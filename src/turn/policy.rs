//! Whether a call may run: rules of all layers, what people have granted, and what the call is about.

use super::schema;
use crate::types::{Policy, Rules, SessionPermissions, ToolSpec};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// All that decides on calls.
#[derive(Clone, Debug)]
pub struct Permissions<'a> {
    /// The rules of the tenant, the agent and the mode.
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

impl Permissions<'_> {
    /// Decides on a call of a tool with these arguments.
    pub fn decide(&self, tool: &ToolSpec, _args: &Value) -> Verdict {
        let rules = || {
            let layers = self.layers.iter().map(|rules| &rules.tools);
            layers.chain([&self.session.tools]).filter_map(|tools| tools.get(&tool.name))
        };
        if rules().any(|policy| *policy == Policy::Deny) {
            return Verdict::Deny("a rule forbids this tool".into());
        }
        if rules().any(|policy| *policy == Policy::Ask) { Verdict::Ask } else { Verdict::Allow }
    }

    /// Whether no call of the tool could ever run, so that it need not be offered.
    pub fn hides(&self, tool: &ToolSpec) -> bool {
        matches!(self.decide(tool, &Value::Null), Verdict::Deny(_))
    }
}

/// What names the exact arguments of a call: SHA-256 of their canonical JSON, in hex.
pub fn args_hash(args: &Value) -> String {
    Sha256::digest(schema::canonical(args)).iter().map(|byte| format!("{byte:02x}")).collect()
}
