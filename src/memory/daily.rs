//! Adds the memory to a user's file tree: daily logs appear as files, and the lines of `MEMORY.md` are
//! indexed whenever it changes.

use super::facts;
use crate::ports::{
    Clock, FileError, Filesystem, Log, MemoryIndex,
    filesystem::{Entry, File, FileResult, Precondition},
    memory::{Collection, Entry as Fact, Group, Listing, MemoryError, Source},
};
use crate::types::{FilePath, PathPrefix, Timestamp};
use crate::workspace::layout::{DAILY, MEMORY};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::rc::Rc;
use std::time::Duration;

/// Age at which a log moves to the archive folder (90 days).
pub const ARCHIVE_AFTER: Duration = Duration::from_hours(90 * 24);
/// Folder of archived logs.
const ARCHIVE: &str = "memory/archive/";
/// Maximum number of facts shown per day: the newest.
const MAX_FACTS: usize = 2_000;
/// How often indexing is repeated while the file keeps changing.
const MAX_ATTEMPTS: usize = 4;

/// A user's file tree with daily logs and an indexed `MEMORY.md`.
pub struct MemoryFiles {
    /// The user's own files.
    pub own: Rc<dyn Filesystem>,
    /// Index of the user's memory.
    pub index: Rc<dyn MemoryIndex>,
    /// Collection of the user's facts.
    pub facts: Collection,
    /// Clock that decides which logs are archived.
    pub clock: Rc<dyn Clock>,
    /// Log for indexing errors.
    pub log: Rc<dyn Log>,
}

/// Returns the log of a day as Markdown, or `None` when it has no facts.
///
/// # Errors
/// Returns an error when the index is unavailable.
pub async fn day(
    index: &dyn MemoryIndex,
    facts: &Collection,
    day: &str,
) -> Result<Option<String>, MemoryError> {
    let found = day_facts(index, facts, day).await?;
    Ok((!found.is_empty()).then(|| render(day, &found)))
}

/// Returns the facts of a day, oldest first.
async fn day_facts(index: &dyn MemoryIndex, facts: &Collection, day: &str) -> Result<Vec<Fact>, MemoryError> {
    let group = Some(day.to_owned());
    let listing = Listing { group, source: Some(Source::Log), limit: MAX_FACTS, ..Listing::default() };
    let mut found = index.list(facts, &listing).await?;
    found.reverse();
    Ok(found)
}

/// Returns whether the text is a valid day.
pub fn is_day(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some()
}

fn render(day: &str, facts: &[Fact]) -> String {
    let mut text = format!("# {day}\n\n");
    for fact in facts {
        let time = fact.at.to_rfc3339();
        text.push_str(&format!("- {} {}\n", time.get(11..16).unwrap_or_default(), fact.text));
    }
    text
}

/// Returns the version tag of a log, from its last fact and its number of facts. The owner is part of the
/// hash, because the serial number of the last fact alone would reveal how much other users write.
fn etag(facts: &Collection, last: u64, entries: u64) -> String {
    let Collection { tenant, agent, user, .. } = facts;
    let mut hash = Sha256::new();
    for name in [tenant.as_str(), agent, user] {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
    }
    hash.update(last.to_be_bytes());
    hash.update(entries.to_be_bytes());
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the length of what [`render`] produces for a day, in bytes.
fn rendered_len(group: &Group) -> u64 {
    "# YYYY-MM-DD\n\n".len() as u64 + group.bytes + group.entries * "- HH:MM \n".len() as u64
}

impl MemoryFiles {
    /// Returns the day whose log is at `path`.
    fn day_at<'a>(&self, path: &'a FilePath) -> Option<&'a str> {
        let path = path.as_str();
        let name = path.strip_prefix(ARCHIVE).or(path.strip_prefix(DAILY))?;
        name.strip_suffix(".md").filter(|day| is_day(day))
    }

    /// Returns the path of the log of a day.
    fn path_of(&self, day: &str) -> Option<FilePath> {
        let start = Timestamp::parse(&format!("{day}T00:00:00Z"))?;
        let old = self.clock.now().since(start) > ARCHIVE_AFTER;
        let folder = if old { ARCHIVE } else { DAILY };
        FilePath::parse(&format!("{folder}{day}.md")).ok()
    }

    fn entry(&self, group: &Group) -> Option<Entry> {
        Some(Entry {
            path: self.path_of(&group.name)?,
            bytes: rendered_len(group),
            etag: etag(&self.facts, group.last, group.entries),
            updated_at: group.updated_at,
        })
    }

    /// Lists the logs whose paths start with `prefix`.
    async fn days(&self, prefix: &PathPrefix) -> FileResult<Vec<Entry>> {
        let fits = |folder: &str| folder.starts_with(prefix.as_str()) || prefix.as_str().starts_with(folder);
        if !fits(DAILY) && !fits(ARCHIVE) {
            return Ok(Vec::new());
        }
        let (mut days, mut after) = (Vec::new(), None);
        loop {
            let groups = self.index.groups(&self.facts, after.as_deref(), 500).await?;
            let last = groups.len() < 500;
            after = groups.last().map(|group| group.name.clone());
            let own = groups.iter().filter(|group| is_day(&group.name)).filter_map(|group| self.entry(group));
            days.extend(own.filter(|entry| prefix.fits(entry.path.as_str())));
            if last {
                return Ok(days);
            }
        }
    }

    /// Indexes the current content of the file. Only logs errors, because the file is already written and the
    /// next consolidation indexes it again.
    async fn index_memory(&self, path: &FilePath) {
        if path.as_str() == MEMORY
            && let Err(error) = index_file(self.own.as_ref(), self.index.as_ref(), &self.facts, path).await
        {
            let Collection { tenant, agent, user, .. } = &self.facts;
            self.log.line(&json!({
                "event": "memory.not_indexed", "tenant": tenant, "agent": agent, "user": user, "cause": error.to_string(),
            }));
        }
    }
}

