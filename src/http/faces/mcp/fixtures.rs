//! The tools, resources and prompts that the official conformance suite calls; only in builds for tests. They are in no
//! list.

pub(super) mod client;

use super::fault::Fault;
use super::message::Asked;
use super::rpc::{cached, completed};
use super::task;
use crate::http::crypto::sha256_hex;
use crate::http::response::{self, Response};
use http::StatusCode;
use serde_json::{Map, Value, json};

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

/// Responds to a request of the suite; `None` for any other request.
pub(super) fn respond(asked: &Asked) -> Option<Response> {
    let name = asked.text("name").or_else(|| asked.text("uri")).unwrap_or_default();
    let outcome = match asked.method.as_str() {
        "tools/call" => input(asked, name).or_else(|| tool(asked, name)),
        "prompts/get" => input(asked, name).or_else(|| prompt(asked, name).map(Ok)),
        "resources/read" => {
            resource(name).map(|content| Ok(cached(asked, 0, json!({"contents": [content]}))))
        }
        "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if !asked.is_modern() => {
            Some(Ok(json!({})))
        }
        _ => None,
    };
    Some(match outcome? {
        Err(fault) => fault.respond(Some(&asked.id)),
        Ok(result) => {
            let last = completed(&asked.id, asked.is_modern(), result);
            let messages = notifications(asked, name).into_iter().chain([last]);
            let frames: String = messages.map(|message| format!("data: {message}\n\n")).collect();
            response::bytes(StatusCode::OK, "text/event-stream", frames)
        }
    })
}

/// Returns the message of a turn that does what one of these tools of the suite has to do, as a task or at once.
pub(super) fn message(asked: &Asked) -> Option<String> {
    let seconds = asked.params.get("arguments").and_then(|given| given["seconds"].as_u64());
    Some(match asked.text("name")? {
        "slow_compute" => match seconds? {
            0 => "/say Done".to_owned(),
            seconds => format!("/slow 100 {}", seconds * 10),
        },
        "failing_job" => "/fail auth".to_owned(),
        "confirm_delete" => r#"/tool ask_user {"question": "Delete it?"}"#.to_owned(),
        _ => return None,
    })
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn embedded(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})
}

