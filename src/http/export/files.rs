//! The workspace files of an export.

use super::part::{Part, Subject};
use super::{Export, Position};
use crate::ports::{Filesystem, filesystem::Entry};
use crate::types::{FilePath, PathPrefix};
use crate::workspace::{FileScope, stored::MAX_INLINE};
use serde::{Deserialize, Serialize};

/// Number of trees, and of files, of one query.
const PAGE: usize = 200;
/// Maximum number of files that are read together, and their size; a larger file is read alone.
const BATCH: usize = 16;
const BATCH_BYTES: u64 = 1 << 20;

/// The last tree that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastTree {
    scope: String,
    /// The path of its last file that was written, if more may follow; empty at the start.
    files_after: Option<String>,
}

impl LastTree {
    /// Returns whether an export has this tree.
    pub fn is_of(&self, subject: &Subject) -> bool {
        let of_agent = self.scope.strip_prefix("agents/").and_then(|rest| rest.split_once('/'));
        let owner = of_agent.map(|(_, owner)| owner);
        subject.user.as_ref().is_none_or(|user| owner == Some(FileScope::owner_of(user).as_str()))
    }
}

/// Writes trees of files by scope. Returns where the next part continues; `None` at the end.
pub async fn write(export: &Export, part: &mut Part, mut last: Option<LastTree>) -> Option<Position> {
    loop {
        let next = match &last {
            Some(begun) if begun.files_after.is_some() => vec![begun.clone()],
            _ => match trees(export, part, last.as_ref()).await {
                Ok(page) if page.is_empty() => return None,
                Ok(page) => page,
                Err(()) => return Some(Position::Files(last)),
            },
        };
        for mut tree in next {
            if part.is_full() {
                return Some(Position::Files(last));
            }
            tree.files_after = files(export, part, &tree).await;
            let is_begun = tree.files_after.is_some();
            last = Some(tree);
            if is_begun {
                return Some(Position::Files(last));
            }
        }
    }
}

async fn trees(export: &Export, part: &mut Part, last: Option<&LastTree>) -> Result<Vec<LastTree>, ()> {
    let (tenant, user) = (&export.subject.tenant, export.subject.user.as_ref());
    let after = last.map(|last| last.scope.as_str());
    part.spend(2);
    match export.files.scopes(tenant, user, after, PAGE).await {
        Ok(page) => {
            Ok(page.into_iter().map(|scope| LastTree { scope, files_after: Some(String::new()) }).collect())
        }
        Err(error) => {
            part.fail("files", "the files are unavailable; continue later", &error);
            Err(())
        }
    }
}

/// Writes files of a tree. Returns the path after which the next part continues; `None` at the end.
async fn files(export: &Export, part: &mut Part, last: &LastTree) -> Option<String> {
    let tree = export.files.scope(&export.subject.tenant, &last.scope);
    // Neither ids nor paths contain names that lead out of the folder.
    let folder = format!("files/{}", last.scope);
    let mut after = last.files_after.clone().unwrap_or_default();
    loop {
        part.spend(2);
        let page = match tree.list(&PathPrefix::default(), Some(&after), PAGE).await {
            Ok(page) => page,
            Err(error) => {
                part.fail(&folder, "incomplete: the files are unavailable; continue later", &error);
                return Some(after);
            }
        };
        let is_last = page.len() < PAGE;
        for batch in batches(&page) {
            if part.is_full() {
                return Some(after);
            }
            part.spend(batch.calls);
            let batch = batch.paths;
            match tree.read_many(&batch).await {
                // A file that was deleted since it was listed is left out.
                Ok(read) => {
                    for file in read {
                        part.entry(&format!("{folder}/{}", file.entry.path), file.bytes).await;
                        part.counts.files += 1;
                    }
                }
                Err(error) => {
                    for path in &batch {
                        part.fail(&format!("{folder}/{path}"), "the file cannot be read", &error);
                    }
                }
            }
            if let Some(path) = batch.last() {
                path.as_str().clone_into(&mut after);
            }
        }
        if is_last {
            return None;
        }
    }
}

/// Files that are read together.
struct Batch {
    paths: Vec<FilePath>,
    bytes: u64,
    /// Number of calls that reading them takes.
    calls: usize,
}

/// Divides a list of files into batches.
fn batches(page: &[Entry]) -> Vec<Batch> {
    let mut batches = Vec::<Batch>::new();
    for Entry { path, bytes, .. } in page {
        let is_object = usize::from(*bytes > MAX_INLINE as u64);
        match batches.last_mut() {
            Some(batch) if batch.paths.len() < BATCH && batch.bytes + bytes <= BATCH_BYTES => {
                batch.paths.push(path.clone());
                batch.bytes += bytes;
                batch.calls += is_object;
            }
            _ => batches.push(Batch { paths: vec![path.clone()], bytes: *bytes, calls: 2 + is_object }),
        }
    }
    batches
}
