//! Finding files and lines, in what is there now. Every search is bounded, and says so when it
//! ends at a bound.

use super::{
    Layer, Workspace,
    pattern::{Pattern, TooMuch, Work},
};
use crate::ports::filesystem::{Entry, FileResult};
pub use crate::types::glob::check as check_glob;
use crate::types::{FilePath, PathPrefix};

/// Files whose paths one search looks at.
pub const MAX_LISTED: usize = 5_000;
/// Files that one search finds, and lines.
pub const MAX_HITS: usize = 200;
/// Files that one search reads.
pub const MAX_READ: usize = 500;
/// Bytes that one search reads.
pub const MAX_BYTES: u64 = 8 << 20;
/// Bytes of text times bytes of the expression that one search goes through: an expression of a kilobyte
/// sees all that is read, and the worst take a few seconds.
pub const MAX_WORK: u64 = MAX_BYTES << 10;
/// Longest pattern, in bytes.
pub const MAX_PATTERN: usize = 200;
/// Bytes of a line that are shown.
const MAX_LINE: usize = 300;
/// Entries that are asked for at once.
const PAGE: usize = 500;
/// Files that are read at once.
const READ_AT_ONCE: usize = 16;

/// What a search has found, and at which bounds it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// What was found, by path.
    pub hits: Vec<T>,
    /// What was left out, in words; nothing when that is all there is.
    pub notes: Vec<String>,
}

/// A line that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub path: FilePath,
    /// The number of the line, from 1.
    pub number: usize,
    /// The line, or what of it stands around the first place that fits.
    pub text: String,
}

/// What lines to look for, and where.
#[derive(Debug)]
pub struct Grep {
    /// What stands in them.
    pub needle: Needle,
    /// Where to look.
    pub prefix: PathPrefix,
    /// Which files, as in [`fits`]; all when absent.
    pub glob: Option<String>,
    /// How much work it may take: see [`Work`].
    pub max_work: u64,
}

impl Grep {
    fn wants(&self, path: &FilePath) -> bool {
        self.glob.as_deref().is_none_or(|glob| fits(glob, &self.prefix, path))
    }
}

/// What stands in a line.
#[derive(Debug)]
pub enum Needle {
    /// This text.
    Text(String),
    /// What fits this expression.
    Pattern(Pattern),
}

impl Needle {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn pattern(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        let is_plain = !pattern.contains(|c| r"\.[](){}|*+?^$".contains(c));
        match is_plain && !ignore_case {
            // The same, and many times as fast.
            true => Ok(Self::Text(pattern.to_owned())),
            false => Pattern::parse(pattern, ignore_case).map(Self::Pattern),
        }
    }

    /// Takes a text as it stands.
    ///
    /// # Errors
    /// When it is too long to ignore case in.
    pub fn text(text: &str, ignore_case: bool) -> Result<Self, String> {
        if !ignore_case {
            return Ok(Self::Text(text.to_owned()));
        }
        let escaped =
            text.chars().flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]));
        Pattern::parse(&escaped.collect::<String>(), true).map(Self::Pattern)
    }

    /// Where it stands in a line.
    fn find(&self, line: &str, work: &mut Work) -> Result<Option<usize>, TooMuch> {
        match self {
            Self::Text(text) => Ok(line.find(text)),
            Self::Pattern(pattern) => pattern.find(line, work),
        }
    }
}

/// Whether a path, seen from the folder in which the search began, fits a pattern with `*`, `**`, `?`,
/// `[a-z]` and `{a,b}`. A pattern without a slash is about names in any folder.
pub fn fits(pattern: &str, folder: &PathPrefix, path: &FilePath) -> bool {
    let inside = path.as_str().strip_prefix(folder.as_str()).unwrap_or(path.as_str());
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    let subject = if pattern.contains('/') { inside } else { path.name() };
    fast_glob::glob_match(pattern, subject)
}

impl Workspace {
    /// Finds files by their paths.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn glob(&self, folder: &PathPrefix, pattern: &str) -> FileResult<Found<(Entry, Layer)>> {
        let mut found = self.select(folder, |path| fits(pattern, folder, path)).await?;
        if found.hits.len() > MAX_HITS {
            found.hits.truncate(MAX_HITS);
            found.notes.push(format!("more than {MAX_HITS} files fit: the rest is left out"));
        }
        Ok(found)
    }

    /// Finds lines by what stands in them.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn grep(&self, grep: &Grep) -> FileResult<Found<Line>> {
        let Found { hits, notes } = self.select(&grep.prefix, |path| grep.wants(path)).await?;
        self.lines(grep, hits.into_iter().map(|(entry, _)| entry).collect(), notes).await
    }

    /// Finds lines of one file, wherever it is.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn grep_file(&self, grep: &Grep, file: Entry) -> FileResult<Found<Line>> {
        let entries = if grep.wants(&file.path) { vec![file] } else { Vec::new() };
        self.lines(grep, entries, Vec::new()).await
    }

    /// The lines that fit in these files.
    async fn lines(
        &self,
        grep: &Grep,
        entries: Vec<Entry>,
        mut notes: Vec<String>,
    ) -> FileResult<Found<Line>> {
        let mut bytes = 0;
        let within = |entry: &&Entry| {
            bytes += entry.bytes;
            bytes <= MAX_BYTES
        };
        let read: Vec<FilePath> =
            entries.iter().take(MAX_READ).take_while(within).map(|entry| entry.path.clone()).collect();
        if read.len() < entries.len() {
            let (read, all) = (read.len(), entries.len());
            notes.push(format!("only the first {read} of {all} files were read: name a folder or a glob"));
        }
        let (mut hits, mut not_text, mut work) = (Vec::new(), 0, Work { left: grep.max_work });
        'files: for paths in read.chunks(READ_AT_ONCE) {
            for file in self.read_many(paths).await? {
                let Ok(text) = std::str::from_utf8(&file.bytes) else {
                    not_text += 1;
                    continue;
                };
                for (index, line) in text.lines().enumerate() {
                    let Ok(found) = grep.needle.find(line, &mut work) else {
                        let path = &file.entry.path;
                        notes.push(format!(
                            "too much work: given up in {path}; ask for less, or with a simpler pattern"
                        ));
                        break 'files;
                    };
                    let Some(at) = found else { continue };
                    if hits.len() == MAX_HITS {
                        notes.push(format!("more than {MAX_HITS} lines fit: the rest is left out"));
                        break 'files;
                    }
                    let path = file.entry.path.clone();
                    hits.push(Line { path, number: index + 1, text: around(line, at) });
                }
            }
        }
        if not_text > 0 {
            notes.push(format!("{not_text} files that are not text were left out"));
        }
        Ok(Found { hits, notes })
    }

    /// All files below a prefix that are wanted, as far as the list goes.
    async fn select(
        &self,
        prefix: &PathPrefix,
        wanted: impl Fn(&FilePath) -> bool,
    ) -> FileResult<Found<(Entry, Layer)>> {
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
                notes.push(format!("only the first {listed} files were looked at: name a folder"));
                break;
            }
        }
        Ok(Found { hits, notes })
    }
}

/// A line that is short enough, or the part of it around this place.
fn around(line: &str, at: usize) -> String {
    if line.len() <= MAX_LINE {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(MAX_LINE / 3));
    let end = line.ceil_char_boundary((start + MAX_LINE).min(line.len()));
    let (before, behind) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{behind}", line.get(start..end).unwrap_or_default())
}
