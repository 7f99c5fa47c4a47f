//! The skills of a user with an agent.

use super::{Skill, SkillState, SkillUse};
use crate::ports::filesystem::FileResult;
use crate::types::{PathPrefix, Timestamp, WorkspaceOwner};
use crate::workspace::{
    Workspaces,
    glance::{GlanceOptions, View},
    layout,
};
use std::{collections::BTreeMap, time::Duration};

/// Timeout of a query for skills.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the skills of a view that `admits` accepts, by name: of each name the user's, or else the shared one, then the
/// malformed ones.
pub fn resolve(view: &View, admits: impl Fn(&str) -> bool) -> Vec<&Skill> {
    let admitted = || view.shared.skills.iter().chain(&view.user.skills).filter(|skill| admits(&skill.name));
    let (valid, malformed): (Vec<&Skill>, Vec<&Skill>) =
        admitted().partition(|skill| skill.description.is_ok());
    let valid: BTreeMap<&str, &Skill> = valid.into_iter().map(|skill| (skill.name.as_str(), skill)).collect();
    valid.into_values().chain(malformed).collect()
}

impl View {
    /// Returns the usage of a learned skill, if it is known.
    pub fn usage_of(&self, skill: &Skill) -> Option<&SkillUse> {
        let usage = &self.layer(skill.layer).usage;
        usage.skills.get(&skill.name).filter(|_| skill.is_learned)
    }

    /// Returns the state of a skill.
    pub fn state_of(&self, skill: &Skill, now: Timestamp) -> SkillState {
        self.usage_of(skill).map_or(SkillState::Active, |usage| usage.state(now))
    }
}

impl Workspaces {
    /// Reads the front matter of all skills of a workspace, with one query.
    ///
    /// # Errors
    /// If a store is unavailable.
    pub async fn skills(&self, workspace: &WorkspaceOwner) -> FileResult<View> {
        let options = GlanceOptions {
            wanted: Vec::new(),
            max_chars: 0,
            folder: PathPrefix::parse(layout::DRAFTS).unwrap_or_default(),
            limit: 0,
            skills: true,
            fresh: Duration::ZERO,
            timeout: TIMEOUT,
        };
        self.glance(options).read(workspace).await
    }
}
