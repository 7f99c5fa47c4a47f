//! Limits of a tenant, for turns that continue after a person has decided.

use crate::http::{exchange_with, request, set_header};
use crate::limits::{is_free, limit, one_turn, other_with, post, tenant};
use crate::stage::{NOW, Stage, ms};
use crate::subagents::{child, ruled};
use edge_harness::agent::SessionHost;
use edge_harness::http::Response;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{ManualClock, ScriptedHttp};
use edge_harness::ports::{Ledger, Model, Models};
use edge_harness::types::{
    Admitted, ErrorCode, ModelError, NanoUsd, Policy, Price, Problem, Quota, Report, SessionStatus, Standing,
    TenantLimits, TimedLimit, Timestamp,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{collections::BTreeMap, rc::Rc};

const ASK: &str = "/tool ask_user {\"question\": \"Which?\"}";

/// Ends the turn of the other session.
fn other_ends(stage: &Stage) {
    let standing = Standing { sent_at: stage.host().now(), slot: None, open_turns: 0, hold: NanoUsd(0) };
    let report = Report {
        session: "other".into(),
        created_at: Timestamp(0),
        from: 0,
        to: 0,
        rows: Vec::new(),
        started: BTreeMap::new(),
        standing,
        is_last: false,
    };
    block_on(stage.ledger.report(&tenant(), &report)).unwrap();
}

/// Sends a decision or an answer to a call of a session.
fn resolve(stage: &Stage, session: &str, route: &str, body: &Value) -> Result<Response, Problem> {
    let mut asked = request(&format!("POST {route}"), "", &[], body.to_string());
    asked.session = session.into();
    set_header(&mut asked, "prefer", "respond-async");
    exchange_with(stage, stage.others.host(session), asked)
}

/// A session whose turn asks a person, while another session runs. Returns the route of the answer.
fn asking(limits: &TenantLimits) -> (Stage, String) {
    let stage = Stage::demo();
    limit(&stage, limits.clone());
    post(&stage, ASK).unwrap();
    stage.settle_waiting();
    stage.run();
    let pending = stage.session().pending().unwrap();
    (stage, format!("/answers/{}", pending[0].call_id))
}

#[test]
fn an_answer_over_the_limit_is_refused_and_changes_nothing() {
    let (stage, route) = asking(&one_turn());
    assert!(is_free(&stage), "the other session takes the slot");
    let before = stage.store.commits();
    let answer = || resolve(&stage, "s", &route, &json!({"answer": "blue"}));
    let problem = answer().map(drop).unwrap_err();
    assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::RateLimited, Some(5)));
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::ConcurrentTurns);
    stage.ledger.down.set(true);
    assert_eq!(answer().map(drop).unwrap_err().code, ErrorCode::Unavailable);
    stage.ledger.down.set(false);
    assert_eq!(resolve(&stage, "s", &route, &json!({})).map(drop).unwrap_err().code.status(), 422);
    assert_eq!(stage.store.commits(), before);
    other_ends(&stage);
    answer().unwrap();
    stage.settle();
    stage.run();
    assert!(is_free(&stage));
    assert!(answer().is_ok(), "a repeated answer needs no slot");
}

#[test]
fn a_decision_after_which_the_turn_still_waits_needs_no_slot() {
    let stage = Stage::demo();
    limit(&stage, one_turn());
    post(&stage, &format!("{ASK}\n{ASK}")).unwrap();
    stage.settle_waiting();
    stage.run();
    assert!(is_free(&stage));
    let calls = stage.ledger.calls.get();
    let routes: Vec<_> =
        stage.session().pending().unwrap().iter().map(|call| format!("/answers/{}", call.call_id)).collect();
    resolve(&stage, "s", &routes[0], &json!({"answer": "blue"})).unwrap();
    assert_eq!(stage.ledger.calls.get(), calls);
    assert!(resolve(&stage, "s", &routes[1], &json!({"answer": "red"})).is_err());
}

#[test]
fn a_continuation_that_is_admitted_but_not_stored_gives_its_slot_back() {
    let (stage, route) = asking(&one_turn());
    stage.store.fail_commits(1);
    let failed = resolve(&stage, "s", &route, &json!({"answer": "blue"})).map(drop).unwrap_err();
    assert_eq!(failed.code, ErrorCode::Internal);
    stage.run();
    assert!(is_free(&stage));
}

