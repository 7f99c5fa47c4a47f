//! The components of events. Each type of event has its own, and the unions of them have a discriminator.

use super::schemas::{Schemas, reference};
use crate::types::{Delta, Record, SubagentSource};
use serde_json::{Map, Value, json};

/// The type of an event of a subagent in the stream of its parent.
const SUBAGENT_EVENT: &str = "subagent.event";

/// Returns the schema of a stored event.
pub(super) fn record(schemas: &mut Schemas) -> Value {
    let all = schemas.inlined::<Record>();
    let names = add(schemas, &all, &[]);
    let text = "A stored event: a record of the session's log. `type` says which. A client ignores types that it does not \
                know: later versions have more.";
    schemas.add("Event", union(text, &names))
}

/// Returns the schema of an event of a stream in the form of Server-Sent Events.
pub(super) fn sent(schemas: &mut Schemas) -> Value {
    let data = json!({
        "type": "string", "contentMediaType": "application/json", "contentSchema": streamed(schemas),
    });
    let text = json!({ "type": "string" });
    let event = json!({
        "description": "One of the Server-Sent Events of a stream. `data` is a `StreamEvent` as JSON.",
        "type": "object",
        "properties": { "id": text, "event": text, "data": data },
        "required": ["data"],
    });
    schemas.add("ServerSentEvent", event)
}

/// Returns the schema of an event of a stream: a stored event, or a piece of a message that is being written.
fn streamed(schemas: &mut Schemas) -> Value {
    let records = schemas.inlined::<Record>();
    let mut names = add(schemas, &records, &[]);
    let deltas = json!({
        "type": "object",
        "properties": { "turn": { "type": "string", "description": "The turn." } },
        "required": ["turn"],
        "oneOf": schemas.inlined::<Delta>()["oneOf"],
    });
    let cursor =
        json!({ "type": "string", "description": "The id of the event: the position after this piece." });
    names.extend(add(schemas, &deltas, &[("message.delta", "cursor", cursor)]));
    let source = schemas.inlined::<SubagentSource>();
    let of_subagent = json!({
        "description": "An event of a subagent that works, in a stream with `subagents=true`. It is not stored here.",
        "type": "object",
        "properties": {
            "type": { "type": "string", "const": SUBAGENT_EVENT },
            "source": source,
            "event": reference("StreamEvent"),
        },
        "required": ["type", "source", "event"],
    });
    let name = component(SUBAGENT_EVENT);
    schemas.add(&name, of_subagent);
    names.push((SUBAGENT_EVENT.to_owned(), name));
    let text = "An event of a stream: a stored event, a delta, or an event of a subagent. The last two are not stored.";
    schemas.add("StreamEvent", union(text, &names))
}

/// Adds a component for each variant, with the fields that all have. Returns the types of the events and the names of
/// their components.
fn add(schemas: &mut Schemas, all: &Value, more: &[(&str, &str, Value)]) -> Vec<(String, String)> {
    let variants = all["oneOf"].as_array().cloned().unwrap_or_default();
    let mut names = Vec::new();
    for mut variant in variants {
        let kind = variant["properties"]["type"]["const"].as_str().unwrap_or_default().to_owned();
        let name = component(&kind);
        let mut properties = all["properties"].as_object().cloned().unwrap_or_default();
        properties.extend(variant["properties"].as_object().cloned().unwrap_or_default());
        for (_, name, schema) in more.iter().filter(|(of, ..)| *of == kind) {
            properties.insert((*name).to_owned(), schema.clone());
        }
        let own = variant["required"].as_array().cloned().unwrap_or_default();
        let mut required = all["required"].as_array().cloned().unwrap_or_default();
        required.extend(own);
        variant["properties"] = Value::Object(properties);
        variant["required"] = Value::Array(required);
        schemas.add(&name, variant);
        names.push((kind, name));
    }
    names
}

/// Returns the name of the component of an event: `TurnStartedEvent` for `turn.started`.
fn component(kind: &str) -> String {
    let words = kind.split(['.', '_']).map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    });
    words.chain(["Event".to_owned()]).collect()
}

fn union(text: &str, names: &[(String, String)]) -> Value {
    let variants: Vec<_> = names.iter().map(|(_, name)| reference(name)).collect();
    let mapping: Map<_, _> =
        names.iter().map(|(kind, name)| (kind.clone(), reference(name)["$ref"].clone())).collect();
    let discriminator = json!({ "propertyName": "type", "mapping": mapping });
    json!({ "description": text, "oneOf": variants, "discriminator": discriminator })
}
