//! Generates docs/openapi.json, and compares it with the standard and with real responses.

use super::{page, path};
use edge_harness::http::openapi;
use edge_harness::testkit::TestSession;
use edge_harness::types::{Category, Cursor, Policy, Rules};
use jsonschema::Validator;
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, sync::OnceLock};

const FILE: &str = "docs/openapi.json";

/// Returns the document, after it has been written if `UPDATE_DOCS` is set.
fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let built = openapi::document().unwrap_or_else(|error| panic!("{error}"));
        if std::env::var_os("UPDATE_DOCS").is_some() && page(FILE) != built {
            fs::write(path(FILE), &built).unwrap();
        }
        serde_json::from_str(&built).unwrap()
    })
}

/// Returns the validator of a schema that may refer to components.
fn validator(mut schema: Value) -> Validator {
    schema["components"] = document()["components"].clone();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

#[track_caller]
fn check(validator: &Validator, value: &impl Serialize) {
    let value = json!(value);
    let errors: Vec<_> =
        validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{}\n{value:#}", errors.join("\n"));
}

fn component(name: &str) -> Validator {
    assert!(document()["components"]["schemas"][name].is_object(), "no component {name}");
    validator(json!({ "$ref": format!("#/components/schemas/{name}") }))
}

/// Calls `visit` with each value of an object's field of this name, at any depth.
fn fields<'a>(value: &'a Value, name: &str, visit: &mut impl FnMut(&'a Value)) {
    match value {
        Value::Object(object) => {
            for (field, value) in object {
                if field == name {
                    visit(value);
                }
                fields(value, name, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, name, visit)),
        _ => {}
    }
}

/// Returns the operations, each with its path.
fn operations() -> impl Iterator<Item = (&'static String, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| methods.as_object().unwrap().values().map(move |one| (path, one)))
}

#[test]
fn the_document_is_up_to_date() {
    let stored: Value = serde_json::from_str(&page(FILE)).unwrap_or_default();
    assert!(stored == *document(), "{FILE} is stale; run: UPDATE_DOCS=1 cargo test --test docs");
}

#[test]
fn the_document_is_valid() {
    // The schema of the OpenAPI Initiative for version 3.1.
    let standard: Value = serde_json::from_str(&page("tests/docs/openapi-3.1.json")).unwrap();
    check(&jsonschema::validator_for(&standard).unwrap(), document());
    let schemas = document()["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
    }
    fields(document(), "$ref", &mut |target| {
        let pointer = target.as_str().unwrap().trim_start_matches('#');
        assert!(document().pointer(pointer).is_some(), "{target} does not exist");
    });
    let ids: Vec<_> = operations().map(|(_, operation)| operation["operationId"].to_string()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "operation ids are unique");
}

#[test]
fn descriptions_are_written_for_clients() {
    fields(document(), "description", &mut |text| {
        let Some(text) = text.as_str() else { return };
        assert!(!["[`", "](", "::"].iter().any(|mark| text.contains(mark)), "names of the code: {text}");
    });
}

#[test]
fn examples_of_requests_match_their_schemas() {
    let mut count = 0;
    for (_, operation) in operations() {
        let body = &operation["requestBody"]["content"]["application/json"];
        if body.is_object() {
            check(&validator(body["schema"].clone()), &body["example"]);
            count += 1;
        }
    }
    assert!(count > 15);
}

#[test]
fn examples_of_the_reference_match_the_schemas() {
    let reference = page("docs/reference.md");
    let all = [
        ("session", "Session"),
        ("response", "TurnResponse"),
        ("turn", "Turn"),
        ("messages", "PageOfMessage"),
        ("pending", "PendingCall"),
    ];
    for (section, name) in all {
        let (_, rest) = reference.split_once(&format!("<!-- {section} -->\n\n```json\n")).unwrap();
        let example: Value = serde_json::from_str(rest.split("```").next().unwrap()).unwrap();
        check(&component(name), &example);
    }
}

#[test]
fn events_and_views_of_a_session_match_the_schemas() {
    let session = TestSession::new(|agent| agent);
    session.turn("/think Hm.\n/tool echo {\"text\": \"hi\"}\n/tool no_such_tool {}\n/then /say Done.");
    session.permit(Rules { categories: [(Category::Edit, Policy::Ask)].into(), ..Rules::default() });
    session.send("/tool write_file {\"path\": \"a.txt\", \"content\": \"hi\"}").waiting();
    let session = session.session();
    let (event, streamed) = (component("Event"), component("StreamEvent"));
    let (frames, _) = session.replay(Cursor::default(), None, true, 100).unwrap();
    let frames: Vec<Value> = frames.iter().map(|frame| serde_json::from_str(frame.json()).unwrap()).collect();
    frames.iter().for_each(|frame| check(&streamed, frame));
    let records: Vec<_> = frames.iter().filter(|frame| frame["seq"].is_u64()).collect();
    assert!(records.len() > 15 && records.len() < frames.len());
    records.iter().for_each(|record| check(&event, record));
    check(&component("View"), &session.display(|_| false).unwrap());
    let mut wrong = records[0].clone();
    wrong["type"] = "turn.queued".into();
    assert!(!event.is_valid(&wrong), "the type decides about the fields");
}

#[test]
fn the_requests_of_sockets_need_a_key() {
    let security = |path: &str| document()["paths"][path]["get"]["security"].clone();
    assert_eq!(security("/v1/responses"), json!([{"key": ["chat"]}]));
    assert_eq!(security("/api/chat"), json!([{"key": ["chat"]}, {}]), "a frame may have the key");
}
