//! The `echo` tool: the simplest possible tool, for experiments.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `echo` tool.
pub struct Echo;

/// The arguments of `echo`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The text to return.
    text: String,
}

impl Tool for Echo {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "echo";
    const DESCRIPTION: &'static str = "Returns the given text.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    /// None: the tool has no side effects.
    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, _cx: ToolContext) -> Result<String, ToolError> {
        Ok(args.text)
    }
}
