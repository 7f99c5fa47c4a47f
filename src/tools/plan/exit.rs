//! The `plan_exit` and `submit_plan` tools, which show a plan to the user for approval.

use super::{Plans, own_path, planning};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{BoxError, Effect, FilePath, Invalid, Owner, PlanRef, PlanReview, WaitKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The `plan_exit` tool.
pub struct PlanExit(pub(super) Plans);

/// The arguments of `plan_exit`.
#[derive(Deserialize, JsonSchema)]
pub struct ExitArgs {
    /// A summary of the plan, in a few sentences.
    summary: Option<String>,
}

impl Tool for PlanExit {
    type Args = ExitArgs;
    type Output = String;
    const NAME: &'static str = "plan_exit";
    const DESCRIPTION: &'static str = "Shows the user the plan written with plan_write, and waits for approval or \
         rejection. Approval ends plan mode.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    // The user may review the same plan differently the next time.
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<WaitKind> = Some(WaitKind::Plan);

    async fn suspension_payload(
        &self,
        args: &ExitArgs,
        cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        planning(cx)?;
        let path = own_path(cx)?;
        let plan = self.0.read(&path, cx).await?;
        let plan =
            plan.ok_or_else(|| ToolError::new("there is no plan yet; write it with plan_write first"))?;
        Ok(Some(json!({"path": path, "plan": plan.text, "summary": args.summary})))
    }

    fn check_answer(&self, _args: &ExitArgs, answer: &Value) -> Result<(), Invalid> {
        PlanReview::read(answer).map(drop)
    }

    async fn changed_payload(
        &self,
        answer: &Value,
        shown: &Value,
        owner: &Owner,
    ) -> Result<Option<Value>, BoxError> {
        changed_plan(&self.0, answer, shown, owner).await
    }

    async fn run(&self, _args: ExitArgs, cx: ToolContext) -> Result<String, ToolError> {
        apply_review(&self.0, &own_path(&cx)?, &cx).await
    }
}

/// The `submit_plan` tool.
pub struct SubmitPlan(pub(super) Plans);

/// The arguments of `submit_plan`.
#[derive(Deserialize, JsonSchema)]
pub struct SubmitArgs {
    /// Path of the plan file, from the workspace's root.
    path: String,
}

impl Tool for SubmitPlan {
    type Args = SubmitArgs;
    type Output = String;
    const NAME: &'static str = "submit_plan";
    const DESCRIPTION: &'static str =
        "Shows the user a file of the workspace as the plan, and waits for approval or rejection.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<WaitKind> = Some(WaitKind::Plan);

    async fn suspension_payload(
        &self,
        args: &SubmitArgs,
        cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        let path = path(&args.path)?;
        let plan = self.0.read(&path, cx).await?;
        let plan = plan.ok_or_else(|| ToolError::new(format!("`{path}` does not exist or is empty")))?;
        Ok(Some(json!({"path": path, "plan": plan.text})))
    }

    fn check_answer(&self, _args: &SubmitArgs, answer: &Value) -> Result<(), Invalid> {
        PlanReview::read(answer).map(drop)
    }

    async fn changed_payload(
        &self,
        answer: &Value,
        shown: &Value,
        owner: &Owner,
    ) -> Result<Option<Value>, BoxError> {
        changed_plan(&self.0, answer, shown, owner).await
    }

    async fn run(&self, args: SubmitArgs, cx: ToolContext) -> Result<String, ToolError> {
        apply_review(&self.0, &path(&args.path)?, &cx).await
    }
}

fn path(text: &str) -> Result<FilePath, ToolError> {
    let path = FilePath::parse(text);
    path.map_err(|error| ToolError::new(format!("`{}` is not a valid path: {error}", text.escape_debug())))
}

/// Returns the payload with the plan as it is now, if an approval would be for another text.
async fn changed_plan(
    plans: &Plans,
    answer: &Value,
    shown: &Value,
    owner: &Owner,
) -> Result<Option<Value>, BoxError> {
    let is_approval = PlanReview::read(answer).is_ok_and(|review| review.approved);
    let (Some(path), Some(plan)) = (shown["path"].as_str(), shown["plan"].as_str()) else { return Ok(None) };
    if !is_approval {
        return Ok(None);
    }
    let now = plans.text(owner, &FilePath::parse(path)?).await?;
    Ok((now != plan).then(|| {
        let mut payload = shown.clone();
        payload["plan"] = now.into();
        payload
    }))
}

/// Applies the user's review, and describes it to the model.
async fn apply_review(plans: &Plans, path: &FilePath, cx: &ToolContext) -> Result<String, ToolError> {
    let PlanReview { approved, feedback } = PlanReview::read(cx.answer.as_ref().unwrap_or(&Value::Null))?;
    if approved {
        // A rerun after a crash must not switch the mode again, since the session may have left it.
        if cx.plan().is_none_or(|plan| plan.call_id != cx.call_id) {
            // The approval applies only to the text that the user was shown.
            let shown = plans.read(path, cx).await?;
            let Some(plan) = shown.filter(|plan| Some(plan.text.as_str()) == cx.shown["plan"].as_str())
            else {
                let changed =
                    format!("the plan in `{path}` has changed since it was shown to the user; ask again");
                return Err(ToolError::new(changed));
            };
            let plan = PlanRef { path: path.to_string(), call_id: cx.call_id.clone(), etag: plan.etag };
            let target = cx.mode().and_then(|mode| cx.modes.after_plan(mode)).map(|mode| mode.id.as_str());
            cx.switch_mode(target, Some(plan))?;
        }
    }
    let said = feedback.map(|feedback| format!(" The user says: {feedback}")).unwrap_or_default();
    Ok(match (approved, said.is_empty(), cx.mode()) {
        (true, _, Some(mode)) if mode.is_planning() => format!(
            "The user approved the plan in `{path}`. You are in mode `{}`, which cannot carry it out: stop here.{said}",
            mode.id
        ),
        (true, _, Some(mode)) => format!(
            "The user approved the plan in `{path}`. You are now in mode `{}`: carry out the plan.{said}",
            mode.id
        ),
        (true, _, None) => format!("The user approved the plan in `{path}`: carry it out.{said}"),
        (false, false, _) => format!("The user rejected the plan.{said} Revise it and ask again."),
        (false, true, _) => {
            "The user rejected the plan without a reason. Stop here and wait for the user's next message."
                .into()
        }
    })
}
