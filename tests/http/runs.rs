//! Runs, with a client that plays the runner and people.

mod budget;
mod cancel;
mod demo;
mod inbox;
mod plan;
mod retry;

use crate::support::{Client, Script, World, log, log::of_type};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    io::Read,
    time::{Duration, Instant},
};

/// Stores an agent whose tools a runner has.
fn world() -> World {
    let world = World::start();
    define(&world, json!({}));
    world
}

fn tool(name: &str, category: &str, effect: &str) -> Value {
    let text = json!({"type": "string"});
    json!({
        "name": name, "description": "Works.", "category": category, "effect": effect,
        "parameters": {"properties": {"command": text, "patch": text, "path": text, "diagram": text}},
    })
}

fn define(world: &World, more: Value) {
    let mut definition = json!({
        "external_tools": [
            tool("local_repo_tree", "read", "read_only"), tool("local_shell", "execute", "destructive"),
            tool("local_apply_patch", "edit", "local_write"), tool("local_verify", "execute", "local_write"),
        ],
        "verify": {"tool": "local_verify"},
        "permissions": {"categories": {"execute": "allow", "edit": "allow"}},
    });
    for (name, value) in more.as_object().unwrap() {
        definition[name] = value.clone();
    }
    world.server.client().put("/v1/agents/builder", definition).expect(201);
}

/// A run, and what its runner has done.
struct Work {
    client: Client,
    id: String,
    done: RefCell<Vec<String>>,
}

impl Work {
    /// Starts a run whose model gives these responses.
    #[track_caller]
    fn start(world: &World, model: &str, responses: &[String], more: Value) -> Self {
        for response in responses {
            world.model.script(model, Script::text([response.as_str()]));
        }
        let mut body =
            json!({"agent": "builder", "goal": "Fix the test.", "model": format!("openai/{model}")});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let client = world.server.client();
        let run = client.post("/v1/runs", body).expect(202);
        Self { client, id: run["id"].as_str().unwrap().to_owned(), done: RefCell::default() }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/runs/{}{rest}", self.id)
    }

    #[track_caller]
    fn show(&self) -> Value {
        self.client.get(&self.path("")).expect(200)
    }

    fn pending(&self) -> Vec<Value> {
        let session = self.client.get(&format!("/v1/sessions/{}", self.id)).expect(200);
        session["pending"].as_array().unwrap().clone()
    }

