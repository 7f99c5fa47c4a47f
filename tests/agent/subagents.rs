//! Subagents: spawned by a suspended call, running in their own session under the parent's rules, across
//! evictions.

mod cancellation;
mod erasure;
mod rules;

use crate::http::{call as request, principal, set_header, status, whole};
use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, check, ms};
use edge_harness::agent::SessionHost;
use edge_harness::http::session::{self, call::SessionRequest};
use edge_harness::platform::in_memory::{
    MemorySessionStore, ScriptedModels,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::directory::SessionKinds;
use edge_harness::ports::{Directory, Ledger, SessionStore};
use edge_harness::session::Session;
use edge_harness::types::{
    Acknowledgement, ChildStatus, Day, Decision, ErrorCode, Mode, ModelRequest, Parent, Part, Policy,
    Problem, ResolvedBy, Role, SessionStatus, StopReason, SubagentKind, UsageTotals,
};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;

/// The user's last message.
fn said(request: &ModelRequest) -> String {
    request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text()
}

/// The result of the last call.
fn last_result(request: &ModelRequest) -> String {
    let results = request.messages.iter().flat_map(|message| &message.parts).rev();
    let mut texts = results.filter_map(|part| match part {
        Part::ToolResult { outcome, .. } => Some(outcome.model_text().into_owned()),
        _ => None,
    });
    texts.next().unwrap_or_default()
}

fn send(id: &str, task: &str) -> Part {
    call(id, "subagent", json!({"agent": "general-purpose", "task": task}))
}

/// As many invalid calls of the tool `subagent` as block it.
fn mistakes() -> [Part; 3] {
    ["e1", "e2", "e3"].map(|id| call(id, "subagent", json!({"agent": "absent", "task": "t"})))
}

/// Spawns a subagent for the text after `delegate:` (a fork after `fork:`), two for the text after `both:`;
/// otherwise performs the requested call and repeats the result.
fn script(request: &ModelRequest) -> ScriptedResponse {
    let said = said(request);
    let (verb, rest) = said.split_once(':').unwrap_or((&said, ""));
    match (step_of(request), verb) {
        (0, "delegate") => answer(vec![send("d", rest)]),
        (0, "both") => answer(vec![send("d1", rest), send("d2", rest)]),
        // As many subagents as the text says.
        (0, "many") => {
            let count = rest.parse::<usize>().unwrap();
            answer((0..count).map(|n| send(&format!("d{n}"), "say:hello")).collect())
        }
        (0, "fork") => {
            let args = json!({"agent": "general-purpose", "task": rest, "forked": true});
            answer(vec![call("f", "subagent", args)])
        }
        (0, "review") => answer(vec![call("d", "subagent", json!({"agent": "reviewer", "task": rest}))]),
        (0, "write") => answer(vec![Part::text("half"), call("w", "write_it", json!({"key": rest}))]),
        (0, "read") => answer(vec![Part::text("half"), call("r", "read_it", json!({"key": rest}))]),
        (0, "mixed") => answer(vec![send("d", rest), call("r", "read_it", json!({"key": "r"}))]),
        (0, "insist") => answer(mistakes().into()),
        (1, "insist") => answer(vec![send("d", rest)]),
        (0, "muddle") => answer(mistakes().into_iter().chain([send("d", rest)]).collect()),
        (0, "twice") => {
            let write = |id| call(id, "write_it", json!({"key": id}));
            answer(vec![write("w1"), write("w2")])
        }
        (0, "leave") => answer(vec![call("p", "plan_exit", json!({}))]),
        (0, _) => answer(vec![Part::text(format!("said {rest}"))]),
        _ => answer(vec![Part::text(format!("it came to: {}", last_result(request)))]),
    }
}

fn with(kinds: Vec<SubagentKind>) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = Stage::scripted(script, |builder| builder);
    stage.subagents.replace(Some(kinds));
    stage.crash();
    (stage, models)
}

fn stage() -> Stage {
    with(Vec::new()).0
}

