//! Limits of tenants: set by the operator, and sent to sessions with each request.

use crate::stage::{ADMIN, Answer, DEV, NOW, Request, Stage, config, delete, get, ids, post, request};
use edge_harness::http::{Forward, GatewayConfig, Handled, erasure};
use edge_harness::ports::{Clock, Directory, Ledger};
use edge_harness::types::{
    Day, ModelList, NanoUsd, Reached, StorageLimits, TenantId, TenantLimits, TimedLimit, Usage, UsageKey,
    UsageRow, UsageTotals,
};
use futures::FutureExt;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const PATH: &str = "/v1/admin/tenants/acme";

fn patch(stage: &Stage, limits: Value) -> Value {
    let answer = stage.answer(request("PATCH", PATH).bearer(ADMIN).json(&json!({ "limits": limits })));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["limits"].clone()
}

#[test]
fn the_operator_sets_shows_and_removes_limits() {
    let stage = Stage::new();
    let limits = json!({"models": ["openai/*", "anthropic/claude-haiku-4-5"], "max_steps": 20,
        "max_tool_calls": 0, "timeout_s": 60, "max_cost_usd": 0.5, "requests_per_min": 600,
        "concurrent_turns": 4, "turns_per_day": 100, "tokens_per_day": 1_000_000, "cost_usd_per_day": 2.5});
    let made = json!({"id": "acme", "limits": limits});
    let made = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&made));
    assert_eq!((made.status, &made.body["limits"]), (201, &limits));
    assert_eq!(stage.answer(get(PATH).bearer(ADMIN)).body["limits"], limits);
    assert_eq!(patch(&stage, json!({})), limits, "absent limits are kept");
    let rest = json!({"max_steps": 30, "max_tool_calls": 0, "max_cost_usd": 0.5, "turns_per_day": 200});
    let change = json!({"models": null, "max_steps": 30, "timeout_s": null, "requests_per_min": null,
        "concurrent_turns": null, "turns_per_day": 200, "tokens_per_day": null, "cost_usd_per_day": null});
    assert_eq!(patch(&stage, change), rest);
    assert_eq!(patch(&stage, Value::Null), Value::Null);
}

#[test]
fn invalid_limits_are_named() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    for (limits, pointer) in [
        (json!([]), "/limits"),
        (json!({"models": "openai/*"}), "/limits/models"),
        (json!({"max_steps": 0}), "/limits/max_steps"),
        (json!({"max_tool_calls": 10_001}), "/limits/max_tool_calls"),
        (json!({"timeout_s": "1h"}), "/limits/timeout_s"),
        (json!({"max_cost_usd": -1}), "/limits/max_cost_usd"),
        (json!({"requests_per_min": -1}), "/limits/requests_per_min"),
        (json!({"concurrent_turns": "2"}), "/limits/concurrent_turns"),
        (json!({"turns_per_day": 0.5}), "/limits/turns_per_day"),
        (json!({"tokens_per_day": -1}), "/limits/tokens_per_day"),
        (json!({"cost_usd_per_day": -0.1}), "/limits/cost_usd_per_day"),
        (json!({"models": []}), "/limits/models"),
        (json!({"models": ["openai/*", 1]}), "/limits/models/1"),
        (json!({"models": ["openai/*", "gpt-5"]}), "/limits/models/1"),
    ] {
        for ask in [request("PATCH", PATH), post("/v1/admin/tenants")] {
            let answer = stage.answer(ask.bearer(ADMIN).json(&json!({ "limits": limits })));
            assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)));
        }
    }
}

#[test]
fn limits_are_sent_with_each_request_and_narrow_the_list_of_models() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let sent =
        || stage.forward(post("/v1/sessions/s1/messages").bearer(&key).json(&json!({"content": "hi"})));
    let listed = || {
        let answer = stage.answer(get("/v1/models").bearer(&key));
        ids(&answer).into_iter().filter(|id| id.contains('/')).count()
    };
    assert_eq!((sent().principal.policy.limits, listed()), (TenantLimits::default(), 1));
    patch(&stage, json!({"models": ["openai/*"]}));
    let limits = TenantLimits { models: Some(ModelList(vec!["openai/*".into()])), ..TenantLimits::default() };
    assert_eq!((sent().principal.policy.limits, listed()), (limits, 0));
}

