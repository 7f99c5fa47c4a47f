//! Large outputs and files, as the model, the log and HTTP clients see them.

use crate::http::{request, respond, status};
use crate::scripts::step_of;
use crate::stage::{NOW, Stage, meta, ms, standard};
use async_trait::async_trait;
use bytes::Bytes;
use edge_harness::agent::{
    Bounds, HostConfig, Post, SessionHost, Tool, ToolContext, ToolError, host::HostPorts,
};
use edge_harness::http::{Body, Response};
use edge_harness::platform::in_memory::{
    InMemoryCredentials, InMemoryDirectory, InMemoryInbox, InMemoryLedger, ManualClock, MemorySessionStore,
    NoPeers, ScriptedModels, SeededEntropy, TaskPool,
    models::{answer, call},
};
use edge_harness::ports::{BlobResult, BlobStore, Clock};
use edge_harness::standard::builder;
use edge_harness::types::{Effect, ModelRequest, Part, Problem, Role, TenantLimits, ToolOutcome};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    ops::Range,
    rc::Rc,
};

const HOUR: Duration = Duration::from_hours(1);

/// Returns a text of this many two-byte characters.
pub struct Big;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct BigArgs {
    n: usize,
}

impl Tool for Big {
    type Args = BigArgs;
    type Output = String;
    const NAME: &'static str = "big";
    const DESCRIPTION: &'static str = "Returns a long text.";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn run(&self, args: BigArgs, _cx: ToolContext) -> Result<String, ToolError> {
        Ok(big(args.n))
    }
}

pub fn big(n: usize) -> String {
    (0..n).map(|at| if at % 10 == 9 { '\n' } else { char::from(b'0' + (at / 10 % 10) as u8) }).collect()
}

/// A stage whose model makes the calls of the user's message: one `name {json}` per line and step.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| {
        let said = request.messages.iter().rev().find(|message| message.role == Role::User).unwrap().text();
        let line = said.lines().nth(step_of(request)).and_then(|line| line.split_once(' '));
        match line.and_then(|(name, args)| Some((name, serde_json::from_str(args).ok()?))) {
            Some((name, args)) => answer(vec![call(&format!("c{}", step_of(request)), name, args)]),
            None => answer(vec![Part::text("done")]),
        }
    };
    Stage::scripted(script, |builder| builder.tool(Big))
}

/// The outcomes of a turn's calls, from the log.
fn outcomes(stage: &Stage, turn: &str) -> Vec<ToolOutcome> {
    let records = stage.records().into_iter();
    let own = records.filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
    own.map(|record| serde_json::from_value(record).unwrap()).collect()
}

#[track_caller]
fn run(stage: &Stage, turn: &str, said: &str) -> Vec<ToolOutcome> {
    stage.post(turn, said);
    stage.settle();
    stage.check();
    outcomes(stage, turn)
}

/// Runs a turn that stores an artifact of this many characters; returns its reference.
#[track_caller]
fn store(stage: &Stage, turn: &str, n: usize) -> String {
    match run(stage, turn, &format!("big {{\"n\": {n}}}")).pop() {
        Some(ToolOutcome::Artifact { result }) => result.r#ref.to_string(),
        other => panic!("no artifact: {other:?}"),
    }
}

fn get(stage: &Stage, item: &str, headers: &[(&str, &str)]) -> Result<Response, Problem> {
    respond(stage, &request(&format!("GET /artifacts/{item}"), "", headers, ""))
}

fn attach(stage: &Stage, headers: &[(&str, &str)], body: &[u8]) -> Result<Response, Problem> {
    respond(stage, &request("POST /attachments", "", headers, body.to_vec()))
}

fn post(stage: &Stage, parts: &Value) -> Result<Response, Problem> {
    let headers = [("prefer", "respond-async")];
    let body = json!({ "parts": parts }).to_string();
    respond(stage, &request("POST /messages", "", &headers, body))
}

fn bytes(response: &Response) -> &[u8] {
    match response.body() {
        Body::Bytes(bytes) => bytes,
        Body::Empty => b"",
        _ => panic!("a stream"),
    }
}

