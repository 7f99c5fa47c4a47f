//! Tools for plans: plan mode, the plan's file, and its review by the user.

mod exit;
mod write;

use crate::agent::{DynTool, Tool, ToolContext, ToolError};
use crate::ports::{FileError, Log};
use crate::types::{Effect, FilePath, Mode, Owner, mode};
use crate::workspace::{Workspace, Workspaces};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub use exit::{PlanExit, SubmitPlan};
pub use write::PlanWrite;

/// Maximum size of a plan, in bytes.
const MAX_PLAN: usize = 200_000;

/// Creates the plan tools.
pub fn family(workspaces: Rc<Workspaces>, log: Rc<dyn Log>) -> Vec<Rc<dyn DynTool>> {
    let plans = Plans { workspaces, log };
    vec![
        Rc::new(PlanEnter),
        Rc::new(PlanWrite(plans.clone())),
        Rc::new(PlanExit(plans.clone())),
        Rc::new(SubmitPlan(plans)),
    ]
}

/// The workspaces that hold plans, and the log for failures.
#[derive(Clone)]
pub struct Plans {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
}

/// The file of a plan.
struct PlanFile {
    text: String,
    etag: String,
}

impl Plans {
    /// Opens the workspace of the call's session. The call's gate is checked immediately before each
    /// change.
    fn open(&self, cx: &ToolContext) -> Workspace {
        let gate = cx.gate.clone();
        self.workspaces.open_for(&cx.workspace, Some(Rc::new(move || gate.is_open())))
    }

    /// Reads a plan. Returns `None` if the file does not exist or is blank.
    async fn read(&self, path: &FilePath, cx: &ToolContext) -> Result<Option<PlanFile>, ToolError> {
        let file = match self.open(cx).read(path).await {
            Ok((file, _)) => file,
            Err(FileError::NotFound) => return Ok(None),
            Err(error) => return Err(self.failed(cx, path, error)),
        };
        if file.bytes.len() > MAX_PLAN {
            return Err(ToolError::new(format!(
                "`{path}` is too large; a plan may have at most {MAX_PLAN} bytes"
            )));
        }
        let text = std::str::from_utf8(&file.bytes);
        let text = text.map_err(|_| ToolError::new(format!("`{path}` is not text")))?;
        let plan = PlanFile { text: text.to_owned(), etag: file.entry.etag.clone() };
        Ok(Some(plan).filter(|plan| !plan.text.trim().is_empty()))
    }

    /// Returns the text of a file; empty if there is none.
    async fn text(&self, owner: &Owner, path: &FilePath) -> Result<String, FileError> {
        match self.workspaces.open(&owner.tenant, &owner.agent, &owner.user, None).read(path).await {
            Ok((file, _)) if file.bytes.len() <= MAX_PLAN => {
                Ok(String::from_utf8_lossy(&file.bytes).into_owned())
            }
            Ok((file, _)) => Err(FileError::TooLarge(file.bytes.len())),
            Err(FileError::NotFound) => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Converts a file error to a message for the model. The cause of a failed store goes to the log.
    fn failed(&self, cx: &ToolContext, path: &FilePath, error: FileError) -> ToolError {
        if let FileError::Unavailable(cause) = error {
            let (tenant, session) = (&cx.tenant, &cx.session);
            self.log.line(&json!({
                "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
            }));
            return ToolError::new("the file store is unavailable; try again");
        }
        ToolError::new(format!("`{path}`: {error}"))
    }
}

/// Returns the path of the session's own plan.
fn own_path(cx: &ToolContext) -> Result<FilePath, ToolError> {
    FilePath::parse(&format!("plans/{}.md", cx.session))
        .map_err(|error| ToolError::permanent(error.to_string()))
}

/// Fails outside plan mode.
fn planning(cx: &ToolContext) -> Result<(), ToolError> {
    match cx.mode() {
        Some(mode) if mode.is_planning() => Ok(()),
        _ => Err(ToolError::new("available in plan mode only; call plan_enter first")),
    }
}

/// The `plan_enter` tool.
pub struct PlanEnter;

/// The tool has no arguments.
#[derive(Deserialize, JsonSchema)]
pub struct Args {}

impl Tool for PlanEnter {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "plan_enter";
    const DESCRIPTION: &'static str = "Switches to plan mode, in which you can only read, to work out and write down what to \
         do before doing it. Use it before work that is extensive or hard to undo.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    // The user may have switched the mode since the last call.
    const VARIES: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, _args: Args, cx: ToolContext) -> Result<String, ToolError> {
        if !cx.mode().is_some_and(Mode::is_planning) {
            cx.switch_mode(Some(mode::PLAN), None)?;
        }
        let path = own_path(&cx)?;
        Ok(format!(
            "You are in plan mode. Gather the information you need, write the plan with plan_write (stored in `{path}`), \
             and call plan_exit when it is complete."
        ))
    }
}
