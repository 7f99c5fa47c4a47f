//! The `write_file` tool.

use super::{FileAccess, FileToolError, Files, checked, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, filesystem::Precondition};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `write_file` tool.
pub struct WriteFile(pub(super) Files);

/// The arguments of `write_file`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// Path of the file, from the workspace's root.
    path: String,
    /// The complete content of the file.
    content: String,
    /// Whether to replace an existing file.
    #[serde(default)]
    overwrite: bool,
}

impl Tool for WriteFile {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a new text file into the workspace. An existing file is replaced only if \
         `overwrite` is set. Use edit_file to change a part of a file.";
    const EFFECT: Effect = Effect::LocalWrite;
    // Writing the same content again succeeds, with or without `overwrite`.
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &Args) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        apply(args, &self.0.open(&cx)).await.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn apply(args: Args, access: &FileAccess) -> Result<String, FileToolError> {
    let (path, files) = (path(&args.path)?, &access.files);
    let failed = FileToolError::at(path.as_str());
    let condition = if args.overwrite { Precondition::Any } else { Precondition::CreateOnly };
    let content = bytes::Bytes::from(args.content);
    match files.write(&path, content.clone(), &condition).await {
        Ok(entry) => Ok(format!("wrote {} bytes to {path}{}", entry.bytes, checked(&path, &content))),
        Err(FileError::Conflict) => match files.read(&path).await {
            Ok((file, _)) if file.bytes == content => {
                Ok(format!("{path} already has exactly this content{}", checked(&path, &content)))
            }
            Ok((file, _)) => Err(ToolError::new(format!(
                "`{path}` already exists, with {} bytes; read it and use edit_file, or set overwrite to \
                 replace it",
                file.bytes.len()
            ))
            .into()),
            Err(error) => Err(failed(error)),
        },
        Err(error) => Err(failed(error)),
    }
}