    /// Answers the calls of the runner until the run ends or waits for a person.
    #[track_caller]
    fn work(&self, answer: impl Fn(&str, &Value) -> Result<String, String>) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let run = self.show();
            if !matches!(run["status"].as_str(), Some("queued" | "running")) {
                return run;
            }
            for call in self.pending().iter().filter(|call| call["kind"] == "external") {
                let (id, name) = (call["call_id"].as_str().unwrap(), call["name"].as_str().unwrap());
                let args = &call["payload"];
                let line =
                    args["command"].as_str().map_or_else(|| name.to_owned(), |what| format!("$ {what}"));
                self.done.borrow_mut().push(line);
                let body = match answer(name, args) {
                    Ok(text) => json!({ "answer": text }),
                    Err(error) => json!({ "error": error }),
                };
                let path = format!("/v1/sessions/{}/answers/{id}", self.id);
                self.client.post(&path, body).expect(200);
            }
            assert!(Instant::now() < deadline, "{run:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a call of a runner's tool, and answers it. The run goes on in the meantime.
    #[track_caller]
    fn answer(&self, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let call = loop {
            let found = self.pending().into_iter().find(|call| call["name"] == name);
            if let Some(call) = found {
                break call["call_id"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < deadline, "{:#}", self.show());
            std::thread::sleep(Duration::from_millis(20));
        };
        let path = format!("/v1/sessions/{}/answers/{call}", self.id);
        let client = self.client.with_header("prefer", "respond-async");
        client.post(&path, json!({"answer": "ok"})).expect(202);
    }

    /// Cancels the run, which takes less than a second.
    #[track_caller]
    fn cancel(&self) {
        let begun = Instant::now();
        let canceled = self.client.post(&self.path("/cancel"), json!({})).expect(200);
        assert_eq!((&canceled["status"], &canceled["phase"]), (&json!("canceled"), &json!("done")));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    fn statuses(&self) -> Vec<String> {
        let run = self.show();
        let steps = run["steps"].as_array().unwrap().iter();
        steps
            .map(|step| format!("{} {}", step["id"].as_str().unwrap(), step["status"].as_str().unwrap()))
            .collect()
    }

    #[track_caller]
    fn log(&self) -> Vec<Value> {
        log::records(&self.client, &self.id)
    }

    #[track_caller]
    fn decide(&self, step: &str, body: Value) -> crate::support::Response {
        self.client.post(&self.path(&format!("/steps/{step}/approval")), body)
    }
}

fn good(_: &str, _: &Value) -> Result<String, String> {
    Ok("ok".into())
}

fn command(id: &str, depends_on: &[&str]) -> Value {
    json!({"id": id, "title": id, "type": "command", "command": id, "depends_on": depends_on})
}

fn plan(steps: &[Value]) -> String {
    json!({ "steps": steps }).to_string()
}

#[test]
fn a_run_plans_patches_repairs_verifies_and_documents() {
    let mut world = world();
    let client = world.server.client();
    let spec = "# Goal\n\nThe sum is right.\n";
    client.send("PUT", "/v1/workspace/files/specs/sum.md?agent=builder", spec.as_bytes()).expect(201);
    let mut gated = json!({"id": "patch", "title": "Correct it", "type": "patch", "patch": "--- a/x\n+++ b/x\n", "needs_approval": true});
    gated["depends_on"] = json!(["look"]);
    let steps = [
        command("look", &[]),
        gated,
        json!({"id": "why", "type": "note", "content": "The sign was wrong.", "depends_on": ["patch"]}),
        json!({"id": "shape", "type": "diagram", "content": "graph TD\nA-->B", "depends_on": ["why"]}),
        json!({"id": "text", "type": "model", "prompt": "Describe it.", "depends_on": ["shape"]}),
    ];
    let fenced = format!("Here is the plan:\n```json\n{}\n```\nIt is short.", plan(&steps));
    let responses = [fenced, plan(&[command("repair", &[])]), "It adds.".to_owned()];
    let run = Work::start(&world, "whole", &responses, json!({"goal": null, "spec": "sum", "title": "Sums"}));
    let waits = run.work(good);
    assert_eq!((&waits["status"], &waits["plan_source"]), (&json!("waiting"), &json!("model")));
    assert_eq!(*run.done.borrow(), ["local_repo_tree", "$ look", "local_verify"]);
    assert_eq!(waits["spec"]["name"], "sum");
    let step = &waits["steps"][1];
    assert_eq!((&step["status"], &step["needs_approval"]), (&json!("waiting_approval"), &json!(true)));

    // Nothing runs with an approval of other arguments, and a deployment does not disturb it.
    assert_eq!(
        run.decide("patch", json!({"decision": "approve", "args_hash": "0"})).expect(409)["code"],
        "stale_args_hash"
    );
    world.server.kill();
    world.server.restart();
    let hash = &step["args_hash"];
    run.decide("patch", json!({"decision": "approve", "args_hash": hash})).expect(200);
    let before = of_type(&run.log(), "approval.decided").len();
    run.decide("patch", json!({"decision": "approve", "args_hash": hash})).expect(200);
    assert_eq!((before, of_type(&run.log(), "approval.decided").len()), (1, 1));
    assert_eq!(run.decide("patch", json!({"decision": "decline"})).expect(409)["code"], "already_decided");

    let repaired = RefCell::new(false);
    let ended = run.work(|name, args| match (name, args["command"].as_str()) {
        ("local_verify", _) if !*repaired.borrow() => Err("1 test fails".into()),
        (_, Some("repair")) => {
            *repaired.borrow_mut() = true;
            Ok("repaired".into())
        }
        _ => Ok("ok".into()),
    });
    assert_eq!(
        (&ended["status"], &ended["phase"], &ended["error"]),
        (&json!("succeeded"), &json!("done"), &json!(null))
    );
    assert_eq!(ended["repairs"], 1);
    assert_eq!(
        *run.done.borrow(),
        [
            "local_repo_tree",
            "$ look",
            "local_verify",
            "local_apply_patch",
            "local_verify",
            "$ repair",
            "local_verify"
        ]
    );
    assert_eq!(
        run.statuses().join(", "),
        "look succeeded, patch succeeded, why succeeded, shape succeeded, text succeeded, repair succeeded"
    );
    let planned = world.received("whole").remove(0).body["messages"].to_string();
    assert!(
        planned.contains("The sum is right.") && planned.contains("Output of local_repo_tree"),
        "{planned}"
    );

    // The files are in the workspace, and the export has them.
    let file =
        |name: &str| client.get(&format!("/v1/workspace/files/runs/{}/{name}?agent=builder", run.id)).text();
    assert_eq!(
        (file("why.md").as_str(), file("shape.mmd").as_str(), file("text.md").as_str()),
        ("The sign was wrong.", "graph TD\nA-->B", "It adds.")
    );
    let report = file("report.md");
    for part in [
        "Succeeded.",
        "The sum is right.",
        "- patch — Correct it",
        "- `x`",
        "Passed, after 1 repairs.",
        "## Left\n\nNothing.",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let exported = client.get(&run.path("/export"));
    assert_eq!((exported.status, exported.header("content-type")), (200, Some("application/zip")));
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(exported.body)).unwrap();
    let names: Vec<_> = zip.file_names().map(str::to_owned).collect();
    let files = ["why.md", "shape.mmd", "text.md", "report.md"].map(|name| format!("artifacts/{name}"));
    let first = ["run.json", "events.ndjson", "report.md"].map(str::to_owned);
    let calls = ["look", "patch", "repair"].map(|step| format!("artifacts/{step}.json"));
    assert_eq!(names, [first.as_slice(), &calls, &files].concat());
    let mut text = |name: &str| {
        let mut text = String::new();
        zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(serde_json::from_str::<Value>(&text("run.json")).unwrap()["status"], "succeeded");
    let lines: Vec<Value> =
        text("events.ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, run.log());
    assert_eq!((text("artifacts/report.md"), text("report.md")), (report.clone(), report));
    let patched: Value = serde_json::from_str(&text("artifacts/patch.json")).unwrap();
    assert_eq!(
        (&patched["type"], &patched["calls"][0]["tool"]),
        (&json!("patch"), &json!("local_apply_patch"))
    );
    assert_eq!(patched["calls"][0]["result"], "ok");
    log::check(&run.log());

    // The list of runs has it, and that of sessions does not.
    let ids = |path: &str| {
        let page = client.get(path).expect(200);
        page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((ids("/v1/runs"), ids("/v1/sessions")), (vec![run.id.clone()], Vec::new()));
    assert_eq!((ids("/v1/runs?status=succeeded").len(), ids("/v1/runs?status=failed").len()), (1, 0));
    assert_eq!((ids("/v1/runs?agent=builder").len(), ids("/v1/runs?user=ann").len()), (1, 0));
}

#[test]
fn a_run_is_created_once_and_takes_no_messages() {
    let world = world();
    let client = world.server.client();
    let fails = |body: Value| client.post("/v1/runs", body).expect(422)["errors"][0]["pointer"].clone();
    assert_eq!(fails(json!({})), "/goal");
    assert_eq!(fails(json!({"goal": "x", "spec": "y"})), "/spec");
    assert_eq!(fails(json!({"spec": "absent"})), "/spec");
    assert_eq!(fails(json!({"spec": "../x"})), "/spec");
    assert_eq!(fails(json!({"goal": " "})), "/goal");
    assert_eq!(fails(json!({"goal": "x", "approvals": "none"})), "/approvals");
    client.post("/v1/runs", json!({"goal": "x", "agent": "absent"})).expect(404);
    world.server.anonymous().post("/v1/runs", json!({"goal": "x"})).expect(401);

    let keyed = client.with_header("idempotency-key", "k1");
    let body = json!({"agent": "builder", "goal": "Do it.", "model": "openai/once"});
    let first = keyed.post("/v1/runs", body.clone());
    let again = keyed.post("/v1/runs", body);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let (first, again) = (first.expect(202), again.expect(202));
    assert_eq!((&again["id"], &first["status"]), (&first["id"], &json!("queued")));
    keyed.post("/v1/runs", json!({"agent": "builder", "goal": "Else."})).expect(422);
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("run_"), "{id}");
    assert_eq!(client.get("/v1/runs").expect(200)["data"].as_array().unwrap().len(), 1);
    let log = log::records(&client, id);
    assert_eq!(of_type(&log, "run.requested").len(), 1);

    let refused = client.post(&format!("/v1/sessions/{id}/messages"), json!({"content": "Hi"})).expect(409);
    assert_eq!(refused["code"], "run_session");
    client.post(&format!("/v1/sessions/{id}/steer"), json!({"content": "Hi"})).expect(409);
    let reserved = format!("run_{}", "0".repeat(32));
    client.post(&format!("/v1/sessions/{reserved}/messages"), json!({"content": "Hi"})).expect(409);
    let chosen = client.post("/v1/sessions", json!({"id": reserved})).expect(422);
    assert_eq!(chosen["errors"][0]["pointer"], "/id");
    for id in ["plain", "run_mine"] {
        client.post("/v1/sessions", json!({"id": id})).expect(201);
    }
    for path in
        ["/v1/runs/plain", "/v1/runs/run_absent", "/v1/runs/run_absent/export", "/v1/runs/plain/export"]
    {
        client.get(path).expect(404);
    }
    client.post("/v1/runs/plain/cancel", json!({})).expect(404);
    // Another user has no such run, and another tenant has not either.
    client.get(&format!("/v1/runs/{id}?user=ann")).expect(404);
    let admin = world.server.admin();
    let tenant = admin.post("/v1/admin/tenants", json!({"name": "other"})).expect(201);
    let keys = format!("/v1/admin/tenants/{}/keys", tenant["id"].as_str().unwrap());
    let key = admin.post(&keys, json!({})).expect(201)["key"].as_str().unwrap().to_owned();
    let other = world.server.anonymous().with_key(&key);
    for path in ["", "/events", "/export"] {
        other.get(&format!("/v1/runs/{id}{path}")).expect(404);
    }
    for path in ["cancel", "retry", "steps/a/approval"] {
        other.post(&format!("/v1/runs/{id}/{path}"), json!({"decision": "approve"})).expect(404);
    }
    assert_eq!(other.get("/v1/runs").expect(200)["data"], json!([]));
    assert_eq!(client.get(&format!("/v1/runs/{id}")).expect(200)["user"], "default");
}

#[test]
fn prose_leads_to_the_fallback_plan_whose_commands_are_gated() {
    let world = world();
    let run = Work::start(&world, "prose", &["I would test it.".to_owned()], json!({}));
    let waits = run.work(good);
    assert_eq!((&waits["status"], &waits["plan_source"]), (&json!("waiting"), &json!("fallback")));
    assert_eq!(run.statuses(), ["test waiting_approval", "diagrams waiting_approval"]);
    assert_eq!(*run.done.borrow(), ["local_repo_tree"]);
    run.decide("test", json!({"decision": "decline", "reason": "Not now."})).expect(200);
    run.decide("diagrams", json!({"decision": "approve"})).expect(200);
    let ended = run.work(good);
    assert_eq!(ended["status"], "succeeded");
    assert_eq!(run.statuses(), ["test skipped", "diagrams succeeded"]);
    assert!(ended["steps"][0]["error"].as_str().unwrap().contains("Not now."), "{ended}");
    assert_eq!(*run.done.borrow(), ["local_repo_tree", "$ make diagrams", "local_verify"]);

    let strict = Work::start(&world, "strict", &["No plan.".to_owned()], json!({"on_decline": "fail"}));
    strict.work(good);
    strict.decide("test", json!({"decision": "decline"})).expect(200);
    strict.decide("diagrams", json!({"decision": "decline"})).expect(200);
    let ended = strict.work(good);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("step_declined")));
}

#[test]
fn a_diagram_is_rendered_when_a_person_approves_its_step() {
    let world = World::start();
    let tools =
        [tool("local_diagram", "execute", "read_only"), tool("local_verify", "execute", "local_write")];
    let permissions = json!({"tools": {"local_diagram": "ask"}});
    define(&world, json!({"external_tools": tools, "permissions": permissions}));
    let diagram = |id: &str| json!({"id": id, "type": "diagram", "content": "graph TD\nA-->B"});
    let run = Work::start(&world, "drawn", &[plan(&[diagram("a"), diagram("b")])], json!({}));
    let waits = run.work(good);
    assert_eq!(waits["status"], "waiting");
    assert_eq!(run.statuses(), ["a waiting_approval", "b waiting_approval"]);
    let approve = json!({"decision": "approve", "args_hash": waits["steps"][0]["args_hash"]});
    run.decide("a", approve.clone()).expect(200);
    run.decide("a", approve).expect(200);
    run.decide("b", json!({"decision": "decline"})).expect(200);
    let ended = run.work(|_, _| Ok("<svg/>".into()));
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(run.statuses(), ["a succeeded", "b succeeded"]);
    let files = |step: usize| ended["steps"][step]["files"].as_array().unwrap().len();
    assert_eq!((files(0), files(1)), (2, 1));
    assert_eq!(*run.done.borrow(), ["local_diagram"]);
}

#[test]
fn a_step_can_be_the_task_of_a_subagent() {
    let world = World::start();
    define(&world, json!({"subagents": []}));
    let step = json!({"id": "ask", "type": "agent", "prompt": "Look for it."});
    let run = Work::start(&world, "delegates", &[plan(&[step]), "Found.".to_owned()], json!({}));
    let ended = run.work(good);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(ended["steps"][0]["status"], "succeeded");
    let log = run.log();
    let done = of_type(&log, "tool.completed");
    assert!(
        done.iter().any(|done| done["name"] == "subagent" && done["result"].to_string().contains("Found."))
    );
    // The subagent may have changed the project.
    assert_eq!(*run.done.borrow(), ["local_repo_tree", "local_verify"]);
}

#[test]
fn a_plan_that_cannot_be_asked_for_fails_the_run() {
    let world = world();
    world.model.script("broken", Script::error(400, json!({"error": {"message": "no"}})));
    let run = Work::start(&world, "broken", &[], json!({}));
    let ended = run.work(good);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("provider_invalid_request"))
    );
    world.model.script("broken", Script::text([plan(&[command("a", &[])]).as_str()]));
    run.client.post(&run.path("/retry"), json!({})).expect(202);
    assert_eq!(run.work(good)["status"], "succeeded");
}

#[test]
fn rules_and_the_caller_can_only_add_approvals() {
    let world = world();
    define_gated(&world);
    let run = Work::start(&world, "asks", &[plan(&[command("a", &[])])], json!({"agent": "gated"}));
    assert_eq!(run.work(good)["steps"][0]["status"], "waiting_approval");
    let note = json!({"id": "n", "type": "note", "content": "x"});
    let all = Work::start(&world, "all", &[plan(&[note])], json!({"approvals": "all"}));
    assert_eq!(all.work(good)["steps"][0]["status"], "waiting_approval");
    all.decide("n", json!({"decision": "approve"})).expect(200);
    assert_eq!(all.work(good)["status"], "succeeded");
    // A model cannot use the tools of runs in a conversation.
    world
        .model
        .script("talk", Script::new().tool("c1", "run_artifact", json!({"name": "x", "content": "y"})));
    world.model.script("talk", Script::text(["Sorry."]));
    let chat = world.chat("openai/talk");
    chat.say("go");
    let done = &of_type(&chat.log(), "tool.completed")[0].clone();
    assert_eq!((&done["outcome"], &done["denied"]), (&json!("denied"), &json!("unknown_tool")));
}

fn define_gated(world: &World) {
    let shell = json!({"name": "local_shell", "description": "Runs.", "category": "execute", "effect": "destructive"});
    let rules = json!({"categories": {"execute": "ask"}});
    world
        .server
        .client()
        .put("/v1/agents/gated", json!({"external_tools": [shell], "permissions": rules}))
        .expect(201);
}
