//! The `list_files`, `glob_files`, and `grep_files` tools.

use super::{FileAccess, FileToolError, Files, folder, joined, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::filesystem::Entry;
use crate::types::{Category, Effect, FilePath};
use crate::workspace::{
    Layer,
    pattern::Pattern,
    search::{self, Grep, MAX_PATTERN},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of files in one list.
const MAX_LISTED: usize = 200;

/// The `list_files` tool.
pub struct ListFiles(pub(super) Files);

/// The arguments of `list_files`.
#[derive(Deserialize, JsonSchema)]
pub struct ListArgs {
    /// The folder; the whole workspace if omitted.
    path: Option<String>,
    /// Lists the files after this path: the last one of the previous list.
    after: Option<String>,
}

impl Tool for ListFiles {
    type Args = ListArgs;
    type Output = String;
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str =
        "Lists the files of the workspace, or of a folder and its subfolders, with path and size.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &ListArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: ListArgs, cx: ToolContext) -> Result<String, ToolError> {
        let listed = cx.unless_canceled(list(&args, &self.0.open(&cx))).await?;
        listed.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn list(args: &ListArgs, access: &FileAccess) -> Result<String, FileToolError> {
    let prefix = folder(args.path.as_deref())?;
    let after = args.after.as_deref().map(path).transpose()?;
    let after = after.as_ref().map(FilePath::as_str);
    let listed = access.files.list(&prefix, after, MAX_LISTED + 1).await;
    let mut listed = listed.map_err(FileToolError::at(prefix.as_str()))?;
    let mut notes = Vec::new();
    if listed.len() > MAX_LISTED {
        listed.truncate(MAX_LISTED);
        notes.push("more files follow; set after to the last path of this list".to_owned());
    }
    Ok(joined(listed.iter().map(line), notes))
}

fn line((entry, layer): &(Entry, Layer)) -> String {
    let shared = if *layer == Layer::Shared { ", shared by all users" } else { "" };
    format!("{} ({} bytes{shared})", entry.path, entry.bytes)
}

/// The `glob_files` tool.
pub struct GlobFiles(pub(super) Files);

/// The arguments of `glob_files`.
#[derive(Deserialize, JsonSchema)]
pub struct GlobArgs {
    /// `*` matches anything within a name, `**` any folders, `?` one character; `{a,b}` and `[a-z]` work too.
    /// A pattern without a slash matches names in every folder.
    pattern: String,
    /// The folder to search; the whole workspace if omitted.
    path: Option<String>,
}

impl Tool for GlobFiles {
    type Args = GlobArgs;
    type Output = String;
    const NAME: &'static str = "glob_files";
    const DESCRIPTION: &'static str =
        "Finds files of the workspace by their paths, such as `*.md` or `skills/*/SKILL.md`.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &GlobArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: GlobArgs, cx: ToolContext) -> Result<String, ToolError> {
        let found = cx.unless_canceled(glob(&args, &self.0.open(&cx))).await?;
        found.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn glob(args: &GlobArgs, access: &FileAccess) -> Result<String, FileToolError> {
    check_glob(&args.pattern)?;
    let prefix = folder(args.path.as_deref())?;
    let found = access.files.glob(&prefix, &args.pattern, &mut access.pace()).await;
    let found = found.map_err(FileToolError::at(prefix.as_str()))?;
    Ok(joined(found.hits.iter().map(|(entry, _)| entry.path.to_string()), found.notes))
}

/// The `grep_files` tool.
pub struct GrepFiles(pub(super) Files);

/// The arguments of `grep_files`.
#[derive(Deserialize, JsonSchema)]
pub struct GrepArgs {
    /// A regular expression, such as `fn \w+\(` or `TODO|FIXME`. `\w`, `\d`, and `\b` match ASCII only.
    pattern: String,
    /// Whether the pattern is plain text instead of a regular expression.
    #[serde(default)]
    literal: bool,
    /// The folder or file to search; the whole workspace if omitted.
    path: Option<String>,
    /// Restricts the search to matching files, such as `*.md`.
    glob: Option<String>,
    /// Whether to ignore case.
    #[serde(default)]
    ignore_case: bool,
}

impl Tool for GrepFiles {
    type Args = GrepArgs;
    type Output = String;
    const NAME: &'static str = "grep_files";
    const DESCRIPTION: &'static str =
        "Finds lines in files of the workspace that match a regular expression. Returns path:line:text.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &GrepArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: GrepArgs, cx: ToolContext) -> Result<String, ToolError> {
        let found = cx.unless_canceled(grep(args, &self.0.open(&cx))).await?;
        found.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn grep(args: GrepArgs, access: &FileAccess) -> Result<String, FileToolError> {
    check_pattern(&args.pattern)?;
    args.glob.as_deref().map_or(Ok(()), check_glob)?;
    if args.pattern.contains('\n') {
        let fault = "the pattern must not contain a line break; lines are searched one by one";
        return Err(ToolError::new(fault).into());
    }
    let pattern = match args.literal {
        true => Pattern::literal(&args.pattern, args.ignore_case),
        false => Pattern::regex(&args.pattern, args.ignore_case),
    };
    let pattern = pattern.map_err(|fault| {
        let pattern = args.pattern.escape_debug();
        ToolError::new(format!(
            "`{pattern}` is not a regular expression: {fault}; set literal to search for it as plain text"
        ))
    })?;
    let failed = FileToolError::at(args.path.as_deref().unwrap_or("/"));
    let (prefix, files, mut pace) = (folder(args.path.as_deref())?, &access.files, access.pace());
    let grep = Grep { pattern, prefix, glob: args.glob };
    // A path may name a file or a folder.
    let file = match args.path.as_deref().and_then(|text| FilePath::parse(text).ok()) {
        Some(path) => files.find(&path).await.map_err(&failed)?,
        None => None,
    };
    let found = match file {
        Some((file, _)) => files.grep_file(&grep, file, &mut pace).await,
        None => files.grep(&grep, &mut pace).await,
    };
    let found = found.map_err(failed)?;
    let lines = found.hits.iter().map(|line| format!("{}:{}:{}", line.path, line.number, line.text));
    Ok(joined(lines, found.notes))
}

fn check_pattern(pattern: &str) -> Result<(), ToolError> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(ToolError::new(format!("a pattern must have 1 to {MAX_PATTERN} bytes")));
    }
    Ok(())
}

fn check_glob(pattern: &str) -> Result<(), ToolError> {
    check_pattern(pattern)?;
    search::check_glob(pattern)
        .map_err(|fault| ToolError::new(format!("invalid pattern `{}`: {fault}", pattern.escape_debug())))
}
