//! Calls that wait for approval, across evictions.

use crate::audit::ann;
use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, ms};
use edge_harness::agent::{
    OnBusy, Settings,
    host::suspensions::{ApprovalDecision, TurnEffect},
};
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer, call};
use edge_harness::ports::directory::SessionKinds;
use edge_harness::ports::{Directory, SessionStore};
use edge_harness::types::{
    BudgetPatch, CallId, Category, Decision, ModelRequest, Part, Pending, Policy, Problem, Rules,
    SessionStatus, TenantPolicy, TurnId, TurnStatus,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Calls `read_it` and twice `write_it` in its first step; then repeats the result of `w1`.
fn two_writes(request: &ModelRequest) -> ScriptedResponse {
    let results = request.messages.iter().flat_map(|message| &message.parts);
    let mut result = results.filter_map(|part| match part {
        Part::ToolResult { call_id, outcome, .. } if call_id == "w1" => {
            Some(outcome.model_text().into_owned())
        }
        _ => None,
    });
    let result = result.next_back();
    match step_of(request) {
        0 if result.is_none() => answer(vec![
            call("r1", "read_it", json!({"key": "r"})),
            call("w1", "write_it", json!({"key": "a"})),
            call("w2", "write_it", json!({"key": "b"})),
        ]),
        _ => answer(vec![Part::text(result.unwrap_or_default())]),
    }
}

/// A session in which `write_it` needs approval.
fn stage() -> Stage {
    let (stage, _) = Stage::scripted(two_writes, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([("write_it".to_owned(), Policy::Ask)]));
    stage
}

/// The same, with both writes waiting.
pub fn suspended() -> Stage {
    let stage = stage();
    stage.post("t1", "go");
    stage.run();
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    stage
}

pub fn decide(stage: &Stage, call: &str, approval: ApprovalDecision) -> Result<TurnEffect, Problem> {
    stage.host().decide(&stage.session(), &call.into(), approval, ann())
}

pub fn approve(stage: &Stage, call: &str) -> Result<TurnEffect, Problem> {
    decide(stage, call, ruling(Decision::Approve))
}

fn code(result: Result<TurnEffect, Problem>) -> &'static str {
    result.expect_err("refused").code.as_str()
}

fn waiting(stage: &Stage) -> Vec<CallId> {
    stage.session().pending().unwrap().into_iter().map(|pending: Pending| pending.call_id).collect()
}

fn runs(stage: &Stage) -> Vec<(String, u32)> {
    stage.runs.borrow().iter().map(|(key, runs)| (key.clone(), *runs)).collect()
}

pub fn of_type(stage: &Stage, kind: &str) -> Vec<Value> {
    stage.records().into_iter().filter(|record| record["type"] == kind).collect()
}

#[test]
fn no_call_of_a_step_runs_before_all_its_approvals() {
    let stage = suspended();
    assert_eq!(waiting(&stage), ["w1", "w2"]);
    assert_eq!(
        of_type(&stage, "tool.completed"),
        [] as [Value; 0],
        "not even the call that needs no approval"
    );
    let asked = of_type(&stage, "tool.approval_required");
    assert_eq!((&asked[0]["args"], &asked[0]["category"]), (&json!({"key": "a"}), &json!("other")));
    assert_eq!(asked[0]["args_hash"].as_str().map(str::len), Some(64));
    let last = stage.records().pop().unwrap();
    assert_eq!((&last["type"], last["pending"].as_array().map(Vec::len)), (&json!("turn.waiting"), Some(2)));
    assert_eq!(approve(&stage, "w2").unwrap(), TurnEffect::Waits);
    stage.run();
    assert_eq!((waiting(&stage), runs(&stage)), (vec![CallId::from("w1")], vec![]));
    assert_eq!(approve(&stage, "w1").unwrap(), TurnEffect::Continues);
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(stage.outcomes("t1"), ["result", "result", "result"]);
    let decided = of_type(&stage, "approval.decided");
    assert_eq!((&decided[0]["by"], &decided[0]["call_id"]), (&json!({"user": "ann"}), &json!("w2")));
    assert_eq!(stage.end("t1").reply.unwrap().text, "wrote a");
}

