//! `plan_exit` and `submit_plan`: a plan is shown to the user, who approves or rejects it.

use super::{Plans, judgement::Judgement, own_path, planning};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Effect, FilePath, PendingKind, PlanRef};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// `plan_exit`.
pub struct PlanExit(pub(super) Plans);

/// How to leave plan mode.
#[derive(Deserialize, JsonSchema)]
pub struct ExitArgs {
    /// The plan in a few sentences.
    summary: Option<String>,
}

impl Tool for PlanExit {
    type Args = ExitArgs;
    type Output = String;
    const NAME: &'static str = "plan_exit";
    const DESCRIPTION: &'static str = "Shows the user the plan that was written with plan_write, and waits for the \
         judgement. When it is approved plan mode ends.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    // The same plan may be judged otherwise the next time.
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<PendingKind> = Some(PendingKind::Plan);

    async fn suspension_payload(
        &self,
        args: &ExitArgs,
        cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        planning(cx)?;
        let path = own_path(cx)?;
        let plan = self.0.read(&path, cx).await?;
        let plan =
            plan.ok_or_else(|| ToolError::new("there is no plan yet: write it with plan_write first"))?;
        Ok(Some(json!({"path": path, "plan": plan, "summary": args.summary})))
    }

    fn check_answer(&self, _args: &ExitArgs, answer: &Value) -> Result<(), String> {
        Judgement::read(answer).map(drop)
    }

    async fn run(&self, _args: ExitArgs, cx: ToolContext) -> Result<String, ToolError> {
        judged(&self.0, &own_path(&cx)?, &cx).await
    }
}

/// `submit_plan`.
pub struct SubmitPlan(pub(super) Plans);

/// Which plan.
#[derive(Deserialize, JsonSchema)]
pub struct SubmitArgs {
    /// The plan's file, from the workspace's root.
    path: String,
}

impl Tool for SubmitPlan {
    type Args = SubmitArgs;
    type Output = String;
    const NAME: &'static str = "submit_plan";
    const DESCRIPTION: &'static str =
        "Shows the user a file of the workspace as the plan, and waits for the judgement.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<PendingKind> = Some(PendingKind::Plan);

    async fn suspension_payload(
        &self,
        args: &SubmitArgs,
        cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        let path = path(&args.path)?;
        let plan = self.0.read(&path, cx).await?;
        let plan =
            plan.ok_or_else(|| ToolError::new(format!("there is no file `{path}`, or it is empty")))?;
        Ok(Some(json!({"path": path, "plan": plan})))
    }

    fn check_answer(&self, _args: &SubmitArgs, answer: &Value) -> Result<(), String> {
        Judgement::read(answer).map(drop)
    }

    async fn run(&self, args: SubmitArgs, cx: ToolContext) -> Result<String, ToolError> {
        judged(&self.0, &path(&args.path)?, &cx).await
    }
}

fn path(text: &str) -> Result<FilePath, ToolError> {
    let path = FilePath::parse(text);
    path.map_err(|error| ToolError::new(format!("`{}` is not a path: {error}", text.escape_debug())))
}

/// Does what the user's judgement asks for, and tells the model.
async fn judged(plans: &Plans, path: &FilePath, cx: &ToolContext) -> Result<String, ToolError> {
    let Judgement { approved, feedback } =
        Judgement::read(cx.answer.as_ref().unwrap_or(&Value::Null)).map_err(ToolError::new)?;
    if approved {
        let plan = PlanRef { path: path.to_string(), call_id: cx.call_id.clone() };
        // Once: after a crash the mode that was entered then is the one to stay in.
        if cx.plan().as_ref() != Some(&plan) {
            // What was approved is what was shown.
            if plans.read(path, cx).await?.as_deref() != cx.shown["plan"].as_str() {
                let changed =
                    format!("the plan in `{path}` has changed since the user was shown it: ask again");
                return Err(ToolError::new(changed));
            }
            let target = cx.mode().and_then(|mode| cx.modes.after_plan(mode)).map(|mode| mode.id.as_str());
            cx.switch_mode(target, Some(plan))?;
        }
    }
    let said = feedback.map(|feedback| format!(" The user says: {feedback}")).unwrap_or_default();
    Ok(match (approved, said.is_empty(), cx.mode()) {
        (true, _, Some(mode)) if mode.is_planning() => format!(
            "The user has approved the plan in `{path}`. It is not carried out in mode `{}`: stop here.{said}",
            mode.id
        ),
        (true, _, Some(mode)) => format!(
            "The user has approved the plan in `{path}`. You are in mode `{}` now: carry the plan out.{said}",
            mode.id
        ),
        (true, _, None) => format!("The user has approved the plan in `{path}`: carry it out.{said}"),
        (false, false, _) => format!("The user has rejected the plan.{said} Change it, and ask again."),
        (false, true, _) => {
            "The user has rejected the plan and not said why. Stop here, and wait for what the user says."
                .into()
        }
    })
}