#[test]
fn requests_of_a_minute_are_limited_in_all_isolates_together() {
    let stage = Stage::new();
    assert_eq!(
        stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({"id": "acme"}))).status,
        201
    );
    let (_, key) = stage.key("acme", json!({}));
    let asked = || stage.answer(get("/v1/sessions").bearer(&key));
    asked();
    assert_eq!(stage.ledger.calls.get(), 0, "no limit, no call");
    patch(&stage, json!({"requests_per_min": 3}));
    assert_eq!([asked(), asked(), asked()].map(|answer| answer.status), [200, 200, 200]);
    let refused = asked();
    assert_eq!(refused.code(), (429, "rate_limited"));
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!((&refused.body["limit"], refused.text("resets_at")), (&json!("requests_per_min"), at(60)));
    let calls = stage.ledger.calls.get();
    assert_eq!(asked().status, 429);
    assert_eq!(stage.ledger.calls.get(), calls, "a reached limit is remembered");
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!(asked().status, 200);
    stage.ledger.down.set(true);
    assert_eq!(asked().status, 200, "the limit of requests does not depend on the ledger");
}

#[test]
fn requests_are_taken_in_blocks() {
    let stage = Stage::with(GatewayConfig {
        limits: TenantLimits { requests_per_min: Some(100), ..TenantLimits::default() },
        ..config()
    });
    let asked = || stage.answer(get("/v1/sessions").bearer(DEV)).status;
    assert!((0..100).all(|_| asked() == 200));
    assert_eq!((stage.ledger.calls.get(), asked()), (20, 429));
}

#[test]
fn retries_over_the_limit_return_at_its_pace() {
    let stage = Stage::with(GatewayConfig {
        limits: TenantLimits { requests_per_min: Some(4), ..TenantLimits::default() },
        ..config()
    });
    let asked = || stage.answer(get("/v1/sessions").bearer(DEV));
    assert!((0..4).all(|_| asked().status == 200));
    stage.clock.advance(Duration::from_secs(10));
    let refused: Vec<_> = (0..5).map(|_| asked()).collect();
    let waits: Vec<_> = refused.iter().map(|answer| answer.header("retry-after").unwrap()).collect();
    assert_eq!(waits, ["50", "65", "80", "95", "50"]);
    assert!(refused.iter().all(|answer| answer.text("resets_at") == at(60)));
}

#[test]
fn a_tenant_that_is_refused_often_waits_for_its_refusals() {
    let stage = Stage::with(GatewayConfig {
        limits: TenantLimits { requests_per_min: Some(1), ..TenantLimits::default() },
        ..config()
    });
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let asked = || get("/v1/sessions").bearer(DEV);
    assert_eq!(stage.answer(asked()).status, 200);
    assert!((0..51).all(|_| stage.answer(asked()).status == 429));
    let mut held = Box::pin(stage.handle(asked()));
    assert!(held.as_mut().now_or_never().is_none());
    assert_eq!(stage.answer(get("/v1/sessions").bearer(&key)).status, 200, "another tenant does not wait");
    stage.clock.advance(Duration::from_millis(20));
    let Some(Handled::Response(response)) = held.now_or_never() else { panic!("it waits for longer") };
    assert_eq!(Answer::from(response).code(), (429, "rate_limited"));
}

/// A gateway whose tenants may run two turns, with ten forwarded messages, each to a session of its own.
fn flooded() -> (Stage, Vec<Forward>) {
    let stage = Stage::with(GatewayConfig {
        limits: TenantLimits { concurrent_turns: Some(2), ..TenantLimits::default() },
        ..config()
    });
    let open = (0..10).map(|number| *stage.forward(message(&number.to_string()))).collect();
    (stage, open)
}

fn message(session: &str) -> Request {
    post(&format!("/v1/sessions/{session}/messages")).bearer(DEV).json(&json!({"content": "hi"}))
}

#[test]
fn a_message_is_refused_while_messages_to_many_sessions_wait() {
    let (stage, mut open) = flooded();
    let refused: Vec<_> = (0..3).map(|_| stage.answer(message("new"))).collect();
    for (answer, seconds) in refused.iter().zip([5.0, 7.5, 10.0]) {
        assert_eq!(answer.code(), (429, "rate_limited"));
        let resets_at = (NOW + Duration::from_secs_f64(seconds)).to_rfc3339();
        assert_eq!(
            (&answer.body["limit"], answer.text("resets_at")),
            (&json!("concurrent_turns"), resets_at)
        );
    }
    let waits: Vec<_> = refused.iter().map(|answer| answer.header("retry-after").unwrap()).collect();
    assert_eq!((waits, stage.ledger.calls.get()), (vec!["5", "8", "10"], 0));

    open.pop();
    open.push(*stage.forward(message("new")));
    assert_eq!(stage.answer(message("newer")).status, 429);
    // A client that has disconnected leaves its message open.
    stage.clock.advance(Duration::from_secs(3));
    stage.forward(message("newer"));
}

