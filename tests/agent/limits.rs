//! The limits of a tenant over time, and what its sessions report to its ledger.

use crate::http::{ask, call, exchange, principal, request, set_header, status, whole};
use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::{Judge, Settings};
use edge_harness::context::compaction::CompactionSettings;
use edge_harness::http::{
    Response,
    session::{self, socket::command},
    upgrade::SocketState,
};
use edge_harness::memory::{Flush, MemorySettings};
use edge_harness::platform::in_memory::models::answer;
use edge_harness::ports::Ledger;
use edge_harness::standard::ContextSettings;
use edge_harness::types::{
    Admission, Admitted, Day, ErrorCode, ModelRequest, NanoUsd, Owner, Part, Problem, Quota, SlotUse,
    Standing, TenantId, TenantLimits, TenantPolicy, TimedLimit, Timestamp, UsageTotals,
};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::Cell, collections::BTreeSet};

pub fn tenant() -> TenantId {
    "t".into()
}

pub fn limit(stage: &Stage, limits: TenantLimits) {
    let policy = TenantPolicy { limits, version: 1, ..TenantPolicy::default() };
    stage.host().apply_tenant_policy(&tenant(), &policy).unwrap();
}

pub fn one_turn() -> TenantLimits {
    TenantLimits { concurrent_turns: Some(1), ..TenantLimits::default() }
}

/// Posts a message over the session's routes, and runs its tasks until there is a response.
fn send(stage: &Stage, body: &Value, headers: &[(&str, &str)]) -> Result<Response, Problem> {
    let mut asked = request("POST /messages", "", headers, body.to_string());
    set_header(&mut asked, "prefer", "respond-async");
    exchange(stage, asked)
}

pub fn post(stage: &Stage, text: &str) -> Result<Response, Problem> {
    send(stage, &json!({ "content": text }), &[])
}

fn refused(stage: &Stage, text: &str) -> Problem {
    post(stage, text).map(drop).unwrap_err()
}

/// Takes a slot as another session of the tenant would.
pub fn other(stage: &Stage, quota: Quota) -> Admitted {
    other_with(stage, quota, NanoUsd(0))
}

/// The same for a turn with a cost ceiling.
pub fn other_with(stage: &Stage, quota: Quota, hold: NanoUsd) -> Admitted {
    let (sent_at, slot) = (stage.host().now(), Some(SlotUse::Starting));
    let standing = Standing { sent_at, slot, open_turns: 1, hold };
    let (session, created_at, started, continues) = ("other".into(), Timestamp(0), Vec::new(), false);
    let admission = Admission { session, created_at, standing, started, hold, continues, quota };
    block_on(stage.ledger.admit(&tenant(), &admission)).unwrap()
}

pub fn is_free(stage: &Stage) -> bool {
    matches!(other(stage, one_turn().quota()), Admitted::Until(_))
}

fn used(stage: &Stage) -> UsageTotals {
    let today = Day::of(NOW);
    let mut sum = UsageTotals::default();
    for row in block_on(stage.ledger.usage(&tenant(), today.earlier(1), today.next(), None)).unwrap().rows {
        sum += row.totals;
    }
    sum
}

#[test]
fn a_tenant_without_limits_asks_nothing_before_the_turn() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    post(&stage, "/slow 10 5").unwrap();
    assert_eq!(stage.ledger.calls.get(), 0);
    stage.settle();
    stage.follow_up();
    assert_eq!((stage.ledger.calls.get(), used(&stage).turns), (1, 1), "one report after the turn");
}

#[test]
fn a_refused_turn_stores_nothing() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    other(&stage, one_turn().quota());
    let before = stage.store.commits();
    let problem = refused(&stage, "hi");
    assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::RateLimited, Some(5)));
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::ConcurrentTurns);
    assert_eq!(stage.store.commits(), before);
    stage.ledger.down.set(true);
    assert_eq!(refused(&stage, "hi").code, ErrorCode::Unavailable);
    assert_eq!(stage.store.commits(), before);
}

#[test]
fn a_session_holds_one_slot_while_it_runs_and_for_its_queue() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    post(&stage, "/slow 1000 60").unwrap();
    post(&stage, "queued").unwrap();
    assert!(!is_free(&stage));
    // The slot is renewed for as long as the turn runs.
    stage.live(ms(30_000));
    stage.live(ms(20_000));
    assert!(!is_free(&stage));
    stage.settle();
    stage.run();
    assert!(is_free(&stage));
    assert_eq!(used(&stage).turns, 2);
}