#[test]
fn one_call_may_be_approved_and_another_declined() {
    let stage = suspended();
    let reason = Some("not on a Friday".to_owned());
    let declined = ApprovalDecision { reason, ..ruling(Decision::Decline) };
    assert_eq!(decide(&stage, "w1", declined).unwrap(), TurnEffect::Waits);
    assert_eq!(approve(&stage, "w2").unwrap(), TurnEffect::Continues);
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("b".to_owned(), 1)]);
    assert_eq!(stage.outcomes("t1"), ["result", "declined", "result"]);
    assert_eq!(stage.end("t1").reply.unwrap().text, "Not run: not on a Friday");
}

#[test]
fn a_repeated_decision_changes_nothing_and_a_different_one_is_refused() {
    let stage = suspended();
    approve(&stage, "w1").unwrap();
    let before = stage.kinds();
    assert_eq!(approve(&stage, "w1").unwrap(), TurnEffect::None);
    assert_eq!(code(decide(&stage, "w1", ruling(Decision::Decline))), "already_decided");
    assert_eq!(code(approve(&stage, "unknown")), "not_found");
    assert_eq!(stage.kinds(), before);
    approve(&stage, "w2").unwrap();
    stage.settle();
    assert_eq!(approve(&stage, "w1").unwrap(), TurnEffect::None, "even after the turn ended");
    assert_eq!(code(decide(&stage, "w2", ruling(Decision::Decline))), "already_decided");
    stage.check();
}

#[test]
fn a_user_cannot_replace_arguments_by_what_the_operator_asks_about() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("w1", "write_file", json!({"path": "a.txt", "content": "x"}))]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([("write_file".to_owned(), Policy::Ask)]));
    let rules = json!({"patterns": [{"tool": "write_file", "pattern": "secrets/**", "policy": "ask"}]});
    stage.host().apply_tenant_policy(&"t".into(), &serde_json::from_value(rules).unwrap()).unwrap();
    stage.post("t1", "go");
    stage.run();
    let by_user = |path: &str| ApprovalDecision {
        args: Some(json!({"path": path, "content": "x"})),
        is_approver: false,
        ..ruling(Decision::Approve)
    };
    assert_eq!(code(decide(&stage, "w1", by_user("secrets/x"))), "missing_scope");
    decide(&stage, "w1", by_user("b.txt")).unwrap();
    stage.settle();
    stage.check();
    assert_eq!(stage.outcomes("t1"), ["result"]);
}

fn set_tenant_rules(stage: &Stage, version: u64, rules: Value) {
    let mut policy: TenantPolicy = serde_json::from_value(rules).unwrap();
    policy.version = version;
    stage.host().apply_tenant_policy(&"t".into(), &policy).unwrap();
}

#[test]
fn a_call_that_rules_begin_to_ask_about_while_its_step_runs_is_denied() {
    let stage = stage();
    stage.permit(|permissions| permissions.tools.clear());
    stage.post("t1", "go");
    stage.run();
    // `r1` runs, and the writes follow it.
    set_tenant_rules(&stage, 1, json!({"tools": {"write_it": "ask"}}));
    stage.settle();
    stage.check();
    assert_eq!(
        (runs(&stage), stage.outcomes("t1")),
        (vec![], vec!["result".into(), "permission".into(), "permission".into()])
    );
    let reason = stage.end("t1").reply.unwrap().text;
    assert!(reason.contains("call the tool again to request approval"), "{reason}");
}

#[test]
fn the_approval_of_a_user_does_not_suffice_once_the_operator_asks() {
    let stage = suspended();
    let by_user = ApprovalDecision { is_approver: false, ..ruling(Decision::Approve) };
    decide(&stage, "w1", by_user.clone()).unwrap();
    set_tenant_rules(&stage, 1, json!({"tools": {"write_it": "ask"}}));
    assert_eq!(code(decide(&stage, "w2", by_user.clone())), "missing_scope");
    approve(&stage, "w2").unwrap();
    assert_eq!(decide(&stage, "w2", by_user).unwrap(), TurnEffect::None, "it repeats the decision");
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("b".to_owned(), 1)]);
    assert_eq!(stage.outcomes("t1"), ["result", "permission", "result"]);
}

