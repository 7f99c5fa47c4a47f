//! Searches for files and lines. Every search is bounded; a result notes which bounds were reached.

use super::{
    Layer, Workspace,
    pattern::{Pattern, WorkBudget, WorkExceeded},
};
use crate::ports::filesystem::{Entry, FileResult};
pub use crate::types::glob::check as check_glob;
use crate::types::{FilePath, Invalid, PathPrefix};

/// Maximum number of paths that one search examines.
pub const MAX_LISTED: usize = 5_000;
/// Maximum number of files, or of lines, in a result.
pub const MAX_HITS: usize = 200;
/// Maximum number of files that one search reads.
pub const MAX_READ: usize = 500;
/// Maximum number of bytes that one search reads.
pub const MAX_BYTES: u64 = 8 << 20;
/// Maximum work of one search, in bytes of text times bytes of the compiled expression. It suffices to match
/// a 1 kB expression against [`MAX_BYTES`]; the slowest searches take a few seconds.
pub const MAX_WORK: u64 = MAX_BYTES << 10;
/// Maximum length of a pattern, in bytes.
pub const MAX_PATTERN: usize = 200;
/// Maximum length of a line in a result, in bytes.
const MAX_LINE: usize = 300;
/// Number of entries per list request.
const PAGE: usize = 500;
/// Number of files per read request.
const READ_BATCH: usize = 16;

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
    /// The line, or the part of it around the first match.
    pub text: String,
}

/// A search for lines.
#[derive(Debug)]
pub struct Grep {
    /// What the lines must contain.
    pub pattern: LinePattern,
    /// Files to search.
    pub prefix: PathPrefix,
    /// Pattern for paths, as in [`matches_glob`]; all files when absent.
    pub glob: Option<String>,
    /// Work budget, in the unit of [`WorkBudget`].
    pub max_work: u64,
}

impl Grep {
    fn includes(&self, path: &FilePath) -> bool {
        self.glob.as_deref().is_none_or(|glob| matches_glob(glob, &self.prefix, path))
    }
}

/// What a line must contain.
#[derive(Debug)]
pub enum LinePattern {
    /// A literal text.
    Text(String),
    /// A match of a regular expression.
    Pattern(Pattern),
}

impl LinePattern {
    /// Parses a regular expression.
    ///
    /// # Errors
    /// Returns what is wrong with the expression.
    pub fn regex(pattern: &str, ignore_case: bool) -> Result<Self, Invalid> {
        let is_plain = !pattern.contains(|c| r"\.[](){}|*+?^$".contains(c));
        match is_plain && !ignore_case {
            // Equivalent, and many times faster.
            true => Ok(Self::Text(pattern.to_owned())),
            false => Pattern::parse(pattern, ignore_case).map(Self::Pattern),
        }
    }

    /// Searches for a literal text.
    ///
    /// # Errors
    /// Returns an error when the text is too long for a case-insensitive search.
    pub fn text(text: &str, ignore_case: bool) -> Result<Self, Invalid> {
        if !ignore_case {
            return Ok(Self::Text(text.to_owned()));
        }
        let escaped =
            text.chars().flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]));
        Pattern::parse(&escaped.collect::<String>(), true).map(Self::Pattern)
    }

    /// Returns the byte offset of the first match in a line.
    fn find(&self, line: &str, work: &mut WorkBudget) -> Result<Option<usize>, WorkExceeded> {
        match self {
            Self::Text(text) => Ok(line.find(text)),
            Self::Pattern(pattern) => pattern.find(line, work),
        }
    }
}

/// Returns whether a path, relative to `folder`, matches a glob pattern with `*`, `**`, `?`, `[a-z]` and
/// `{a,b}`. A pattern without a slash is matched against file names in any folder.
pub fn matches_glob(pattern: &str, folder: &PathPrefix, path: &FilePath) -> bool {
    let inside = path.as_str().strip_prefix(folder.as_str()).unwrap_or(path.as_str());
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let subject = if pattern.contains('/') { inside } else { path.name() };
    fast_glob::glob_match(pattern, subject)
}

