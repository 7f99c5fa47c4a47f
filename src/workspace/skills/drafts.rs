//! Drafts of skills, which an agent proposes and a person promotes: folders `skills/_drafts/<name>/` in the user's layer.

use super::{Skill, SkillError, front_matter, is_name, path_of, scan, usage};
use crate::ports::{
    Clock, FileError, Filesystem,
    filesystem::{Entry, File, FileResult, Precondition},
};
use crate::types::{FilePath, PathPrefix, Timestamp};
use crate::workspace::{
    Layer, Workspace, layout,
    stored::{MAX_INLINE, etag},
};
use bytes::Bytes;
use scan::{Finding, ScanError};
use std::{collections::BTreeMap, rc::Rc};
use thiserror::Error;

pub use front_matter::{MAX_DESCRIPTION, check as check_skill_file, write as skill_file};

/// Maximum number of files of a draft besides its `SKILL.md`.
pub const MAX_FILES: usize = 8;
/// Maximum size of a file of a draft, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// Maximum size of all files of a draft, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum number of drafts of a user with an agent.
pub const MAX_DRAFTS: usize = 64;
/// Maximum number of files of a draft that are listed.
const MAX_LISTED: usize = MAX_FILES + 2;
/// Number of drafts whose `SKILL.md` are in memory at once.
const READ_BATCH: usize = 8;

/// A draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The name of its folder.
    pub name: String,
    /// A value that changes with any of its files.
    pub version: String,
    /// Its files, sorted by path.
    entries: Vec<Entry>,
}

/// A file of a draft to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftFile {
    /// Its path in the folder of the skill.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// A draft that was scanned and can be promoted.
pub struct Promotion {
    /// The skill that it becomes.
    pub skill: Skill,
    draft: Draft,
    files: Vec<(FilePath, Bytes)>,
}

/// Why a draft cannot be promoted.
#[derive(Debug, Error)]
pub enum PromoteError {
    /// The draft is malformed or dangerous.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Finding>),
    /// The scan did not finish.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A file operation failed. [`FileError::Conflict`]: the draft has another version.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Draft {
    /// Groups the files of one draft; `None` if the folder is none.
    fn new(name: &str, mut entries: Vec<Entry>) -> Option<Self> {
        // One more than allowed, so that `review` refuses it. The version must not depend on how many were listed.
        entries.truncate(MAX_LISTED);
        let skill_file = format!("{}{name}/{}", layout::DRAFTS, layout::SKILL_FILE);
        if !is_name(name) || !entries.iter().any(|entry| entry.path.as_str() == skill_file) {
            return None;
        }
        let lines: String = entries.iter().map(|entry| format!("{} {}\n", entry.etag, entry.path)).collect();
        Some(Self { name: name.to_owned(), version: etag(lines.as_bytes()), entries })
    }

    /// Returns the path of a file in the folder of the draft.
    fn inside<'a>(&self, path: &'a FilePath) -> &'a str {
        let rest = path.as_str().strip_prefix(layout::DRAFTS).and_then(|rest| rest.strip_prefix(&*self.name));
        rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(path.as_str())
    }

    fn skill_file(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| self.inside(&entry.path) == layout::SKILL_FILE)
    }
}

/// Returns what makes a draft too large, of the sizes of its files, each with its path in the folder.
pub fn too_large<'a>(files: impl IntoIterator<Item = (&'a str, u64)>) -> Option<Finding> {
    let (mut number, mut total) = (0, 0_u64);
    for (path, bytes) in files {
        if bytes > MAX_FILE as u64 {
            return Some(Finding::too_large(
                path,
                format!("it has {bytes} bytes; at most {MAX_FILE} are allowed"),
            ));
        }
        number += 1;
        total = total.saturating_add(bytes);
    }
    let what = match () {
        () if number > MAX_FILES + 1 => format!("it has more than {MAX_FILES} files besides SKILL.md"),
        () if total > MAX_BYTES as u64 => {
            format!("its files have {total} bytes; at most {MAX_BYTES} are allowed")
        }
        () => return None,
    };
    Some(Finding::too_large("the draft", what))
}

