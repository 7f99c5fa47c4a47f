use super::{RemoteModel, RemotePorts};
use crate::platform::in_memory::{ManualClock, ScriptedHttp};
use crate::ports::{
    AllowedHosts, Clock, Http, HttpError, HttpRequest, HttpResponse, Model, Secrets,
    directory::DirectoryError,
};
use crate::types::{
    Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Part, RemoteAgent, Role,
    TenantId, Timestamp, TurnId,
};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt, future::LocalBoxFuture, stream::LocalBoxStream};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, pin::pin, rc::Rc, time::Duration};

mod cancellation;

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

/// Finds secrets after this time.
struct Vault(ManualClock, Duration);

#[async_trait(?Send)]
impl Secrets for Vault {
    async fn get(&self, _: &TenantId, name: &str) -> Result<Option<String>, DirectoryError> {
        self.0.sleep(self.1).await;
        Ok((name == "KEY").then(|| "s3cret".to_owned()))
    }
}

type Events = LocalBoxStream<'static, Result<ModelEvent, ModelError>>;

/// Responds late: with the headers after this time, and with the body after this time again.
struct Late(Rc<ScriptedHttp>, ManualClock, Duration);

#[async_trait(?Send)]
impl Http for Late {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Self(http, clock, latency) = self;
        let response = http.send(request).await;
        clock.sleep(*latency).await;
        let HttpResponse { status, headers, body } = response?;
        let body = clock.sleep(*latency).map(|()| body).flatten_stream().boxed_local();
        Ok(HttpResponse { status, headers, body })
    }
}

struct Stage {
    http: Rc<ScriptedHttp>,
    latency: Duration,
    clock: ManualClock,
    spawned: Rc<RefCell<Vec<LocalBoxFuture<'static, ()>>>>,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp(1_000_000));
        Self { http: Rc::default(), latency: Duration::ZERO, clock, spawned: Rc::default() }
    }

    /// Queues a stream of these results.
    fn streams(&self, results: &[Value]) {
        let event = |result| format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": result}));
        self.http.respond_with(200, EVENTS, results.iter().map(event).collect::<String>());
    }

    fn responds(&self, result: &Value) {
        self.http.respond(200, json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string());
    }

    fn start(&self, headers: Value, messages: Vec<Message>) -> Events {
        let agent: RemoteAgent =
            serde_json::from_value(json!({"url": "https://agents.example.com/a2a", "headers": headers}))
                .unwrap();
        let spawned = Rc::clone(&self.spawned);
        let ports = RemotePorts {
            http: Rc::new(Late(Rc::clone(&self.http), self.clock.clone(), self.latency)),
            secrets: Rc::new(Vault(self.clock.clone(), self.latency)),
            clock: Rc::new(self.clock.clone()),
            hosts: AllowedHosts::parse("*"),
            spawn: Box::new(move |work| spawned.borrow_mut().push(work)),
        };
        let messages = messages.into_iter().map(Rc::new).collect();
        let request = ModelRequest { messages, tenant: Some("acme".into()), ..ModelRequest::default() };
        RemoteModel::new(&agent, Rc::new(ports)).stream(request)
    }

    /// Sends the task to the end.
    fn run(&self, messages: Vec<Message>) -> (Vec<String>, Result<ModelResponse, ModelError>) {
        self.read(self.start(json!({}), messages))
    }

    fn read(&self, mut events: Events) -> (Vec<String>, Result<ModelResponse, ModelError>) {
        let mut texts = Vec::new();
        let mut reading = pin!(async {
            while let Some(event) = events.next().await {
                match event {
                    Ok(ModelEvent::Text(text)) => texts.push(text),
                    Ok(ModelEvent::Done(response)) => return Ok(response),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => return Err(error),
                }
            }
            panic!("no end");
        });
        let ended = loop {
            match reading.as_mut().now_or_never() {
                Some(ended) => break ended,
                None => self.clock.advance(Duration::from_secs(30)),
            }
        };
        (texts, ended)
    }

    fn sent(&self) -> Vec<(Value, HttpRequest)> {
        let body = |request: &HttpRequest| serde_json::from_slice(request.body.as_ref().unwrap()).unwrap();
        self.http.requests().into_iter().map(|request| (body(&request), request)).collect()
    }
}

