//! Drafts of skills, which an agent proposes and a person promotes: folders `skills/_drafts/<name>/` in the user's layer.

use super::{Skill, front_matter, is_name, path_of, scan};
use crate::ports::{
    Clock, FileError, Filesystem,
    filesystem::{Entry, File, FileResult, Precondition},
};
use crate::types::{FilePath, PathPrefix};
use crate::workspace::{Layer, Workspace, layout, stored::etag};
use bytes::Bytes;
use scan::{Finding, ScanError};
use std::{collections::BTreeMap, rc::Rc};
use thiserror::Error;

pub use front_matter::{MAX_DESCRIPTION, check as check_skill_file, write as skill_file};

/// Maximum number of files of a draft besides its `SKILL.md`.
pub const MAX_FILES: usize = 8;
/// Maximum number of drafts that a list has.
const MAX_DRAFTS: usize = 64;

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

/// Why a draft was not promoted.
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
    fn new(name: &str, entries: Vec<Entry>) -> Option<Self> {
        let skill_file = format!("{}{name}/{}", layout::DRAFTS, layout::SKILL_FILE);
        if !is_name(name) || !entries.iter().any(|entry| entry.path.as_str() == skill_file) {
            return None;
        }
        let lines: String = entries.iter().map(|entry| format!("{} {}\n", entry.etag, entry.path)).collect();
        Some(Self { name: name.to_owned(), version: etag(lines.as_bytes()), entries })
    }
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
        let all = PathPrefix::parse(layout::DRAFTS).unwrap_or_default();
        let entries = self.own().list(&all, None, MAX_DRAFTS * (MAX_FILES + 1)).await?;
        let mut folders: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            let folder =
                entry.path.as_str().strip_prefix(layout::DRAFTS).and_then(|path| path.split_once('/'));
            if let Some((folder, _)) = folder.map(|(folder, rest)| (folder.to_owned(), rest)) {
                folders.entry(folder).or_default().push(entry);
            }
        }
        let drafts: Vec<Draft> =
            folders.into_iter().filter_map(|(name, entries)| Draft::new(&name, entries)).collect();
        let paths =
            drafts.iter().take(MAX_DRAFTS).filter_map(|draft| draft_path(&draft.name, layout::SKILL_FILE));
        let files = self.own().read_many(&paths.collect::<Vec<_>>()).await?;
        let skill = |draft: Draft| {
            let path = draft_path(&draft.name, layout::SKILL_FILE)?;
            let file = files.iter().find(|file| file.entry.path == path)?;
            Some(Skill { version: draft.version, ..Skill::of_file(&draft.name, Layer::User, file) })
        };
        Ok(drafts.into_iter().filter_map(skill).collect())
    }

    /// Finds a draft.
    ///
    /// # Errors
    /// [`FileError::NotFound`] if there is none; another error if a store is unavailable.
    pub async fn draft(&self, name: &str) -> FileResult<Draft> {
        let folder = draft_path(name, layout::SKILL_FILE).ok_or(FileError::NotFound)?;
        let folder =
            PathPrefix::parse(folder.as_str().trim_end_matches(layout::SKILL_FILE)).unwrap_or_default();
        // One more than allowed, so that `promote` refuses it.
        let entries = self.own().list(&folder, None, MAX_FILES + 2).await?;
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

    /// Scans a draft, moves it to `skills/<name>/` in a layer, and returns the skill. Files of an earlier skill at other
    /// paths stay. A promotion that was interrupted can be repeated.
    ///
    /// # Errors
    /// See [`PromoteError`].
    pub async fn promote(
        &self,
        draft: &Draft,
        layer: Layer,
        clock: &Rc<dyn Clock>,
    ) -> Result<Skill, PromoteError> {
        let paths: Vec<FilePath> = draft.entries.iter().map(|entry| entry.path.clone()).collect();
        if paths.len() > MAX_FILES + 1 {
            return Err(PromoteError::Refused(vec![Finding::too_many_files()]));
        }
        let files = self.own().read_many(&paths).await?;
        let is_reviewed =
            |(entry, file): (&Entry, &File)| entry.path == file.entry.path && entry.etag == file.entry.etag;
        if files.len() != paths.len() || !draft.entries.iter().zip(&files).all(is_reviewed) {
            return Err(FileError::Conflict.into());
        }
        let folder = format!("{}{}/", layout::DRAFTS, draft.name);
        let inside = |file: &File| {
            let path = file.entry.path.as_str();
            path.strip_prefix(folder.as_str()).unwrap_or(path).to_owned()
        };
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
        let written = files.iter().map(target).collect::<FileResult<Vec<_>>>()?;
        write_all(&**self.layer(layer), written).await?;
        for entry in &draft.entries {
            match self.own().delete(&entry.path, &Precondition::IfMatch(entry.etag.clone())).await {
                // The file was changed during the promotion, and is a draft again.
                Ok(()) | Err(FileError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(skill)
    }

    fn own(&self) -> &Rc<dyn Filesystem> {
        self.layer(Layer::User)
    }
}

/// Writes files, `SKILL.md` last, so that an unfinished skill is none.
async fn write_all(tree: &dyn Filesystem, mut files: Vec<(FilePath, Bytes)>) -> FileResult<()> {
    files.sort_by_key(|(path, _)| path.name() == layout::SKILL_FILE);
    for (path, bytes) in files {
        tree.write(&path, bytes, &Precondition::Any).await?;
    }
    Ok(())
}
