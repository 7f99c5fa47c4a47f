//! Tools for skills: load one, and propose one.

mod load;
mod propose;

use crate::agent::{DynTool, ToolContext, ToolError, settings::SkillSettings};
use crate::ports::{FileError, Log};
use crate::workspace::{Workspace, Workspaces};
use serde_json::json;
use std::rc::Rc;

pub use load::LoadSkill;
pub use propose::ProposeSkill;

/// Creates the tools that the settings enable.
pub fn family(
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
    settings: &SkillSettings,
) -> Vec<Rc<dyn DynTool>> {
    let skills = Skills { workspaces, log, settings: settings.clone() };
    let mut tools: Vec<Rc<dyn DynTool>> = Vec::new();
    if settings.enabled {
        tools.push(Rc::new(LoadSkill(skills.clone())));
        if settings.drafts {
            tools.push(Rc::new(ProposeSkill(skills)));
        }
    }
    tools
}

/// The workspaces that hold skills, which of these the agent has, and the log for failures.
#[derive(Clone)]
pub struct Skills {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
    settings: SkillSettings,
}

impl Skills {
    /// Opens the workspace of the call's session. The call's gate is checked immediately before each
    /// change.
    fn open(&self, cx: &ToolContext) -> Workspace {
        let gate = cx.gate.clone();
        self.workspaces.open_for(&cx.workspace, Some(Rc::new(move || gate.is_open())))
    }

    /// Returns whether the call's session may have the skill of this name.
    fn admits(&self, name: &str, cx: &ToolContext) -> bool {
        self.settings.admits(name) && cx.skills.admit(name)
    }

    /// Converts a file error to a message for the model. The cause of a failed store goes to the log.
    fn failed(&self, cx: &ToolContext, error: FileError) -> ToolError {
        if let FileError::Unavailable(cause) = error {
            let (tenant, session) = (&cx.tenant, &cx.session);
            self.log.line(&json!({
                "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
            }));
            return ToolError::new("the file store is unavailable; try again");
        }
        ToolError::new(error.to_string())
    }
}
