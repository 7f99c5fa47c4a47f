//! What a response repeats of its request.

use super::super::openai::messages::Effort;
use crate::http::patch::or_default;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The form of the text.
#[derive(Deserialize)]
pub(super) struct TextOptions {
    format: Option<Format>,
    verbosity: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    Text,
    JsonObject,
    JsonSchema {
        #[serde(default)]
        name: String,
        #[serde(default)]
        description: Option<String>,
        schema: Value,
        #[serde(default, deserialize_with = "or_default")]
        strict: bool,
    },
}

impl TextOptions {
    /// Returns the options as the response repeats them.
    pub fn echo(&self) -> Value {
        let mut text = json!({"format": self.format.as_ref().unwrap_or(&Format::Text)});
        if let Some(verbosity) = &self.verbosity {
            text["verbosity"] = verbosity.as_str().into();
        }
        text
    }

    /// Returns the schema of the reply.
    pub fn schema(self) -> Option<Value> {
        match self.format? {
            Format::Text => None,
            Format::JsonObject => Some(json!({"type": "object"})),
            Format::JsonSchema { schema, .. } => Some(schema),
        }
    }
}

/// How the model should reason.
#[derive(Deserialize, Serialize)]
pub(super) struct Reasoning {
    pub effort: Option<Effort>,
    summary: Option<String>,
}

/// Returns a tool of the client with the fields that clients require of a response, although a request may omit them.
pub(super) fn whole_tool(mut tool: Value) -> Value {
    if let Some(tool) = tool.as_object_mut() {
        for name in ["description", "parameters", "strict"] {
            tool.entry(name).or_insert(Value::Null);
        }
    }
    tool
}

/// Returns the fields of a response whose request is not known, all of which clients require.
pub(super) fn defaults(model: &str) -> Value {
    json!({
        "model": model,
        "instructions": null,
        "previous_response_id": null,
        "store": true,
        "background": false,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "user": null,
        "temperature": 1.0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "truncation": "disabled",
        "service_tier": "default",
        "safety_identifier": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "text": {"format": {"type": "text"}},
    })
}
