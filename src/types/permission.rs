//! Permission rules and grants.

use super::{FieldError, Invalid};

use super::glob;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Maximum number of patterns in one layer.
pub const MAX_PATTERNS: usize = 200;
/// Maximum number of tools named in one layer.
pub const MAX_TOOLS: usize = 500;
/// Maximum length of a pattern, in characters.
pub const MAX_PATTERN: usize = 500;
/// Maximum length of a tool's name.
const MAX_NAME: usize = 64;

/// What a rule decides about a call; the stricter policy is the greater one. In JSON its name, or an object such as
/// `{"policy": "ask", "by": "user"}`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "WrittenPolicy", into = "WrittenPolicy")]
pub enum Policy {
    /// The call runs.
    Allow,
    /// The call needs the approval of the session's user.
    AskUser,
    /// The call needs approval. If the rule is the operator's, the user's own approval is not sufficient.
    Ask,
    /// The call does not run, whatever other rules say.
    Deny,
}

/// Who may approve a call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// Each caller that may send messages to the session.
    #[default]
    User,
    /// A caller with the scope `approve`.
    Approver,
}

impl Decider {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_user(&self) -> bool {
        *self == Self::User
    }
}

/// The name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum PolicyName {
    Allow,
    Ask,
    Deny,
}

/// A policy as it is written.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "expected \"allow\", \"ask\", \"deny\", or {\"policy\", \"by\"?}")]
enum WrittenPolicy {
    Name(PolicyName),
    Decided {
        policy: PolicyName,
        #[serde(default)]
        by: Option<Decider>,
    },
}

impl Policy {
    /// Returns whether the call needs approval.
    pub fn asks(self) -> bool {
        matches!(self, Self::Ask | Self::AskUser)
    }

    fn new(name: PolicyName, by: Option<Decider>) -> Result<Self, Invalid> {
        match (name, by) {
            (PolicyName::Ask, Some(Decider::User)) => Ok(Self::AskUser),
            (PolicyName::Ask, _) => Ok(Self::Ask),
            (PolicyName::Allow, None) => Ok(Self::Allow),
            (PolicyName::Deny, None) => Ok(Self::Deny),
            (PolicyName::Allow | PolicyName::Deny, Some(_)) => Err("`by` is for the policy `ask`".into()),
        }
    }

    fn parts(self) -> (PolicyName, Option<Decider>) {
        match self {
            Self::Allow => (PolicyName::Allow, None),
            Self::AskUser => (PolicyName::Ask, Some(Decider::User)),
            Self::Ask => (PolicyName::Ask, None),
            Self::Deny => (PolicyName::Deny, None),
        }
    }
}

impl TryFrom<WrittenPolicy> for Policy {
    type Error = Invalid;

    fn try_from(written: WrittenPolicy) -> Result<Self, Invalid> {
        match written {
            WrittenPolicy::Name(name) => Self::new(name, None),
            WrittenPolicy::Decided { policy, by } => Self::new(policy, by),
        }
    }
}

impl From<Policy> for WrittenPolicy {
    fn from(policy: Policy) -> Self {
        match policy.parts() {
            (name, None) => Self::Name(name),
            (policy, by) => Self::Decided { policy, by },
        }
    }
}

/// The tool groups that rules can name.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case", try_from = "String")]
#[schemars(!try_from)]
pub enum Category {
    /// Reads files, memory, and sessions.
    Read,
    /// Changes files and memory.
    Edit,
    /// Runs programs.
    Execute,
    /// Is provided by a remote MCP server.
    Mcp,
    /// Everything else.
    #[default]
    Other,
}

/// The name of a category that does not exist.
#[derive(Debug, Error)]
#[error("unknown category `{0}`, expected one of `read`, `edit`, `execute`, `mcp`, `other`")]
pub struct UnknownCategory(String);

/// Categories are keys of maps. Errors name the place of a key only if it is deserialized as a string.
impl TryFrom<String> for Category {
    type Error = UnknownCategory;

    fn try_from(name: String) -> Result<Self, UnknownCategory> {
        Self::ALL.into_iter().find(|category| category.name() == name).ok_or(UnknownCategory(name))
    }
}

impl Category {
    /// All categories.
    const ALL: [Self; 5] = [Self::Read, Self::Edit, Self::Execute, Self::Mcp, Self::Other];

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Execute => "execute",
            Self::Mcp => "mcp",
            Self::Other => "other",
        }
    }
}

/// A rule about the subject of a call: a path, a command, or a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "WrittenPattern", into = "WrittenPattern")]
pub struct PatternRule {
    /// The tool that the rule applies to; all tools if absent.
    pub tool: Option<String>,
    /// A glob, such as `src/**`, `git push *`, or `*.example.com`. In paths, `*` stops at a slash and `**`
    /// does not; in commands and hosts, `*` matches anything.
    pub pattern: String,
    /// The policy for matching calls.
    pub policy: Policy,
}

/// A pattern rule as it is written.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct WrittenPattern {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    pattern: String,
    policy: PolicyName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Decider>,
}

impl TryFrom<WrittenPattern> for PatternRule {
    type Error = Invalid;

