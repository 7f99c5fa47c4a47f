//! Skills: folders `skills/<name>/` with a file `SKILL.md`, whose front matter has a name and a description, and whose
//! text tells the agent how to do one kind of task. The format is that of <https://agentskills.io>.
//!
//! A skill belongs to one layer of the workspace, with all of its files. A user's skill replaces the shared skill of the
//! same name. A malformed skill replaces none.

pub mod drafts;
mod front_matter;
mod list;
pub mod scan;
pub mod usage;

pub use drafts::{Draft, DraftFile, PromoteError, Promotion};
pub use front_matter::{FrontMatter, SkillError, read_head};
pub use list::resolve;
pub use usage::{SkillState, SkillUsage, SkillUse};

use super::{Layer, Workspace, layout};
use crate::ports::{
    FileError,
    filesystem::{Entry, File, FileResult},
};
use crate::types::{FilePath, PathPrefix};
use futures::future::try_join;
use std::rc::Rc;

/// Maximum number of skills of a layer: the first ones by name.
pub const MAX_SKILLS: usize = 64;
/// Maximum number of files and folders in `skills/` among which those of a layer are searched: the first ones by name.
pub const MAX_FOLDERS: usize = 256;
/// Number of characters of a `SKILL.md` that contain its front matter.
pub const HEAD_CHARS: usize = 2_000;
/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 64;

/// A skill of one layer, or a folder that is meant to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of its folder.
    pub name: String,
    /// The layer with its files.
    pub layer: Layer,
    /// The etag of its `SKILL.md`.
    pub version: String,
    /// What the skill is for and when to use it, or why the skill is malformed.
    pub description: Result<Rc<str>, SkillError>,
    /// Whether the agent has written it. Such a skill ages; see [`usage`].
    pub is_learned: bool,
}

impl Skill {
    /// Returns the skill of a folder from the front matter of its `SKILL.md`.
    pub fn new(name: &str, layer: Layer, version: &str, head: &Result<FrontMatter, SkillError>) -> Self {
        let is_learned = head.as_ref().is_ok_and(FrontMatter::is_learned);
        let description = head.clone().and_then(|head| head.description_of(name));
        Self { name: name.to_owned(), layer, version: version.to_owned(), description, is_learned }
    }

    /// Returns the skill with this content of its `SKILL.md`.
    pub fn of_file(name: &str, layer: Layer, file: &File) -> Self {
        Self::new(name, layer, &file.entry.etag, &read_head(&file.entry, &file.bytes))
    }
}

/// Returns whether a text is the name of a skill: 1 to 64 of `a-z`, `0-9` and `-`.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Returns the path of a file of a skill; `None` if there can be none.
pub fn path_of(name: &str, file: &str) -> Option<FilePath> {
    // A path that begins with a slash, or has `..`, would not be what it looks like.
    let is_inside = is_name(name) && !file.starts_with('/');
    is_inside.then(|| FilePath::parse(&format!("{}{name}/{file}", layout::SKILLS)).ok()).flatten()
}

/// Returns the name of the folder if the path is that of its `SKILL.md`. The folder of drafts is none of them.
pub fn folder_of(path: &FilePath) -> Option<&str> {
    let (folder, file) = path.as_str().strip_prefix(layout::SKILLS)?.split_once('/')?;
    let is_skill = file == layout::SKILL_FILE && !layout::DRAFTS.ends_with(&format!("/{folder}/"));
    is_skill.then_some(folder)
}

/// Returns the folder of a skill.
fn folder(name: &str) -> PathPrefix {
    PathPrefix::folder(&format!("{}{name}", layout::SKILLS)).unwrap_or_default()
}

/// Returns the text of a `SKILL.md` after its front matter.
///
/// # Errors
/// If there is no front matter.
pub fn instructions(text: &str) -> Result<&str, SkillError> {
    front_matter::split(text).map(|(_, body)| body.trim_start_matches(['\r', '\n']))
}

impl Workspace {
    /// Reads the `SKILL.md` of a skill: the user's, or else the shared one.
    ///
    /// # Errors
    /// If a store is unavailable, or the skill does not exist.
    pub async fn skill(&self, name: &str) -> FileResult<(Skill, File)> {
        let path = path_of(name, layout::SKILL_FILE).ok_or(FileError::NotFound)?;
        let read = |layer| {
            let path = &path;
            async move {
                match self.layer(layer).read(path).await {
                    Ok(file) => Ok((!file.bytes.is_empty()).then_some(file)),
                    Err(FileError::NotFound) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        let (own, shared) = try_join(read(Layer::User), read(Layer::Shared)).await?;
        let skill = |(layer, file): (Layer, Option<File>)| {
            file.map(|file| (Skill::of_file(name, layer, &file), file))
        };
        let mut found: Vec<_> =
            [(Layer::User, own), (Layer::Shared, shared)].into_iter().filter_map(skill).collect();
        let valid = found.iter().position(|(skill, _)| skill.description.is_ok());
        match found.len() {
            0 => Err(FileError::NotFound),
            _ => Ok(found.swap_remove(valid.unwrap_or_default())),
        }
    }

    /// Lists up to `limit` files of a skill, by their paths in its folder, without `SKILL.md`.
    ///
    /// # Errors
    /// If a store is unavailable.
    pub async fn skill_files(&self, skill: &Skill, limit: usize) -> FileResult<Vec<String>> {
        let folder = folder(&skill.name);
        let entries: Vec<Entry> = self.layer(skill.layer).list(&folder, None, limit + 1).await?;
        let inside = entries.iter().filter_map(|entry| entry.path.as_str().strip_prefix(folder.as_str()));
        Ok(inside.filter(|path| *path != layout::SKILL_FILE).take(limit).map(str::to_owned).collect())
    }
}
