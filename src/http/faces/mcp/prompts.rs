//! The modes of the agents as prompts: what a mode adds to the instructions of an agent.

use super::fault::Fault;
use super::message::Asked;
use super::rpc::{Failure, cached};
use crate::http::gateway::GatewayConfig;
use crate::types::Mode;
use serde_json::{Value, json};

/// How long a client may cache the list, in milliseconds: it changes with the deployment.
const LIST_TTL_MS: u64 = 300_000;

/// Returns the modes with instructions.
fn modes(config: &GatewayConfig) -> impl Iterator<Item = (&Mode, &str)> {
    config.modes.iter().filter_map(|mode| Some((mode, mode.instructions.as_deref()?)))
}

/// `prompts/list`.
pub(super) fn list(config: &GatewayConfig, asked: &Asked) -> Value {
    let prompts = modes(config).map(|(mode, _)| {
        let mut prompt = json!({
            "name": mode.id,
            "arguments": [{"name": "task", "description": "What to do in this mode.", "required": false}],
        });
        for (field, value) in [("title", &mode.name), ("description", &mode.description)] {
            if let Some(value) = value {
                prompt[field] = value.as_str().into();
            }
        }
        prompt
    });
    cached(asked, LIST_TTL_MS, json!({ "prompts": prompts.collect::<Vec<_>>() }))
}

/// `prompts/get`.
pub(super) fn get(config: &GatewayConfig, asked: &Asked) -> Result<Value, Failure> {
    let name =
        asked.text("name").ok_or_else(|| Fault::invalid_params("`name` must be the name of a prompt"))?;
    let found = modes(config).find(|(mode, _)| mode.id == name);
    let (mode, instructions) =
        found.ok_or_else(|| Fault::invalid_params(&format!("unknown prompt {name:?}")))?;
    let task = asked.params.get("arguments").and_then(|args| args.get("task")).and_then(Value::as_str);
    let text = task.map_or_else(|| instructions.to_owned(), |task| format!("{instructions}\n\n{task}"));
    let mut prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]});
    if let Some(description) = &mode.description {
        prompt["description"] = description.as_str().into();
    }
    Ok(prompt)
}