fn json_of(response: &Response) -> Value {
    serde_json::from_slice(bytes(response)).unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

fn code(refused: Result<Response, Problem>) -> (u16, &'static str) {
    let code = refused.map(drop).expect_err("refused").code;
    (code.status(), code.as_str())
}

#[test]
fn an_output_of_twelve_thousand_characters_stays_in_the_conversation() {
    let (stage, models) = stage();
    let stays = ToolOutcome::Result { result: json!(big(12_000)) };
    assert_eq!(run(&stage, "t1", "big {\"n\": 12000}"), [stays]);
    assert!(!stage.kinds().contains(&"artifact.stored".to_owned()));

    let id = store(&stage, "t2", 12_001);
    let records = stage.records();
    let at = records.iter().position(|record| record["type"] == "artifact.stored").unwrap();
    let (stored, completed) = (&records[at], &records[at + 1]);
    assert_eq!((&stored["ref"], &stored["bytes"]), (&json!(id), &json!(12_001)));
    let result = &completed["result"];
    assert_eq!((&completed["outcome"], &result["ref"]), (&json!("artifact"), &json!(id)));
    assert_eq!(result["preview"], json!(big(200).replace('\n', " ")));
    // The model only reads a preview.
    let last = models.requests().pop().unwrap();
    let text = match &last.messages.last().unwrap().parts[0] {
        Part::ToolResult { outcome, .. } => outcome.prompt_text(),
        other => panic!("no result: {other:?}"),
    };
    assert!(text.contains(&id) && text.contains("read_artifact") && text.len() < 600, "{text}");
}

#[test]
fn the_tool_reads_an_artifact_in_parts() {
    let (stage, _) = stage();
    let id = store(&stage, "t1", 30_000);
    let lines: Vec<String> = [(0, 8_000), (8_000, 10_000), (18_000, 99_999), (28_000, 4_000)]
        .map(|(offset, length)| {
            format!("read_artifact {}", json!({"ref": id, "offset": offset, "length": length}))
        })
        .into();
    let mut read = String::new();
    for (outcome, head) in run(&stage, "t2", &lines.join("\n")).iter().zip([
        "bytes 0-7999 of 30000",
        "bytes 8000-17999 of 30000",
        "bytes 18000-27999 of 30000",
        "bytes 28000-29999 of 30000",
    ]) {
        let text = outcome.model_text();
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, head);
        read.push_str(rest);
    }
    assert_eq!(read, big(30_000));

    let refused = run(
        &stage,
        "t3",
        &format!(
            "read_artifact {}\nread_artifact {}\nread_artifact {}",
            json!({"ref": "art_unknown"}),
            json!({"ref": id, "offset": 30_000}),
            json!({"ref": id, "length": 1})
        ),
    );
    assert_eq!(refused[0], ToolOutcome::failure("there is no such artifact in this session"));
    assert_eq!(
        refused[1],
        ToolOutcome::failure("offset 30000 is past the end: the artifact has 30000 bytes")
    );
    assert_eq!(refused[2], ToolOutcome::Result { result: json!("bytes 0-3 of 30000\n0000") });
}

#[test]
fn without_a_store_an_output_is_truncated_with_a_note() {
    let (stage, _) = stage();
    stage.blobs.down.set(true);
    let outcomes = run(&stage, "t1", "big {\"n\": 12500}");
    let cut = format!(
        "{}\n[500 of 12500 characters are left out: the output could not be stored]",
        big(12_500).split_at(12_000).0
    );
    assert_eq!(outcomes, [ToolOutcome::Result { result: json!(cut) }]);
    assert!(!stage.kinds().contains(&"artifact.stored".to_owned()));
}

