//! The tools of a stage's agent.

use super::{Runs, ms};
use edge_harness::agent::{Tool, ToolContext, ToolError};
use edge_harness::types::Effect;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct Key {
    key: String,
}

/// An idempotent tool that takes 200 ms.
pub struct ReadIt;

impl Tool for ReadIt {
    type Args = Key;
    type Output = String;
    const NAME: &'static str = "read_it";
    const DESCRIPTION: &'static str = "Reads.";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn run(&self, args: Key, cx: ToolContext) -> Result<String, ToolError> {
        cx.clock.sleep(ms(200)).await;
        Ok(format!("read {}", args.key))
    }
}

/// A tool that is not idempotent. Counts its runs and takes 200 ms.
pub struct WriteIt(pub Runs);

impl Tool for WriteIt {
    type Args = Key;
    type Output = String;
    const NAME: &'static str = "write_it";
    const DESCRIPTION: &'static str = "Writes.";
    const EFFECT: Effect = Effect::LocalWrite;

    async fn run(&self, args: Key, cx: ToolContext) -> Result<String, ToolError> {
        *self.0.borrow_mut().entry(args.key.clone()).or_default() += 1;
        cx.clock.sleep(ms(200)).await;
        Ok(format!("wrote {}", args.key))
    }
}

/// A tool that fails.
pub struct FailIt;

impl Tool for FailIt {
    type Args = Key;
    type Output = String;
    const NAME: &'static str = "fail_it";
    const DESCRIPTION: &'static str = "Fails.";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn run(&self, args: Key, _cx: ToolContext) -> Result<String, ToolError> {
        Err(ToolError::new(format!("no {}", args.key)))
    }
}
