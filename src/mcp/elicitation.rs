//! Input that a server asks a person for during a call: the question that the person sees, and the response to the server.

use crate::agent::object_schema;
use crate::ports::{AllowedHosts, PublicUrl};
use crate::turn::schema;
use crate::types::{Invalid, NO_ANSWER, json};
use serde_json::{Map, Value, json};

/// The method of the request.
pub(super) const METHOD: &str = "elicitation/create";
/// Maximum length of the text of a question, in characters.
const MAX_MESSAGE: usize = 10_000;
/// Maximum size of the schema of an answer, in bytes of JSON.
const MAX_SCHEMA: usize = 32 << 10;
/// Maximum length of a URL, in bytes.
const MAX_URL: usize = 4_096;
/// What a valid answer looks like.
const FORM: &str = "expected {\"action\": \"accept\", \"content\": {…}} with content that matches `schema`, \
                    {\"action\": \"decline\"} or {\"action\": \"cancel\"}";

/// Returns the capability that a client declares which shows questions.
pub(super) fn capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

/// Returns the capability that a client declares to a legacy server: such a server waits for what happens at a page, which
/// can take hours.
pub(super) fn legacy_capabilities() -> Value {
    json!({"elicitation": {"form": {}}})
}

/// Returns the question that a request of a server asks, as the person sees it. `None` if it asks for something else, or
/// for something that cannot be shown.
pub(super) fn question(server: &str, request: &Value, hosts: &AllowedHosts) -> Option<Value> {
    if request.get("method").is_none_or(|method| method != METHOD) {
        return None;
    }
    let params = request.get("params")?;
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let message: String = text("message")?.chars().filter(is_shown).take(MAX_MESSAGE).collect();
    let mut question = json!({"question": message, "server": server});
    match text("mode") {
        Some("url") => {
            let url = text("url").filter(|url| url.len() <= MAX_URL)?;
            question["url"] = page(url, hosts)?.into();
        }
        None | Some("form") => {
            let wanted = params.get("requestedSchema").filter(|wanted| wanted.is_object())?;
            let is_small = !json::too_deep(wanted) && wanted.to_string().len() <= MAX_SCHEMA;
            if !is_small || schema::check_form(wanted).is_err() {
                return None;
            }
            if let Some(options) = only_property(wanted).and_then(|(_, property)| options(property)) {
                question["options"] = options;
            }
            question["schema"] = wanted.clone();
        }
        Some(_) => return None,
    }
    Some(question)
}

/// Returns the address of a page that a person may be asked to open, which never is a script or a file.
pub(super) fn page(url: &str, hosts: &AllowedHosts) -> Option<String> {
    let public = PublicUrl::parse(url).ok().map(|url| url.as_str().to_owned());
    public.filter(|url| url.starts_with("https:")).or_else(|| hosts.receiver(url).ok())
}

/// Returns the response to the server that an answer to a question means: the result of `elicitation/create`. A person can
/// answer in words: a text is the value of the only property of the schema, or JSON.
///
/// # Errors
/// What a valid answer looks like.
pub(super) fn response(question: &Value, answer: &Value) -> Result<Value, Invalid> {
    let parsed = match answer {
        Value::String(text) if text.trim() == NO_ANSWER => return Ok(json!({"action": "cancel"})),
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object),
        _ => None,
    };
    let schema = question.get("schema");
    let content = match parsed.as_ref().unwrap_or(answer) {
        Value::Object(answer) => match (answer.get("action").and_then(Value::as_str), schema) {
            (Some(action @ ("decline" | "cancel")), _) => return Ok(json!({ "action": action })),
            (Some("accept"), None) => return Ok(json!({"action": "accept"})),
            (Some("accept"), Some(_)) => answer.get("content").cloned().unwrap_or_else(|| json!({})),
            // A property of the schema may have this name.
            _ => Value::Object(answer.clone()),
        },
        value => match schema.and_then(only_property) {
            Some((name, _)) => Value::Object(Map::from_iter([(name.to_owned(), value.clone())])),
            None => return Err(FORM.into()),
        },
    };
    let Some(schema) = schema else { return Err(FORM.into()) };
    let content = fitted(schema, content)?;
    Ok(json!({"action": "accept", "content": content}))
}