/// Returns a message of the turn with this number.
fn message(turn: u32, role: Role, parts: Vec<Part>) -> Message {
    let (created_at, id) = (Timestamp(1_000_000), format!("msg_{turn}_{}", role.name()));
    let turn = TurnId::from(format!("trn_{turn}").as_str());
    Message { id: id.as_str().into(), seq: 0, role, parts, created_at, turn, interrupted: false }
}

fn said(turn: u32, text: &str) -> Message {
    message(turn, Role::User, vec![Part::text(text)])
}

/// The response of an agent that does not support a method, or expects no answer.
fn unsupported() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32004, "message": "no"}}).to_string()
}

fn asked() -> Vec<Message> {
    vec![said(1, "Find it.")]
}

fn task(state: &str) -> Value {
    json!({"id": "t1", "contextId": "c1", "status": {"state": state}})
}

fn status(state: &str, said: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": said}]});
    json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": state, "message": message}}})
}

fn artifact(id: &str, text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {
        "taskId": "t1", "contextId": "c1", "append": append, "artifact": {"artifactId": id, "parts": [{"text": text}]},
    }})
}

#[test]
fn a_task_is_streamed() {
    let stage = Stage::new();
    stage.streams(&[
        json!({"task": task("TASK_STATE_SUBMITTED")}),
        artifact("a", "Found s3", false),
        artifact("a", "cre", true),
        artifact("a", "t!", true),
        artifact("b", "Done.", false),
        json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}}),
    ]);
    let events = stage.start(json!({"Authorization": "Bearer ${secret:KEY}"}), asked());
    let (texts, response) = stage.read(events);
    // The start of a secret is held back.
    assert_eq!(texts[0], "Fou");
    assert_eq!(texts.concat(), "Found [secret KEY]!\n\nDone.");
    let response = response.unwrap();
    assert_eq!(crate::types::message::text_of(&response.parts), texts.concat());
    let [(body, request)] = &stage.sent()[..] else { panic!("one request") };
    let message = json!({"messageId": "msg_1_user", "role": "ROLE_USER", "parts": [{"text": "Find it.", "mediaType": "text/plain"}]});
    assert_eq!((&body["method"], &body["params"]["message"]), (&json!("SendStreamingMessage"), &message));
    for (name, value) in
        [("a2a-version", "1.0"), ("idempotency-key", "msg_1_user"), ("authorization", "Bearer s3cret")]
    {
        assert!(request.headers.contains(&(name.into(), value.into())), "{name}");
    }
    assert!(stage.spawned.borrow().is_empty());
}

#[test]
fn a_replaced_artifact_follows_what_was_said() {
    let stage = Stage::new();
    stage.streams(&[
        artifact("a", "One", false),
        artifact("a", "One two", false),
        artifact("a", "Three", false),
        status("TASK_STATE_COMPLETED", "not repeated"),
    ]);
    assert_eq!(stage.run(asked()).0, ["One", " two", "\n\nThree"]);
}

