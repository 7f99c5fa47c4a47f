//! Calls that wait for approval: over HTTP, and across `kill -9`.

use crate::support::{
    Chat, Client, Counting, Response, Server,
    log::{self, Random, of_type, wait_idle},
    outcomes, shared,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The counting server shared by tests.
fn counting() -> &'static Counting {
    static COUNTING: OnceLock<Counting> = OnceLock::new();
    COUNTING.get_or_init(Counting::start)
}

/// Creates a session in which `counter` needs approval.
#[track_caller]
fn chat(client: &Client, id: &str) -> Chat {
    client.post("/v1/sessions", json!({"id": id, "model": "demo/echo"})).expect(201);
    let chat = Chat::new(client.clone(), id);
    client.patch(&chat.path(""), json!({"permissions": {"tools": {"counter": "ask"}}})).expect(200);
    chat
}

/// Returns a message that makes the demo model count at these paths, all in one step.
fn count(counting: &Counting, paths: &[&str]) -> Value {
    let line = |path: &&str| format!("/tool counter {{\"url\": \"{}\"}}", counting.url(path));
    json!({"content": paths.iter().map(line).collect::<Vec<_>>().join("\n")})
}

#[track_caller]
fn decide(chat: &Chat, call: &Value, body: Value) -> Response {
    chat.post(&format!("/approvals/{}", call.as_str().expect("a call's id")), body)
}

/// Returns the ids of the waiting calls.
#[track_caller]
fn pending(chat: &Chat) -> Vec<Value> {
    let session = chat.get("");
    session["pending"].as_array().unwrap().iter().map(|call| call["call_id"].clone()).collect()
}

fn code(response: Response, status: u16) -> String {
    response.expect(status)["code"].as_str().expect("a code").to_owned()
}

#[test]
fn what_the_operator_asks_about_needs_an_approver() {
    let server = shared();
    let rules = json!({"tools": {"counter": "ask"}, "patterns": [{"pattern": "notes/**", "policy": "ask", "by": "user"}]});
    server.admin().post("/v1/admin/tenants", json!({"id": "ruled", "permissions": rules})).expect(201);
    let client = |scopes: Value| {
        let made = server.admin().post("/v1/admin/tenants/ruled/keys", json!({"scopes": scopes})).expect(201);
        (made["id"].clone(), server.anonymous().with_key(made["key"].as_str().unwrap()))
    };
    let ((_, user), (approver_id, approver)) =
        (client(json!(["chat", "read"])), client(json!(["read", "chat", "approve"])));
    user.post("/v1/sessions", json!({"id": "asked", "model": "demo/echo"})).expect(201);
    let (chat, above) = (Chat::new(user, "asked"), Chat::new(approver, "asked"));
    // Nothing that the user may set lifts the rule.
    let loose = json!({"permissions": {"yolo": true, "default": "allow", "tools": {"counter": "allow"}, "grants": {"tools": ["counter"]}}});
    chat.client.patch(&chat.path(""), loose).expect(200);
    let waits = chat.ask(count(counting(), &["/ruled"]));
    let call = &waits["pending"][0];
    assert_eq!((&call["kind"], &call["by"]), (&json!("approval"), &json!("approver")));
    assert_eq!(code(decide(&chat, &call["call_id"], json!({"decision": "approve"})), 403), "missing_scope");
    assert_eq!(counting().count("/ruled"), 0);
    let done = decide(&above, &call["call_id"], json!({"decision": "always_allow_tool"})).expect(200);
    assert_eq!((&done["status"], counting().count("/ruled")), (&json!("completed"), 1));
    assert_eq!(of_type(&chat.log(), "approval.decided")[0]["by"], json!({"key": approver_id}));
    // The next call is asked about again, and the user may decline it.
    let waits = chat.ask(count(counting(), &["/ruled"]));
    decide(&chat, &waits["pending"][0]["call_id"], json!({"decision": "decline"})).expect(200);
    assert_eq!(counting().count("/ruled"), 1);
    // A rule may leave the decision to the user.
    let write = json!({"content": "/tool write_file {\"path\": \"notes/a.md\", \"content\": \"x\"}"});
    let waits = chat.ask(write);
    assert_eq!(waits["pending"][0]["by"], Value::Null);
    decide(&chat, &waits["pending"][0]["call_id"], json!({"decision": "approve"})).expect(200);
}