/// Returns the path of a file of a draft; `None` if there can be none.
pub fn draft_path(name: &str, file: &str) -> Option<FilePath> {
    path_of(name, file)?;
    FilePath::parse(&format!("{}{name}/{file}", layout::DRAFTS)).ok()
}

impl Workspace {
    /// Returns the first drafts by name, each as a skill whose version is that of the draft.
    ///
    /// # Errors
    /// If a store is unavailable.
    pub async fn drafts(&self) -> FileResult<Vec<Skill>> {
        let mut drafts: Vec<Draft> = self.draft_folders().await?;
        drafts.truncate(MAX_DRAFTS);
        let mut skills = Vec::with_capacity(drafts.len());
        for drafts in drafts.chunks(READ_BATCH) {
            let is_read =
                |draft: &&Draft| draft.skill_file().is_some_and(|entry| entry.bytes <= MAX_INLINE as u64);
            let paths: Vec<_> = drafts.iter().filter(is_read).filter_map(Draft::skill_file).collect();
            let paths: Vec<_> = paths.into_iter().map(|entry| entry.path.clone()).collect();
            let files = self.own().read_many(&paths).await?;
            for draft in drafts {
                let Some(entry) = draft.skill_file() else { continue };
                let file = files.iter().find(|file| file.entry.path == entry.path);
                let head = match file {
                    Some(file) => front_matter::read_head(&file.entry, &file.bytes),
                    // It is too large, or was deleted since it was listed.
                    None => Err(SkillError::NotText),
                };
                skills.push(Skill::new(&draft.name, Layer::User, &draft.version, &head));
            }
        }
        Ok(skills)
    }

    /// Returns whether a new draft with this name can be stored, or replaces one.
    ///
    /// # Errors
    /// If a store is unavailable.
    pub async fn has_room_for_draft(&self, name: &str) -> FileResult<bool> {
        let drafts = self.draft_folders().await?;
        Ok(drafts.len() < MAX_DRAFTS || drafts.iter().any(|draft| draft.name == name))
    }

