//! Tools for the user's memory and for the history of sessions.

mod save;
mod search;
mod sessions;

use crate::agent::{DynTool, ToolContext, ToolError};
use crate::memory::{Memories, search::Hit};
use crate::ports::{Directory, Log, memory::CollectionKind};
use crate::types::{Owner, call::untrusted};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub use save::MemorySave;
pub use search::{MemoryGet, MemorySearch};
pub use sessions::{SessionHistory, SessionList, SessionSearch};

/// Default number of hits.
const HITS: usize = 10;
const MAX_HITS: usize = 50;
/// Maximum number of characters in a result, small enough that it never becomes an artifact.
const MAX_OUTPUT: usize = 9_000;

/// The stores that the memory tools share.
#[derive(Clone)]
pub struct Shared {
    memories: Rc<Memories>,
    directory: Rc<dyn Directory>,
    log: Rc<dyn Log>,
}

/// Creates the memory tools.
pub fn family(
    memories: Rc<Memories>,
    directory: Rc<dyn Directory>,
    log: Rc<dyn Log>,
) -> Vec<Rc<dyn DynTool>> {
    let shared = Shared { memories, directory, log };
    vec![
        Rc::new(MemorySearch(shared.clone())),
        Rc::new(MemoryGet(shared.clone())),
        Rc::new(MemorySave(shared.clone())),
        Rc::new(SessionSearch(shared.clone())),
        Rc::new(SessionList(shared.clone())),
        Rc::new(SessionHistory(shared)),
    ]
}

/// The arguments of a search.
#[derive(Deserialize, JsonSchema)]
pub struct SearchArgs {
    /// Words to search for.
    query: String,
    /// Maximum number of hits: 10 by default, at most 50.
    limit: Option<usize>,
}

impl Shared {
    /// Searches a collection and renders the hits for the model.
    async fn find(
        &self,
        kind: CollectionKind,
        args: SearchArgs,
        cx: ToolContext,
        nothing: &str,
    ) -> Result<String, ToolError> {
        let owner = owner(&cx)?;
        // What the user said in this session is then found as well.
        cx.finish_follow_ups().await?;
        let found = self.memories.search(&owner, kind, &args.query, limit(args.limit));
        let hits = cx.unless_canceled(found).await?.map_err(|error| self.down(&cx, &error))?;
        Ok(joined(hits.iter().map(line), nothing))
    }

    /// Creates the error for a failed store, and logs its cause.
    fn down(&self, cx: &ToolContext, cause: &dyn ToString) -> ToolError {
        self.log.line(&json!({
            "event": "memory.unavailable", "tenant": cx.tenant, "session": cx.session, "cause": cause.to_string(),
        }));
        ToolError::new("the memory is unavailable; try again")
    }
}

/// Returns the owner of the memory.
///
/// # Errors
/// In a subagent with a workspace of its own, because the memory has files of the user.
fn owner(cx: &ToolContext) -> Result<Owner, ToolError> {
    match &cx.workspace.session {
        None => Ok(cx.workspace.owner.clone()),
        Some(_) => Err(ToolError::permanent("a subagent with a workspace of its own has no memory")),
    }
}

fn limit(asked: Option<usize>) -> usize {
    asked.unwrap_or(HITS).clamp(1, MAX_HITS)
}

/// Joins as many lines as fit into a result, and marks them as untrusted.
fn joined(lines: impl IntoIterator<Item = String>, nothing: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for line in lines {
        chars += line.chars().count() + 1;
        if chars > MAX_OUTPUT {
            text.push_str("[more hits left out; narrow the request]\n");
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    if text.is_empty() { nothing.to_owned() } else { untrusted(text.trim_end()) }
}

/// Renders a hit as one line: where it is from, and its text.
fn line(hit: &Hit) -> String {
    let entry = &hit.entry;
    let at = entry.at.to_rfc3339();
    let day = at.get(..10).unwrap_or_default();
    match (&entry.session, &entry.speaker) {
        (Some(session), Some(speaker)) => format!("[{day}, session {session}] {speaker}: {}", entry.text),
        (Some(session), None) => format!("[{day}, session {session}] {}", entry.text),
        (None, _) if entry.key.contains('#') => format!("[{}] {}", entry.key, entry.text),
        (None, _) => format!("[{day}] {}", entry.text),
    }
}
