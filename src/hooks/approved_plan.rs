//! The `approved_plan` hook: reminds the model of the plan that the user has approved.
//!
//! The file may be rewritten after the approval, by the user, by a tool, or on behalf of a web page that the model has
//! read. So the reminder depends on its content at each step.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PreReasoning},
};
use crate::types::{FilePath, PlanRef, TurnError};
use crate::workspace::Workspaces;
use async_trait::async_trait;
use std::rc::Rc;

/// Priority 500. Reads the file before each model call, but only in sessions with an approved plan.
pub struct ApprovedPlan(pub Rc<Workspaces>);

impl ApprovedPlan {
    /// Returns whether the file is still the approved one. A file that cannot be read counts as changed.
    async fn is_unchanged(&self, plan: &PlanRef, cx: &RuntimeContext) -> bool {
        let Ok(path) = FilePath::parse(&plan.path) else { return false };
        let files = self.0.open_for(&cx.workspace(), None);
        files.read(&path).await.is_ok_and(|(file, _)| file.entry.etag == plan.etag)
    }
}

#[async_trait(?Send)]
impl Hook for ApprovedPlan {
    fn name(&self) -> &'static str {
        "approved_plan"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreReasoning]
    }

    fn priority(&self) -> i32 {
        500
    }

    async fn pre_reasoning(&self, event: &mut PreReasoning, cx: &RuntimeContext) -> Result<(), TurnError> {
        let Some(plan) = cx.session.state().guidance.plan.clone() else { return Ok(()) };
        let reminder = match self.is_unchanged(&plan, cx).await {
            true => format!("The user has approved the plan in `{}`: read it and follow it.", plan.path),
            false => format!(
                "The plan in `{}` has changed since the user approved it, so the approval no longer applies.",
                plan.path
            ),
        };
        event.request.volatile = format!("{}\n\n{reminder}", event.request.volatile);
        Ok(())
    }
}