#[test]
fn a_slot_outlives_no_crash_of_its_session() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    post(&stage, "/slow 100 5").unwrap();
    stage.store.die_after(Some(1));
    stage.run();
    stage.crash();
    stage.store.die_after(None);
    stage.ledger.unanswered.set(1);
    stage.wake();
    stage.settle();
    stage.live(ms(5_000));
    assert!(is_free(&stage));
    assert_eq!(used(&stage).turns, 1);
}

#[test]
fn a_turn_that_was_admitted_but_not_stored_gives_its_slot_back() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    stage.store.fail_commits(1);
    assert_eq!(refused(&stage, "hi").code, ErrorCode::Internal);
    stage.run();
    assert!(is_free(&stage));
}

#[test]
fn daily_limits_count_queued_and_waiting_turns() {
    let stage = Stage::demo();
    limit(&stage, TenantLimits { turns_per_day: Some(3), ..TenantLimits::default() });
    post(&stage, "/slow 100 5").unwrap();
    post(&stage, "queued").unwrap();
    stage.settle();
    post(&stage, "/tool ask_user {\"question\": \"Which?\"}").unwrap();
    stage.settle_waiting();
    stage.run();
    let problem = refused(&stage, "one more");
    assert_eq!(
        (problem.code, problem.reached.as_ref().unwrap().limit),
        (ErrorCode::QuotaExceeded, TimedLimit::TurnsPerDay)
    );
    assert_eq!(problem.reached.as_ref().unwrap().resets_at, Day::of(NOW).next().start());
    let seconds = Day::of(NOW).next().start().since(stage.host().now()).as_secs();
    assert!(problem.retry_after_s.unwrap().abs_diff(u32::try_from(seconds).unwrap()) <= 1);
}

#[test]
fn tokens_of_a_day_are_limited_by_what_was_reported() {
    let stage = Stage::demo();
    limit(&stage, TenantLimits { tokens_per_day: Some(1), ..TenantLimits::default() });
    post(&stage, "hi").unwrap();
    stage.settle();
    stage.run();
    let problem = refused(&stage, "hi");
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::TokensPerDay);
    stage.clock.advance(Day::of(NOW).next().start().since(stage.host().now()));
    post(&stage, "hi").unwrap();
}

#[test]
fn limits_of_the_deployment_apply_unless_the_tenant_has_its_own() {
    let stage = Stage::demo();
    *stage.default_limits.borrow_mut() = TenantLimits { turns_per_day: Some(0), ..TenantLimits::default() };
    stage.crash();
    assert_eq!(refused(&stage, "hi").code, ErrorCode::QuotaExceeded);
    limit(&stage, TenantLimits { turns_per_day: Some(1), ..TenantLimits::default() });
    let mut own = call("POST /messages", "", &json!({"content": "hi"}));
    own.principal.policy.limits.turns_per_day = Some(1);
    set_header(&mut own, "prefer", "respond-async");
    let answer = session::respond(&stage.host(), &own).now_or_never().expect("no wait");
    assert_eq!(status(&answer.unwrap()), 202);
}

#[test]
fn a_repeated_request_is_neither_counted_nor_refused() {
    let stage = Stage::demo();
    limit(&stage, TenantLimits { turns_per_day: Some(1), ..TenantLimits::default() });
    let once = || send(&stage, &json!({"content": "hi"}), &[("idempotency-key", "k")]);
    let first = whole(once().unwrap());
    stage.settle();
    stage.run();
    assert_eq!(whole(once().unwrap()), first);
    assert_eq!(refused(&stage, "another").code, ErrorCode::QuotaExceeded);
}

#[test]
fn an_erased_session_has_reported_everything() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    for _ in 0..3 {
        post(&stage, "hi").unwrap();
        stage.settle();
    }
    stage.ledger.down.set(true);
    assert!(block_on(stage.host().erase(&tenant(), &"s".into())).is_err());
    stage.ledger.down.set(false);
    stage.ledger.unanswered.set(1);
    assert!(block_on(stage.host().erase(&tenant(), &"s".into())).is_err());
    block_on(stage.host().erase(&tenant(), &"s".into())).unwrap();
    assert_eq!(used(&stage).turns, 3);
}