#[test]
fn an_expired_artifact_cannot_be_read_and_its_bytes_are_deleted() {
    let (stage, _) = stage();
    let id = store(&stage, "t1", 20_000);
    stage.follow_up();
    stage.take_wake_up();
    stage.wake();
    let left = HOUR - ms(2_000);
    assert_eq!(stage.take_wake_up(), Some(left), "the host wakes at the expiry");
    stage.tick(left - ms(1));
    assert_eq!(status(&get(&stage, &id, &[]).unwrap()), 200);
    stage.blobs.down.set(true);
    stage.tick(ms(1));
    assert_eq!(code(get(&stage, &id, &[])), (410, "gone"));
    let said = format!("read_artifact {}", json!({ "ref": id }));
    let [ToolOutcome::Failure { reason, retryable: true }] = &run(&stage, "t2", &said)[..] else {
        panic!("no failure");
    };
    assert!(reason.starts_with("the artifact expired at "), "{reason}");
    assert_eq!(stage.blobs.objects.borrow().len(), 1);

    stage.take_wake_up();
    stage.wake();
    let retry = stage.take_wake_up().expect("the deletion is retried");
    stage.blobs.down.set(false);
    stage.clock.advance(retry);
    stage.wake();
    assert_eq!(stage.blobs.objects.borrow().len(), 0);
    assert_eq!(code(get(&stage, &id, &[])), (410, "gone"));
    assert_eq!(code(get(&stage, "art_unknown", &[])), (404, "not_found"));
}

#[test]
fn ranges_follow_the_standard() {
    let (stage, _) = stage();
    let (id, text) = (store(&stage, "t1", 20_000), big(20_000));
    let whole = get(&stage, &id, &[]).unwrap();
    assert_eq!((status(&whole), bytes(&whole)), (200, text.as_bytes()));
    for (name, expected) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, no-cache"),
        ("content-disposition", &format!("attachment; filename=\"{id}.txt\"")),
    ] {
        assert_eq!(header(&whole, name), Some(expected), "{name}");
    }
    for (range, place) in [
        ("bytes=0-0", 0..1),
        ("bytes=100-199", 100..200),
        ("bytes=19990-", 19_990..20_000),
        ("bytes=-5", 19_995..20_000),
        ("bytes=19999-30000", 19_999..20_000),
    ] {
        let part = get(&stage, &id, &[("range", range)]).unwrap();
        assert_eq!((status(&part), bytes(&part)), (206, &text.as_bytes()[place.clone()]), "{range}");
        let stated = format!("bytes {}-{}/20000", place.start, place.end - 1);
        assert_eq!(header(&part, "content-range"), Some(&*stated));
    }
    for range in ["bytes=5-4", "bytes=0-1,5-6", "lines=1-2", "nonsense"] {
        assert_eq!(status(&get(&stage, &id, &[("range", range)]).unwrap()), 200, "{range}");
    }
    let missing = get(&stage, &id, &[("range", "bytes=20000-")]).unwrap();
    assert_eq!((status(&missing), header(&missing, "content-range")), (416, Some("bytes */20000")));
    assert_eq!(json_of(&missing)["code"], "range_not_satisfiable");

    let head = respond(&stage, &request(&format!("HEAD /artifacts/{id}"), "", &[], "")).unwrap();
    assert_eq!((status(&head), bytes(&head), header(&head, "etag")), (200, &b""[..], header(&whole, "etag")));
    assert_eq!(header(&head, "content-length"), Some("20000"));

    let etag = header(&whole, "etag").unwrap();
    let same = get(&stage, &id, &[("if-none-match", etag)]).unwrap();
    assert_eq!((status(&same), bytes(&same)), (304, &b""[..]));
    let conditional = |tag| status(&get(&stage, &id, &[("range", "bytes=0-0"), ("if-range", tag)]).unwrap());
    assert_eq!((conditional(etag), conditional("\"other\"")), (206, 200));

    // Neither another user's request nor a failing store reveals that the artifact exists.
    let route = format!("GET /artifacts/{id}");
    let foreign = request(&route, "user=other", &[], "");
    assert_eq!(code(respond(&stage, &foreign)), (404, "not_found"));
    let mut foreign = request(&route, "", &[], "");
    foreign.principal.tenant = "other".into();
    assert_eq!(code(respond(&stage, &foreign)), (404, "not_found"));
    stage.blobs.down.set(true);
    assert_eq!(code(get(&stage, &id, &[])), (503, "unavailable"));
}