#[test]
fn a_task_whose_stream_is_cut_is_asked_for() {
    let stage = Stage::new();
    stage.streams(&[json!({"task": task("TASK_STATE_WORKING")}), artifact("a", "Half", false)]);
    stage.responds(&task("TASK_STATE_WORKING"));
    stage.http.respond(502, "");
    let mut done = task("TASK_STATE_COMPLETED");
    done["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "Half and whole"}]}]);
    stage.responds(&done);
    let (texts, response) = stage.run(asked());
    assert_eq!(texts, ["Half", " and whole"]);
    assert!(response.is_ok());
    let methods: Vec<_> = stage.sent().into_iter().map(|(body, _)| body["method"].clone()).collect();
    assert_eq!(methods, ["SendStreamingMessage", "GetTask", "GetTask", "GetTask"]);
}

#[test]
fn an_agent_without_streams_and_one_without_tasks_are_asked_too() {
    let stage = Stage::new();
    stage.http.respond(200, unsupported());
    stage.responds(&json!({"message": {"contextId": "c1", "parts": [{"text": "Four"}, {"data": {"n": 4}}]}}));
    let (texts, response) = stage.run(asked());
    assert_eq!(texts, ["Four{\"n\":4}"]);
    assert!(response.is_ok());
    let sent = stage.sent();
    assert_eq!(sent[1].0["method"], "SendMessage");
    assert_eq!(sent[1].0["params"]["message"], sent[0].0["params"]["message"]);
    // One that supports neither is not asked again.
    let stage = Stage::new();
    stage.http.respond(200, unsupported());
    stage.http.respond(200, unsupported());
    assert_eq!(stage.run(asked()).1.unwrap_err().message, "the remote agent cannot do tasks");
}

#[test]
fn a_message_that_is_being_worked_on_is_sent_until_it_has_a_result() {
    let stage = Stage::new();
    stage.http.respond_with(409, &[("retry-after", "2")], "");
    stage.http.respond(409, "");
    stage.streams(&[artifact("a", "Once.", false), status("TASK_STATE_COMPLETED", "")]);
    assert_eq!(stage.run(asked()).0, ["Once."]);
    let keys: Vec<_> = stage.sent().iter().map(|(_, request)| request.headers.clone()).collect();
    assert!(keys.iter().all(|headers| *headers == keys[0]) && keys.len() == 3);
}

#[test]
fn a_question_that_was_answered_before_gives_what_came_of_it() {
    let stage = Stage::new();
    stage.streams(&[status("TASK_STATE_INPUT_REQUIRED", "Which one?")]);
    let reply = stage.run(asked()).1.unwrap();
    let conversation = vec![said(1, "Find it."), message(1, Role::Assistant, reply.parts), said(2, "That.")];
    stage.http.respond(200, unsupported());
    stage.http.respond(200, unsupported());
    let mut done = task("TASK_STATE_COMPLETED");
    done["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "Here."}]}]);
    stage.responds(&done);
    assert_eq!(stage.run(conversation).0, ["Here."]);
    assert_eq!(stage.sent().pop().unwrap().0["params"]["id"], "t1");
}

#[test]
fn a_task_that_has_begun_is_not_begun_again() {
    let stage = Stage::new();
    stage.streams(&[json!({"task": task("TASK_STATE_WORKING")})]);
    stage.http.respond(503, "");
    stage.http.respond(404, "");
    let error = stage.run(asked()).1.unwrap_err();
    assert_eq!((error.status, error.is_retryable()), (Some(404), false));
    assert_eq!(stage.spawned.borrow().len(), 1, "the task is canceled");
}

#[test]
fn a_reply_may_be_what_is_said_at_the_end() {
    let stage = Stage::new();
    let long = "ü".repeat(5_000);
    stage.streams(&[json!({"task": task("TASK_STATE_WORKING")}), status("TASK_STATE_COMPLETED", &long)]);
    assert_eq!(stage.run(asked()).0.concat(), long);
    // The explanation of a failure is short, and a reply is bounded.
    stage.streams(&[status("TASK_STATE_FAILED", &long)]);
    assert!(stage.run(asked()).1.unwrap_err().message.chars().count() < 2_100);
    stage.streams(&[status("TASK_STATE_COMPLETED", &"ü".repeat(400 << 10))]);
    assert!(stage.run(asked()).0.concat().len() < (256 << 10) + 100);
}

#[test]
fn events_of_an_extension_are_skipped() {
    let stage = Stage::new();
    stage.streams(&[
        json!({"task": task("TASK_STATE_WORKING")}),
        json!({"metrics": {"tokens": 7}}),
        artifact("a", "Done.", false),
        status("TASK_STATE_COMPLETED", ""),
    ]);
    assert_eq!(stage.run(asked()).0, ["Done."]);
    assert!(stage.spawned.borrow().is_empty(), "the task is not canceled");
}

#[test]
fn an_older_version_of_the_protocol_is_named() {
    let stage = Stage::new();
    stage.streams(&[json!({"kind": "task", "id": "t1", "status": {"state": "completed"}})]);
    let said = stage.run(asked()).1.unwrap_err().message;
    assert_eq!(said, "the response of the remote agent is not of the protocol A2A 1.0");
}

#[test]
fn a_reply_without_text_says_so() {
    for update in [artifact("a", "\n", false), json!({"task": task("TASK_STATE_WORKING")})] {
        let stage = Stage::new();
        stage.streams(&[update, status("TASK_STATE_COMPLETED", " ")]);
        let response = stage.run(asked()).1.unwrap();
        assert!(
            crate::types::message::text_of(&response.parts).contains("finished without a text"),
            "{response:?}"
        );
    }
}

#[test]
fn a_question_is_answered_by_the_next_message() {
    let stage = Stage::new();
    stage.streams(&[status("TASK_STATE_INPUT_REQUIRED", "Which one?")]);
    let (texts, response) = stage.run(asked());
    assert_eq!(texts, ["The remote agent needs input before it can go on: Which one?"]);
    let mut conversation = asked();
    conversation.push(message(1, Role::Assistant, response.unwrap().parts));
    conversation.push(said(2, "The first."));
    // It is asked even if there is no room for more of the reply.
    let full = Stage::new();
    let long = artifact("a", &"ü".repeat(400 << 10), false);
    full.streams(&[long, status("TASK_STATE_INPUT_REQUIRED", "Which one?")]);
    let reply = full.run(asked()).0.concat();
    assert!(reply.ends_with("needs input before it can go on: Which one?"), "{}", reply.len());
    // Some agents send the task as it was first.
    let mut before = task("TASK_STATE_INPUT_REQUIRED");
    before["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "Two fit. "}]}]);
    stage.streams(&[
        json!({ "task": before }),
        artifact("a", "This.", true),
        status("TASK_STATE_COMPLETED", ""),
    ]);
    let (texts, response) = stage.run(conversation.clone());
    assert_eq!(texts, ["This."]);
    let sent = stage.sent()[1].0["params"]["message"].clone();
    assert_eq!((&sent["contextId"], &sent["taskId"]), (&json!("c1"), &json!("t1")));
    assert_eq!((&sent["messageId"], &sent["parts"][0]["text"]), (&json!("msg_2_user"), &json!("The first.")));
    // A further task is not part of one that has ended.
    conversation.push(message(2, Role::Assistant, response.unwrap().parts));
    // A task that failed without a reply is not sent again.
    conversation.push(said(3, "Delete it."));
    conversation.push(said(4, "Thanks."));
    stage.streams(&[status("TASK_STATE_COMPLETED", "Bye.")]);
    assert_eq!(stage.run(conversation).0, ["Bye."]);
    let sent = stage.sent()[2].0["params"]["message"].clone();
    assert_eq!((&sent["contextId"], &sent["taskId"]), (&json!("c1"), &Value::Null));
    assert_eq!(sent["parts"][0]["text"], "Thanks.");
}

#[test]
fn failures_say_what_failed_and_repeat_nothing_that_may_have_begun() {
    let failure = |prepare: &dyn Fn(&Stage)| {
        let stage = Stage::new();
        prepare(&stage);
        let error = stage.run(asked()).1.unwrap_err();
        (error.kind, error.is_retryable(), error.for_log())
    };
    let of_status = |status| failure(&move |stage: &Stage| stage.http.respond(status, ""));
    assert!(matches!(of_status(401), (ModelErrorKind::Auth, false, _)));
    assert!(matches!(of_status(429), (ModelErrorKind::RateLimited, true, _)));
    assert!(matches!(of_status(500), (ModelErrorKind::Unavailable, false, _)));
    assert!(matches!(of_status(302), (ModelErrorKind::Invalid, false, _)));
    assert!(matches!(failure(&|_| ()), (ModelErrorKind::Network, false, _)));
    assert!(matches!(failure(&|stage| stage.streams(&[])), (ModelErrorKind::Network, false, _)));
    let (.., said) = failure(&|stage| stage.streams(&[status("TASK_STATE_FAILED", "out of paper")]));
    assert_eq!(said, "the remote agent has failed at the task: out of paper");
    let (.., said) = failure(&|stage| {
        stage.http.respond(200, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no task"}}"#);
    });
    assert_eq!(said, "the remote agent answered with the error -32001 (-32001: no task)");
    let (.., said) = failure(&|stage| stage.http.respond(200, "<html>"));
    assert_eq!(said, "the response of the remote agent is not of the protocol A2A 1.0");
}

#[test]
fn a_missing_secret_is_named() {
    let stage = Stage::new();
    let events = stage.start(json!({"x-key": "${secret:OTHER}"}), asked());
    let error = stage.read(events).1.unwrap_err();
    assert!(error.message.contains("PUT /v1/secrets/OTHER"), "{error}");
    assert!(stage.sent().is_empty());
}

#[test]
fn a_long_text_is_cut() {
    let stage = Stage::new();
    let long = "ü".repeat(400 << 10);
    let events =
        [artifact("a", &long, false), artifact("b", &long, false), status("TASK_STATE_COMPLETED", "")];
    stage.streams(&events);
    let (texts, response) = stage.run(asked());
    assert!(texts.concat().len() < (256 << 10) + 100 && texts.concat().ends_with("left out.]"));
    assert!(response.is_ok());
}