/// Fills in the defaults of a schema, converts content to its types, and checks it as far as possible.
fn fitted(wanted: &Value, content: Value) -> Result<Value, Invalid> {
    let Value::Object(mut content) = content else { return Err(FORM.into()) };
    let properties = wanted.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let (false, Some(default)) = (content.contains_key(name), property.get("default")) {
            content.insert(name.clone(), default.clone());
        }
    }
    let mut content = Value::Object(content);
    // The server checks it in any case.
    if schema::check(wanted).is_ok() && !schema::coerce(wanted, &mut content) {
        return object_schema::check(wanted, &content)
            .map(|()| content)
            .map_err(|misfit| Invalid(format!("{FORM}; {misfit}")));
    }
    Ok(content)
}

/// Returns the only property of a schema.
fn only_property(schema: &Value) -> Option<(&str, &Value)> {
    let mut properties = schema.get("properties")?.as_object()?.iter();
    properties
        .next()
        .filter(|_| properties.next().is_none())
        .map(|(name, property)| (name.as_str(), property))
}

/// Returns the values of a property as options to choose from.
fn options(property: &Value) -> Option<Value> {
    let label = |value: &Value| json!({ "label": value });
    if let Some(values) = property.get("enum").and_then(Value::as_array) {
        return Some(values.iter().map(label).collect());
    }
    if let Some(values) = property.get("oneOf").and_then(Value::as_array) {
        let option = |value: &Value| json!({"label": value["const"], "description": value["title"]});
        return Some(values.iter().map(option).collect());
    }
    let is_boolean = property.get("type").is_some_and(|kind| kind == "boolean");
    is_boolean.then(|| json!([{"label": "true"}, {"label": "false"}]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn ask(params: &Value) -> Option<Value> {
        question("crm", &json!({"method": METHOD, "params": params}), &AllowedHosts::parse("*"))
    }

    fn form(properties: Value) -> Value {
        ask(&json!({"message": "Which?\u{7}", "requestedSchema": {"type": "object", "properties": properties}}))
            .expect("a question")
    }

    #[test]
    fn a_form_or_a_page_is_a_question() {
        let size = json!({"type": "string", "enum": ["s", "m"]});
        let shown = form(json!({"size": size}));
        let expected = json!({
            "question": "Which?", "server": "crm", "options": [{"label": "s"}, {"label": "m"}],
            "schema": {"type": "object", "properties": {"size": size}},
        });
        assert_eq!(shown, expected);
        let page = |url: &str| ask(&json!({"mode": "url", "message": "Pay.", "url": url}));
        assert_eq!(
            page("https://pay.example.com/x"),
            Some(json!({"question": "Pay.", "server": "crm", "url": "https://pay.example.com/x"}))
        );
        for bad in
            ["javascript:alert(1)", "http://pay.example.com/", "https://10.0.0.1/", "file:///etc/passwd"]
        {
            assert_eq!(page(bad), None, "{bad}");
        }
        assert_eq!(ask(&json!({"message": "Which?", "requestedSchema": {"type": 7}})), None);
        assert_eq!(ask(&json!({"message": "Which?", "mode": "voice", "requestedSchema": {}})), None);
        let sampling = json!({"method": "sampling/createMessage", "params": {"message": "Which?"}});
        assert_eq!(question("crm", &sampling, &AllowedHosts::parse("*")), None);
    }

    #[test]
    fn an_answer_is_accepted_declined_or_canceled() {
        let count = form(json!({"n": {"type": "integer", "minimum": 1}}));
        let accepted = |n: u32| Ok(json!({"action": "accept", "content": {"n": n}}));
        let read = |answer: Value| response(&count, &answer);
        assert_eq!(read(json!({"action": "accept", "content": {"n": 2}})), accepted(2));
        assert_eq!(read(json!({"n": 2})), accepted(2));
        assert_eq!(read(json!(2)), accepted(2));
        assert_eq!(read(json!("2")), accepted(2));
        assert_eq!(read(json!("{\"n\": 2}")), accepted(2));
        assert_eq!(read(json!({"action": "decline"})), Ok(json!({"action": "decline"})));
        assert_eq!(read(json!(NO_ANSWER)), Ok(json!({"action": "cancel"})));
        for bad in [json!("many"), json!(0), json!({"n": "x"}), json!({"action": "accept", "content": 7})] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        let two = form(json!({"a": {"type": "string", "default": "x"}, "b": {"type": "boolean"}}));
        assert!(response(&two, &json!("x")).is_err());
        let expected = json!({"action": "accept", "content": {"a": "x", "b": true}});
        assert_eq!(response(&two, &json!({"action": "accept", "content": {"b": true}})), Ok(expected));
        let page = json!({"question": "Pay.", "url": "https://pay.example.com/"});
        assert_eq!(response(&page, &json!({"action": "accept"})), Ok(json!({"action": "accept"})));
        assert!(response(&page, &json!("yes")).is_err());
    }
}
