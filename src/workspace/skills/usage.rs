//! The usage of learned skills, and the state that follows from it.
//!
//! A learned skill is one that the agent has proposed and a person has promoted; its front matter says so. Its usage is
//! stored in one file of its layer, which is read together with the skills. A skill that no
//! turn has loaded for 30 days is stale, and after 90 days it is archived. The state is computed from the usage and the
//! time, so nothing is moved or deleted. The skills of the template never age, nor does a skill whose usage is unknown.

use crate::ports::{
    FileError, Filesystem,
    filesystem::{File, FileResult, Precondition},
};
use crate::types::{FilePath, Timestamp, json};
use crate::workspace::layout;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// How long a skill was not used when it becomes stale.
pub const STALE_AFTER: Duration = Duration::from_hours(30 * 24);
/// How long a skill was not used when it becomes archived.
pub const ARCHIVED_AFTER: Duration = Duration::from_hours(90 * 24);
/// Maximum length of the file with the usage that is read, in characters: more than the skills of a layer need.
pub const MAX_USAGE_CHARS: usize = 16_000;
/// Number of attempts to change the usage while others change it.
const ATTEMPTS: usize = 4;

/// How recently a skill was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SkillState {
    /// In the last 30 days, or the skill does not age.
    Active,
    /// Not in the last 30 days. The prompt lists it last.
    Stale,
    /// Not in the last 90 days. The prompt does not list it.
    Archived,
}

/// The usage of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillUse {
    /// Number of turns that have loaded it.
    #[serde(default)]
    pub uses: u64,
    /// When it was last loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// When it was promoted, or its usage was first noticed to be unknown.
    pub learned_at: Timestamp,
}

impl SkillUse {
    /// Returns the usage of a skill whose clock starts now.
    pub fn starting(learned_at: Timestamp) -> Self {
        Self { uses: 0, last_used: None, learned_at }
    }

    /// Counts a turn that has loaded the skill.
    pub fn count(&mut self, at: Timestamp) {
        self.uses = self.uses.saturating_add(1);
        self.last_used = self.last_used.max(Some(at));
    }

    /// Returns the state of the skill.
    pub fn state(&self, now: Timestamp) -> SkillState {
        match now.since(self.last_used.unwrap_or_default().max(self.learned_at)) {
            unused if unused >= ARCHIVED_AFTER => SkillState::Archived,
            unused if unused >= STALE_AFTER => SkillState::Stale,
            _ => SkillState::Active,
        }
    }
}

/// The usage of the learned skills of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillUsage {
    /// The usage by the name of the skill.
    pub skills: BTreeMap<String, SkillUse>,
    /// Etag of the file; `None` if there is none.
    version: Option<String>,
}

impl SkillUsage {
    /// Reads the file. A malformed one has no usage: it is replaced when a skill is used.
    pub fn read(version: &str, bytes: &[u8]) -> Self {
        Self { skills: json::from_slice(bytes).unwrap_or_default(), version: Some(version.to_owned()) }
    }

    /// Stores the usage.
    ///
    /// # Errors
    /// [`FileError::Conflict`] if the file has changed since it was read; another error if it cannot be written.
    pub async fn write(&self, tree: &dyn Filesystem) -> FileResult<()> {
        let bytes = serde_json::to_vec(&self.skills).unwrap_or_default();
        let condition = self.version.clone().map_or(Precondition::CreateOnly, Precondition::IfMatch);
        tree.write(&path()?, bytes.into(), &condition).await.map(drop)
    }
}

/// Returns the path of the file.
///
/// # Errors
/// None is expected.
pub fn path() -> FileResult<FilePath> {
    FilePath::parse(layout::SKILL_USAGE).map_err(|_| FileError::NotFound)
}

/// Starts the clock of a skill that was just promoted, and keeps what an earlier one of the same name has counted.
///
/// # Errors
/// If the file cannot be read or written.
pub async fn start(tree: &dyn Filesystem, name: &str, now: Timestamp) -> FileResult<()> {
    let path = path()?;
    retry(async || {
        let mut usage = match tree.read(&path).await {
            Ok(File { entry, bytes }) => SkillUsage::read(&entry.etag, &bytes),
            Err(FileError::NotFound) => SkillUsage::default(),
            Err(error) => return Err(error),
        };
        usage.skills.entry(name.to_owned()).or_insert_with(|| SkillUse::starting(now)).learned_at = now;
        usage.write(tree).await
    })
    .await
}

/// Repeats a change while it conflicts with those of others.
///
/// # Errors
/// That of the last attempt.
pub async fn retry<T>(change: impl AsyncFn() -> FileResult<T>) -> FileResult<T> {
    for _ in 1..ATTEMPTS {
        match change().await {
            Err(FileError::Conflict) => {}
            result => return result,
        }
    }
    change().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_skill_ages_from_its_last_use_or_its_promotion() {
        let learned = Timestamp(1_795_176_000_000);
        let mut usage = SkillUse::starting(learned);
        let states = |usage: &SkillUse, from: Timestamp| {
            [0, 30, 90].map(|days| {
                let at = from + DAY * days;
                (usage.state(at - Duration::from_millis(1)), usage.state(at))
            })
        };
        let (active, stale, archived) = (SkillState::Active, SkillState::Stale, SkillState::Archived);
        let expected = [(active, active), (active, stale), (stale, archived)];
        assert_eq!(states(&usage, learned), expected);
        usage.count(learned + DAY * 100);
        usage.count(learned + DAY * 40);
        assert_eq!((usage.uses, usage.last_used), (2, Some(learned + DAY * 100)));
        assert_eq!(states(&usage, learned + DAY * 100), expected);
    }

    #[test]
    fn a_malformed_file_has_no_usage() {
        for text in ["", "[]", "{\"a\": 1}", "{\"a\": {\"uses\": 1}}", "\u{0}"] {
            let usage = SkillUsage::read("e", text.as_bytes());
            assert_eq!(
                usage,
                SkillUsage { skills: BTreeMap::new(), version: Some("e".to_owned()) },
                "{text}"
            );
        }
    }

    #[test]
    fn a_change_is_repeated_while_it_conflicts() {
        let runs = std::cell::Cell::new(0);
        let result = |conflicts: usize| {
            runs.set(0);
            futures::executor::block_on(retry(async || {
                runs.set(runs.get() + 1);
                if runs.get() > conflicts { Ok(runs.get()) } else { Err(FileError::Conflict) }
            }))
        };
        assert_eq!(result(0), Ok(1));
        assert_eq!(result(ATTEMPTS - 1), Ok(ATTEMPTS));
        assert_eq!(result(ATTEMPTS), Err(FileError::Conflict));
    }
}
