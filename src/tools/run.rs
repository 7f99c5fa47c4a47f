//! The tools of runs. [`RunModel`](crate::runs::RunModel) calls them; no language model is offered them.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, Log, filesystem::Precondition};
use crate::runs::{ARTIFACT, PLAN, Run, is_mermaid};
use crate::session::artifacts::ArtifactError;
use crate::types::{ArtifactId, Category, Effect, FilePath};
use crate::workspace::Workspaces;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// Records a plan: the call itself is the record.
pub struct RunPlan;

/// The arguments of `run_plan`: a [`Plan`](crate::runs::Plan).
#[derive(Deserialize, JsonSchema)]
pub struct Recorded {
    /// The steps.
    steps: Vec<Value>,
}

impl Tool for RunPlan {
    type Args = Recorded;
    type Output = String;
    const NAME: &'static str = PLAN;
    const DESCRIPTION: &'static str = "Records the plan of the run.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;
    const CONTROL: bool = true;
    const VARIES: bool = true;

    async fn run(&self, plan: Recorded, _cx: ToolContext) -> Result<String, ToolError> {
        Ok(format!("recorded {} steps", plan.steps.len()))
    }
}

/// Writes a file of the run into the user's workspace.
pub struct RunArtifact {
    /// The workspaces.
    pub files: Rc<Workspaces>,
    /// The log for failures.
    pub log: Rc<dyn Log>,
}

/// The arguments of `run_artifact`.
#[derive(Deserialize, JsonSchema)]
pub struct Artifact {
    /// The name of the file.
    name: String,
    /// The content.
    content: Option<String>,
    /// The artifact of the session that has the content, in its place.
    artifact: Option<ArtifactId>,
}

impl Tool for RunArtifact {
    type Args = Artifact;
    type Output = String;
    const NAME: &'static str = ARTIFACT;
    const DESCRIPTION: &'static str = "Writes a file of the run into the workspace.";
    const EFFECT: Effect = Effect::LocalWrite;
    // The same call writes the same content.
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;
    const CONTROL: bool = true;
    const VARIES: bool = true;

    async fn run(&self, args: Artifact, cx: ToolContext) -> Result<String, ToolError> {
        let path = FilePath::parse(&Run::path(&cx.session, &args.name))
            .map_err(|error| ToolError::permanent(error.to_string()))?;
        let content = match (&args.content, &args.artifact) {
            (Some(text), _) if args.name.ends_with(".mmd") && !is_mermaid(text) => {
                return Err(ToolError::new(
                    "the content is no diagram of Mermaid: it does not begin with a type of diagram, such as `flowchart TD`",
                ));
            }
            (Some(text), _) => text.clone().into(),
            (None, Some(id)) => {
                let failed = |error: ArtifactError| ToolError::new(error.to_string());
                let pointer = cx.artifacts.find(id).map_err(failed)?;
                cx.artifacts.read(&pointer, None).await.map_err(failed)?
            }
            (None, None) => return Err(ToolError::new("the content is missing")),
        };
        let gate = cx.gate.clone();
        let files = self.files.open_for(&cx.workspace, Some(Rc::new(move || gate.is_open())));
        match files.write(&path, content, &Precondition::Any).await {
            Ok(entry) => Ok(format!("wrote {} bytes to {path}", entry.bytes)),
            Err(FileError::Unavailable(cause)) => {
                self.log.line(&json!({
                    "event": "files.unavailable", "tenant": cx.tenant, "session": cx.session, "cause": cause,
                }));
                Err(ToolError::new("the file store is unavailable; try again"))
            }
            Err(error) => Err(ToolError::new(format!("`{path}`: {error}"))),
        }
    }
}
