//! Searches for files and lines. Every search is bounded, and pauses regularly; a result notes which bounds
//! were reached.

use super::{
    Layer, Workspace,
    pace::{Pace, WorkExceeded},
    pattern::{Matcher, Pattern},
};
use crate::ports::filesystem::{Entry, File, FileResult};
pub use crate::types::glob::check as check_glob;
use crate::types::{FilePath, PathPrefix, glob};

/// Maximum number of files, or of lines, in a result.
pub const MAX_HITS: usize = 200;
/// Maximum length of a pattern, in bytes.
pub const MAX_PATTERN: usize = 200;
/// Maximum length of a line in a result, in bytes.
const MAX_LINE: usize = 300;
/// Number of entries per list request.
const PAGE: usize = 500;
/// Number of files per read request.
const READ_BATCH: usize = 16;
/// Work of matching one byte of a path or glob pattern, as measured with the slowest patterns.
const GLOB_WORK: u64 = 4;
/// Number of bytes of text that are decoded in one unit of work.
const DECODED_PER_WORK: u64 = 4;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult<T> {
    /// Matches, sorted by path.
    pub hits: Vec<T>,
    /// What the result leaves out, in words; empty when it is complete.
    pub notes: Vec<String>,
}

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineMatch {
    /// The file.
    pub path: FilePath,
    /// Line number, starting at 1.
    pub number: usize,
    /// The line, or the part of it around the end of the first match.
    pub text: String,
}

/// A search for lines.
#[derive(Debug)]
pub struct Grep {
    /// What the lines must contain.
    pub pattern: Pattern,
    /// Files to search.
    pub prefix: PathPrefix,
    /// Pattern for paths, as in [`matches_glob`]; all files when absent.
    pub glob: Option<String>,
}

/// Returns whether a path, relative to `folder`, matches a glob pattern with `*`, `**`, `?`, `[a-z]` and
/// `{a,b}`. A pattern without a slash is matched against file names in any folder.
pub fn matches_glob(pattern: &str, folder: &PathPrefix, path: &FilePath) -> bool {
    let inside = path.as_str().strip_prefix(folder.as_str()).unwrap_or(path.as_str());
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let subject = if pattern.contains('/') { inside } else { path.name() };
    fast_glob::glob_match(pattern, subject)
}

/// A glob pattern, relative to a folder.
struct Glob<'a> {
    pattern: &'a str,
    folder: &'a PathPrefix,
    alternatives: u64,
}

impl<'a> Glob<'a> {
    fn new(pattern: &'a str, folder: &'a PathPrefix) -> Self {
        Self { pattern, folder, alternatives: glob::alternatives(pattern) }
    }

    /// Returns whether a path matches.
    async fn matches(&self, path: &FilePath, pace: &mut Pace) -> Result<bool, WorkExceeded> {
        let bytes = (self.pattern.len() + path.as_str().len()) as u64;
        // Counted first, because the match cannot be interrupted.
        pace.spend((bytes * GLOB_WORK).saturating_mul(self.alternatives)).await?;
        Ok(matches_glob(self.pattern, self.folder, path))
    }
}

