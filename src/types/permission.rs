//! Who may do what: rules, as people write them, and what they have granted on the way.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is to become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A glob, such as `src/**`, `git push *` or `*.example.com`.
    pub pattern: String,
    /// What becomes of calls that it fits.
    pub policy: Policy,
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
