//! Memory of the user: found, read, added to; and what was said in sessions.

mod recall;
mod save;
mod sessions;

use crate::agent::{DynTool, ToolContext, ToolError};
use crate::memory::{Memories, search::Hit};
use crate::ports::{Directory, Log, memory::CollectionKind};
use crate::types::{Owner, call::untrusted};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub use recall::{MemoryGet, MemorySearch};
pub use save::MemorySave;
pub use sessions::{SessionHistory, SessionList, SessionSearch};

/// Hits unless the model says how many.
const HITS: usize = 10;
const MAX_HITS: usize = 50;
/// Most characters of an answer: it never becomes an artifact.
const MAX_ANSWER: usize = 9_000;

/// What the tools share.
#[derive(Clone)]
pub struct Shared {
    memories: Rc<Memories>,
    directory: Rc<dyn Directory>,
    log: Rc<dyn Log>,
}

/// The tools on memory.
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

/// What to find.
#[derive(Deserialize, JsonSchema)]
pub struct SearchArgs {
    /// Words that it is about.
    query: String,
    /// How many: 10 unless given, 50 at most.
    limit: Option<usize>,
}

impl Shared {
    /// What a search finds, for the model.
    async fn find(
        &self,
        kind: CollectionKind,
        args: SearchArgs,
        cx: ToolContext,
        nothing: &str,
    ) -> Result<String, ToolError> {
        let owner = owner(&cx);
        let found = self.memories.search(&owner, kind, &args.query, limit(args.limit));
        let hits = cx.unless_canceled(found).await?.map_err(|error| self.down(&cx, &error))?;
        Ok(answer(hits.iter().map(line), nothing))
    }

    /// What the model is told when a store does not answer; why goes to the log.
    fn down(&self, cx: &ToolContext, cause: &dyn ToString) -> ToolError {
        self.log.line(&json!({
            "event": "memory.unavailable", "tenant": cx.tenant, "session": cx.session, "cause": cause.to_string(),
        }));
        ToolError::new("the memory does not answer: try again")
    }
}

fn owner(cx: &ToolContext) -> Owner {
    Owner { tenant: cx.tenant.clone(), agent: cx.agent.clone(), user: cx.user.clone() }
}

fn limit(asked: Option<usize>) -> usize {
    asked.unwrap_or(HITS).clamp(1, MAX_HITS)
}

/// Lines, as many as fit into an answer. They are what somebody said, and marked as that.
fn answer(lines: impl IntoIterator<Item = String>, nothing: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for line in lines {
        chars += line.chars().count() + 1;
        if chars > MAX_ANSWER {
            text.push_str("[more does not fit: ask for less]\n");
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    if text.is_empty() { nothing.to_owned() } else { untrusted(text.trim_end()) }
}

/// A hit in a line: where it is from, and what it says.
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
