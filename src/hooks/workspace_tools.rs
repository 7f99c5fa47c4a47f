//! The `workspace_tools` hook: applies `tools.json` of the shared layer, which says which tools the agents of a workspace have.
//!
//! Each request offers the tools that the file keeps, and no other tool runs. A malformed file keeps all tools and is listed
//! among the failed sub-steps of the turn. A file in the user's layer is ignored, so that users cannot undo what an operator
//! restricts.

#[cfg(test)]
mod tests;

use super::workspace_context::{self, step_of};
use crate::agent::{Hook, RuntimeContext, ToolFilter, hook::HookEvent};
use crate::types::{FilePath, json};
use crate::workspace::{
    glance::{FileStart, WorkspaceGlance},
    layout,
};
use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::{Map, Value};
use std::{rc::Rc, time::Duration};

/// Maximum length of the file, in characters.
pub const MAX_CHARS: usize = 16_000;
/// How long a call uses what was read before the request that led to it. A call that waited for longer uses the current file.
const READ_WITHIN: Duration = Duration::from_mins(1);

/// Reads before the requests are built, and so before the other hooks.
pub struct WorkspaceTools {
    /// The glance of `workspace_context`.
    glance: Rc<WorkspaceGlance>,
    path: FilePath,
}

impl WorkspaceTools {
    /// Creates the hook.
    pub fn new(glance: Rc<WorkspaceGlance>) -> Option<Self> {
        let path = FilePath::parse(layout::TOOLS).ok()?;
        Some(Self { glance, path })
    }
}

/// Returns the filter in the file, and lists its faults as failed sub-steps.
fn filter(file: Option<&FileStart>, cx: &RuntimeContext) -> ToolFilter {
    let Some(file) = file.filter(|file| file.entry.bytes > 0) else { return ToolFilter::default() };
    let (filter, fault) = parse(file);
    if let Some(fault) = fault {
        cx.state.sub_step_failed(layout::TOOLS, &fault);
    }
    filter
}

impl Hook for WorkspaceTools {
    fn name(&self) -> &'static str {
        "workspace_tools"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreReasoning]
    }

    fn tool_filter<'a>(
        &'a self,
        step: Option<u32>,
        cx: &'a RuntimeContext,
    ) -> Option<LocalBoxFuture<'a, ToolFilter>> {
        let read = async move {
            let (file, error) = match step {
                Some(step) => {
                    let (view, error) = self.glance.read_for_step(step_of(step, cx)).await;
                    (view.shared.files.get(&self.path).cloned(), error)
                }
                None => self.glance.shared_file(&cx.workspace(), &self.path, READ_WITHIN).await,
            };
            if let Some(error) = error {
                cx.state.sub_step_failed(workspace_context::NAME, &error.to_string());
            }
            filter(file.as_ref(), cx)
        };
        Some(read.boxed_local())
    }
}

/// Reads the file as far as it is well-formed. Returns what is wrong with it, too.
fn parse(file: &FileStart) -> (ToolFilter, Option<String>) {
    if file.bytes.len() as u64 != file.entry.bytes {
        return (ToolFilter::default(), Some(format!("the file is longer than {MAX_CHARS} characters")));
    }
    let mut fields: Map<String, Value> = match serde_json::from_slice(&file.bytes) {
        Ok(fields) => fields,
        Err(error) => return (ToolFilter::default(), Some(error.to_string())),
    };
    // The servers are part of the agent when it is built.
    let servers = fields.remove("mcpServers").filter(|servers| !servers.is_object());
    let servers = servers.map(|_| "mcpServers: expected an object".to_owned());
    match json::from_value(Value::Object(fields)) {
        Ok(filter) => (filter, servers),
        Err(error) => (ToolFilter::default(), Some(error.to_string())),
    }
}