#[test]
fn usage_is_what_the_turns_say_whichever_commit_or_report_fails() {
    let play = |last: Option<u32>| {
        let stage = Stage::demo();
        limit(&stage, one_turn());
        stage.store.die_after(last);
        let died = Cell::new(false);
        // The session is evicted when its store dies, and starts again.
        let pass = |seconds: u64| {
            for _ in 0..seconds * 10 {
                stage.tick(ms(100));
                if last.is_some_and(|last| stage.store.commits() >= last) && !died.replace(true) {
                    stage.crash();
                    stage.store.die_after(None);
                    stage.wake();
                }
            }
        };
        for turn in 0..3 {
            stage.ledger.unanswered.set(u32::from(turn == 1));
            let said = json!({"content": "/tool echo {\"text\": \"hi\"}"});
            let accepted = send(&stage, &said, &[]);
            pass(2);
            if accepted.is_err() {
                pass(70);
                send(&stage, &said, &[]).unwrap();
            }
            pass(20);
        }
        stage
    };
    let commits = play(None).store.commits();
    for last in (1..=commits).map(Some).chain([None]) {
        let stage = play(last);
        let (mut tokens, mut turns, mut steps, mut calls) = (0, 0, 0, 0);
        for record in stage.records() {
            if record["type"].as_str().unwrap().starts_with("turn.") && record["budget"].is_object() {
                turns += 1;
                tokens += record["usage"]["total_tokens"].as_u64().unwrap();
                steps += record["steps"].as_u64().unwrap();
                calls += record["outcomes"]["result"].as_u64().unwrap_or_default();
            }
        }
        let used = used(&stage);
        let found = (used.turns, used.steps, used.tool_calls, used.tokens.total_tokens);
        assert_eq!(found, (turns, steps, calls, tokens), "the store died after {last:?} commits");
        stage.live(ms(310_000));
        assert!(is_free(&stage), "the store died after {last:?} commits");
    }
}

#[test]
fn each_model_call_counts_once() {
    let script = |request: &ModelRequest| {
        let is_judge = request.system.contains("\"score\"");
        let text = if is_judge { r#"{"score": 1, "reason": "good"}"# } else { "- She likes tea." };
        answer(vec![Part::text(text)])
    };
    let judge = Judge { name: "strict".into(), instructions: "Grade.".into(), sample: 1.0, model: None };
    let (stage, models) = Stage::scripted(script, move |builder| {
        builder.settings(Settings { judges: vec![judge.clone()], ..Settings::default() })
    });
    let compaction = CompactionSettings { at_messages: 6, keep_messages: 2, ..CompactionSettings::default() };
    *stage.context.borrow_mut() = ContextSettings::Compaction(compaction);
    stage.flush.set(Flush::Every(ms(0)));
    stage.crash();
    for turn in 0..6 {
        stage.post(&format!("t{turn}"), "I like tea.");
        stage.settle();
        stage.live(ms(12_000));
    }
    let records = stage.records();
    let purposes: BTreeSet<&str> = records.iter().filter_map(|record| record["purpose"].as_str()).collect();
    assert_eq!(purposes.into_iter().collect::<Vec<_>>(), ["compaction", "judge", "memory_flush"]);
    // Each scripted response has one input token.
    assert_eq!(used(&stage).tokens.input_tokens, models.requests().len() as u64);
    let owner = Owner { tenant: tenant(), agent: "default".into(), user: "u".into() };
    let before = models.requests().len();
    let _ = block_on(stage.memories(MemorySettings::default()).consolidate(&owner));
    assert!(models.requests().len() > before);
    assert_eq!(used(&stage).tokens.input_tokens, models.requests().len() as u64);
}

#[test]
fn an_erasure_in_the_middle_of_a_turn_frees_the_slot() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    post(&stage, "/slow 100 50").unwrap();
    let host = stage.host();
    stage.host().spawn(async move { host.erase(&tenant(), &"s".into()).await.unwrap() });
    // A renewal is due. Its job starts, but runs after the erasure has sent the last report.
    stage.clock.advance(ms(31_000));
    stage.host().run_due();
    stage.run();
    assert!(is_free(&stage));
    assert_eq!(used(&stage).turns, 0, "a turn that was erased did not end");
}

#[test]
fn commands_of_a_websocket_count_as_requests() {
    let stage = Stage::demo();
    post(&stage, "hello").unwrap();
    stage.settle();
    limit(&stage, TenantLimits { requests_per_min: Some(2), ..TenantLimits::default() });
    let socket = SocketState { principal: principal(), session: "s".into() };
    let send = || {
        let text = json!({"type": "message", "content": "hello"}).to_string();
        let response = block_on(command(&stage.host(), &socket, &text, &"req_1".into())).unwrap();
        serde_json::from_str::<Value>(&response).unwrap()
    };
    assert_eq!([send(), send()].map(|response| response["type"].clone()), ["accepted", "accepted"]);
    let refused = send();
    assert_eq!(refused["problem"]["limit"], "requests_per_min", "{refused}");
    let calls = stage.ledger.calls.get();
    assert_eq!((send()["type"].clone(), stage.ledger.calls.get()), (json!("error"), calls), "remembered");
    stage.clock.advance(ms(60_000));
    assert_eq!(send()["type"], "accepted");
}
