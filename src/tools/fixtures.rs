//! Tools that only the integration tests use.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

/// `sleep`: waits, and says so.
pub struct Sleep;

/// How long to wait.
#[derive(Deserialize, JsonSchema)]
pub struct SleepArgs {
    /// Milliseconds.
    ms: u64,
}

impl Tool for Sleep {
    type Args = SleepArgs;
    type Output = String;
    const NAME: &'static str = "sleep";
    const DESCRIPTION: &'static str = "Waits.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: &'static str = "read";

    async fn run(&self, args: SleepArgs, cx: ToolContext) -> Result<String, ToolError> {
        cx.clock.sleep(args.ms).await;
        Ok(format!("slept {} ms", args.ms))
    }
}

/// `counter`: counts how often it ran, in the outside world, and takes its time. Not idempotent.
pub struct Counter(pub std::rc::Rc<dyn crate::ports::Http>);

/// Where to count.
#[derive(Deserialize, JsonSchema)]
pub struct CounterArgs {
    /// A URL that counts its POSTs.
    url: String,
    /// Milliseconds to wait after the POST.
    #[serde(default)]
    ms: u64,
}

impl Tool for Counter {
    type Args = CounterArgs;
    type Output = String;
    const NAME: &'static str = "counter";
    const DESCRIPTION: &'static str = "Counts.";
    const EFFECT: Effect = Effect::Network;
    const CATEGORY: &'static str = "other";

    async fn run(&self, args: CounterArgs, cx: ToolContext) -> Result<String, ToolError> {
        let request =
            crate::ports::HttpRequest { method: "POST", url: args.url, headers: Vec::new(), body: None };
        let response = self.0.send(request).await.map_err(|error| ToolError::new(error.to_string()))?;
        drop(response);
        cx.clock.sleep(args.ms).await;
        Ok("counted".into())
    }
}

/// `panic`: a defect.
pub struct Panic;

/// Takes nothing.
#[derive(Deserialize, JsonSchema)]
pub struct PanicArgs {}

impl Tool for Panic {
    type Args = PanicArgs;
    type Output = String;
    const NAME: &'static str = "panic";
    const DESCRIPTION: &'static str = "Breaks.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: &'static str = "other";

    #[allow(clippy::panic)]
    async fn run(&self, _args: PanicArgs, _cx: ToolContext) -> Result<String, ToolError> {
        panic!("as asked")
    }
}