#[test]
fn a_slot_whose_response_is_lost_is_given_back() {
    let (stage, route) = asking(&one_turn());
    stage.ledger.unanswered.set(1);
    let answer = || resolve(&stage, "s", &route, &json!({"answer": "blue"})).map(drop);
    assert_eq!(answer().unwrap_err().code, ErrorCode::Unavailable);
    stage.run();
    assert!(is_free(&stage));
    other_ends(&stage);
    answer().unwrap();
    stage.settle();
    // The same of a message that starts a turn.
    stage.run();
    stage.ledger.unanswered.set(1);
    assert_eq!(post(&stage, "hello").map(drop).unwrap_err().code, ErrorCode::Unavailable);
    stage.run();
    assert!(is_free(&stage));
}

#[test]
fn an_expired_call_continues_over_the_limit() {
    let (stage, _) = asking(&one_turn());
    assert!(is_free(&stage));
    let expires_at = stage.session().pending().unwrap()[0].expires_at;
    stage.clock.advance(expires_at.since(stage.host().now()));
    assert!(is_free(&stage), "the other session runs on");
    block_on(stage.host().wake()).unwrap();
    stage.settle();
    stage.run();
    assert_eq!(stage.session().state().status(), SessionStatus::Idle);
}

/// A parent whose subagent waits for an approval, with another session in the only slot.
fn delegating(task: &str) -> Stage {
    let stage = ruled("write_it", Policy::Ask);
    limit(&stage, one_turn());
    post(&stage, task).unwrap();
    stage.settle_waiting();
    stage.tick(ms(100));
    stage
}

#[test]
fn a_subagent_continues_in_a_slot_of_its_parent() {
    let stage = delegating("delegate:write:x");
    assert!(is_free(&stage), "the parent waits for a person");
    let id = child(&stage);
    let approve = || resolve(&stage, &id, "/approvals/w", &json!({"decision": "approve"}));
    let problem = approve().map(drop).unwrap_err();
    assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::RateLimited, Some(5)));
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::ConcurrentTurns);
    let pending = |host: &Rc<SessionHost>| host.open().unwrap().unwrap().pending().unwrap().len();
    assert_eq!((pending(&stage.host()), pending(&stage.others.host(&id))), (1, 1), "both still wait");
    other_ends(&stage);
    stage.others.down.set(true);
    assert_eq!(approve().map(drop).unwrap_err().code, ErrorCode::Unavailable);
    stage.others.down.set(false);
    approve().unwrap();
    assert!(!is_free(&stage));
    stage.settle();
    stage.run();
    stage.check();
    assert!(is_free(&stage));
    assert_eq!(stage.ledger.slots(&tenant(), stage.host().now()), 1, "only the other session has a slot");
}

#[test]
fn a_parent_waits_on_if_its_subagent_could_not_continue() {
    let stage = delegating("delegate:write:x");
    let id = child(&stage);
    stage.others.disk(&id).fail_commits(1);
    let failed = resolve(&stage, &id, "/approvals/w", &json!({"decision": "approve"})).map(drop).unwrap_err();
    assert_eq!(failed.code, ErrorCode::Internal);
    stage.tick(ms(2_000));
    stage.tick(ms(2_000));
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    assert!(is_free(&stage));
}

#[test]
fn a_parent_waits_on_if_its_response_to_a_subagent_is_lost() {
    let stage = delegating("delegate:write:x");
    let id = child(&stage);
    stage.others.unanswered.set(1);
    let approve = || resolve(&stage, &id, "/approvals/w", &json!({"decision": "approve"}));
    assert_eq!(approve().map(drop).unwrap_err().code, ErrorCode::Unavailable);
    stage.tick(ms(100));
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    assert!(is_free(&stage));
    other_ends(&stage);
    approve().unwrap();
    stage.settle();
    stage.run();
    stage.check();
    assert_eq!(stage.session().state().status(), SessionStatus::Idle);
}