#[test]
fn only_messages_to_further_sessions_are_refused() {
    let (stage, open) = flooded();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    for (what, request) in [
        ("to a session with an open message", message("3")),
        ("which may have a stored response", message("new").header("idempotency-key", "k")),
        ("of another tenant", message("new").bearer(&key)),
        ("a read", get("/v1/sessions/new").bearer(DEV)),
        ("an abort", post("/v1/sessions/new/abort").bearer(DEV)),
        ("an approval", post("/v1/sessions/new/approvals/c").bearer(DEV).json(&json!({}))),
        // Its turn may run, and then it needs no other one.
        ("a steer", post("/v1/sessions/new/steer").bearer(DEV).json(&json!({"content": "hi"}))),
        ("a new session", post("/v1/sessions").bearer(DEV).json(&json!({}))),
    ] {
        assert!(matches!(stage.send(request), Handled::Forward(_)), "{what}");
    }
    // A second message to a session keeps it open when the first one has its response.
    let second = stage.forward(message("3"));
    drop(open);
    let more: Vec<_> = (10..19).map(|number| *stage.forward(message(&number.to_string()))).collect();
    assert_eq!(stage.answer(message("new")).status, 429);
    drop(second);
    stage.forward(message("new"));
    drop(more);
}

#[test]
fn a_daily_refusal_is_remembered_for_seconds() {
    let limits = TenantLimits { turns_per_day: Some(2), ..TenantLimits::default() };
    let stage = Stage::with(GatewayConfig { limits, ..config() });
    let caller = stage.forward(message("s")).principal;
    let quota = stage.gateway.quota(&caller);
    let refuse = |limit| {
        let reached = Reached { limit, resets_at: NOW + Duration::from_hours(12), held: false };
        stage.gateway.refusals.add(&caller.tenant, quota, reached, stage.clock.now());
    };
    refuse(TimedLimit::ConcurrentTurns);
    stage.forward(message("s"));
    refuse(TimedLimit::TurnsPerDay);
    let refused = stage.answer(message("s"));
    assert_eq!((refused.code(), &refused.body["limit"]), ((429, "quota_exceeded"), &json!("turns_per_day")));
    assert_eq!(refused.header("retry-after"), Some("43200"));
    stage.forward(message("s").header("idempotency-key", "k"));
    stage.forward(get("/v1/sessions/s").bearer(DEV));
    stage.clock.advance(Duration::from_secs(10));
    stage.forward(message("s"));
}

#[test]
fn a_daily_refusal_ends_with_another_limit() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    patch(&stage, json!({"tokens_per_day": 5}));
    let caller = stage.forward(message("s").bearer(&key)).principal;
    let reached =
        Reached { limit: TimedLimit::TokensPerDay, resets_at: NOW + Duration::from_hours(12), held: false };
    stage.gateway.refusals.add(&caller.tenant, stage.gateway.quota(&caller), reached, NOW);
    assert_eq!(stage.answer(message("s").bearer(&key)).status, 429);
    patch(&stage, json!({"tokens_per_day": 6}));
    stage.forward(message("s").bearer(&key));
}

/// The time `seconds` after the start of the test.
fn at(seconds: u64) -> String {
    (NOW + Duration::from_secs(seconds)).to_rfc3339()
}

fn row(day: Day, agent: &str, model: &str, user: &str) -> UsageRow {
    let tokens = Usage { input_tokens: 7, output_tokens: 3, total_tokens: 10, ..Usage::default() };
    let key = UsageKey { day, agent: agent.into(), model: model.into(), user: user.into() };
    let totals = UsageTotals { turns: 1, steps: 2, tool_calls: 1, tokens, cost: NanoUsd(500_000) };
    UsageRow { key, totals }
}

