//! `write_file`.

use super::{Files, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{FileError, filesystem::Precondition};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// `write_file`.
pub struct WriteFile(pub(super) Files);

/// What to write.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The file, from the workspace's root.
    path: String,
    /// All that is to stand in it.
    content: String,
    /// Whether a file that is there already is replaced.
    #[serde(default)]
    overwrite: bool,
}

impl Tool for WriteFile {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a new text file into the workspace. A file that is there is only replaced with \
         `overwrite`; to change a part of it use edit_file.";
    const EFFECT: Effect = Effect::LocalWrite;
    // Writing once more what stands there is no fault, with or without `overwrite`.
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &Args) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let path = path(&args.path)?;
        let files = self.0.open(&cx);
        let condition = if args.overwrite { Precondition::Any } else { Precondition::CreateOnly };
        let content = bytes::Bytes::from(args.content);
        match files.write(&path, content.clone(), &condition).await {
            Ok(entry) => Ok(format!("wrote {} bytes to {path}", entry.bytes)),
            Err(FileError::Conflict) => match files.read(&path).await {
                Ok((file, _)) if file.bytes == content => Ok(format!("{path} holds exactly this already")),
                Ok((file, _)) => Err(ToolError::new(format!(
                    "`{path}` is there already, with {} bytes: read it and use edit_file, or write it with \
                     overwrite",
                    file.bytes.len()
                ))),
                Err(error) => Err(self.0.failed(&cx, path.as_str(), error)),
            },
            Err(error) => Err(self.0.failed(&cx, path.as_str(), error)),
        }
    }
}