/// A session whose first subagent's task is on its way for `delay`.
fn sending(task: &str, delay: Duration) -> Stage {
    let stage = stage();
    stage.others.delay.set(delay);
    stage.post("t1", &format!("delegate:{task}"));
    stage.run();
    stage
}

/// A session with a rule of its own.
pub fn ruled(tool: &str, policy: Policy) -> Stage {
    let stage = stage();
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([(tool.to_owned(), policy)]));
    stage
}

/// The sessions of the spawned subagents, in order.
pub fn children(stage: &Stage) -> Vec<String> {
    let started = stage.records().into_iter().filter(|record| record["type"] == "subagent.started");
    started.map(|record| record["session"].as_str().unwrap().to_owned()).collect()
}

pub fn child(stage: &Stage) -> String {
    children(stage).pop().expect("a subagent was spawned")
}

fn session(stage: &Stage, id: &str) -> (Rc<SessionHost>, Rc<Session>) {
    let host = stage.others.host(id);
    let session = host.open().unwrap().expect("a session");
    (host, session)
}

fn records(disk: &MemorySessionStore) -> Vec<Value> {
    disk.log().iter().map(|record| serde_json::from_str(&record.json).unwrap()).collect()
}

/// The outcomes of a session's calls.
fn outcomes(disk: &MemorySessionStore) -> Vec<Value> {
    let ended = records(disk).into_iter().filter(|record| record["type"] == "tool.completed");
    ended
        .map(|record| {
            [&record["result"], &record["reason"]].into_iter().find(|v| !v.is_null()).unwrap().clone()
        })
        .collect()
}

/// The record of a call's outcome.
fn outcome(stage: &Stage, call: &str) -> Value {
    let of_call = |record: &Value| record["type"] == "tool.completed" && record["call_id"] == call;
    stage.records().into_iter().find(of_call).unwrap()
}

/// Spawns a child that finishes its task but cannot reach its parent.
fn cut_off(stage: &Stage) -> String {
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    stage.others.down.set(true);
    stage.tick(ms(1_000));
    child(stage)
}

fn reply(stage: &Stage, turn: &str) -> String {
    stage.end(turn).reply.expect("a reply").text
}

fn approve(stage: &Stage, id: &str, call: &str, decision: Decision) {
    let (host, session) = session(stage, id);
    host.decide(&session, &call.into(), ruling(decision), ResolvedBy::default()).unwrap();
}

fn ask(host: Rc<SessionHost>, mut call: SessionRequest, id: &str) -> Result<Value, Problem> {
    call.session = id.into();
    block_on(session::respond(&host, &call)).map(whole)
}