    /// Lists the drafts by name.
    async fn draft_folders(&self) -> FileResult<Vec<Draft>> {
        let all = PathPrefix::parse(layout::DRAFTS).unwrap_or_default();
        let most = (MAX_DRAFTS + 1) * (MAX_FILES + 1);
        let entries = self.own().list(&all, None, most).await?;
        let is_cut = entries.len() == most;
        let mut folders: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            let path = entry.path.as_str().strip_prefix(layout::DRAFTS);
            if let Some(folder) =
                path.and_then(|path| path.split_once('/')).map(|(folder, _)| folder.to_owned())
            {
                folders.entry(folder).or_default().push(entry);
            }
        }
        if is_cut {
            // More of its files may follow, and its version would be another one.
            folders.pop_last();
        }
        Ok(folders.into_iter().filter_map(|(name, entries)| Draft::new(&name, entries)).collect())
    }

    /// Finds a draft.
    ///
    /// # Errors
    /// [`FileError::NotFound`] if there is none; another error if a store is unavailable.
    pub async fn draft(&self, name: &str) -> FileResult<Draft> {
        let folder = draft_path(name, layout::SKILL_FILE).ok_or(FileError::NotFound)?;
        let folder =
            PathPrefix::parse(folder.as_str().trim_end_matches(layout::SKILL_FILE)).unwrap_or_default();
        let entries = self.own().list(&folder, None, MAX_LISTED).await?;
        Draft::new(name, entries).ok_or(FileError::NotFound)
    }

    /// Writes a draft in place of an earlier one of the same name. The caller has scanned it.
    ///
    /// # Errors
    /// If a path is invalid, or a file cannot be written.
    pub async fn write_draft(&self, name: &str, files: &[DraftFile]) -> FileResult<()> {
        let before = match self.draft(name).await {
            Ok(draft) => draft.entries,
            Err(FileError::NotFound) => Vec::new(),
            Err(error) => return Err(error),
        };
        let path = |file: &DraftFile| draft_path(name, &file.path).ok_or(FileError::NotFound);
        let paths = files.iter().map(path).collect::<FileResult<Vec<_>>>()?;
        let texts = files.iter().map(|file| file.text.clone().into());
        write_all(&**self.own(), paths.iter().cloned().zip(texts).collect()).await?;
        for entry in before.iter().filter(|entry| !paths.contains(&entry.path)) {
            self.own().delete(&entry.path, &Precondition::Any).await?;
        }
        Ok(())
    }

    /// Reads and scans a draft that is to become a skill of a layer.
    ///
    /// # Errors
    /// See [`PromoteError`].
    pub async fn review(
        &self,
        draft: Draft,
        layer: Layer,
        clock: &Rc<dyn Clock>,
    ) -> Result<Promotion, PromoteError> {
        let sizes = draft.entries.iter().map(|entry| (draft.inside(&entry.path), entry.bytes));
        if let Some(finding) = too_large(sizes) {
            return Err(PromoteError::Refused(vec![finding]));
        }
        let paths: Vec<FilePath> = draft.entries.iter().map(|entry| entry.path.clone()).collect();
        let files = self.own().read_many(&paths).await?;
        let is_reviewed =
            |(entry, file): (&Entry, &File)| entry.path == file.entry.path && entry.etag == file.entry.etag;
        if files.len() != paths.len() || !draft.entries.iter().zip(&files).all(is_reviewed) {
            return Err(FileError::Conflict.into());
        }
        let inside = |file: &File| draft.inside(&file.entry.path).to_owned();
        let contents: Vec<_> = files.iter().map(|file| (inside(file), &*file.bytes)).collect();
        let mut findings = scan::scan(&contents, clock).await?;
        let skill_file = files.iter().find(|file| inside(file) == layout::SKILL_FILE);
        let skill =
            skill_file.map(|file| Skill::of_file(&draft.name, layer, file)).ok_or(FileError::NotFound)?;
        if let Err(error) = &skill.description {
            findings.push(Finding::malformed(error));
        }
        if !findings.is_empty() {
            return Err(PromoteError::Refused(findings));
        }
        let target = |file: &File| {
            let path = path_of(&draft.name, &inside(file)).ok_or(FileError::NotFound)?;
            Ok((path, file.bytes.clone()))
        };
        let files = files.iter().map(target).collect::<FileResult<_>>()?;
        Ok(Promotion { skill, draft, files })
    }

    /// Moves a reviewed draft to `skills/<name>/` in the layer, and returns the skill. Files of an earlier skill at other
    /// paths stay. A promotion that was interrupted can be repeated: the `SKILL.md` of the draft is deleted last. The clock
    /// of a learned skill starts.
    ///
    /// # Errors
    /// If a file cannot be written or deleted.
    pub async fn promote(&self, promotion: Promotion, now: Timestamp) -> FileResult<Skill> {
        let Promotion { skill, draft, files } = promotion;
        let tree = &**self.layer(skill.layer);
        write_all(tree, files).await?;
        if skill.is_learned {
            match usage::start(tree, &skill.name, now).await {
                // The skill is there. Without a known usage it does not age.
                Ok(()) | Err(FileError::Conflict | FileError::Full | FileError::Quota(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let (last, others): (Vec<&Entry>, Vec<&Entry>) =
            draft.entries.iter().partition(|entry| draft.inside(&entry.path) == layout::SKILL_FILE);
        for entry in others.into_iter().chain(last) {
            match self.own().delete(&entry.path, &Precondition::IfMatch(entry.etag.clone())).await {
                Ok(()) => {}
                // The file was changed during the promotion. It remains a draft, with the SKILL.md.
                Err(FileError::Conflict) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(skill)
    }

    fn own(&self) -> &Rc<dyn Filesystem> {
        self.layer(Layer::User)
    }
}

/// Writes files, `SKILL.md` last, so that a new skill whose files are incomplete is none.
async fn write_all(tree: &dyn Filesystem, mut files: Vec<(FilePath, Bytes)>) -> FileResult<()> {
    files.sort_by_key(|(path, _)| path.name() == layout::SKILL_FILE);
    for (path, bytes) in files {
        tree.write(&path, bytes, &Precondition::Any).await?;
    }
    Ok(())
}
