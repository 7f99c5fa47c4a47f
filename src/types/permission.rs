//! Who may do what: rules, as people write them, and what they have granted on the way.

use super::glob;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most patterns of one layer.
pub const MAX_PATTERNS: usize = 200;
/// Most tools that one layer names.
pub const MAX_TOOLS: usize = 500;
/// Longest pattern, in characters.
pub const MAX_PATTERN: usize = 500;
/// Longest name of a tool.
const MAX_NAME: usize = 64;

/// What is to become of a call; what is stricter is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// It runs.
    Allow,
    /// A person decides.
    Ask,
    /// It does not run, whoever would allow it.
    Deny,
}

/// The groups that rules know tools by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Looks at what is ours.
    Read,
    /// Changes files and memory.
    Edit,
    /// Runs programs.
    Execute,
    /// Belongs to a server that is not ours.
    Mcp,
    /// Everything else.
    #[default]
    Other,
}

impl Category {
    /// The name in JSON.
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

/// A rule about what a call is about: a path, a command, a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternRule {
    /// The tool that it is about; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A glob, such as `src/**`, `git push *` or `*.example.com`. In paths `*` ends at a slash and `**` does
    /// not; in commands and hosts `*` is anything.
    pub pattern: String,
    /// What becomes of calls that it fits.
    pub policy: Policy,
}

impl PatternRule {
    /// What is wrong with its pattern. It fits nothing then.
    pub fn fault(&self) -> Option<String> {
        match self.pattern.chars().count() {
            0 => Some("must not be empty".into()),
            count if count > MAX_PATTERN => Some(format!("longer than {MAX_PATTERN} characters")),
            _ if self.pattern.starts_with('!') => {
                Some("a pattern says what it fits, and not what it does not".into())
            }
            _ => glob::check(&self.pattern).err(),
        }
    }
}

/// The rules of one layer: a tenant's, an agent's, a mode's or a session's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Where nothing else says anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Policy>,
    /// By category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Category, Policy>,
    /// By tool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Policy>,
    /// By what the call is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternRule>,
}

impl Rules {
    /// No rules.
    pub const fn new() -> Self {
        Self { default: None, categories: BTreeMap::new(), tools: BTreeMap::new(), patterns: Vec::new() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks rules that somebody sets.
    ///
    /// # Errors
    /// Where it is wrong, as a JSON pointer, and how.
    pub fn check(&self) -> Result<(), (String, String)> {
        check(&self.tools, &self.patterns)
    }
}

fn check(tools: &BTreeMap<String, Policy>, patterns: &[PatternRule]) -> Result<(), (String, String)> {
    check_names("/tools", tools.len(), tools.keys())?;
    if patterns.len() > MAX_PATTERNS {
        return Err(("/patterns".into(), format!("more than {MAX_PATTERNS} patterns")));
    }
    for (index, rule) in patterns.iter().enumerate() {
        let at = |field| format!("/patterns/{index}/{field}");
        if let Some(name) = &rule.tool {
            check_name(name).map_err(|fault| (at("tool"), fault))?;
        }
        if let Some(fault) = rule.fault() {
            return Err((at("pattern"), fault));
        }
    }
    Ok(())
}

fn check_names<'a>(
    pointer: &str,
    count: usize,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), (String, String)> {
    let fault = match count > MAX_TOOLS {
        true => Err(format!("more than {MAX_TOOLS} tools")),
        false => names.try_for_each(|name| check_name(name)),
    };
    fault.map_err(|fault| (pointer.to_owned(), fault))
}

fn check_name(name: &str) -> Result<(), String> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!("the name of a tool has 1 to {MAX_NAME} characters")),
    }
}

/// What somebody who was asked has allowed from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grants {
    /// These tools.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
    /// All tools of these categories.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub categories: BTreeSet<Category>,
}

impl Grants {
    /// Whether nothing was granted.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.categories.is_empty()
    }

    /// Adds those of others.
    pub fn join(&mut self, others: &Self) {
        self.tools.extend(others.tools.iter().cloned());
        self.categories.extend(&others.categories);
    }
}

impl SessionPermissions {
    /// Grants what somebody has allowed from now on. Their own rule to be asked about a tool falls with it; rules of
    /// others stand.
    pub fn grant(&mut self, granted: &Grants) {
        let answered =
            |tool: &String, policy: &Policy| *policy == Policy::Ask && granted.tools.contains(tool);
        self.tools.retain(|tool, policy| !answered(tool, policy));
        self.grants.join(granted);
    }

    /// Asks again about tools that were granted and are not any more: a grant takes the place of the rule that it
    /// answers.
    pub fn ask_again(&mut self, before: &Self) {
        let gone = before.grants.tools.difference(&self.grants.tools);
        for tool in gone.filter(|tool| !before.tools.contains_key(*tool)) {
            self.tools.entry(tool.clone()).or_insert(Policy::Ask);
        }
    }
}

/// What holds in one session beside what holds everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionPermissions {
    /// See [`Rules::default`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Policy>,
    /// See [`Rules::categories`].
    pub categories: BTreeMap<Category, Policy>,
    /// See [`Rules::tools`].
    pub tools: BTreeMap<String, Policy>,
    /// See [`Rules::patterns`].
    pub patterns: Vec<PatternRule>,
    /// Whether nobody is asked: what would be asked is allowed. Never lifts a denial.
    pub yolo: bool,
    /// What was granted.
    pub grants: Grants,
}

impl SessionPermissions {
    /// Checks permissions that somebody sets.
    ///
    /// # Errors
    /// Where it is wrong, as a JSON pointer, and how.
    pub fn check(&self) -> Result<(), (String, String)> {
        check(&self.tools, &self.patterns)?;
        check_names("/grants/tools", self.grants.tools.len(), self.grants.tools.iter())
    }
}