#[test]
fn usage_is_grouped_and_adds_up() {
    let stage = Stage::new();
    assert_eq!(
        stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({"id": "acme"}))).status,
        201
    );
    let (_, key) = stage.key("acme", json!({"scopes": ["read"]}));
    let today = Day::of(NOW);
    let rows = [
        row(today, "default", "demo/echo", "ann"),
        row(today, "default", "p/m", "bob"),
        row(today.earlier(1), "other", "demo/echo", "ann"),
        row(today.earlier(30), "default", "demo/echo", "ann"),
    ];
    block_on(stage.ledger.charge(&"acme".into(), &rows)).unwrap();
    let path = "/v1/admin/tenants/acme/usage";
    let whole = stage.answer(get(path).bearer(ADMIN)).body;
    let days: Vec<&Value> = whole["data"].as_array().unwrap().iter().map(|row| &row["day"]).collect();
    assert_eq!(days, ["2026-11-19", "2026-11-20"]);
    assert_eq!((&whole["from"], &whole["to"]), (&json!("2026-10-22"), &json!("2026-11-20")));
    let total = json!({"turns": 3, "steps": 6, "tool_calls": 3, "input_tokens": 21, "output_tokens": 9,
        "cache_read_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0, "total_tokens": 30,
        "cost_usd": 0.0015});
    assert_eq!(whole["total"], total);
    for (group, keys) in
        [("agent", ["default", "other"]), ("model", ["demo/echo", "p/m"]), ("user", ["ann", "bob"])]
    {
        let found = stage.answer(get(&format!("/v1/usage?group={group}")).bearer(&key)).body;
        let data = found["data"].as_array().unwrap();
        assert_eq!(data.iter().map(|row| row[group].as_str().unwrap()).collect::<Vec<_>>(), keys);
        let turns: u64 = data.iter().map(|row| row["turns"].as_u64().unwrap()).sum();
        assert_eq!((turns, &found["total"]), (3, &total));
    }
    stage.session("acme", "s", "ann", 0);
    let ann = stage.answer(get("/v1/usage?user=ann").bearer(&key)).body;
    assert_eq!((&ann["total"]["turns"], &ann["storage"]["sessions"]), (&json!(2), &json!(1)));
    assert_eq!(stage.answer(get("/v1/usage?user=bob").bearer(&key)).body["storage"]["sessions"], 0);
    let first = stage.answer(get("/v1/usage?limit=1").bearer(&key)).body;
    let next = format!("/v1/usage?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = stage.answer(get(&next).bearer(&key)).body;
    assert_eq!((&second["data"][0]["day"], &second["next_cursor"]), (&json!("2026-11-20"), &Value::Null));
    // Cron records what is stored; a day without turns is listed, too.
    block_on(stage.directory.record_storage(today.earlier(2).start())).unwrap();
    let whole = stage.answer(get(path).bearer(ADMIN)).body;
    assert_eq!((&whole["data"][0]["day"], &whole["data"][0]["turns"]), (&json!("2026-11-18"), &json!(0)));
    assert_eq!(whole["data"][0]["storage"]["sessions"], 1);
    assert_eq!((&whole["data"][1]["storage"], &whole["total"]), (&Value::Null, &total));
    let ann = stage.answer(get("/v1/usage?user=ann").bearer(&key)).body;
    assert_eq!(ann["data"].as_array().unwrap().len(), 2, "only the tenant's storage is recorded");
    let old = format!("{path}?from=2026-10-21&to=2026-10-21");
    assert_eq!(stage.answer(get(&old).bearer(ADMIN)).body["total"]["turns"], 1);
}

#[test]
fn usage_of_many_users_adds_up() {
    let stage = Stage::new();
    stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({"id": "acme"})));
    let today = Day::of(NOW);
    for day in [today.earlier(1), today] {
        let rows: Vec<_> = (0..3_000).map(|n| row(day, "default", "demo/echo", &format!("u{n}"))).collect();
        block_on(stage.ledger.charge(&"acme".into(), &rows)).unwrap();
    }
    let page = block_on(stage.ledger.usage(&"acme".into(), today.earlier(1), today, None)).unwrap();
    assert!(page.rows.len() < 6_000 && page.next.is_some());
    let path = "/v1/admin/tenants/acme/usage?group=day";
    let whole = stage.answer(get(path).bearer(ADMIN)).body;
    let turns: Vec<_> = whole["data"].as_array().unwrap().iter().map(|row| row["turns"].as_u64()).collect();
    assert_eq!((turns, &whole["total"]["turns"]), (vec![Some(3_000); 2], &json!(6_000)));
    let one = stage.answer(get(&format!("{path}&user=u7")).bearer(ADMIN)).body;
    assert_eq!(one["total"]["turns"], 2);
}

