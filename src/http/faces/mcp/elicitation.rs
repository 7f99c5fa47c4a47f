//! Calls that wait for a person, as forms for the user of the client.

use super::super::exchange::{CallResult, Given};
use crate::agent::host::suspensions::CallAnswer;
use crate::types::{CallId, Decider, NO_ANSWER, Pending, WaitKind};
use serde_json::{Value, json};

/// Maximum length of the arguments, the question or the plan in a form, in characters. A longer one has no form: it is
/// decided elsewhere.
const MAX_SHOWN: usize = 10_000;

/// Returns the requests that show forms for these calls, without ids. Calls that the user cannot decide have none.
pub(super) fn requests(pending: &[Pending], may_approve: bool) -> Vec<(CallId, Value)> {
    let request = |call: &Pending| {
        let params = form(call, may_approve)?;
        Some((call.call_id.clone(), json!({"method": "elicitation/create", "params": params})))
    };
    pending.iter().filter_map(request).collect()
}

fn form(call: &Pending, may_approve: bool) -> Option<Value> {
    let schema = |properties: Value, required: &str| json!({"type": "object", "properties": properties, "required": [required]});
    let text = |title: &str| json!({"type": "string", "title": title});
    let (message, schema) = match call.kind {
        WaitKind::Approval if may_approve || call.by == Decider::User => {
            let message = format!("May the tool {} run with these arguments?\n{}", call.name, call.args);
            let approved = json!({"type": "boolean", "title": "Approve"});
            (message, schema(json!({"approved": approved, "reason": text("Reason")}), "approved"))
        }
        WaitKind::Question | WaitKind::Auth => {
            let question = call.payload["question"].as_str().unwrap_or_default().to_owned();
            match (&call.payload["url"], &call.payload["schema"]) {
                (Value::String(url), _) => {
                    (format!("{question}\n{url}"), json!({"type": "object", "properties": {}}))
                }
                (_, Value::Null) => (question, schema(json!({"answer": answer(&call.payload)}), "answer")),
                (_, own) => (question, own.clone()),
            }
        }
        WaitKind::Plan => {
            let plan = call.payload["plan"].as_str().unwrap_or_default();
            let approved = json!({"type": "boolean", "title": "Approve"});
            let schema = schema(json!({"approved": approved, "feedback": text("Feedback")}), "approved");
            (format!("Approve this plan?\n\n{plan}"), schema)
        }
        WaitKind::Approval | WaitKind::External | WaitKind::Subagent => return None,
    };
    // A person must see all of what they decide on.
    let fits = message.chars().nth(MAX_SHOWN).is_none();
    fits.then(|| json!({"message": message, "requestedSchema": schema}))
}

/// Returns the schema of the answer to a question.
fn answer(args: &Value) -> Value {
    let options: Vec<_> =
        args["options"].as_array().into_iter().flatten().map(|option| &option["label"]).collect();
    if options.is_empty() {
        return json!({"type": "string", "title": "Answer"});
    }
    let choice = json!({"type": "string", "enum": options});
    match args["selection_mode"].as_str() {
        Some("multi") => json!({"type": "array", "title": "Answer", "minItems": 1, "items": choice}),
        _ => json!({"type": "string", "title": "Answer", "enum": options}),
    }
}

/// Returns what the user says to a call; `None` if the form is not filled in. `result` is the result of
/// `elicitation/create`, or `None` if the client has failed to show the form.
pub(super) fn given(call: &Pending, result: Option<&Value>) -> Option<CallResult> {
    let result = result.unwrap_or(&Value::Null);
    let (content, accepts) = (&result["content"], result["action"] == "accept");
    let said = |name: &str| content[name].as_str().map(str::to_owned).filter(|text| !text.trim().is_empty());
    let given = match call.kind {
        WaitKind::Approval if accepts => Given::Decision(content["approved"].as_bool()?, said("reason")),
        WaitKind::Approval => Given::Decision(false, None),
        // The call of a server of MCP, which asks in the same form.
        WaitKind::Question | WaitKind::Auth if call.payload.get("server").is_some() => {
            let action = if accepts { "accept" } else { "decline" };
            Given::Answer(CallAnswer::Answer(json!({"action": action, "content": content})))
        }
        WaitKind::Question if accepts => Given::Answer(CallAnswer::Answer(content.get("answer")?.clone())),
        WaitKind::Question => Given::Answer(CallAnswer::Answer(NO_ANSWER.into())),
        WaitKind::Plan => {
            let approves = if accepts { content["approved"].as_bool()? } else { false };
            let mut review = json!({"action": if approves { "approved" } else { "rejected" }});
            if let Some(feedback) = said("feedback") {
                review["feedback"] = feedback.into();
            }
            Given::Answer(CallAnswer::Answer(review))
        }
        WaitKind::External | WaitKind::Subagent | WaitKind::Auth => return None,
    };
    Some(CallResult { id: call.call_id.to_string(), given })
}
