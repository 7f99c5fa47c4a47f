//! Storage limits of a tenant, as a session meets them.

use crate::http::{ask, call, respond, set_header};
use crate::stage::{Stage, ms};
use edge_harness::agent::Settings;
use edge_harness::memory::Flush;
use edge_harness::ports::SessionStore;
use edge_harness::types::{Problem, StorageLimits, TenantLimits};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn code<T>(refused: Result<T, Problem>) -> (u16, &'static str) {
    let problem = refused.err().expect("a problem");
    (problem.code.status(), problem.code.as_str())
}

fn failures(stage: &Stage) -> Vec<(Value, Value)> {
    let failed = stage.records().into_iter().filter(|record| record["type"] == "turn.sub_step_failed");
    failed.map(|record| (record["step"].clone(), record["reason"].clone())).collect()
}

#[test]
fn a_full_memory_neither_delays_replies_nor_is_retried() {
    let stage = Stage::demo();
    stage.flush.set(Flush::default());
    stage.crash();
    stage.index.limits.set(StorageLimits { memory_rows: Some(0), ..StorageLimits::default() });
    for turn in ["t1", "t2"] {
        stage.post(turn, "My name is Ann.");
        stage.settle();
        assert_eq!(stage.end(turn).sub_steps_failed, [""; 0]);
        stage.live(ms(60_000));
    }
    let reason = json!("the tenant's limit memory_rows is reached; delete memory");
    let expected = ["turn_index", "memory_flush"].map(|step| (json!(step), reason.clone()));
    assert_eq!(failures(&stage), expected, "once for each follow-up");
    let state = stage.session();
    let state = state.state();
    for name in ["turn_index", "memory_flush"] {
        assert!(!state.activity.follow_ups[name].is_requested(), "{name} has nothing left to retry");
    }
    drop(state);

    // Later messages are stored as soon as there is room.
    stage.index.limits.set(StorageLimits::default());
    stage.post("t3", "I prefer tea.");
    stage.settle();
    stage.live(ms(60_000));
    assert_eq!(failures(&stage).len(), 2);
    assert!(stage.kinds().contains(&"memory.flushed".to_owned()));
}

#[test]
fn a_tool_says_which_limit_is_reached() {
    let stage = Stage::demo();
    let one = StorageLimits { files: Some(0), memory_rows: Some(0), ..StorageLimits::default() };
    stage.files.limits.set(one);
    stage.index.limits.set(one);
    let write = r#"/tool write_file {"path": "a.md", "content": "x"}"#;
    let save = r#"/tool memory_save {"text": "Ann likes tea."}"#;
    stage.post("t1", &format!("{write}\n{save}"));
    stage.settle();
    let ended = stage.records().into_iter().filter(|record| record["type"] == "tool.completed");
    let reasons: Vec<String> = ended.map(|record| record["reason"].to_string()).collect();
    for (reason, limit) in reasons.iter().zip(["limit files is reached", "limit memory_rows is reached"]) {
        assert!(reason.contains(limit), "{reason}");
    }
    assert_eq!(reasons.len(), 2);
}

#[test]
fn a_session_over_the_limit_is_refused_before_anything_is_stored() {
    let (stage, _) = Stage::scripted(
        |_| panic!("no turn runs"),
        |builder| builder.settings(Settings { max_sessions: Some(0), ..Settings::default() }),
    );
    let attempts = [("POST /v1/sessions", json!({})), ("POST /messages", json!({"content": "hi"}))];
    for (route, body) in attempts {
        assert_eq!(code(ask(&stage, route, "", &body)), (429, "quota_exceeded"), "{route}");
        assert!(!stage.store.exists().unwrap(), "{route}");
    }
    // An existing session goes on.
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    let limits = TenantLimits { sessions: Some(0), ..TenantLimits::default() };
    let mut asked = call("POST /messages", "", &json!({"content": "hi"}));
    asked.principal.policy.limits = limits;
    set_header(&mut asked, "prefer", "respond-async");
    respond(&stage, &asked).unwrap();
    asked.request = call("POST /fork", "", &json!({})).request;
    assert_eq!(code(respond(&stage, &asked)), (429, "quota_exceeded"));
}
