//! The `memory_search` and `memory_get` tools.

use super::{MAX_OUTPUT, SearchArgs, Shared, owner};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, memory::CollectionKind};
use crate::types::{Category, Effect, FilePath, call::untrusted};
use crate::workspace::layout::{DAILY, MEMORY};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `memory_search` tool.
pub struct MemorySearch(pub(super) Shared);

impl Tool for MemorySearch {
    type Args = SearchArgs;
    type Output = String;
    const NAME: &'static str = "memory_search";
    const DESCRIPTION: &'static str = "Searches what is known about the user from all sessions: facts of the daily logs and \
         lines of MEMORY.md, best matches first. Use session_search for the wording of past conversations.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &SearchArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: SearchArgs, cx: ToolContext) -> Result<String, ToolError> {
        self.0.find(CollectionKind::Facts, args, cx, "no matching facts").await
    }
}

/// The `memory_get` tool.
pub struct MemoryGet(pub(super) Shared);

/// The arguments of `memory_get`.
#[derive(Deserialize, JsonSchema)]
pub struct GetArgs {
    /// `MEMORY.md`, or a daily log such as `memory/2026-11-20.md`.
    path: String,
    /// The first line to read, starting at 1.
    start_line: Option<usize>,
    /// The last line to read.
    end_line: Option<usize>,
}

impl Tool for MemoryGet {
    type Args = GetArgs;
    type Output = String;
    const NAME: &'static str = "memory_get";
    const DESCRIPTION: &'static str =
        "Reads lines of MEMORY.md or of a daily log under memory/, with their numbers.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &GetArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: GetArgs, cx: ToolContext) -> Result<String, ToolError> {
        let elsewhere =
            || ToolError::new("only MEMORY.md and files under memory/ can be read here; use read_file");
        let path = FilePath::parse(&args.path).map_err(|_| elsewhere())?;
        if path.as_str() != MEMORY && !path.as_str().starts_with(DAILY) {
            return Err(elsewhere());
        }
        let text = cx.unless_canceled(self.0.memories.read(&owner(&cx)?, &path)).await?;
        let text = text.map_err(|error| match error {
            FileError::NotFound => ToolError::new(format!("{path} does not exist yet")),
            error => self.0.down(&cx, &error),
        })?;
        let (start, end) = (args.start_line.unwrap_or(1).max(1), args.end_line.unwrap_or(usize::MAX));
        let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut lines: Vec<String> = Vec::new();
        let mut room = MAX_OUTPUT;
        for (number, line) in numbered.filter(|(number, _)| (start..=end).contains(number)) {
            let line = format!("{number}|{line}");
            match room.checked_sub(line.chars().count() + 1) {
                Some(left) => room = left,
                None => {
                    lines.push(format!("[more lines follow from line {number}]"));
                    break;
                }
            }
            lines.push(line);
        }
        if lines.is_empty() {
            return Err(ToolError::new(format!(
                "{path} has {} lines, none of them in the requested range",
                text.lines().count()
            )));
        }
        Ok(untrusted(&lines.join("\n")))
    }
}