#[test]
fn a_task_is_done_in_a_session_of_its_own() {
    let (stage, models) = with(Vec::new());
    stage.post("t1", "delegate:read:x");
    stage.run();
    assert_eq!(stage.session().state().status(), SessionStatus::Running, "it does not wait for a person");
    stage.settle();
    stage.check();
    assert_eq!(reply(&stage, "t1"), "it came to: it came to: read x");
    let id = child(&stage);
    let disk = stage.others.disk(&id);
    check(&disk.log());
    let (host, child) = session(&stage, &id);
    let seen = ask(host, request("GET /v1/sessions/s", "", &json!({})), &id).unwrap();
    assert_eq!(
        (&seen["parent"]["session"], &seen["parent"]["call_id"], &seen["parent"]["agent"]),
        (&json!("s"), &json!("d"), &json!("general-purpose"))
    );
    assert_eq!(seen["user"], "u");
    // Its prompt contains its own task only, and it is not offered the tool to spawn others.
    let theirs: Vec<ModelRequest> =
        models.requests().into_iter().filter(|r| r.system.contains("You are a subagent")).collect();
    assert_eq!(theirs.len(), 2);
    assert_eq!(said(&theirs[0]), "read:x");
    assert!(theirs.iter().flat_map(|r| r.tools.iter()).all(|tool| tool.name != "subagent"));
    // Its usage counts in the parent's turn.
    let own = child.state().activity.totals.usage.total_tokens;
    let counted: Vec<u64> = stage
        .records()
        .into_iter()
        .filter(|r| r["type"] == "usage.updated")
        .map(|r| r["step"]["total_tokens"].as_u64().unwrap())
        .collect();
    assert!(counted.contains(&own));
    assert_eq!(stage.end("t1").usage.total_tokens, counted.iter().sum::<u64>());
    // The child reports it to the ledger, and the parent does not report it again.
    stage.live(ms(20_000));
    let today = Day::of(stage.host().now());
    let rows = block_on(stage.ledger.usage(&"t".into(), today, today, None)).unwrap().rows;
    let sum = |of: fn(&UsageTotals) -> u64| rows.iter().map(|row| of(&row.totals)).sum::<u64>();
    assert_eq!(sum(|totals| totals.turns), 1, "the turn of a subagent is part of the parent's");
    assert_eq!(sum(|totals| totals.tokens.total_tokens), stage.end("t1").usage.total_tokens);
    let completed = stage.records().into_iter().find(|r| r["type"] == "subagent.completed").unwrap();
    assert_eq!(
        (&completed["status"], &completed["usage"]["total_tokens"]),
        (&json!("completed"), &json!(own))
    );
    // It is not listed, and no facts are extracted from it.
    let listed =
        |kinds| block_on(stage.directory.sessions(kinds, &"t".into(), None, None, None, 10)).unwrap().len();
    assert_eq!((listed(SessionKinds::Conversations), listed(SessionKinds::All)), (1, 2));
    assert!(child.state().activity.follow_ups.values().all(|progress| !progress.is_requested()));
}

#[test]
fn a_task_is_done_once_wherever_sessions_are_evicted() {
    for (ticks, tell) in (0..16).flat_map(|ticks| [(ticks, true), (ticks, false)]) {
        let stage = stage();
        stage.post("t1", "both:read:x");
        for _ in 0..ticks {
            stage.tick(ms(25));
        }
        stage.crash();
        // The session that is woken first finds the other one unchanged.
        let ids = children(&stage);
        if tell {
            ids.iter().for_each(|id| drop(block_on(stage.others.host(id).wake())));
            stage.run();
        }
        stage.wake();
        stage.settle();
        ids.iter().for_each(|id| drop(block_on(stage.others.host(id).wake())));
        stage.settle();
        stage.check();
        assert_eq!(reply(&stage, "t1"), "it came to: it came to: read x", "after {ticks} ticks");
        assert_eq!(children(&stage).len(), 2);
        for id in children(&stage) {
            let log = stage.others.disk(&id).log();
            check(&log);
            assert_eq!(log.iter().filter(|record| record.kind == "turn.started").count(), 1);
        }
    }
}

#[test]
fn a_child_that_waits_for_a_person_makes_its_parent_wait() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    let waiting = stage.records().pop().unwrap();
    assert_eq!(waiting["type"], "turn.waiting");
    let payload = &waiting["pending"][0]["payload"];
    assert_eq!((&payload["session"], &payload["pending"][0]["call_id"]), (&json!(id), &json!("w")));
    assert_eq!(payload["pending"][0]["kind"], "approval");
    stage.crash();
    stage.wake();
    stage.run();
    approve(&stage, &id, "w", Decision::Approve);
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting, "the report has not arrived yet");
    stage.settle();
    assert_eq!(stage.runs.borrow().get("a"), Some(&1));
    assert_eq!(reply(&stage, "t1"), "it came to: it came to: wrote a");
    stage.check();
}

#[test]
fn a_message_cancels_a_waiting_child_and_is_queued_after_a_running_one() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    stage.post("t2", "hello:you");
    stage.settle();
    assert_eq!(
        (reply(&stage, "t1").as_str(), reply(&stage, "t2").as_str()),
        ("it came to: it came to: read x", "said you")
    );
    stage.post("t3", "delegate:write:a");
    stage.settle_waiting();
    stage.post("t4", "hello:again");
    stage.settle();
    stage.check();
    assert_eq!(
        (stage.end("t3").stop_reason, reply(&stage, "t4").as_str()),
        (StopReason::Canceled, "said again")
    );
    let log = stage.others.disk(&child(&stage)).log();
    assert_eq!(log.last().unwrap().kind, "turn.canceled");
    assert_eq!(stage.runs.borrow().len(), 0);
}