#[test]
fn a_grant_of_a_user_approves_no_call_about_which_the_operator_asked() {
    let stage = stage();
    stage.permit(|permissions| permissions.tools = [("read_it".to_owned(), Policy::Ask)].into());
    set_tenant_rules(&stage, 1, json!({"tools": {"write_it": "ask"}}));
    stage.post("t1", "go");
    stage.run();
    assert_eq!(waiting(&stage), ["r1", "w1", "w2"]);
    set_tenant_rules(&stage, 2, json!({}));
    let by_user = ApprovalDecision { is_approver: false, ..ruling(Decision::AlwaysAllowTool) };
    decide(&stage, "r1", by_user).unwrap();
    assert_eq!(waiting(&stage), ["w1", "w2"]);
    decide(&stage, "w1", ruling(Decision::AlwaysAllowTool)).unwrap();
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
}

#[test]
fn an_approval_is_for_its_arguments_only() {
    let stage = suspended();
    let stale = ApprovalDecision { args_hash: Some("0".repeat(64)), ..ruling(Decision::Approve) };
    assert_eq!(code(decide(&stage, "w1", stale)), "stale_args_hash");
    let unfit = ApprovalDecision { args: Some(json!({"key": {}})), ..ruling(Decision::Approve) };
    let refused = decide(&stage, "w1", unfit).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.errors[0].pointer.as_str()), ("validation_failed", "/args"));
    let asked = stage.session().pending().unwrap();
    let edited = ApprovalDecision {
        args: Some(json!({"key": "c"})),
        args_hash: Some(asked[0].args_hash.clone()),
        ..ruling(Decision::Approve)
    };
    decide(&stage, "w1", edited.clone()).unwrap();
    assert_eq!(decide(&stage, "w1", edited).unwrap(), TurnEffect::None);
    approve(&stage, "w2").unwrap();
    stage.settle();
    assert_eq!(runs(&stage), [("b".to_owned(), 1), ("c".to_owned(), 1)]);
    let decided = of_type(&stage, "approval.decided");
    assert_eq!(decided[0]["args"], json!({"key": "c"}));
    assert_ne!(decided[0]["args_hash"], json!(asked[0].args_hash), "hashed again");
    assert_eq!(of_type(&stage, "tool.completed")[1]["ran_with"], json!({"key": "c"}));
}