#[test]
fn an_approved_call_runs() {
    let chat = chat(&shared().client(), "round");
    let waits = chat.ask(count(counting(), &["/round"]));
    assert_eq!(
        (&waits["status"], &waits["stop_reason"], &waits["reply"]),
        (&json!("waiting"), &json!("waiting"), &Value::Null)
    );
    let call = &waits["pending"][0];
    assert_eq!(
        (&call["name"], &call["kind"], &call["category"]),
        (&json!("counter"), &json!("approval"), &json!("other"))
    );
    let session = chat.get("");
    assert_eq!((&session["status"], &session["pending"][0]), (&json!("waiting"), call));
    assert_eq!(chat.turn(&waits)["status"], "waiting");
    assert_eq!(counting().count("/round"), 0);

    let approved = decide(
        &chat,
        &call["call_id"],
        json!({"decision": "approve", "args_hash": call["args_hash"], "user": "default"}),
    )
    .expect(200);
    assert_eq!((&approved["status"], &approved["turn_id"]), (&json!("completed"), &waits["turn_id"]));
    assert_eq!(counting().count("/round"), 1);
    let log = chat.log();
    let decided = of_type(&log, "approval.decided");
    assert_eq!((&decided[0]["decision"], &decided[0]["args_hash"]), (&json!("approve"), &call["args_hash"]));
    assert_eq!(decided[0]["by"], json!({"key": "dev"}), "the credential counts, not the body");
    let order: Vec<&str> = log
        .iter()
        .map(|record| record["type"].as_str().unwrap())
        .filter(|kind| kind.starts_with("t"))
        .collect();
    assert_eq!(
        order,
        [
            "turn.started",
            "tool.started",
            "tool.approval_required",
            "turn.waiting",
            "turn.resumed",
            "tool.completed",
            "turn.completed"
        ]
    );
    log::check(&log);
    // Repeating the decision is accepted; the opposite decision and an unknown call are refused.
    decide(&chat, &call["call_id"], json!({"decision": "approve"})).expect(200);
    assert_eq!(code(decide(&chat, &call["call_id"], json!({"decision": "decline"})), 409), "already_decided");
    assert_eq!(
        code(decide(&chat, &json!("call_of_nobody"), json!({"decision": "approve"})), 404),
        "not_found"
    );
    assert_eq!((chat.log().len(), counting().count("/round")), (log.len(), 1));
}

#[test]
fn a_stream_ends_where_the_turn_waits_and_another_one_continues() {
    let chat = chat(&shared().client(), "streams");
    let events: Vec<_> = chat.stream(count(counting(), &["/streams"])).collect();
    let last = events.last().unwrap();
    assert_eq!(last.event, "turn.waiting");
    let call = last.json()["pending"][0]["call_id"].clone();
    let path = chat.path(&format!("/approvals/{}", call.as_str().unwrap()));
    let rest: Vec<_> = chat.client.post_stream(&path, json!({"decision": "approve"})).collect();
    let kinds: Vec<&str> =
        rest.iter().map(|event| event.event.as_str()).filter(|kind| *kind != "message.delta").collect();
    assert_eq!(
        kinds,
        [
            "approval.decided",
            "turn.resumed",
            "tool.completed",
            "message.completed",
            "usage.updated",
            "turn.completed"
        ]
    );
    assert_eq!(counting().count("/streams"), 1);

    let waits = chat.ask(count(counting(), &["/streams"]));
    let client = chat.client.with_header("prefer", "respond-async");
    let path = chat.path(&format!("/approvals/{}", waits["pending"][0]["call_id"].as_str().unwrap()));
    let receipt = client.post(&path, json!({"decision": "approve"})).expect(202);
    assert_eq!((&receipt["turn_id"], &receipt["status"]), (&waits["turn_id"], &json!("running")));
    chat.until_idle();
    assert_eq!(counting().count("/streams"), 2);
}