#[test]
fn a_fork_shares_the_prompts_prefix_and_spawns_no_subagents() {
    let (stage, models) = with(Vec::new());
    stage.post("t1", "hello:there");
    stage.settle();
    stage.post("t2", "fork:delegate:read:x");
    stage.settle();
    stage.check();
    assert!(reply(&stage, "t2").contains("a subagent cannot use this tool: do the task yourself"));
    let id = child(&stage);
    let (_, copy) = session(&stage, &id);
    assert!(copy.state().meta.parent.as_ref().unwrap().forked);
    let created = records(&stage.others.disk(&id)).remove(0);
    assert_eq!(created["forked_from"], "s");
    check(&stage.others.disk(&id).log());
    // The fork's prompt starts like its parent's.
    let requests = models.requests();
    let first = requests.iter().find(|r| said(r) == "fork:delegate:read:x").unwrap();
    let theirs = requests.iter().find(|r| said(r) == "delegate:read:x").unwrap();
    assert_eq!((&theirs.system, &theirs.tools), (&first.system, &first.tools));
    assert_eq!(theirs.messages[0].text(), "hello:there");
    let listed =
        block_on(stage.directory.sessions(SessionKinds::Conversations, &"t".into(), None, None, None, 10))
            .unwrap()
            .len();
    assert_eq!(listed, 1);
}

#[test]
fn a_kind_has_its_own_instructions_and_tools() {
    let reviewer = SubagentKind {
        id: "reviewer".into(),
        description: "reviews".into(),
        instructions: "Be strict.".into(),
        tools: Some(vec!["read_it".into(), "subagent".into()]),
        max_steps: Some(1),
        ..SubagentKind::default()
    };
    let (stage, models) = with(vec![reviewer]);
    stage.post("t1", "review:write:a");
    stage.settle();
    let theirs = models.requests().into_iter().find(|r| r.system.contains("Be strict.")).unwrap();
    assert_eq!(theirs.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["read_it"]);
    assert_eq!(stage.runs.borrow().len(), 0, "it cannot call other tools");
    assert_eq!(session(&stage, &child(&stage)).1.state().meta.budget.max_steps, 1);
}

#[test]
fn a_turn_runs_few_subagents_at_a_time() {
    let stage = stage();
    stage.others.delay.set(ms(500));
    stage.post("t1", "many:20");
    stage.run();
    let mut most = 0;
    while stage.session().state().status() == SessionStatus::Running {
        most = most.max(stage.session().suspensions().unwrap().len());
        stage.tick(ms(100));
    }
    stage.check();
    assert_eq!((most, children(&stage).len(), reply(&stage, "t1")), (8, 20, "it came to: said hello".into()));
    // Each has its share of what the turn had left.
    let budget = |number: usize| {
        let budget = session(&stage, &children(&stage)[number]).1.state().meta.budget;
        (budget.max_steps, budget.max_tool_calls)
    };
    assert_eq!(budget(0), (49 / 8, 80 / 8));
    assert_eq!(budget(19), ((49 - 16) / 4, 80 / 4), "16 have ended with one step each");
}

#[test]
fn calls_of_a_subagent_count_from_the_next_step_on() {
    let stage = stage();
    let body = json!({"content": "delegate:read:x", "budget": {"max_tool_calls": 1}});
    let mut post = request("POST /v1/sessions/s/messages", "", &body);
    set_header(&mut post, "prefer", "respond-async");
    ask(stage.host(), post, "s").unwrap();
    stage.settle();
    stage.check();
    // The child has used up what was left, but its own call stays what it was.
    assert_eq!(outcome(&stage, "d")["outcome"], "result", "{}", outcome(&stage, "d"));
    let turn = |stage: &Stage| {
        let records = stage.records();
        records.into_iter().rev().find(|record| record["type"] == "turn.completed").unwrap()
    };
    assert_eq!((&turn(&stage)["stop_reason"], &turn(&stage)["steps"]), (&json!("end"), &json!(2)));
}

