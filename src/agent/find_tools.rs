//! Agents with many tools: each request offers a stable selection of them, and two tools that find and call the others.
//!
//! Providers cache the start of a prompt, which contains the tools. So what the model finds is not added to the offered
//! tools: it calls a found tool through `call_tool`, and the server turns this into a call of that tool before anything
//! else sees it. Permissions, modes, approvals and the log therefore treat it like any other call.

use super::{Tool, ToolContext, ToolError, Toolkit, toolkit::RESERVED};
use crate::turn::selector::{ToolIndex, ToolSelection};
use crate::types::{Category, Effect, Part, ToolCall, ToolSchema, ToolSpec, Tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::rc::Rc;

/// Number of tools, besides those that control the session, with which all of them are offered.
pub(super) const MAX_OFFERED: usize = 40;
/// Number of tools that are offered if there are more.
const OFFERED: usize = 25;
/// Maximum number of tools that one search returns.
const FOUND: usize = 8;
/// The tools that are always offered: they read what the prompt refers to.
const ALWAYS: [&str; 5] = [FindTools::NAME, CallTool::NAME, "read_artifact", "recall", "load_skill"];

/// Searches the tools that the session has.
pub(super) struct FindTools;

/// The arguments of `find_tools`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Search {
    /// What the tool should do, in a few words.
    query: String,
}

/// A tool that was found.
#[derive(Serialize)]
pub(super) struct Found {
    name: String,
    description: String,
    parameters: ToolSchema,
}

impl Tool for FindTools {
    type Args = Search;
    type Output = Vec<Found>;
    const NAME: &'static str = RESERVED[0];
    const DESCRIPTION: &'static str = "Finds further tools by what they do. You have more tools than are listed here: search \
                                       before you say that you cannot do something. Call a tool that you found with call_tool.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;
    const CONTROL: bool = true;

    fn resource_keys(&self, _args: &Search) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Search, cx: ToolContext) -> Result<Vec<Found>, ToolError> {
        let tools: Tools = cx.usable.iter().filter(|spec| !is_reserved(spec)).cloned().collect();
        let best = tools.iter().collect::<ToolIndex>().best(&args.query, &tools, FOUND);
        if best.is_empty() {
            return Err(ToolError::new("no tool has any of these words; describe the task in other words"));
        }
        let found = |spec: &ToolSpec| Found {
            name: spec.name.clone(),
            description: spec.description.clone(),
            parameters: spec.parameters.clone(),
        };
        Ok(best.into_iter().map(found).collect())
    }
}

/// Calls a tool that is not offered. [`unwrap`] replaces each valid call, so it runs only for others.
pub(super) struct CallTool;

/// The arguments of `call_tool`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Wrapped {
    /// The name of the tool.
    name: String,
    /// The arguments of the tool, in the form of its `parameters`.
    #[serde(default)]
    #[allow(dead_code, reason = "describes the form")]
    arguments: Map<String, Value>,
}

impl Tool for CallTool {
    type Args = Wrapped;
    type Output = String;
    const NAME: &'static str = RESERVED[1];
    const DESCRIPTION: &'static str = "Calls a tool that find_tools has found.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;

    async fn run(&self, args: Wrapped, _cx: ToolContext) -> Result<String, ToolError> {
        Err(ToolError::new(format!("there is no tool {:?}; search with find_tools", args.name)))
    }
}

/// Returns the names of the tools to offer in a session with this title, of those that it may use. They stay the same as
/// long as the title does, which is derived from the first message.
pub(super) fn offered(title: Option<&str>, tools: &[Rc<ToolSpec>], index: &ToolIndex) -> Vec<String> {
    let is_found = |spec: &&Rc<ToolSpec>| !is_reserved(spec);
    if tools.iter().filter(|spec| !spec.control).count() <= MAX_OFFERED {
        return tools.iter().filter(is_found).map(|spec| spec.name.clone()).collect();
    }
    let selection = ToolSelection { cap: OFFERED, always: ALWAYS.map(str::to_owned).into() };
    index.select(title.unwrap_or_default(), tools, &selection)
}

/// Returns whether this is one of the two tools that find and call the others.
fn is_reserved(spec: &ToolSpec) -> bool {
    RESERVED.contains(&spec.name.as_str())
}

/// Replaces each call of `call_tool` by a call of the tool that it names.
pub(super) fn unwrap(parts: &mut [Part], toolkit: &Toolkit) {
    for part in parts {
        if let Part::ToolCall(call) = part
            && call.name == CallTool::NAME
            && let Some((name, args)) = wrapped(call, toolkit)
        {
            (call.name, call.args) = (name, args);
        }
    }
}

fn wrapped(call: &ToolCall, toolkit: &Toolkit) -> Option<(String, Value)> {
    let name = call.args.get("name")?.as_str().filter(|name| toolkit.get(name).is_some())?;
    // `call_tool` within `call_tool` would stay as it is.
    if name == CallTool::NAME {
        return None;
    }
    let args = match call.args.get("arguments") {
        // Some models write objects as text.
        Some(Value::String(text)) => serde_json::from_str(text).ok()?,
        Some(args) => args.clone(),
        None => Value::Object(Map::new()),
    };
    Some((name.to_owned(), args))
}
