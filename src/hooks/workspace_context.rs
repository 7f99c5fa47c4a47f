//! The `workspace_context` hook: reads files of the workspace before each model call and appends them to the
//! instructions, so that an edit takes effect in the next step.

mod cut;
mod prompt;
#[cfg(test)]
mod tests;

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PreReasoning},
    settings::ContextSettings,
};
use crate::ports::within;
use crate::types::{FilePath, PathPrefix, TurnError};
use crate::workspace::{
    Workspaces,
    glance::{GlanceOptions, WorkspaceGlance},
    layout,
};
use async_trait::async_trait;
use prompt::Prompt;
use std::time::Duration;

/// Maximum time to read the files. After that, the last known versions are used.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of paths to list below `knowledge/`, which are read from both trees at each step.
const MAX_LISTED: usize = 50;

/// Priority 900, after other changes to the prompt.
pub struct WorkspaceContext {
    glance: WorkspaceGlance,
    prompt: Prompt,
}

impl WorkspaceContext {
    /// Creates the hook for these workspaces.
    pub fn new(workspaces: &Workspaces, settings: &ContextSettings) -> Self {
        let prompt = Prompt::new(settings);
        let mut always = vec![layout::AGENTS, layout::KNOWLEDGE_INDEX];
        always.extend(prompt.shows_memory().then_some(layout::MEMORY));
        let mut wanted: Vec<FilePath> =
            always.into_iter().filter_map(|path| FilePath::parse(path).ok()).collect();
        wanted.extend(prompt.files().cloned());
        let options = GlanceOptions {
            wanted,
            max_chars: prompt.max_file_chars(),
            folder: PathPrefix::parse(layout::KNOWLEDGE).unwrap_or_default(),
            limit: MAX_LISTED,
        };
        Self { glance: workspaces.glance(options), prompt }
    }
}

#[async_trait(?Send)]
impl Hook for WorkspaceContext {
    fn name(&self) -> &'static str {
        "workspace_context"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreReasoning]
    }

    fn priority(&self) -> i32 {
        900
    }

    async fn pre_reasoning(&self, event: &mut PreReasoning, cx: &RuntimeContext) -> Result<(), TurnError> {
        let (tenant, agent, user) = (&cx.tenant, &cx.agent, &cx.user);
        let read = async { self.glance.read(tenant, agent, user).await.map_err(|error| error.to_string()) };
        let view = within(cx.clock.as_ref(), READ_TIMEOUT, read).await;
        let view = match view.unwrap_or_else(|unfinished| Err(unfinished.to_string())) {
            Ok(view) => view,
            Err(reason) => {
                cx.state.sub_step_failed(self.name(), &reason);
                self.glance.last(tenant, agent, user).await.unwrap_or_default()
            }
        };
        if let Some(context) = self.prompt.render(&view) {
            event.request.system.push_str("\n\n");
            event.request.system.push_str(&context);
        }
        Ok(())
    }
}