#[test]
fn a_turn_starts_a_limited_number_of_subagents() {
    let stage = stage();
    stage.post("t1", "many:35");
    stage.settle();
    stage.check();
    let denied = stage.outcomes("t1").iter().filter(|outcome| *outcome == "budget").count();
    assert_eq!((children(&stage).len(), denied), (32, 3));
    assert_eq!(outcome(&stage, "d34")["reason"], "a turn may start at most 32 subagents");
}

#[test]
fn spawning_an_unreachable_child_is_retried_and_finally_fails() {
    let stage = stage();
    stage.others.down.set(true);
    stage.post("t1", "delegate:read:x");
    stage.live(ms(5_000));
    assert_eq!(stage.session().state().status(), SessionStatus::Running);
    stage.others.down.set(false);
    stage.tick(ms(60_000));
    stage.wake();
    stage.settle();
    assert_eq!(reply(&stage, "t1"), "it came to: it came to: read x");
    stage.others.down.set(true);
    stage.post("t2", "delegate:read:x");
    stage.live(ms(3_600_000));
    stage.check();
    assert!(reply(&stage, "t2").contains("could not be reached: unreachable"));
}

#[test]
fn a_status_is_sent_until_it_is_acknowledged() {
    let stage = stage();
    let id = cut_off(&stage);
    assert_eq!(stage.others.disk(&id).log().last().unwrap().kind, "turn.completed");
    assert_eq!(stage.session().state().status(), SessionStatus::Running);
    stage.others.down.set(false);
    stage.crash();
    block_on(stage.others.host(&id).wake()).unwrap();
    stage.settle();
    assert_eq!(reply(&stage, "t1"), "it came to: it came to: read x");
    // It is not sent again.
    stage.crash();
    block_on(stage.others.host(&id).wake()).unwrap();
    stage.run();
    stage.check();
}

#[test]
fn a_child_session_rejects_messages_of_others() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    let refused =
        |route, body: Value| ask(stage.others.host(&id), request(route, "", &body), &id).unwrap_err();
    for (route, body) in [
        ("POST /messages", json!({"content": "hi"})),
        ("POST /steer", json!({"content": "hi"})),
        ("PATCH /v1/sessions/s", json!({"mode": null})),
        ("PATCH /v1/sessions/s", json!({"permissions": {"yolo": true}})),
        ("DELETE /v1/sessions/s", json!({})),
    ] {
        assert_eq!(refused(route, body).code.as_str(), "subagent_session");
    }
    // The parent's suspended call cannot be answered by a client.
    let answer = request("POST /answers/d", "", &json!({"answer": "done"}));
    assert_eq!(ask(stage.host(), answer, "s").unwrap_err().code.as_str(), "not_waiting");
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
}

#[test]
fn a_child_is_stored_together_with_the_start_of_its_task() {
    let stage = sending("read:x", ms(100));
    let disk = stage.others.disk(&child(&stage));
    disk.die_after(Some(1));
    stage.tick(ms(100));
    disk.die_after(None);
    let kinds: Vec<String> = disk.log().into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds, ["session.created", "turn.started"]);
}

#[test]
fn a_child_that_an_older_version_stored_without_its_task_fails_the_call() {
    let stage = sending("read:x", ms(100));
    let (id, own) = (child(&stage), stage.session());
    let mut meta = own.state().meta.as_ref().clone();
    meta.parent = Some(Parent {
        session: meta.id.clone(),
        turn: "t1".into(),
        call_id: "d".into(),
        agent: "general-purpose".into(),
        forked: false,
        task_turn: "trn_task".into(),
        number: 0,
    });
    meta.id = id.as_str().into();
    stage.others.host(&id).create(meta).unwrap();
    stage.settle();
    assert_eq!(outcomes(&stage.store), [json!("the subagent failed: the task was not started")]);
}

