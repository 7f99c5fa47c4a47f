//! The `current_time` tool.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `current_time` tool.
pub struct CurrentTime;

/// The tool has no arguments.
#[derive(Deserialize, JsonSchema)]
pub struct Args {}

/// The current time as text and as a number.
#[derive(Serialize)]
pub struct Now {
    utc: String,
    unix_ms: u64,
}

impl Tool for CurrentTime {
    type Args = Args;
    type Output = Now;
    const NAME: &'static str = "current_time";
    const DESCRIPTION: &'static str = "Returns the current date and time in UTC.";
    const EFFECT: Effect = Effect::ReadOnly;
    const VARIES: bool = true;
    const CATEGORY: Category = Category::Read;

    /// None: the tool has no side effects.
    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, _args: Args, cx: ToolContext) -> Result<Now, ToolError> {
        let now = cx.clock.now();
        Ok(Now { utc: now.to_rfc3339(), unix_ms: now.0 })
    }
}
