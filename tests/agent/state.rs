//! The state of a session: an invalid change is rejected completely.

use crate::http::{ask, call, respond, set_header, whole};
use crate::stage::Stage;
use edge_harness::agent::{BuildError, HarnessBuilder, Settings, Tool, ToolContext, ToolError};
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{ManualClock, ScriptedHttp};
use edge_harness::ports::SessionStore;
use edge_harness::types::{Effect, ErrorCode};
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};
use std::rc::Rc;

/// Sets a key of the state.
struct Note;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Args {
    key: String,
    value: Value,
}

impl Tool for Note {
    type Args = Args;
    type Output = ();
    const NAME: &'static str = "note";
    const DESCRIPTION: &'static str = "Notes.";
    const EFFECT: Effect = Effect::LocalWrite;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<(), ToolError> {
        cx.set_state(&args.key, args.value)
    }
}

fn settings(schema: Value, initial: Value) -> Settings {
    let initial_state = initial.as_object().cloned().unwrap_or_default();
    Settings { state_schema: Some(schema).filter(|s| !s.is_null()), initial_state, ..Settings::default() }
}

fn stage(schema: Value, initial: Value) -> Stage {
    let settings = settings(schema, initial);
    let http = Rc::new(ScriptedHttp::default());
    let clock = ManualClock::at(crate::stage::NOW);
    let models = ModelRegistry::new(ModelSettings::default(), http, None, Rc::new(clock.clone()));
    let extend = move |builder: HarnessBuilder| builder.settings(settings.clone()).tool(Note);
    let stage = Stage::with(clock, Rc::new(models), extend);
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    stage
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]})
}

fn state(stage: &Stage) -> Value {
    Value::Object(stage.session().state().meta.state.clone())
}

/// The response to a change: the state, or the violations with their pointers.
fn patch(stage: &Stage, body: Value) -> Result<Value, Vec<(String, String)>> {
    match ask(stage, "PATCH /v1/sessions/s", "", &body) {
        Ok(answer) => Ok(whole(answer)["state"].clone()),
        Err(problem) => {
            assert_eq!(problem.code, ErrorCode::ValidationFailed);
            Err(problem.errors.into_iter().map(|field| (field.pointer, field.detail)).collect())
        }
    }
}

#[test]
fn a_new_session_has_the_initial_state() {
    let stage = stage(schema(), json!({"n": 1}));
    assert_eq!(state(&stage), json!({"n": 1}));
    assert_eq!(patch(&stage, json!({"state": {"s": "a"}})), Ok(json!({"n": 1, "s": "a"})));
}

#[test]
fn an_invalid_change_changes_nothing() {
    let stage = stage(schema(), json!({"n": 1}));
    let before = stage.kinds();
    let refused = patch(&stage, json!({"title": "T", "metadata": {"a": 1}, "state": {"n": "x", "s": 1}}));
    let pointers: Vec<_> = refused.unwrap_err().into_iter().map(|(pointer, _)| pointer).collect();
    assert_eq!(pointers, ["/state/n", "/state/s"]);
    let missing = patch(&stage, json!({"state": {"n": null}})).unwrap_err();
    assert_eq!(missing[0].0, "/state");
    assert_eq!((stage.kinds(), state(&stage)), (before, json!({"n": 1})));
    assert_eq!(stage.session().state().meta.title, None);
    assert_eq!(patch(&stage, json!({"state": {"n": 2, "s": null}})), Ok(json!({"n": 2})));
    let changed = stage.records().pop().unwrap();
    assert_eq!((&changed["type"], &changed["changed_keys"]), (&json!("state.changed"), &json!(["n"])));
}

#[test]
fn tools_are_subject_to_the_schema() {
    let stage = stage(schema(), json!({"n": 1}));
    let call = |key: &str, value: Value| format!("/tool note {}", json!({"key": key, "value": value}));
    stage.post("t1", &[call("n", json!("x")), "/then".into(), call("n", json!(2))].join("\n"));
    stage.settle();
    stage.check();
    assert_eq!(stage.outcomes("t1"), ["failure", "result"]);
    let failed = stage.records().into_iter().find(|record| record["outcome"] == "failure").unwrap();
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.starts_with("invalid session state: /state/n: "), "{reason}");
    assert_eq!(state(&stage), json!({"n": 2}));
}

#[test]
fn the_size_of_the_state_is_bounded() {
    let stage = stage(Value::Null, Value::Null);
    let large = |kb: usize| json!("x".repeat(kb << 10));
    assert!(patch(&stage, json!({"state": {"a": large(40)}})).is_ok());
    let refused = patch(&stage, json!({"state": {"b": large(40)}})).unwrap_err();
    assert_eq!(refused[0].1, "the whole state would be larger than 65536 bytes of JSON");
    stage.post("t1", &format!("/tool note {}", json!({"key": "b", "value": large(40)})));
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["failure"]);
    assert_eq!(state(&stage).as_object().map(Map::len), Some(1));
    assert!(patch(&stage, json!({"state": {"a": null, "b": large(40)}})).is_ok());
}

#[test]
fn contradictory_settings_are_refused() {
    let build = |schema: Value, initial: Value| {
        let models = Rc::new(edge_harness::platform::in_memory::ScriptedModels::new(|_| Vec::new()));
        let clock = ManualClock::at(crate::stage::NOW);
        let parts = crate::stage::standard(models, &clock, &Rc::default(), &Rc::default());
        let built = edge_harness::standard::builder(parts).settings(settings(schema, initial)).build();
        built.err().map(|error| match error {
            BuildError::Variable { name, .. } => name,
            _ => "another",
        })
    };
    assert_eq!(build(schema(), json!({"n": 1})), None);
    assert_eq!(build(schema(), json!({})), Some("INITIAL_STATE"));
    assert_eq!(build(json!({"properties": {"n": {"pattern": "x"}}}), json!({})), Some("STATE_SCHEMA"));
}

#[test]
fn a_session_belongs_to_the_agent_that_its_first_request_names() {
    for (query, body, agent) in [
        ("", json!({}), "default"),
        ("", json!({"agent": "other"}), "other"),
        ("agent=other", json!({}), "other"),
    ] {
        let stage = Stage::demo();
        let session = ask(&stage, "POST /v1/sessions", query, &body).map(whole).unwrap();
        assert_eq!((&session["agent"], &*stage.session().state().meta.agent), (&json!(agent), agent));
    }
}

#[test]
fn a_repeated_creation_shows_the_session_and_stores_no_copy_of_it() {
    let stage = Stage::demo();
    let body = json!({"metadata": {"large": "x".repeat(10_000)}});
    let mut asked = call("POST /v1/sessions", "", &body);
    set_header(&mut asked, "idempotency-key", "k");
    let [first, second] = [(); 2].map(|()| respond(&stage, &asked).unwrap());
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (201, 201));
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!(whole(first), whole(second));
    let stored = stage.store.list("response/").unwrap();
    assert!(stored.len() == 1 && stored[0].1.len() < 300, "{stored:?}");
    asked = call("POST /v1/sessions", "", &json!({}));
    set_header(&mut asked, "idempotency-key", "k");
    assert_eq!(respond(&stage, &asked).err().unwrap().code, ErrorCode::IdempotencyKeyReused);
}
