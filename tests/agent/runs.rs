//! Runs, with the object in memory.

use crate::http::{principal, whole};
use crate::stage::Stage;
use edge_harness::agent::HarnessBuilder;
use edge_harness::http::{Request, Response, session, session::call::SessionRequest};
use edge_harness::platform::in_memory::models::answer;
use edge_harness::ports::{FileError, Inbox as _};
use edge_harness::types::{ErrorCode, FilePath, InboxFilter, InboxKind, ModelRequest, Part, Problem};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const RUN: &str = "run_00000000000000000000000000000001";

/// A stage whose model writes this plan. Only the tools access the files.
fn stage(steps: Value) -> Stage {
    let plan = json!({ "steps": steps }).to_string();
    let script = move |_: &ModelRequest| answer(vec![Part::text(plan.clone())]);
    let readers = ["workspace_context", "workspace_tools", "skills"];
    Stage::scripted(script, move |builder| readers.into_iter().fold(builder, HarnessBuilder::without_hook)).0
}

/// Sends a request to the run. The stage runs until there is a response.
fn respond(stage: &Stage, route: &str, body: &Value) -> Result<Response, Problem> {
    let (method, path) = route.split_once(' ').unwrap();
    let mut request = Request::new(body.to_string().into());
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let asked = SessionRequest { principal: principal(), session: RUN.into(), id: "req_1".into(), request };
    let host = stage.others.host(RUN);
    let mut response = Box::pin(session::respond(&host, &asked));
    for _ in 0..100 {
        if let Some(response) = (&mut response).now_or_never() {
            return response;
        }
        stage.run();
    }
    panic!("no response to {route}");
}

#[track_caller]
fn ask(stage: &Stage, route: &str, body: &Value) -> Value {
    whole(respond(stage, route, body).unwrap())
}

/// Returns the status of the run and those of its steps.
fn states(run: &Value) -> (&str, Vec<&str>) {
    let steps = run["steps"].as_array().unwrap().iter();
    (run["status"].as_str().unwrap(), steps.map(|step| step["status"].as_str().unwrap()).collect())
}

#[test]
fn a_run_that_is_canceled_while_it_writes_a_file_does_nothing_more() {
    let note = json!({"id": "note", "type": "note", "content": "It is done."});
    let after = json!({"id": "after", "type": "note", "content": "x", "depends_on": ["note"]});
    let stage = stage(json!([note, after]));
    stage.files.hold();
    ask(&stage, "POST /v1/runs", &json!({"goal": "Write it."}));
    stage.run();
    let show = || ask(&stage, &format!("GET /v1/runs/{RUN}"), &Value::Null);
    assert_eq!(states(&show()), ("running", vec!["running", "pending"]));

    let canceled = ask(&stage, &format!("POST /v1/runs/{RUN}/cancel"), &json!({}));
    assert_eq!(states(&canceled), ("canceled", vec!["skipped", "skipped"]));
    stage.files.release();
    stage.run();
    assert_eq!(states(&show()), ("canceled", vec!["skipped", "skipped"]));
    let files = stage.workspaces().open(&"t".into(), &"default".into(), &"default".into(), None);
    let read = |name: &str| {
        let path = FilePath::parse(&format!("runs/{RUN}/{name}")).unwrap();
        block_on(files.read(&path)).map(|(file, _)| file.bytes)
    };
    // The write that was on its way may have arrived. No other follows.
    assert!(matches!(read("after.md"), Err(FileError::NotFound)));
    assert!(matches!(read("report.md"), Err(FileError::NotFound)));
    for step in ["note", "after"] {
        let path = format!("POST /v1/runs/{RUN}/steps/{step}/approval");
        let late = respond(&stage, &path, &json!({"decision": "approve"})).err().map(|problem| problem.code);
        assert_eq!(late, Some(ErrorCode::NotWaiting));
    }

    ask(&stage, &format!("POST /v1/runs/{RUN}/retry"), &json!({}));
    stage.run();
    assert_eq!(states(&show()), ("succeeded", vec!["succeeded", "succeeded"]));
    assert_eq!(read("note.md").unwrap(), "It is done.");
}

#[test]
fn the_inbox_has_a_step_that_needs_an_approval_until_it_is_decided() {
    let note = json!({"id": "note", "type": "note", "content": "It is done.", "needs_approval": true});
    let stage = stage(json!([note]));
    ask(&stage, "POST /v1/runs", &json!({"goal": "Write it."}));
    stage.run();
    let listed = |kind| {
        let filter = InboxFilter { kind: Some(kind), ..InboxFilter::default() };
        let found = block_on(stage.inbox.list(&"t".into(), &filter, 0, 10)).unwrap();
        found.into_iter().map(|(_, call)| json!(call)).collect::<Vec<_>>()
    };
    let steps = listed(InboxKind::Step);
    assert_eq!(steps.len(), 1, "{steps:?}");
    let shown = ["kind", "run", "session", "step", "name"].map(|field| steps[0][field].clone());
    assert_eq!(shown, ["step", RUN, RUN, "note", "run_artifact"].map(Value::from));
    assert_eq!(listed(InboxKind::Approval), Vec::<Value>::new());

    let decision = json!({"decision": "approve", "args_hash": steps[0]["args_hash"]});
    let run = ask(&stage, &format!("POST /v1/runs/{RUN}/steps/note/approval"), &decision);
    assert_eq!(run["steps"][0]["call_id"], steps[0]["call_id"]);
    stage.run();
    assert_eq!(listed(InboxKind::Step), Vec::<Value>::new());
    assert_eq!(states(&ask(&stage, &format!("GET /v1/runs/{RUN}"), &Value::Null)).0, "succeeded");
}
