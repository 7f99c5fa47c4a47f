//! The `memory_save` tool.

use super::{Shared, owner};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::memory::facts::{self, MAX_FACT, NewFact};
use crate::ports::FileError;
use crate::types::{Category, Effect, EventKind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::rc::Rc;

/// The `memory_save` tool. A call that runs twice stores the fact once, because the fact's id is derived from
/// the call.
pub struct MemorySave(pub(super) Shared);

/// The arguments of `memory_save`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// One fact about the user, understandable without context, with absolute dates.
    text: String,
}

impl Tool for MemorySave {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "memory_save";
    const DESCRIPTION: &'static str =
        "Saves a fact about the user for all later sessions, in today's log and in MEMORY.md.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let text = facts::line(&args.text);
        if text.is_empty() || args.text.trim().chars().count() > MAX_FACT {
            return Err(ToolError::new(format!("a fact must have 1 to {MAX_FACT} characters; save several")));
        }
        let fact = NewFact {
            id: facts::id_of(&[&cx.session, &cx.turn, &cx.call_id], &text),
            text: text.clone(),
            at: cx.clock.now(),
            session: Some(cx.session.clone()),
            speaker: None,
        };
        let gate = cx.gate.clone();
        let guard = Rc::new(move || gate.is_open());
        let saved = self.0.memories.save(&owner(&cx)?, fact, guard).await;
        saved.map_err(|error| match error {
            FileError::Quota(quota) => ToolError::new(quota.to_string()),
            error => self.0.down(&cx, &error),
        })?;
        cx.record(EventKind::MemoryFlushed { facts: 1 })?;
        Ok(format!("remembered: {text}"))
    }
}
