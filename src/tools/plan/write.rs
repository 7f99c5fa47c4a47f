//! The `plan_write` tool.

use super::{MAX_PLAN, Plans, own_path, planning};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::filesystem::Precondition;
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `plan_write` tool.
pub struct PlanWrite(pub(super) Plans);

/// The arguments of `plan_write`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The complete plan, in Markdown.
    content: String,
}

impl Tool for PlanWrite {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "plan_write";
    const DESCRIPTION: &'static str =
        "Writes the plan of this session, in plan mode. Replaces the previous plan.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;
    const CONTROL: bool = true;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        planning(&cx)?;
        if args.content.trim().is_empty() {
            return Err(ToolError::new("the plan is empty"));
        }
        if args.content.len() > MAX_PLAN {
            let bytes = args.content.len();
            return Err(ToolError::new(format!(
                "the plan has {bytes} bytes; at most {MAX_PLAN} are allowed; shorten it"
            )));
        }
        if cx.plan().is_some() {
            // The new text has not been approved.
            cx.switch_mode(None, None)?;
        }
        let path = own_path(&cx)?;
        let written = self.0.open(&cx).write(&path, args.content.into(), &Precondition::Any).await;
        let entry = written.map_err(|error| self.0.failed(&cx, &path, error))?;
        Ok(format!("wrote {} bytes to {path}", entry.bytes))
    }
}
