//! The `workspace_context` hook: reads files of the workspace before each model call and appends them to the
//! instructions: first those of the shared layer, then the user's own, marked as untrusted.
//!
//! The first read of a turn starts before its message is stored. An edit takes effect in the next turn, and in a running
//! turn within `CONTEXT_FRESH_MS`.

mod cut;
mod prompt;
#[cfg(test)]
mod tests;

use super::workspace_tools;
use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PreReasoning},
    settings::ContextSettings,
};
use crate::types::{FilePath, PathPrefix, TurnError, WorkspaceOwner};
use crate::workspace::{
    glance::{GlanceOptions, Step, WorkspaceGlance},
    layout,
};
use async_trait::async_trait;
use futures::{FutureExt, future::LocalBoxFuture};
use prompt::Prompt;
use std::{rc::Rc, time::Duration};

/// The name of the hook, and of a failed read of the workspace.
pub(super) const NAME: &str = "workspace_context";
/// Maximum time to read the files. After that, the last known versions are used.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of paths to list below `knowledge/` for each layer.
const MAX_LISTED: usize = 50;

/// Priority 900, after other changes to the prompt.
pub struct WorkspaceContext {
    glance: Rc<WorkspaceGlance>,
    prompt: Prompt,
    /// Whether a result is used more than once.
    is_cached: bool,
}

impl WorkspaceContext {
    /// Returns the files whose text acts on the agent like instructions, in the shared layer and in a user's.
    pub fn instruction_files(settings: &ContextSettings) -> Vec<FilePath> {
        let standard = [layout::AGENTS, layout::KNOWLEDGE_INDEX].into_iter();
        standard.filter_map(|path| FilePath::parse(path).ok()).chain(settings.files.iter().cloned()).collect()
    }

    /// Returns what to read for a request: the files that this hook shows, `tools.json`, and the skills if there are any.
    pub fn reads(settings: &ContextSettings, skills: bool) -> GlanceOptions {
        let prompt = Prompt::new(settings);
        let mut wanted = Self::instruction_files(settings);
        let memory = prompt.shows_memory().then(|| FilePath::parse(layout::MEMORY).ok());
        wanted.extend(memory.flatten());
        wanted.extend(FilePath::parse(layout::TOOLS).ok());
        wanted.sort();
        wanted.dedup();
        GlanceOptions {
            wanted,
            max_chars: prompt.max_file_chars().max(workspace_tools::MAX_CHARS),
            folder: PathPrefix::parse(layout::KNOWLEDGE).unwrap_or_default(),
            limit: MAX_LISTED,
            skills,
            fresh: settings.fresh,
            timeout: READ_TIMEOUT,
        }
    }

    /// Creates the hook for a glance at what [`WorkspaceContext::reads`].
    pub fn new(glance: Rc<WorkspaceGlance>, settings: &ContextSettings) -> Self {
        Self { glance, prompt: Prompt::new(settings), is_cached: !settings.fresh.is_zero() }
    }
}

/// Returns the step for which a hook reads the workspace.
pub(super) fn step_of(step: u32, cx: &RuntimeContext) -> Step {
    Step { workspace: cx.workspace(), turn: cx.turn().clone(), step }
}

#[async_trait(?Send)]
impl Hook for WorkspaceContext {
    fn name(&self) -> &'static str {
        NAME
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreReasoning]
    }

    fn priority(&self) -> i32 {
        900
    }

    fn prefetch(&self, workspace: &WorkspaceOwner) -> Option<LocalBoxFuture<'static, ()>> {
        let (glance, workspace) = (Rc::clone(&self.glance), workspace.clone());
        // `pre_reasoning` reads the result, or the failure, from the cache.
        let read = async move { drop(glance.read(&workspace).await) };
        self.is_cached.then(|| read.boxed_local())
    }

    async fn pre_reasoning(&self, event: &mut PreReasoning, cx: &RuntimeContext) -> Result<(), TurnError> {
        let (view, error) = self.glance.of_step(step_of(event.step, cx)).await;
        if let Some(error) = error {
            cx.state.sub_step_failed(self.name(), &error.to_string());
        }
        if let Some(context) = self.prompt.render(&view) {
            event.request.system.push_str("\n\n");
            event.request.system.push_str(&context);
        }
        Ok(())
    }
}