fn tool(asked: &Asked, name: &str) -> Option<Result<Value, Fault>> {
    let image = || json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let content = match name {
        "test_simple_text" => vec![text("This is a simple text response for testing.")],
        "test_image_content" => vec![image()],
        "test_audio_content" => vec![json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"})],
        "test_embedded_resource" => {
            vec![embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
        }
        "test_multiple_content_types" => {
            let own = embedded(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            );
            vec![text("Multiple content types test:"), image(), own]
        }
        "test_error_handling" => vec![text("This tool intentionally returns an error for testing")],
        "test_tool_with_progress" | "test_tool_with_logging" | "test_logging_tool" => vec![text("Done.")],
        "greet" => {
            let name = asked.params.get("arguments").and_then(|given| given["name"].as_str());
            vec![text(&format!("Hello, {}!", name.unwrap_or_default()))]
        }
        "failing_job" if !asked.reads_tasks() => return Some(Err(task::missing())),
        "test_missing_capability" => match capabilities(asked).get("sampling") {
            Some(_) => vec![text("Done.")],
            None => return Some(Err(Fault::missing_capability(&json!({"sampling": {}})))),
        },
        _ => return None,
    };
    let mut result = json!({ "content": content });
    if name == "test_error_handling" {
        result["isError"] = true.into();
    }
    Some(Ok(result))
}

fn capabilities(asked: &Asked) -> &Value {
    let declared = asked.params.get("_meta");
    declared.map_or(&Value::Null, |meta| &meta["io.modelcontextprotocol/clientCapabilities"])
}

fn notifications(asked: &Asked, name: &str) -> Vec<Value> {
    let (method, params): (_, Vec<_>) = match (name, asked.progress_token()) {
        ("test_tool_with_progress", Some(token)) => {
            let at = |progress| json!({"progressToken": token, "progress": progress, "total": 100});
            ("notifications/progress", [0, 50, 100].map(at).into())
        }
        ("test_tool_with_logging", _) if !asked.is_modern() => {
            let log = |data| json!({"level": "info", "data": data});
            ("notifications/message", ["started", "processing", "completed"].map(log).into())
        }
        _ => return Vec::new(),
    };
    params.into_iter().map(|params| json!({"jsonrpc": "2.0", "method": method, "params": params})).collect()
}

fn resource(uri: &str) -> Option<Value> {
    let content = match uri {
        "test://static-text" => {
            json!({"mimeType": "text/plain", "text": "This is the content of the static text resource."})
        }
        "test://static-binary" => json!({"mimeType": "image/png", "blob": PNG}),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let text =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string();
            json!({"mimeType": "application/json", "text": text})
        }
    };
    let mut content = content;
    content["uri"] = uri.into();
    Some(content)
}

fn prompt(asked: &Asked, name: &str) -> Option<Value> {
    let argument = |name: &str| asked.params["arguments"][name].as_str().unwrap_or_default();
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let own = argument("resourceUri");
            vec![
                embedded(own, "text/plain", "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => {
            let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
            vec![image, text("Please analyze the image above.")]
        }
        _ => return None,
    };
    let messages = contents.into_iter().map(|content| json!({"role": "user", "content": content}));
    Some(json!({"messages": messages.collect::<Vec<_>>()}))
}

fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn sampling(prompt: &str, max_tokens: u64) -> Value {
    let messages = json!([{"role": "user", "content": text(prompt)}]);
    json!({"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}})
}

/// Returns the rounds of input that a tool or prompt requires, and whether it gives the client a state.
fn rounds(name: &str) -> Option<(Vec<Value>, bool)> {
    let name_form = || form("What is your name?", "name", "string");
    let roots = || json!({"method": "roots/list", "params": {}});
    let confirm = || json!({"confirm": form("Please confirm", "ok", "boolean")});
    Some(match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            (vec![json!({"user_name": name_form()})], false)
        }
        "test_input_required_result_sampling" => {
            (vec![json!({"capital_question": sampling("What is the capital of France?", 100)})], false)
        }
        "test_input_required_result_list_roots" => (vec![json!({"client_roots": roots()})], false),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            (vec![confirm()], true)
        }
        "test_input_required_result_multiple_inputs" | "test_input_required_result_capabilities" => {
            let greeting = sampling("Generate a greeting", 50);
            let all = json!({"user_name": name_form(), "greeting": greeting, "client_roots": roots()});
            (vec![all], true)
        }
        "test_input_required_result_multi_round" => {
            let first = json!({"step1": form("Step 1: What is your name?", "name", "string")});
            let second = json!({"step2": form("Step 2: What is your favorite color?", "color", "string")});
            (vec![first, second], true)
        }
        "test_input_required_result_prompt" => (
            vec![json!({"user_context": form("What context should the prompt use?", "context", "string")})],
            false,
        ),
        _ => return None,
    })
}

/// Requests the input of the next round, or returns what the client has said.
fn input(asked: &Asked, name: &str) -> Option<Result<Value, Fault>> {
    let (rounds, has_state) = rounds(name)?;
    let state = |round: usize| format!("{round}-{}", sha256_hex(format!("{name} {round}").as_bytes()));
    let given = asked.text("requestState");
    let Some(round) = (0..rounds.len()).find(|round| given.is_none_or(|given| given == state(*round))) else {
        return Some(Err(Fault::invalid_params("the state was modified")));
    };
    let declared = capabilities(asked);
    let requests = |round: usize| -> Map<String, Value> {
        let all = rounds[round].as_object().cloned().unwrap_or_default();
        let capability = |request: &Value| match request["method"].as_str() {
            Some("elicitation/create") => "elicitation",
            Some("sampling/createMessage") => "sampling",
            _ => "roots",
        };
        all.into_iter().filter(|(_, request)| declared.get(capability(request)).is_some()).collect()
    };
    let responses = asked.params.get("inputResponses").unwrap_or(&Value::Null);
    let is_answered = |key: &String| {
        let response = &responses[key];
        response.is_object() && response.get("content").is_none_or(Value::is_object)
    };
    let answered = (given.is_some() || !has_state) && requests(round).keys().all(is_answered);
    let next = round + usize::from(answered);
    if next < rounds.len() {
        let mut result = json!({"resultType": "input_required", "inputRequests": requests(next)});
        if has_state {
            result["requestState"] = state(next).into();
        }
        return Some(Ok(result));
    }
    let name = responses["user_name"]["content"]["name"].as_str().unwrap_or_default();
    let said = text(&format!("Hello, {name}! state-ok {responses}"));
    Some(Ok(match asked.method.as_str() {
        "prompts/get" => json!({"messages": [{"role": "user", "content": said}]}),
        _ => json!({"content": [said]}),
    }))
}