#[test]
fn always_allow_applies_to_waiting_and_later_calls() {
    for decision in [Decision::AlwaysAllowTool, Decision::AlwaysAllowCategory] {
        let stage = stage();
        // This rule is for the category, because a rule for the tool would take precedence over the grant.
        stage.permit(|permissions| {
            permissions.tools.clear();
            permissions.categories.insert(Category::Other, Policy::Ask);
        });
        stage.post("t1", "go");
        stage.run();
        let all = waiting(&stage);
        let last = all.last().unwrap().clone();
        // `read_it` is in the category, too.
        assert_eq!(all, ["r1", "w1", "w2"]);
        let change = decide(&stage, &last, ruling(decision)).unwrap();
        if decision == Decision::AlwaysAllowTool {
            assert_eq!((change, waiting(&stage)), (TurnEffect::Waits, vec![CallId::from("r1")]));
            approve(&stage, "r1").unwrap();
        } else {
            assert_eq!(change, TurnEffect::Continues);
        }
        stage.settle();
        stage.check();
        assert_eq!(runs(&stage), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    }
}

#[test]
fn an_approval_of_one_call_grants_no_other() {
    let stage = suspended();
    approve(&stage, "w1").unwrap();
    assert_eq!(code(decide(&stage, "w1", ruling(Decision::AlwaysAllowTool))), "already_decided");
    decide(&stage, "w2", ruling(Decision::AlwaysAllowTool)).unwrap();
    assert_eq!(decide(&stage, "w2", ruling(Decision::AlwaysAllowTool)).unwrap(), TurnEffect::None);
    assert_eq!(approve(&stage, "w2").unwrap(), TurnEffect::None);
    stage.settle();
    stage.check();
}

#[test]
fn a_suspended_call_survives_evictions_and_years() {
    for declines in [false, true] {
        let stage = suspended();
        stage.crash();
        stage.wake();
        stage.tick(ms(6 * 24 * 3_600_000));
        stage.crash();
        assert_eq!(waiting(&stage), ["w1", "w2"]);
        let decision = if declines { Decision::Decline } else { Decision::Approve };
        decide(&stage, "w1", ruling(decision)).unwrap();
        stage.crash();
        assert_eq!(waiting(&stage), ["w2"]);
        decide(&stage, "w2", ruling(decision)).unwrap();
        stage.settle();
        stage.check();
        let once = vec![("a".to_owned(), 1), ("b".to_owned(), 1)];
        assert_eq!(runs(&stage), if declines { vec![] } else { once });
        // Waiting does not count toward the turn's time.
        assert_eq!(stage.end("t1").status, TurnStatus::Completed);
        assert_eq!(stage.end("t1").reply.unwrap().text.starts_with("Not run"), declines);
    }
}

#[test]
fn an_expired_approval_is_declined() {
    let stage = suspended();
    approve(&stage, "w2").unwrap();
    // The object's alarm wakes it for the expiry.
    stage.live(ms(8 * 24 * 3_600_000));
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("b".to_owned(), 1)]);
    assert_eq!(stage.outcomes("t1"), ["result", "expired", "result"]);
    let decided = of_type(&stage, "approval.decided").pop().unwrap();
    assert_eq!((&decided["decision"], &decided["by"]), (&json!("decline"), &Value::Null));
    assert_eq!(code(approve(&stage, "w1")), "not_waiting");
}

#[test]
fn a_decision_at_the_expiry_is_too_late() {
    let stage = suspended();
    stage.tick(ms(7 * 24 * 3_600_000));
    assert_eq!(code(approve(&stage, "w1")), "not_waiting");
    stage.settle();
    assert_eq!((runs(&stage), stage.outcomes("t1").len()), (vec![], 3));
    stage.check();
}

#[test]
fn a_new_message_interrupts_a_turn_that_waits() {
    for on_busy in [OnBusy::Queue, OnBusy::Steer] {
        let stage = suspended();
        stage.try_post("t2", "something else", on_busy, BudgetPatch::default()).unwrap();
        stage.settle();
        stage.check();
        assert_eq!(runs(&stage), []);
        assert_eq!(stage.outcomes("t1"), ["canceled", "declined", "declined"]);
        assert_eq!(stage.end("t1").status, TurnStatus::Canceled);
        assert_eq!(stage.end("t2").reply.unwrap().text, "Not run: interrupted_by_user_message");
        assert_eq!(of_type(&stage, "approval.decided")[0]["reason"], "interrupted_by_user_message");
        assert_eq!(code(approve(&stage, "w1")), "not_waiting");
    }
    let stage = suspended();
    let refused = stage.try_post("t2", "x", OnBusy::Reject, BudgetPatch::default()).unwrap_err();
    assert_eq!((refused.code.as_str(), waiting(&stage).len()), ("session_busy", 2));
}

#[test]
fn messages_queued_before_a_call_waited_stay_queued() {
    let stage = stage();
    stage.post("t1", "go");
    stage.post("t2", "then this");
    stage.run();
    assert_eq!(waiting(&stage).len(), 2);
    stage.post("t3", "and this");
    stage.settle();
    stage.check();
    let started = of_type(&stage, "turn.started");
    let order: Vec<_> = started.iter().map(|record| record["turn"].as_str().unwrap()).collect();
    assert_eq!(order, ["t1", "t2", "t3"]);
    assert_eq!(stage.end("t1").status, TurnStatus::Canceled);
}

