//! Says what it is told: the simplest tool there is, for trying things out.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// `echo`.
pub struct Echo;

/// What to say.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The text to give back.
    text: String,
}

impl Tool for Echo {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "echo";
    const DESCRIPTION: &'static str = "Gives back the text it is given.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    /// It touches nothing.
    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, _cx: ToolContext) -> Result<String, ToolError> {
        Ok(args.text)
    }
}
