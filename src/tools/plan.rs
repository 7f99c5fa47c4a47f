//! Plans: a mode in which the agent only looks, a file that it writes the plan into, and the user's judgement of it.

mod exit;
mod judgement;
mod write;

use crate::agent::{DynTool, Tool, ToolContext, ToolError};
use crate::ports::{FileError, Log};
use crate::types::{Effect, FilePath, Mode, mode};
use crate::workspace::{Workspace, Workspaces};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub use exit::{PlanExit, SubmitPlan};
pub use write::PlanWrite;

/// Most bytes of a plan.
const MAX_PLAN: usize = 200_000;

/// The tools on plans.
pub fn family(workspaces: Rc<Workspaces>, log: Rc<dyn Log>) -> Vec<Rc<dyn DynTool>> {
    let plans = Plans { workspaces, log };
    vec![
        Rc::new(PlanEnter),
        Rc::new(PlanWrite(plans.clone())),
        Rc::new(PlanExit(plans.clone())),
        Rc::new(SubmitPlan(plans)),
    ]
}

/// Where plans are.
#[derive(Clone)]
pub struct Plans {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
}

impl Plans {
    /// The workspace of the call's user. Right before anything in it is changed, the call's gate is asked.
    fn open(&self, cx: &ToolContext) -> Workspace {
        let gate = cx.gate.clone();
        self.workspaces.open(&cx.tenant, &cx.agent, &cx.user, Some(Rc::new(move || gate.is_open())))
    }

    /// The text of a plan; none when there is no such file.
    async fn read(&self, path: &FilePath, cx: &ToolContext) -> Result<Option<String>, ToolError> {
        let file = match self.open(cx).read(path).await {
            Ok((file, _)) => file,
            Err(FileError::NotFound) => return Ok(None),
            Err(error) => return Err(self.failed(cx, path, error)),
        };
        if file.bytes.len() > MAX_PLAN {
            return Err(ToolError::new(format!("`{path}` is longer than the {MAX_PLAN} bytes of a plan")));
        }
        let text = std::str::from_utf8(&file.bytes);
        let text = text.map_err(|_| ToolError::new(format!("`{path}` is no text")))?;
        Ok(Some(text.to_owned()).filter(|text| !text.trim().is_empty()))
    }

    /// What the model is told about trouble with a file; our own goes to the log.
    fn failed(&self, cx: &ToolContext, path: &FilePath, error: FileError) -> ToolError {
        if let FileError::Unavailable(cause) = error {
            let (tenant, session) = (&cx.tenant, &cx.session);
            self.log.line(&json!({
                "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
            }));
            return ToolError::new("the file store does not answer: try again");
        }
        ToolError::new(format!("`{path}`: {error}"))
    }
}

/// The file that a session's plan is written into.
fn own_path(cx: &ToolContext) -> Result<FilePath, ToolError> {
    FilePath::parse(&format!("plans/{}.md", cx.session))
        .map_err(|error| ToolError::permanent(error.to_string()))
}

/// Fails where nothing is planned.
fn planning(cx: &ToolContext) -> Result<(), ToolError> {
    match cx.mode() {
        Some(mode) if mode.is_planning() => Ok(()),
        _ => Err(ToolError::new("this is only for plan mode: go there with plan_enter first")),
    }
}

/// `plan_enter`.
pub struct PlanEnter;

/// Takes nothing.
#[derive(Deserialize, JsonSchema)]
pub struct Args {}

impl Tool for PlanEnter {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "plan_enter";
    const DESCRIPTION: &'static str = "Goes into plan mode, where nothing but reading is possible: to find out and write \
         down what is to be done before it is done. Use it before work that is large, or hard to undo.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    // The user may have left the mode meanwhile.
    const VARIES: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, _args: Args, cx: ToolContext) -> Result<String, ToolError> {
        if !cx.mode().is_some_and(Mode::is_planning) {
            cx.switch_mode(Some(mode::PLAN), None)?;
        }
        let path = own_path(&cx)?;
        Ok(format!(
            "You are in plan mode. Look at what you need, write the plan with plan_write (it stands in `{path}`), and \
             call plan_exit when it is complete."
        ))
    }
}