impl Workspace {
    /// Finds files by path.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn glob(&self, folder: &PathPrefix, pattern: &str) -> FileResult<SearchResult<(Entry, Layer)>> {
        let mut found = self.select(folder, |path| matches_glob(pattern, folder, path)).await?;
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
    pub async fn grep(&self, grep: &Grep) -> FileResult<SearchResult<LineMatch>> {
        let SearchResult { hits, notes } = self.select(&grep.prefix, |path| grep.includes(path)).await?;
        self.lines(grep, hits.into_iter().map(|(entry, _)| entry).collect(), notes).await
    }

    /// Finds lines of a single file.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn grep_file(&self, grep: &Grep, file: Entry) -> FileResult<SearchResult<LineMatch>> {
        let entries = if grep.includes(&file.path) { vec![file] } else { Vec::new() };
        self.lines(grep, entries, Vec::new()).await
    }

    /// Searches these files for matching lines.
    async fn lines(
        &self,
        grep: &Grep,
        entries: Vec<Entry>,
        mut notes: Vec<String>,
    ) -> FileResult<SearchResult<LineMatch>> {
        let mut bytes = 0;
        let within = |entry: &&Entry| {
            bytes += entry.bytes;
            bytes <= MAX_BYTES
        };
        let read: Vec<FilePath> =
            entries.iter().take(MAX_READ).take_while(within).map(|entry| entry.path.clone()).collect();
        if read.len() < entries.len() {
            let (read, all) = (read.len(), entries.len());
            notes.push(format!(
                "only the first {read} of {all} files were searched; narrow the folder or the glob"
            ));
        }
        let (mut hits, mut not_text, mut work) = (Vec::new(), 0, WorkBudget { left: grep.max_work });
        'files: for paths in read.chunks(READ_BATCH) {
            for file in self.read_many(paths).await? {
                let Ok(text) = std::str::from_utf8(&file.bytes) else {
                    not_text += 1;
                    continue;
                };
                for (index, line) in text.lines().enumerate() {
                    let Ok(found) = grep.pattern.find(line, &mut work) else {
                        let path = &file.entry.path;
                        notes.push(format!(
                            "the search stopped in {path} at its work limit; narrow it or use a simpler pattern"
                        ));
                        break 'files;
                    };
                    let Some(at) = found else { continue };
                    if hits.len() == MAX_HITS {
                        notes.push(format!("more than {MAX_HITS} lines match; the rest are left out"));
                        break 'files;
                    }
                    let path = file.entry.path.clone();
                    hits.push(LineMatch { path, number: index + 1, text: excerpt(line, at) });
                }
            }
        }
        if not_text > 0 {
            notes.push(format!("{not_text} binary files were skipped"));
        }
        Ok(SearchResult { hits, notes })
    }

    /// Lists the files below a prefix that `wanted` accepts, within the limit of examined paths.
    async fn select(
        &self,
        prefix: &PathPrefix,
        wanted: impl Fn(&FilePath) -> bool,
    ) -> FileResult<SearchResult<(Entry, Layer)>> {
        let (mut hits, mut notes, mut listed) = (Vec::new(), Vec::new(), 0);
        let mut after: Option<FilePath> = None;
        loop {
            let page = self.list(prefix, after.as_ref().map(FilePath::as_str), PAGE).await?;
            let is_last = page.len() < PAGE;
            listed += page.len();
            after = page.last().map(|(entry, _)| entry.path.clone()).or(after);
            hits.extend(page.into_iter().filter(|(entry, _)| wanted(&entry.path)));
            if is_last {
                break;
            }
            if listed >= MAX_LISTED {
                notes.push(format!("only the first {listed} files were examined; name a folder"));
                break;
            }
        }
        Ok(SearchResult { hits, notes })
    }
}

/// Returns a line, or the part of it around a match if it is too long.
fn excerpt(line: &str, at: usize) -> String {
    if line.len() <= MAX_LINE {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(MAX_LINE / 3));
    let end = line.ceil_char_boundary((start + MAX_LINE).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", line.get(start..end).unwrap_or_default())
}