#[test]
fn a_blocked_tool_starts_no_subagent() {
    let stage = stage();
    stage.post("t1", "insist:read:x");
    stage.settle();
    assert!(stage.records().iter().all(|record| record["type"] != "subagent.started"));
    assert_eq!(outcome(&stage, "d")["denied"], "blocked");
}

#[test]
fn the_result_of_a_subagent_is_kept_though_other_calls_of_the_step_block_its_tool() {
    let stage = stage();
    stage.post("t1", "muddle:read:x");
    stage.settle();
    assert_eq!(outcome(&stage, "d")["outcome"], "result");
}

#[test]
fn an_answered_question_of_a_child_is_no_longer_shown_in_the_parent() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:twice:a");
    stage.settle_waiting();
    let id = child(&stage);
    let shown = || {
        let suspensions = stage.session().suspensions().unwrap();
        suspensions[0].child().unwrap().pending.len()
    };
    assert_eq!(shown(), 2);
    approve(&stage, &id, "w1", Decision::Approve);
    stage.run();
    assert_eq!(shown(), 1);
    approve(&stage, &id, "w2", Decision::Decline);
    stage.run();
    assert_eq!((shown(), stage.session().state().status()), (0, SessionStatus::Running));
    stage.settle();
    stage.check();
}

#[test]
fn waiting_for_days_needs_few_wake_ups() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    let commits = || (stage.records().len(), stage.others.disk(&id).log().len());
    let (before, mut woken) = (commits(), 0);
    // Both sessions are evicted between alarms.
    let mut left = Duration::from_hours(24);
    while let Some(wait) = stage.take_wake_up().filter(|wait| *wait <= left) {
        left -= wait;
        woken += 1;
        stage.crash();
        stage.tick(wait);
        stage.wake();
        block_on(stage.others.host(&id).wake()).unwrap();
        stage.run();
    }
    assert!(woken < 200, "woken {woken} times in a day");
    assert_eq!(commits(), before);
    approve(&stage, &id, "w", Decision::Approve);
    stage.settle();
    assert_eq!(stage.runs.borrow().get("a"), Some(&1));
}

/// How tasks ended, according to the log.
fn ends(stage: &Stage) -> Vec<String> {
    let over = stage.records().into_iter().filter(|record| record["type"] == "subagent.completed");
    over.map(|record| record["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn usage_and_result_of_a_finished_child_count_once() {
    for is_heard in [true, false] {
        let stage = stage();
        stage.post("t1", "both:read:x");
        stage.tick(ms(50));
        stage.others.down.set(true);
        stage.tick(ms(1_000));
        stage.others.down.set(false);
        // Both are done, but the parent has not been notified.
        let reports = block_on(stage.host().cancel_children(&stage.session()));
        if is_heard {
            block_on(stage.host().child_status(reports[0].clone())).unwrap();
        }
        stage.host().abort(&stage.session(), reports).unwrap();
        stage.settle();
        stage.check();
        assert_eq!(ends(&stage), ["completed", "completed"]);
        assert_eq!(outcomes(&stage.store), [json!("it came to: read x"), json!("it came to: read x")]);
        let counted = stage.records().into_iter().filter(|record| record["type"] == "usage.updated");
        let counted: u64 = counted.map(|record| record["step"]["total_tokens"].as_u64().unwrap()).sum();
        assert_eq!(stage.end("t1").usage.total_tokens, counted);
    }
}

#[test]
fn reading_a_session_triggers_no_retries() {
    let stage = stage();
    stage.others.down.set(true);
    stage.post("t1", "delegate:read:x");
    stage.run();
    for _ in 0..100 {
        ask(stage.host(), request("GET /v1/sessions/s", "", &json!({})), "s").unwrap();
        stage.tick(ms(10));
    }
    stage.others.down.set(false);
    stage.live(ms(60_000));
    assert_eq!(reply(&stage, "t1"), "it came to: it came to: read x");
}
