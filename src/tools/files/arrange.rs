//! `move_file`, `delete_file`.

use super::{Files, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, filesystem::Precondition};
use crate::types::{Category, Effect};
use crate::workspace::Layer;
use schemars::JsonSchema;
use serde::Deserialize;

/// `move_file`.
pub struct MoveFile(pub(super) Files);

/// What to move.
#[derive(Deserialize, JsonSchema)]
pub struct MoveArgs {
    /// The file, from the workspace's root.
    from: String,
    /// Its new path, where no file is.
    to: String,
}

impl Tool for MoveFile {
    type Args = MoveArgs;
    type Output = String;
    const NAME: &'static str = "move_file";
    const DESCRIPTION: &'static str = "Moves or renames a file of the workspace.";
    const EFFECT: Effect = Effect::LocalWrite;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &MoveArgs) -> Vec<String> {
        vec![key(&args.from), key(&args.to)]
    }

    async fn run(&self, args: MoveArgs, cx: ToolContext) -> Result<String, ToolError> {
        let (from, to) = (path(&args.from)?, path(&args.to)?);
        match self.0.open(&cx).rename(&from, &to).await {
            Ok(_) => Ok(format!("moved {from} to {to}")),
            Err(FileError::Conflict) => Err(ToolError::new(format!(
                "there is a file `{to}` already: choose another path or delete it"
            ))),
            Err(error) => Err(self.0.failed(&cx, from.as_str(), error)),
        }
    }
}

/// `delete_file`.
pub struct DeleteFile(pub(super) Files);

/// What to remove.
#[derive(Deserialize, JsonSchema)]
pub struct DeleteArgs {
    /// The file, from the workspace's root.
    path: String,
}

impl Tool for DeleteFile {
    type Args = DeleteArgs;
    type Output = String;
    const NAME: &'static str = "delete_file";
    const DESCRIPTION: &'static str = "Deletes a file of the workspace.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &DeleteArgs) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: DeleteArgs, cx: ToolContext) -> Result<String, ToolError> {
        let path = path(&args.path)?;
        let files = self.0.open(&cx);
        let failed = |error| self.0.failed(&cx, path.as_str(), error);
        match files.find(&path).await.map_err(failed)? {
            None => return Ok(format!("there is no file {path}; nothing to delete")),
            Some((_, Layer::Shared)) => {
                let fault = format!("`{path}` is shared by all users and cannot be deleted here");
                return Err(ToolError::new(fault));
            }
            Some((_, Layer::User)) => {}
        }
        files.delete(&path, &Precondition::Any).await.map_err(failed)?;
        match files.find(&path).await.map_err(failed)? {
            Some(_) => Ok(format!("deleted {path}; the one that all users share shows again")),
            None => Ok(format!("deleted {path}")),
        }
    }
}