#[test]
fn a_turn_keeps_its_slot_while_a_subagent_runs() {
    let stage = ruled("read_it", Policy::Ask);
    limit(&stage, one_turn());
    // The subagent runs for a while, and the parent waits for a person, too.
    stage.others.delay.set(ms(400));
    post(&stage, "mixed:say:hello").unwrap();
    stage.settle_waiting();
    stage.run();
    assert!(!is_free(&stage), "the subagent has not ended");
    for _ in 0..20 {
        stage.tick(ms(100));
    }
    assert!(is_free(&stage), "the subagent has ended");
    let approve = || resolve(&stage, "s", "/approvals/r", &json!({"decision": "approve"}));
    assert_eq!(approve().map(drop).unwrap_err().code, ErrorCode::RateLimited);
    other_ends(&stage);
    approve().unwrap();
    stage.settle();
}

/// The demo model with this price.
struct Priced(ModelRegistry, Price);

impl Models for Priced {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.0.resolve(id)
    }

    fn price(&self, _: &str) -> Option<Price> {
        Some(self.1)
    }

    fn default_model(&self) -> String {
        self.0.default_model()
    }
}

/// A stage whose demo model has this price for a million tokens.
fn priced(usd: f64) -> Stage {
    let price = Price { input: usd, output: usd, cache_read: None, cache_write: None };
    let (clock, http) = (ManualClock::at(NOW), Rc::new(ScriptedHttp::default()));
    let models = ModelRegistry::new(ModelSettings::default(), http, None, Rc::new(clock.clone()));
    Stage::with(clock, Rc::new(Priced(models, price)), |builder| builder)
}

/// Asks for a turn of the other session with a ceiling.
fn other_holds(stage: &Stage, usd: f64) -> Admitted {
    let quota = Quota { cost_usd_per_day: Some(10.0), ..Quota::default() };
    other_with(stage, quota, NanoUsd::of_usd(usd))
}

/// Returns whether the session holds so much that another one may not have a turn with this ceiling.
fn is_held(stage: &Stage, usd: f64) -> bool {
    let admitted = other_holds(stage, usd);
    other_ends(stage);
    matches!(admitted, Admitted::Refused(reached) if reached.held)
}

#[test]
fn the_turns_of_a_session_hold_their_ceilings() {
    let stage = priced(0.01);
    let limits =
        TenantLimits { cost_usd_per_day: Some(10.0), max_cost_usd: Some(4.0), ..TenantLimits::default() };
    limit(&stage, limits);
    post(&stage, "/slow 1000 5").unwrap();
    assert_eq!([6.0, 6.1].map(|usd| is_held(&stage, usd)), [false, true]);
    post(&stage, "queued").unwrap();
    assert_eq!([2.0, 2.1].map(|usd| is_held(&stage, usd)), [false, true]);
    let problem = post(&stage, "over").map(drop).unwrap_err();
    assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::RateLimited, Some(5)));
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::CostUsdPerDay);
    stage.settle();
    stage.run();
    // Nothing is held, and little was spent.
    assert!(!is_held(&stage, 9.0));
    post(&stage, ASK).unwrap();
    stage.settle_waiting();
    stage.run();
    assert!(!is_held(&stage, 9.0), "a turn that waits holds nothing");
    let pending = stage.session().pending().unwrap();
    assert!(matches!(other_holds(&stage, 7.0), Admitted::Until(_)));
    let answer =
        || resolve(&stage, "s", &format!("/answers/{}", pending[0].call_id), &json!({"answer": "blue"}));
    let problem = answer().map(drop).unwrap_err();
    assert_eq!(problem.reached.as_ref().unwrap().limit, TimedLimit::CostUsdPerDay);
    other_ends(&stage);
    answer().unwrap();
    stage.settle();
}

#[test]
fn a_turn_that_continues_holds_what_it_may_still_cost() {
    let stage = priced(1_000.0);
    let limits =
        TenantLimits { cost_usd_per_day: Some(10.0), max_cost_usd: Some(4.0), ..TenantLimits::default() };
    limit(&stage, limits);
    post(&stage, ASK).unwrap();
    stage.settle_waiting();
    stage.run();
    let spent = stage.session().state().activity.turn.as_ref().unwrap().cost_usd.unwrap();
    assert!(spent > 0.01 && spent < 2.0, "{spent}");
    // What the turn has spent counts as usage, so it holds the rest of its ceiling: all of the limit is taken.
    assert!(matches!(other_holds(&stage, 6.0), Admitted::Until(_)));
    let pending = stage.session().pending().unwrap();
    let route = format!("/answers/{}", pending[0].call_id);
    resolve(&stage, "s", &route, &json!({"answer": "blue"})).unwrap();
    stage.settle();
}