#[test]
fn attachments_are_kept_unchanged_until_the_session_is_erased() {
    let (stage, _) = stage();
    assert_eq!(code(attach(&stage, &[], b"x")), (404, "not_found"));
    stage.post("t1", "hello");
    stage.settle();
    let raw =
        [("content-type", "text/html"), ("content-disposition", "attachment; filename=\"../Zo\u{eb}.html\"")];
    let made = attach(&stage, &raw, b"<script>").unwrap();
    let body = json_of(&made);
    let id = body["ref"].as_str().unwrap().to_owned();
    assert_eq!(
        (status(&made), &body),
        (201, &json!({"ref": id, "mime_type": "text/html", "bytes": 8, "name": "Zo\u{eb}.html"}))
    );
    assert_eq!(header(&made, "location"), Some(&*format!("/v1/sessions/s/artifacts/{id}")));
    stage.tick(1_000 * HOUR);
    stage.wake();
    let read = get(&stage, &id, &[]).unwrap();
    assert_eq!((bytes(&read), header(&read, "content-type")), (&b"<script>"[..], Some("text/html")));
    let disposition = "attachment; filename=\"Zo_.html\"; filename*=UTF-8''Zo%C3%AB.html";
    assert_eq!(header(&read, "content-disposition"), Some(disposition));

    let form = [("content-type", "multipart/form-data; boundary=x")];
    let body = b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n\
        Content-Type: text/html\x01\r\n\r\n\0\xff\r\n--x--\r\n";
    let made = json_of(&attach(&stage, &form, body).unwrap());
    assert_eq!(
        (&made["mime_type"], &made["bytes"], &made["name"]),
        (&json!("application/octet-stream"), &json!(2), &json!("a.bin"))
    );
    assert_eq!(code(attach(&stage, &form, b"--x\r\n")), (400, "invalid_request"));
    assert_eq!(code(attach(&stage, &form, b"--x--\r\n")), (422, "validation_failed"));
    assert_eq!(code(attach(&stage, &[], b"")), (422, "validation_failed"));
    let named = request("POST /attachments", "name=a%20b.txt", &[], "x");
    assert_eq!(json_of(&respond(&stage, &named).unwrap())["name"], "a b.txt");

    let again = [("idempotency-key", "k"), ("content-type", "text/plain")];
    let [first, second] = [(); 2].map(|()| attach(&stage, &again, b"once").unwrap());
    assert_eq!(bytes(&first), bytes(&second));
    assert_eq!(header(&second, "idempotent-replayed"), Some("true"));
    assert_eq!(code(attach(&stage, &again, b"other")), (422, "idempotency_key_reused"));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "artifact.stored").count(), 4);
    stage.blobs.down.set(true);
    assert_eq!(code(attach(&stage, &[], b"x")), (503, "unavailable"));
}

#[test]
fn the_model_reads_one_line_for_each_attached_file() {
    let (stage, models) = stage();
    stage.post("t1", "hello");
    stage.settle();
    let file = json_of(&attach(&stage, &[("content-type", "image/png")], b"\x89PNG").unwrap());
    let id = file["ref"].as_str().unwrap();
    let part = json!({"type": "file", "ref": id});
    post(&stage, &json!([part, {"type": "text", "text": "What is it?"}])).unwrap();
    stage.settle();
    let asked = models.requests().pop().unwrap().messages.pop().unwrap();
    let line = format!("[file \"file\", image/png, 4 bytes: read parts of it with read_artifact, ref {id}]");
    assert_eq!(asked.prompt_text(), format!("{line}\nWhat is it?"));
    post(&stage, &json!([part])).unwrap();
    stage.settle();
    assert_eq!(models.requests().pop().unwrap().messages.pop().unwrap().prompt_text(), line);
    stage.check();
    let listed = json_of(&respond(&stage, &request("GET /messages", "", &[], "")).unwrap());
    let kept = json!({"type": "file", "ref": id, "mime_type": "image/png", "bytes": 4, "name": "file"});
    assert_eq!(listed["data"][2]["parts"][0], kept);

    for (parts, pointer) in [
        (json!([{"type": "text", "text": "x"}, {"type": "file", "ref": "art_unknown"}]), "/parts/1/ref"),
        (json!([{"type": "file"}]), "/parts/0/ref"),
        (json!([{"type": "file", "ref": 7}]), "/parts/0/ref"),
        (json!([{"type": "image"}]), "/parts/0/type"),
    ] {
        let problem = post(&stage, &parts).map(drop).unwrap_err();
        let found: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!((problem.code.status(), found), (422, vec![pointer]), "{parts}");
    }
    // Binary content is not shown in the conversation.
    let said = format!("read_artifact {}", json!({ "ref": id }));
    let refused = ToolOutcome::failure("not text: the artifact is image/png with 4 bytes");
    assert_eq!(run(&stage, "t9", &said), [refused]);
}