/// Makes the index match the current content of a user's `MEMORY.md`.
async fn index_file(
    own: &dyn Filesystem,
    index: &dyn MemoryIndex,
    facts: &Collection,
    path: &FilePath,
) -> FileResult<()> {
    for _ in 0..MAX_ATTEMPTS {
        let file = match own.read(path).await {
            Ok(file) => Some(file),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let text = file.as_ref().map(|file| String::from_utf8_lossy(&file.bytes)).unwrap_or_default();
        let at = file.as_ref().map_or(Timestamp(0), |file| file.entry.updated_at);
        facts::replace_lines(index, facts, &text, at).await?;
        // A concurrent writer may have mixed its lines with these, so the index is only right if the file did
        // not change.
        let now = match own.read(path).await {
            Ok(file) => Some(file.entry.etag),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error),
        };
        if now == file.map(|file| file.entry.etag) {
            return Ok(());
        }
    }
    Err(FileError::Unavailable("the file kept changing while it was indexed".into()))
}

#[async_trait(?Send)]
impl Filesystem for MemoryFiles {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        let Some(name) = self.day_at(path) else { return self.own.read(path).await };
        let found = day_facts(self.index.as_ref(), &self.facts, name).await?;
        let newest = found.iter().max_by_key(|fact| fact.serial).ok_or(FileError::NotFound)?;
        let bytes = Bytes::from(render(name, &found));
        let (etag, updated_at) = (etag(&self.facts, newest.serial, found.len() as u64), newest.at);
        Ok(File { entry: Entry { path: path.clone(), bytes: bytes.len() as u64, etag, updated_at }, bytes })
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        if self.day_at(path).is_some() {
            return Err(FileError::ReadOnly);
        }
        let entry = self.own.write(path, bytes, condition).await?;
        self.index_memory(path).await;
        Ok(entry)
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        if self.day_at(path).is_some() {
            return Err(FileError::ReadOnly);
        }
        self.own.delete(path, condition).await?;
        self.index_memory(path).await;
        Ok(())
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        let mut entries = self.own.list(prefix, after, limit).await?;
        let days = self.days(prefix).await?;
        entries
            .extend(days.into_iter().filter(|entry| after.is_none_or(|after| entry.path.as_str() > after)));
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.truncate(limit);
        Ok(entries)
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        if self.day_at(from).or(self.day_at(to)).is_some() {
            return Err(FileError::ReadOnly);
        }
        let entry = self.own.rename(from, to).await?;
        self.index_memory(from).await;
        self.index_memory(to).await;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::memory::CollectionKind;

    #[test]
    fn an_etag_depends_on_the_log_and_its_owner() {
        let of = |tenant: &str, agent: &str| {
            let (tenant, agent, user) = (tenant.into(), agent.into(), "u".into());
            Collection { tenant, agent, user, kind: CollectionKind::Facts }
        };
        let one = etag(&of("t", "a"), 12, 3);
        assert!(one.len() == 32 && one.chars().all(|c| c.is_ascii_hexdigit()), "{one}");
        assert_eq!(one, etag(&of("t", "a"), 12, 3));
        for other in [
            etag(&of("t", "a"), 13, 3),
            etag(&of("t", "a"), 12, 2),
            etag(&of("ta", ""), 12, 3),
            etag(&of("s", "a"), 12, 3),
        ] {
            assert_ne!(one, other);
        }
    }
}
