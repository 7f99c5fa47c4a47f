//! The `move_file` and `delete_file` tools.

use super::{FileAccess, FileToolError, Files, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, filesystem::Precondition};
use crate::types::{Category, Effect};
use crate::workspace::Layer;
use schemars::JsonSchema;
use serde::Deserialize;

/// The `move_file` tool.
pub struct MoveFile(pub(super) Files);

/// The arguments of `move_file`.
#[derive(Deserialize, JsonSchema)]
pub struct MoveArgs {
    /// Path of the file, from the workspace's root.
    from: String,
    /// The new path, which must not exist.
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
        rename(&args, &self.0.open(&cx)).await.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn rename(args: &MoveArgs, access: &FileAccess) -> Result<String, FileToolError> {
    let (from, to) = (path(&args.from)?, path(&args.to)?);
    match access.files.rename(&from, &to).await {
        Ok(_) => Ok(format!("moved {from} to {to}")),
        Err(FileError::Conflict) => {
            Err(ToolError::new(format!("`{to}` already exists; choose another path or delete it")).into())
        }
        Err(error) => Err(FileToolError::at(from.as_str())(error)),
    }
}

/// The `delete_file` tool.
pub struct DeleteFile(pub(super) Files);

/// The arguments of `delete_file`.
#[derive(Deserialize, JsonSchema)]
pub struct DeleteArgs {
    /// Path of the file, from the workspace's root.
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
        delete(&args, &self.0.open(&cx)).await.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn delete(args: &DeleteArgs, access: &FileAccess) -> Result<String, FileToolError> {
    let (path, files) = (path(&args.path)?, &access.files);
    let failed = FileToolError::at(path.as_str());
    match files.find(&path).await.map_err(&failed)? {
        None => return Ok(format!("no such file: {path}; nothing to delete")),
        Some((_, Layer::Shared)) => {
            let fault = format!("`{path}` is shared by all users and cannot be deleted here");
            return Err(ToolError::new(fault).into());
        }
        Some((_, Layer::User)) => {}
    }
    files.delete(&path, &Precondition::Any).await.map_err(&failed)?;
    match files.find(&path).await.map_err(&failed)? {
        Some(_) => Ok(format!("deleted {path}; the version shared by all users is visible again")),
        None => Ok(format!("deleted {path}")),
    }
}