#[test]
fn no_call_of_a_step_runs_before_all_are_decided() {
    let chat = chat(&shared().client(), "batch");
    let body = count(counting(), &["/batch/a", "/batch/b"]);
    let said = format!("{}\n/tool echo {{\"text\": \"free\"}}", body["content"].as_str().unwrap());
    let waits = chat.say(&said);
    let calls = pending(&chat);
    assert_eq!(calls.len(), 2);
    let reason = "only one is enough";
    let first = decide(&chat, &calls[1], json!({"decision": "decline", "reason": reason})).expect(200);
    assert_eq!((&first["status"], &first["pending"][0]["call_id"]), (&json!("waiting"), &calls[0]));
    assert_eq!((of_type(&chat.log(), "tool.completed").len(), counting().count("/batch/a")), (0, 0));
    let done = decide(&chat, &calls[0], json!({"decision": "approve"})).expect(200);
    assert_eq!(done["status"], "completed");
    // The model reads the reason and continues.
    assert!(done["reply"]["text"].as_str().unwrap().contains(reason), "{done}");
    assert_eq!(["/batch/a", "/batch/b"].map(|path| counting().count(path)), [1, 0]);
    let ended: Vec<String> =
        outcomes(&chat.turn(&waits)).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(ended, ["result", "denied declined", "result"]);
}

#[test]
fn the_approved_arguments_run_and_edits_are_checked() {
    let chat = chat(&shared().client(), "edits");
    let waits = chat.ask(count(counting(), &["/edits/asked"]));
    let call = &waits["pending"][0];
    let stale = json!({"decision": "approve", "args_hash": "0".repeat(64)});
    assert_eq!(code(decide(&chat, &call["call_id"], stale), 409), "stale_args_hash");
    let unfit = json!({"decision": "approve", "args": {"url": {}}});
    let refused = decide(&chat, &call["call_id"], unfit).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/args");
    for (body, pointer) in [
        (json!({}), "/decision"),
        (json!({"decision": "perhaps"}), "/decision"),
        (json!({"decision": "approve", "reason": 1}), "/reason"),
    ] {
        assert_eq!(decide(&chat, &call["call_id"], body).expect(422)["errors"][0]["pointer"], pointer);
    }
    assert_eq!(pending(&chat).len(), 1);
    let edited = json!({"decision": "approve", "args": {"url": counting().url("/edits/edited")}});
    decide(&chat, &call["call_id"], edited).expect(200);
    assert_eq!(["/edits/asked", "/edits/edited"].map(|path| counting().count(path)), [0, 1]);
    let log = chat.log();
    let decided = of_type(&log, "approval.decided");
    assert_ne!(decided[0]["args_hash"], call["args_hash"]);
    assert_eq!(decided[0]["args"]["url"], counting().url("/edits/edited"));
}

#[test]
fn after_an_abort_or_another_message_the_call_never_runs() {
    let chat = chat(&shared().client(), "never");
    let waits = chat.ask(count(counting(), &["/never"]));
    let call = &waits["pending"][0]["call_id"];
    assert_eq!(chat.post("/abort", json!({})).expect(200)["aborted"], true);
    assert_eq!(chat.turn(&waits)["status"], "canceled");
    assert_eq!(code(decide(&chat, call, json!({"decision": "approve"})), 409), "not_waiting");

    let waits = chat.ask(count(counting(), &["/never"]));
    let call = &waits["pending"][0]["call_id"];
    let busy = chat.post("/messages", json!({"content": "now?", "on_busy": "reject"}));
    assert_eq!(code(busy, 409), "session_busy");
    let other = chat.say("/say something else");
    assert_eq!(other["reply"]["text"], "something else");
    let over = chat.turn(&waits);
    assert_eq!((&over["status"], &over["calls"][0]["denied"]), (&json!("canceled"), &json!("declined")));
    assert_eq!(over["calls"][0]["reason"], "interrupted_by_user_message");
    assert_eq!(code(decide(&chat, call, json!({"decision": "approve"})), 409), "not_waiting");
    assert_eq!(counting().count("/never"), 0);
    log::check(&chat.log());
}

#[test]
fn an_always_decision_applies_to_later_calls() {
    let chat = chat(&shared().client(), "always");
    let waits = chat.ask(count(counting(), &["/always", "/always"]));
    let call = &waits["pending"][0]["call_id"];
    let done = decide(&chat, call, json!({"decision": "always_allow_tool"})).expect(200);
    assert_eq!(done["status"], "completed", "the other call of the step is approved too");
    let silent = chat.ask(count(counting(), &["/always"]));
    assert_eq!((&silent["status"], counting().count("/always")), (&json!("completed"), 3));
    assert_eq!(chat.get("")["permissions"]["grants"]["tools"], json!(["counter"]));
}