/// A store like R2: a request takes effect later, even if its caller stopped waiting.
struct Slow {
    clock: ManualClock,
    under_way: RefCell<Vec<String>>,
    objects: RefCell<BTreeSet<String>>,
}

impl Slow {
    fn land(&self) {
        self.objects.borrow_mut().extend(self.under_way.take());
    }
}

#[async_trait(?Send)]
impl BlobStore for Slow {
    async fn put(&self, key: &str, _: Bytes, _: &str) -> BlobResult<()> {
        self.under_way.borrow_mut().push(key.into());
        self.clock.sleep(ms(300)).await;
        self.land();
        Ok(())
    }

    async fn get(&self, _: &str, _: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, keys: &[String]) -> BlobResult<()> {
        self.objects.borrow_mut().retain(|key| !keys.contains(key));
        Ok(())
    }

    async fn delete_prefix(&self, prefix: &str) -> BlobResult<()> {
        self.objects.borrow_mut().retain(|key| !key.starts_with(prefix));
        Ok(())
    }
}

#[test]
fn an_erasure_waits_for_writes_in_progress() {
    let (clock, entropy) = (ManualClock::at(NOW), Rc::new(SeededEntropy::default()));
    let models = Rc::new(ScriptedModels::new(|request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("c", "big", json!({"n": 20_000}))]),
        _ => answer(vec![Part::text("done")]),
    }));
    let agent = builder(standard(models, &clock, &entropy, &Rc::default())).tool(Big).build().unwrap();
    let (under_way, objects) = Default::default();
    let blobs = Rc::new(Slow { clock: clock.clone(), under_way, objects });
    let tasks = Rc::new(TaskPool::default());
    let ports = HostPorts {
        store: Rc::new(MemorySessionStore::default()),
        directory: Rc::new(InMemoryDirectory::default()),
        ledger: Rc::new(InMemoryLedger::new(Rc::new(clock.clone()))),
        inbox: Rc::new(InMemoryInbox::new(Rc::new(clock.clone()))),
        credentials: Rc::<InMemoryCredentials>::default(),
        blobs: blobs.clone(),
        clock: Rc::new(clock.clone()),
        entropy,
        spawner: tasks.clone(),
        peers: Rc::new(NoPeers),
        agents: None,
        webhooks: None,
        broadcast: None,
    };
    let host = SessionHost::new(
        ports,
        Rc::new(agent),
        HostConfig { context: Bounds::messages(10), limits: TenantLimits::default() },
    );
    let post = |turn: &str| {
        let session = host.open().unwrap().unwrap_or_else(|| host.blank(meta(host.now())));
        let (turn, parts) = (turn.into(), vec![Part::text("go")]);
        let (budget, options, on_busy) = Default::default();
        host.post(
            &session,
            Post { turn, parts, budget, options, on_busy, webhook: None, response: None, slot_until: None },
        )
        .unwrap();
        tasks.run();
    };
    post("t1");
    assert_eq!(blobs.under_way.borrow().len(), 1, "the write is in progress");
    let (erasing, erased) = (Rc::clone(&host), Rc::new(Cell::new(None)));
    let done = Rc::clone(&erased);
    host.spawn(async move { done.set(Some(erasing.erase(&"t".into(), &"s".into()).await)) });
    tasks.run();
    assert_eq!(erased.take(), None);
    // New writes are refused during the erasure.
    post("t2");
    assert_eq!(blobs.under_way.borrow().len(), 1);
    clock.advance(ms(300));
    tasks.run();
    assert_eq!(erased.take(), Some(Ok(())));
    clock.advance(ms(60_000));
    tasks.run();
    blobs.land();
    assert_eq!(*blobs.objects.borrow(), BTreeSet::new());
    // A new session with the same id can write again.
    post("t3");
    assert_eq!(blobs.under_way.borrow().len(), 1);
}