impl Workspace {
    /// Finds files by path.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn glob(
        &self,
        folder: &PathPrefix,
        pattern: &str,
        pace: &mut Pace,
    ) -> FileResult<SearchResult<(Entry, Layer)>> {
        let mut found = self.select(folder, Some(pattern), pace).await?;
        if found.hits.len() > MAX_HITS {
            found.hits.truncate(MAX_HITS);
            found.notes.push(format!("more than {MAX_HITS} files match; the rest are left out"));
        }
        Ok(found)
    }

    /// Finds lines by content.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn grep(&self, grep: &Grep, pace: &mut Pace) -> FileResult<SearchResult<LineMatch>> {
        let selected = self.select(&grep.prefix, grep.glob.as_deref(), pace).await?;
        let entries = selected.hits.into_iter().map(|(entry, _)| entry).collect();
        self.lines(grep, entries, selected.notes, pace).await
    }

    /// Finds lines of a single file.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn grep_file(
        &self,
        grep: &Grep,
        file: Entry,
        pace: &mut Pace,
    ) -> FileResult<SearchResult<LineMatch>> {
        // One path is little work.
        let is_included =
            grep.glob.as_deref().is_none_or(|glob| matches_glob(glob, &grep.prefix, &file.path));
        let entries = if is_included { vec![file] } else { Vec::new() };
        self.lines(grep, entries, Vec::new(), pace).await
    }

    /// Searches these files for matching lines.
    async fn lines(
        &self,
        grep: &Grep,
        mut entries: Vec<Entry>,
        mut notes: Vec<String>,
        pace: &mut Pace,
    ) -> FileResult<SearchResult<LineMatch>> {
        let (found, largest) = (entries.len(), pace.limits.file);
        entries.retain(|entry| entry.bytes <= largest);
        if entries.len() < found {
            notes.push(format!("{} files of more than {largest} bytes were left out", found - entries.len()));
        }
        let mut bytes = 0;
        let within = |entry: &&Entry| {
            bytes += entry.bytes;
            bytes <= pace.limits.bytes
        };
        let read: Vec<FilePath> = entries
            .iter()
            .take(pace.limits.files)
            .take_while(within)
            .map(|entry| entry.path.clone())
            .collect();
        if read.len() < entries.len() {
            let (read, all) = (read.len(), entries.len());
            notes.push(format!(
                "only the first {read} of {all} files were searched; narrow the folder or the glob"
            ));
        }
        let mut matcher = grep.pattern.matcher();
        let (mut hits, mut not_text) = (Vec::new(), 0);
        'files: for paths in read.chunks(READ_BATCH) {
            for file in self.read_many(paths).await? {
                match search_file(&file, &mut matcher, &mut hits, pace).await {
                    Ok(()) => {}
                    Err(Stopped::NotText) => not_text += 1,
                    Err(Stopped::TooManyHits) => {
                        notes.push(format!("more than {MAX_HITS} lines match; the rest are left out"));
                        break 'files;
                    }
                    Err(Stopped::WorkExceeded(limit)) => {
                        notes.push(format!("the search stopped in {} {limit}", file.entry.path));
                        break 'files;
                    }
                }
            }
        }
        if not_text > 0 {
            notes.push(format!("{not_text} binary files were skipped"));
        }
        Ok(SearchResult { hits, notes })
    }

    /// Lists the files below a prefix that match a glob pattern, within the limit of examined paths.
    async fn select(
        &self,
        prefix: &PathPrefix,
        glob: Option<&str>,
        pace: &mut Pace,
    ) -> FileResult<SearchResult<(Entry, Layer)>> {
        let glob = glob.map(|pattern| Glob::new(pattern, prefix));
        let (mut hits, mut notes, mut listed) = (Vec::new(), Vec::new(), 0);
        let mut after: Option<FilePath> = None;
        'pages: loop {
            let page = self.list(prefix, after.as_ref().map(FilePath::as_str), PAGE).await?;
            let is_last = page.len() < PAGE;
            listed += page.len();
            after = page.last().map(|(entry, _)| entry.path.clone()).or(after);
            for found in page {
                let matches = match &glob {
                    Some(glob) => glob.matches(&found.0.path, pace).await,
                    None => Ok(true),
                };
                match matches {
                    Ok(true) => hits.push(found),
                    Ok(false) => {}
                    Err(limit) => {
                        notes.push(format!("the search for files stopped at {} {limit}", found.0.path));
                        break 'pages;
                    }
                }
            }
            if is_last {
                break;
            }
            if listed >= pace.limits.listed {
                notes.push(format!("only the first {listed} files were examined; name a folder"));
                break;
            }
        }
        Ok(SearchResult { hits, notes })
    }
}

/// Why a file was not searched to its end.
enum Stopped {
    NotText,
    TooManyHits,
    WorkExceeded(WorkExceeded),
}

impl From<WorkExceeded> for Stopped {
    fn from(limit: WorkExceeded) -> Self {
        Self::WorkExceeded(limit)
    }
}

/// Adds the matching lines of a file to `hits`.
async fn search_file(
    file: &File,
    matcher: &mut Matcher<'_>,
    hits: &mut Vec<LineMatch>,
    pace: &mut Pace,
) -> Result<(), Stopped> {
    pace.spend(file.bytes.len() as u64 / DECODED_PER_WORK).await?;
    let text = std::str::from_utf8(&file.bytes).map_err(|_| Stopped::NotText)?;
    for (index, line) in text.lines().enumerate() {
        let Some(at) = matcher.find(line, pace).await? else { continue };
        if hits.len() == MAX_HITS {
            return Err(Stopped::TooManyHits);
        }
        let path = file.entry.path.clone();
        hits.push(LineMatch { path, number: index + 1, text: excerpt(line, at) });
    }
    Ok(())
}

/// Returns a line, or the part of it around the end of a match if it is too long.
fn excerpt(line: &str, at: usize) -> String {
    if line.len() <= MAX_LINE {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(MAX_LINE * 2 / 3));
    let end = line.ceil_char_boundary((start + MAX_LINE).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", line.get(start..end).unwrap_or_default())
}