#[test]
fn invalid_questions_about_usage_are_named() {
    let stage = Stage::new();
    assert_eq!(
        stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({"id": "acme"}))).status,
        201
    );
    for (query, pointer) in [
        ("from=yesterday", "?from"),
        ("to=2026-02-30", "?to"),
        ("from=2026-11-21", "?from"),
        ("from=2020-01-01", "?from"),
        ("group=session", "?group"),
        ("limit=0", "?limit"),
    ] {
        let path = format!("/v1/admin/tenants/acme/usage?{query}");
        let answer = stage.answer(get(&path).bearer(ADMIN));
        assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)), "{query}");
    }
    assert_eq!(stage.answer(get("/v1/admin/tenants/none/usage").bearer(ADMIN)).status, 404);
    assert_eq!(stage.answer(get("/v1/admin/tenants/acme/usage").bearer(DEV)).status, 403);
}

#[test]
fn the_ledger_is_erased_with_its_tenant() {
    let stage = Stage::new();
    assert_eq!(
        stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({"id": "acme"}))).status,
        201
    );
    let tenant = TenantId::from("acme");
    block_on(stage.ledger.charge(&tenant, &[row(Day::of(NOW), "default", "demo/echo", "ann")])).unwrap();
    assert_eq!(stage.answer(delete(PATH).bearer(ADMIN)).status, 204);
    assert!(!stage.ledger.is_empty(&tenant));
    stage.ledger.down.set(true);
    block_on(erasure::sweep(&stage.gateway)).unwrap();
    stage.ledger.down.set(false);
    block_on(erasure::sweep(&stage.gateway)).unwrap();
    assert!(stage.ledger.is_empty(&tenant));
    stage.clock.advance(Duration::from_hours(1));
    block_on(erasure::sweep(&stage.gateway)).unwrap();
    assert!(block_on(stage.directory.deleted_tenants(1)).unwrap().is_empty());
}

#[test]
fn storage_limits_are_named_when_a_write_exceeds_them() {
    let stage = Stage::new();
    let limits = json!({"storage_bytes": 1_000, "sessions": 5, "files": 10, "memory_rows": 20});
    let made = json!({"id": "acme", "limits": limits});
    let made = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&made));
    assert_eq!((made.status, &made.body["limits"]), (201, &limits));
    stage.session("acme", "a", "ann", 0);
    let shown = stage.answer(get(PATH).bearer(ADMIN)).body;
    let storage = json!({"files": 0, "file_bytes": 0, "memory_rows": 0, "memory_bytes": 0, "sessions": 1});
    assert_eq!((&shown["limits"], &shown["storage"]), (&limits, &storage));

    let none = StorageLimits { files: Some(0), memory_rows: Some(0), ..StorageLimits::default() };
    stage.files.limits.set(none);
    stage.index.limits.set(none);
    let turns = json!({"session": "s", "turns": [{"id": "1", "speaker": "user", "text": "x"}]});
    for (write, limit) in [
        (request("PUT", "/v1/workspace/files/a").body("x"), "files"),
        (post("/v1/memory").json(&json!({"facts": [{"text": "x"}]})), "memory_rows"),
        (post("/v1/memory/turns").json(&turns), "memory_rows"),
    ] {
        let answer = stage.answer(write.bearer(DEV));
        assert_eq!(answer.code(), (429, "quota_exceeded"));
        assert_eq!(answer.body["limit"], json!(limit));
    }
}

#[test]
fn limits_that_were_not_copied_are_copied_later() {
    let stage = Stage::new();
    let copies = || {
        block_on(edge_harness::http::storage_limits::sweep(&stage.gateway));
        stage.directory.limit_copies.get()
    };
    let made = || post("/v1/admin/tenants").bearer(ADMIN);
    stage.directory.copies_fail.set(true);
    let limited = json!({"id": "acme", "limits": {"files": 9}});
    assert_eq!(stage.answer(made().json(&limited)).status, 503);
    assert_eq!(copies(), 0);
    assert!(stage.logged("limits.failed"));
    stage.directory.copies_fail.set(false);
    assert_eq!((copies(), copies()), (1, 1), "once");
    stage.directory.copies_fail.set(true);
    let change = request("PATCH", PATH).bearer(ADMIN).json(&json!({"limits": {"files": 8}}));
    assert_eq!(stage.answer(change).status, 503);
    stage.directory.copies_fail.set(false);
    assert_eq!((copies(), copies()), (2, 2));
    // Other tenants have no limits to copy.
    assert_eq!(stage.answer(made().json(&json!({"id": "globex"}))).status, 201);
    assert_eq!(copies(), 2);
}
