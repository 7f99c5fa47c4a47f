//! The tools that the runners of a run have.

use edge_harness::agent::{DynTool, HarnessBuilder, ToolContext};
use edge_harness::types::{Category, Effect, Invalid, ToolOutcome, ToolSpec, WaitKind};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde_json::{Value, json};
use std::rc::Rc;

/// The tool that verifies changes.
pub const VERIFY: &str = "local_verify";
/// Name, category, effect, and whether another runner may repeat a call.
const TOOLS: &[(&str, Category, Effect, bool)] = &[
    ("local_repo_tree", Category::Read, Effect::ReadOnly, true),
    ("local_shell", Category::Execute, Effect::Destructive, false),
    ("local_apply_patch", Category::Edit, Effect::LocalWrite, false),
    (VERIFY, Category::Execute, Effect::LocalWrite, false),
];

/// Returns whether a runner may repeat a call of another one.
pub fn is_repeatable(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.0 == name && tool.3)
}

/// Adds the tools to an agent.
pub fn install(mut builder: HarnessBuilder) -> HarnessBuilder {
    for (name, category, effect, repeats) in TOOLS {
        builder = builder.dyn_tool(Rc::new(RunnerTool(ToolSpec {
            name: (*name).into(),
            description: "A runner has it.".into(),
            parameters: json!({ "type": "object" }).into(),
            effect: *effect,
            idempotent: true,
            retry_on_timeout: false,
            varies: true,
            category: *category,
            control: false,
            suspends: Some(WaitKind::External),
            client_may_repeat: *repeats,
        })));
    }
    builder
}

struct RunnerTool(ToolSpec);

impl DynTool for RunnerTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn check(&self, _: &Value) -> Result<Vec<String>, Invalid> {
        Ok(vec![self.0.name.clone()])
    }

    fn call<'a>(&'a self, _: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        let outcome = match cx.answer {
            Some(result) => ToolOutcome::Result { result },
            None => ToolOutcome::failure("no result"),
        };
        ready(outcome).boxed_local()
    }
}
