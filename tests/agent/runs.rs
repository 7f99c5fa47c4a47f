//! Runs, with the object in memory.

use crate::http::{principal, whole};
use crate::stage::{NOW, Stage};
use edge_harness::agent::{ExternalTool, HarnessBuilder, Settings, Verify, external_tool::Declared};
use edge_harness::http::{Request, Response, session, session::call::SessionRequest};
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{ManualClock, ScriptedHttp, models::answer};
use edge_harness::ports::{FileError, Inbox as _};
use edge_harness::types::{ErrorCode, FilePath, InboxFilter, InboxKind, ModelRequest, Part, Problem};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

const RUN: &str = "run_00000000000000000000000000000001";

/// A stage whose model writes this plan. Only the tools access the files.
fn stage(steps: Value) -> Stage {
    let plan = json!({ "steps": steps }).to_string();
    let script = move |_: &ModelRequest| answer(vec![Part::text(plan.clone())]);
    let readers = ["workspace_context", "workspace_tools", "skills"];
    Stage::scripted(script, move |builder| readers.into_iter().fold(builder, HarnessBuilder::without_hook)).0
}

/// A stage with `demo/echo` whose agent has the tools of a runner.
fn served() -> Stage {
    let clock = ManualClock::at(NOW);
    let http = Rc::new(ScriptedHttp::default());
    let models = ModelRegistry::new(ModelSettings::default(), http, None, Rc::new(clock.clone()));
    Stage::with(clock, Rc::new(models), |builder| {
        let verify = Some(Verify { tool: "local_verify".into(), attempts: 2 });
        let builder = builder.settings(Settings { verify, ..Settings::default() });
        ["local_shell", "local_verify"].into_iter().fold(builder, |builder, name| {
            let parameters = json!({"properties": {"command": {"type": "string"}}});
            let declared: Declared =
                serde_json::from_value(json!({ "name": name, "parameters": parameters })).unwrap();
            builder.dyn_tool(Rc::new(ExternalTool::new(declared).unwrap()))
        })
    })
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

fn show(stage: &Stage) -> Value {
    ask(stage, &format!("GET /v1/runs/{RUN}"), &Value::Null)
}

/// Decides on a step of the run. Returns what the run is then.
#[track_caller]
fn decide(stage: &Stage, step: &str, decision: &str) -> Value {
    ask(stage, &format!("POST /v1/runs/{RUN}/steps/{step}/approval"), &json!({ "decision": decision }));
    stage.run();
    show(stage)
}

/// Answers the only call that waits for a runner, which is of this tool.
#[track_caller]
fn serve(stage: &Stage, tool: &str, body: &Value) {
    let session = ask(stage, &format!("GET /v1/sessions/{RUN}"), &Value::Null);
    let [call] = &session["pending"].as_array().unwrap()[..] else { panic!("{session:#}") };
    assert_eq!((&call["name"], &call["kind"]), (&json!(tool), &json!("external")));
    let path = format!("POST /v1/sessions/{RUN}/answers/{}", call["call_id"].as_str().unwrap());
    ask(stage, &path, body);
    stage.run();
}

/// Reads a file of the run in the workspace.
fn file(stage: &Stage, name: &str) -> Result<String, FileError> {
    let files = stage.workspaces().open(&"t".into(), &"default".into(), &"default".into(), None);
    let path = FilePath::parse(&format!("runs/{RUN}/{name}")).unwrap();
    block_on(files.read(&path)).map(|(file, _)| String::from_utf8(file.bytes.to_vec()).unwrap())
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
    assert_eq!(states(&show(&stage)), ("running", vec!["running", "pending"]));

    let canceled = ask(&stage, &format!("POST /v1/runs/{RUN}/cancel"), &json!({}));
    assert_eq!(states(&canceled), ("canceled", vec!["skipped", "skipped"]));
    stage.files.release();
    stage.run();
    assert_eq!(states(&show(&stage)), ("canceled", vec!["skipped", "skipped"]));
    // The write that was on its way may have arrived. No other follows.
    assert!(matches!(file(&stage, "after.md"), Err(FileError::NotFound)));
    assert!(matches!(file(&stage, "report.md"), Err(FileError::NotFound)));
    for step in ["note", "after"] {
        let path = format!("POST /v1/runs/{RUN}/steps/{step}/approval");
        let late = respond(&stage, &path, &json!({"decision": "approve"})).err().map(|problem| problem.code);
        assert_eq!(late, Some(ErrorCode::NotWaiting));
    }

    ask(&stage, &format!("POST /v1/runs/{RUN}/retry"), &json!({}));
    stage.run();
    assert_eq!(states(&show(&stage)), ("succeeded", vec!["succeeded", "succeeded"]));
    assert_eq!(file(&stage, "note.md").unwrap(), "It is done.");
}

#[test]
fn the_demo_model_plans_and_repairs_what_the_goal_says() {
    let stage = served();
    let plan =
        r#"{"steps": [{"id": "build", "type": "command", "command": "make", "needs_approval": true}]}"#;
    let repair = r#"{"steps": [{"id": "fix", "type": "command", "command": "make fix"}]}"#;
    let goal = format!("Fix the build.\n/plan {plan}\n/repair {repair}");
    ask(&stage, "POST /v1/runs", &json!({ "goal": goal }));
    stage.run();
    let waits = show(&stage);
    assert_eq!(
        (states(&waits), &waits["plan_source"]),
        (("waiting", vec!["waiting_approval"]), &json!("model"))
    );
    assert_eq!(states(&decide(&stage, "build", "approve")), ("running", vec!["running"]));
    serve(&stage, "local_shell", &json!({"answer": "built"}));
    serve(&stage, "local_verify", &json!({"error": "one test fails"}));
    assert_eq!(states(&show(&stage)), ("running", vec!["succeeded", "running"]));
    serve(&stage, "local_shell", &json!({"answer": "fixed"}));
    serve(&stage, "local_verify", &json!({"answer": "all tests pass"}));
    let ended = show(&stage);
    assert_eq!(states(&ended), ("succeeded", vec!["succeeded", "succeeded"]), "{ended:#}");
    assert_eq!((&ended["repairs"], &ended["error"]), (&json!(1), &json!(null)));
    let report = file(&stage, "report.md").unwrap();
    for part in ["Succeeded.", "- build", "- fix", "Passed, after 1 repairs."] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn the_demo_model_plans_a_note_and_repairs_nothing_by_default() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/runs", &json!({"goal": "Fix the build."}));
    stage.run();
    let ended = show(&stage);
    assert_eq!((states(&ended), &ended["plan_source"]), (("succeeded", vec!["succeeded"]), &json!("model")));
    assert!(file(&stage, "note.md").unwrap().contains("/plan {json}"));

    let stage = served();
    let plan = r#"{"steps": [{"id": "build", "type": "command", "command": "make"}]}"#;
    ask(&stage, "POST /v1/runs", &json!({"goal": format!("/plan {plan}")}));
    stage.run();
    serve(&stage, "local_shell", &json!({"answer": "built"}));
    serve(&stage, "local_verify", &json!({"error": "one test fails"}));
    assert_eq!(show(&stage)["error"]["code"], "verification_failed");
}

/// A run of an agent without tools of a runner, whose model has written no plan.
fn without_runner() -> Stage {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/runs", &json!({"goal": "Test it.\n/plan I would run the tests."}));
    stage.run();
    let waits = show(&stage);
    assert_eq!(
        (states(&waits), &waits["plan_source"]),
        (("waiting", vec!["waiting_approval", "waiting_approval"]), &json!("fallback"))
    );
    stage
}

#[test]
fn steps_that_need_an_approval_wait_for_it_although_the_agent_has_no_tool_for_them() {
    let stage = without_runner();
    decide(&stage, "test", "decline");
    let ended = decide(&stage, "diagrams", "decline");
    assert_eq!((states(&ended), &ended["error"]), (("succeeded", vec!["skipped", "skipped"]), &json!(null)));
}

#[test]
fn a_step_that_is_approved_fails_if_the_agent_has_no_tool_for_it() {
    let stage = without_runner();
    decide(&stage, "test", "approve");
    let ended = decide(&stage, "diagrams", "decline");
    assert_eq!(states(&ended), ("failed", vec!["failed", "skipped"]));
    assert_eq!((&ended["error"]["code"], &ended["error"]["step"]), (&json!("step_failed"), &json!("test")));
    let why = ended["error"]["message"].as_str().unwrap();
    assert!(why.contains("the agent does not have the tool `local_shell`"), "{why}");
}

#[test]
fn a_step_without_approval_fails_at_once_if_the_agent_has_no_tool_for_it() {
    let stage = Stage::demo();
    let plan = r#"{"steps": [{"id": "test", "type": "command", "command": "make test"}]}"#;
    ask(&stage, "POST /v1/runs", &json!({"goal": format!("/plan {plan}")}));
    stage.run();
    assert_eq!(states(&show(&stage)), ("failed", vec!["failed"]));
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