#[test]
fn only_the_session_owner_may_decide() {
    let client = shared().client();
    client.post("/v1/sessions", json!({"id": "owned", "user": "ann", "model": "demo/echo"})).expect(201);
    let chat = Chat::new(client.clone(), "owned");
    client.patch(&chat.path(""), json!({"permissions": {"tools": {"counter": "ask"}}})).expect(200);
    let waits = chat.ask(count(counting(), &["/owned"]));
    let call = &waits["pending"][0]["call_id"];
    let foreign = json!({"decision": "approve", "user": "bob"});
    assert_eq!(code(decide(&chat, call, foreign), 404), "not_found");
    let anonymous = Chat::new(shared().anonymous(), "owned");
    assert_eq!(code(decide(&anonymous, call, json!({"decision": "approve"})), 401), "unauthenticated");
    let answer = chat.post(&format!("/answers/{}", call.as_str().unwrap()), json!({"answer": "yes"}));
    assert_eq!(code(answer, 409), "not_waiting");
    assert_eq!((pending(&chat).len(), counting().count("/owned")), (1, 0));
}

/// What happens to a waiting call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Approve,
    Decline,
    Abort,
    Message,
    Stale,
}

#[test]
fn across_kills_the_call_runs_exactly_once_or_never() {
    const ROUNDS: usize = 20;
    let (counting, mut random) = (Counting::start(), Random::new());
    let mut server = Server::start(json!({"MEMORY_FLUSH": "never"}));
    let fates = [Fate::Approve, Fate::Decline, Fate::Abort, Fate::Message, Fate::Stale];
    for round in 0..ROUNDS {
        let (id, path) = (format!("s{round}"), format!("/kept/{round}"));
        let fate = fates[round % fates.len()];
        let suspended = chat(&server.client(), &id);
        // Some servers die before any client has read that the call waits.
        let call = if random.below(3) == 0 {
            suspended.begin(count(&counting, &[&path]));
            None
        } else {
            Some(suspended.ask(count(&counting, &[&path]))["pending"][0]["call_id"].clone())
        };
        server.restart();
        let chat = Chat::new(server.client(), &id);
        if call.is_none() {
            chat.until_logged("turn.waiting");
        }
        let call = call.unwrap_or_else(|| pending(&chat)[0].clone());
        let begun = chat.client.with_header("prefer", "respond-async");
        let approvals = chat.path(&format!("/approvals/{}", call.as_str().unwrap()));
        match fate {
            Fate::Approve => drop(begun.post(&approvals, json!({"decision": "approve"})).expect(202)),
            Fate::Decline => drop(begun.post(&approvals, json!({"decision": "decline"})).expect(202)),
            Fate::Abort => drop(chat.post("/abort", json!({})).expect(200)),
            Fate::Message => drop(chat.begin(json!({"content": "never mind"}))),
            Fate::Stale => {
                let stale = json!({"decision": "approve", "args_hash": "stale"});
                assert_eq!(code(decide(&chat, &call, stale), 409), "stale_args_hash");
                decide(&chat, &call, json!({"decision": "decline"})).expect(200);
            }
        }
        // Some die again right after the decision.
        if random.below(2) == 0 {
            server.restart();
        }
        let client = server.client();
        wait_idle(&client, &id);
        let records = log::records(&client, &id);
        log::check(&records);
        let outcome = &of_type(&records, "tool.completed")[0]["outcome"];
        let ran = counting.count(&path);
        if fate == Fate::Approve {
            // After a kill during the call, its outcome is unknown and it is not retried.
            let fits = matches!((outcome.as_str().unwrap(), ran), ("result", 1) | ("unknown", 0 | 1));
            assert!(fits, "{id}: {outcome}, counted {ran}");
            assert_eq!(of_type(&records, "approval.decided").len(), 1);
            let chat = Chat::new(client, &id);
            decide(&chat, &call, json!({"decision": "approve"})).expect(200);
            assert_eq!(counting.count(&path), ran, "a repeated decision does not run it again");
        } else {
            assert_eq!((outcome.as_str(), ran), (Some("denied"), 0), "{id} {fate:?}");
        }
    }
}
