//! `plan_write`.

use super::{MAX_PLAN, Plans, own_path, planning};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::filesystem::Precondition;
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// `plan_write`.
pub struct PlanWrite(pub(super) Plans);

/// What to write.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The whole plan, in Markdown.
    content: String,
}

impl Tool for PlanWrite {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "plan_write";
    const DESCRIPTION: &'static str =
        "Writes the plan of this session, in plan mode. It takes the place of all that was there.";
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
            return Err(ToolError::new(format!("a plan may have {MAX_PLAN} bytes, not {bytes}: shorten it")));
        }
        if cx.plan().is_some() {
            // What is written now nobody has approved.
            cx.switch_mode(None, None)?;
        }
        let path = own_path(&cx)?;
        let written = self.0.open(&cx).write(&path, args.content.into(), &Precondition::Any).await;
        let entry = written.map_err(|error| self.0.failed(&cx, &path, error))?;
        Ok(format!("wrote {} bytes to {path}", entry.bytes))
    }
}