    fn try_from(WrittenPattern { tool, pattern, policy, by }: WrittenPattern) -> Result<Self, Invalid> {
        Ok(Self { tool, pattern, policy: Policy::new(policy, by)? })
    }
}

impl From<PatternRule> for WrittenPattern {
    fn from(PatternRule { tool, pattern, policy }: PatternRule) -> Self {
        let (policy, by) = policy.parts();
        Self { tool, pattern, policy, by }
    }
}

impl PatternRule {
    /// Returns what is wrong with the pattern, if anything. An invalid pattern matches nothing.
    pub fn fault(&self) -> Option<String> {
        match self.pattern.chars().count() {
            0 => Some("must not be empty".into()),
            count if count > MAX_PATTERN => Some(format!("longer than {MAX_PATTERN} characters")),
            _ if self.pattern.starts_with('!') => {
                Some("negated patterns are not supported; write what the pattern should match".into())
            }
            _ => glob::check(&self.pattern).err().map(String::from),
        }
    }
}

/// The permission rules of one layer: of a tenant, an agent, a mode, or a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(rename = "PermissionRules")]
pub struct Rules {
    /// The policy if no other rule applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Policy>,
    /// Policies by category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Category, Policy>,
    /// Policies by tool name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Policy>,
    /// Policies by subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternRule>,
}

impl Rules {
    /// Creates an empty set of rules.
    pub const fn new() -> Self {
        Self { default: None, categories: BTreeMap::new(), tools: BTreeMap::new(), patterns: Vec::new() }
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks rules from a request or the configuration.
    ///
    /// # Errors
    /// The invalid rule, and what is wrong with it.
    pub fn check(&self) -> Result<(), FieldError> {
        check(&self.tools, &self.patterns)
    }
}

fn check(tools: &BTreeMap<String, Policy>, patterns: &[PatternRule]) -> Result<(), FieldError> {
    check_names("/tools", tools.len(), tools.keys())?;
    if patterns.len() > MAX_PATTERNS {
        return Err(fault("/patterns".into(), format!("more than {MAX_PATTERNS} patterns")));
    }
    for (index, rule) in patterns.iter().enumerate() {
        let at = |field| format!("/patterns/{index}/{field}");
        if let Some(name) = &rule.tool {
            check_name(name).map_err(|invalid| fault(at("tool"), invalid))?;
        }
        if let Some(detail) = rule.fault() {
            return Err(fault(at("pattern"), detail));
        }
    }
    Ok(())
}

fn check_names<'a>(
    pointer: &str,
    count: usize,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), FieldError> {
    let checked = match count > MAX_TOOLS {
        true => Err(Invalid(format!("more than {MAX_TOOLS} tools"))),
        false => names.try_for_each(|name| check_name(name)),
    };
    checked.map_err(|invalid| fault(pointer.to_owned(), invalid))
}

fn fault(pointer: String, detail: impl Into<String>) -> FieldError {
    FieldError { pointer, detail: detail.into() }
}

fn check_name(name: &str) -> Result<(), Invalid> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(Invalid(format!("a tool name must have 1 to {MAX_NAME} characters"))),
    }
}

/// Permissions that decisions have added to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Grants {
    /// Tools that may run without approval.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
    /// Categories whose tools may run without approval.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub categories: BTreeSet<Category>,
}

impl Grants {
    /// Returns whether there are no grants.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.categories.is_empty()
    }

    /// Adds the grants of `others`.
    pub fn join(&mut self, others: &Self) {
        self.tools.extend(others.tools.iter().cloned());
        self.categories.extend(&others.categories);
    }
}

impl SessionPermissions {
    /// Adds grants. A rule of this session to ask about a granted tool is removed; rules of other layers
    /// stay.
    pub fn grant(&mut self, granted: &Grants) {
        let answered = |tool: &String, policy: &Policy| policy.asks() && granted.tools.contains(tool);
        self.tools.retain(|tool, policy| !answered(tool, policy));
        self.grants.join(granted);
    }

    /// Restores the rule to ask about tools whose grant was removed, because granting them had removed that
    /// rule.
    pub fn ask_again(&mut self, before: &Self) {
        let removed = before.grants.tools.difference(&self.grants.tools);
        for tool in removed.filter(|tool| !before.tools.contains_key(*tool)) {
            self.tools.entry(tool.clone()).or_insert(Policy::Ask);
        }
    }
}

/// The permission rules and grants of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct SessionPermissions {
    /// The policy if no other rule applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Policy>,
    /// Policies by category.
    pub categories: BTreeMap<Category, Policy>,
    /// Policies by tool name.
    pub tools: BTreeMap<String, Policy>,
    /// Policies by subject.
    pub patterns: Vec<PatternRule>,
    /// Whether calls that need approval are approved automatically. Never overrides a denial.
    pub yolo: bool,
    /// The session's grants.
    pub grants: Grants,
}

impl SessionPermissions {
    /// Checks permissions from a request.
    ///
    /// # Errors
    /// The invalid rule, and what is wrong with it.
    pub fn check(&self) -> Result<(), FieldError> {
        check(&self.tools, &self.patterns)?;
        check_names("/grants/tools", self.grants.tools.len(), self.grants.tools.iter())
    }
}