#[test]
fn a_message_that_cannot_be_stored_is_not_accepted() {
    for commits in 0..2 {
        let stage = suspended();
        stage.store.die_after(Some(commits));
        let post = || stage.try_post("t2", "something else", OnBusy::Queue, BudgetPatch::default());
        assert_eq!(post().unwrap_err().code.as_str(), "internal");
        stage.store.die_after(None);
        assert_eq!(stage.records().iter().filter(|record| record["turn"] == "t2").count(), 0);
        assert_eq!(stage.session().state().activity.queue, [] as [TurnId; 0]);
        post().unwrap();
        stage.settle();
        stage.check();
        assert_eq!((runs(&stage), stage.end("t1").status), (vec![], TurnStatus::Canceled));
        assert_eq!(stage.end("t2").status, TurnStatus::Completed);
    }
}

#[test]
fn rules_about_categories_survive_a_restart() {
    let stage = stage();
    let rule = (Category::Other, Policy::Ask);
    stage.permit(|permissions| permissions.categories.extend([rule]));
    stage.crash();
    assert_eq!(stage.session().state().meta.permissions.categories.get(&rule.0), Some(&rule.1));
}

#[test]
fn an_abort_ends_a_turn_that_waits() {
    let stage = suspended();
    approve(&stage, "w1").unwrap();
    assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
    assert!(!stage.host().abort(&stage.session(), Vec::new()).unwrap());
    stage.settle();
    stage.check();
    assert_eq!((runs(&stage), stage.outcomes("t1")), (vec![], vec!["canceled".to_owned(); 3]));
    assert_eq!(code(approve(&stage, "w2")), "not_waiting");
    assert_eq!(code(decide(&stage, "w1", ruling(Decision::Decline))), "already_decided");
}

#[test]
fn a_rule_added_after_an_approval_denies_the_call() {
    let stage = suspended();
    approve(&stage, "w1").unwrap();
    let deny = ("write_it".to_owned(), Policy::Deny);
    stage.permit(|permissions| permissions.tools.extend([deny]));
    approve(&stage, "w2").unwrap();
    stage.settle();
    stage.check();
    assert_eq!((runs(&stage), stage.outcomes("t1")[1].as_str()), (vec![], "permission"));
}

#[test]
fn a_failed_suspension_is_retried() {
    let stage = stage();
    stage.post("t1", "go");
    stage.store.die_after(Some(0));
    stage.run();
    stage.store.die_after(None);
    assert_eq!(stage.store.get("approval/w1").unwrap(), None);
    stage.crash();
    stage.wake();
    stage.run();
    approve(&stage, "w1").unwrap();
    approve(&stage, "w2").unwrap();
    stage.settle();
    stage.check();
    assert_eq!(runs(&stage), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
}

#[test]
fn the_list_of_sessions_shows_how_many_calls_wait() {
    let (stage, _) = Stage::scripted(
        |request| match step_of(request) {
            0 => answer(["c1", "c2"].map(|id| call(id, "write_it", json!({"key": id}))).to_vec()),
            _ => answer(vec![Part::text("done")]),
        },
        |builder| {
            let permissions = Rules { default: Some(Policy::Ask), ..Rules::default() };
            builder.settings(Settings { permissions, ..Settings::default() })
        },
    );
    let listed = || {
        let (tenant, directory) = ("t".into(), &stage.directory);
        let list = block_on(directory.sessions(SessionKinds::All, &tenant, None, None, None, 9)).unwrap();
        list.iter().map(|entry| entry.pending).collect::<Vec<_>>()
    };
    stage.post("t1", "hello");
    stage.settle_waiting();
    assert_eq!(listed(), [2]);
    let decide = |id: &str| {
        let route = format!("POST /approvals/{id}");
        let mut asked = crate::http::call(&route, "", &json!({"decision": "approve"}));
        crate::http::set_header(&mut asked, "prefer", "respond-async");
        crate::http::respond(&stage, &asked).unwrap();
        stage.run();
    };
    decide("c1");
    assert_eq!(listed(), [1]);
    decide("c2");
    stage.settle();
    assert_eq!(listed(), [0]);
}
