//! The rules, the mode and the grants of a parent in its children.

use super::*;
use edge_harness::types::ModelList;
use pretty_assertions::assert_eq;

#[test]
fn a_parents_denials_apply_to_its_children() {
    let stage = ruled("write_it", Policy::Deny);
    stage.post("t1", "delegate:write:a");
    stage.settle();
    assert_eq!(stage.runs.borrow().len(), 0);
    let reason = outcomes(&stage.others.disk(&child(&stage))).pop().unwrap();
    assert!(reason.as_str().unwrap().contains("write_it"), "{reason}");
}

#[test]
fn later_denials_of_a_parent_apply_to_its_children() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    let patch = json!({"permissions": {"tools": {"write_it": "deny"}}});
    ask(stage.host(), request("PATCH /v1/sessions/s", "", &patch), "s").unwrap();
    stage.run();
    assert_eq!(session(&stage, &id).1.state().meta.permissions.tools["write_it"], Policy::Deny);
    approve(&stage, &id, "w", Decision::Approve);
    stage.settle();
    assert_eq!(stage.runs.borrow().len(), 0, "no approval lifts a denial");
    // The tenant's rules are updated by every request.
    let mut call = request("GET /v1/sessions/s", "", &json!({}));
    let mut principal = principal();
    principal.policy.rules.tools.insert("read_it".into(), Policy::Deny);
    call.principal = principal;
    let stage = ruled("read_it", Policy::Ask);
    stage.post("t1", "delegate:read:a");
    stage.settle_waiting();
    ask(stage.host(), call, "s").unwrap();
    stage.run();
    let id = child(&stage);
    approve(&stage, &id, "r", Decision::AlwaysAllowTool);
    stage.settle();
    let outcome = outcomes(&stage.others.disk(&id)).pop().unwrap();
    assert!(
        outcome.as_str().unwrap().contains("not allowed") || outcome.as_str().unwrap().contains("read_it")
    );
    assert_ne!(outcome, "read a");
}

#[test]
fn a_child_does_not_use_a_model_that_the_tenant_may_not_use() {
    let reviewer = SubagentKind {
        id: "reviewer".into(),
        model: Some("scripted/large".into()),
        ..SubagentKind::default()
    };
    let model = |models: Option<&str>| {
        let (stage, _) = with(vec![reviewer.clone()]);
        let mut post = request("POST /v1/sessions/s/messages", "", &json!({"content": "review:say:hello"}));
        let models = models.map(|model| ModelList(vec![model.to_owned()]));
        post.principal.policy.limits.models = models;
        set_header(&mut post, "prefer", "respond-async");
        ask(stage.host(), post, "s").unwrap();
        stage.settle();
        let id = child(&stage);
        session(&stage, &id).1.state().meta.model.clone()
    };
    assert_eq!(model(None).as_deref(), Some("scripted/large"));
    assert_eq!(model(Some("scripted/*")).as_deref(), Some("scripted/large"));
    assert_eq!(model(Some("scripted/model")), None, "the model of the parent");
}

#[test]
fn the_limits_of_the_tenant_apply_to_children() {
    let stage = stage();
    let mut post = request("POST /v1/sessions/s/messages", "", &json!({"content": "delegate:say:hello"}));
    post.principal.policy.limits.max_tool_calls = Some(7);
    set_header(&mut post, "prefer", "respond-async");
    ask(stage.host(), post, "s").unwrap();
    stage.settle();
    let id = child(&stage);
    let (_, child) = session(&stage, &id);
    assert_eq!(child.state().guidance.tenant_policy.limits.max_tool_calls, Some(7));
    assert!(child.state().meta.budget.max_tool_calls < 7, "a share of the parent's");
}

#[test]
fn a_child_stays_in_its_parents_mode() {
    let plan = Mode { id: "plan".into(), read_only: true, ..Mode::default() };
    let (stage, _) = with(Vec::new());
    let stage = stage.with_modes(vec![plan, Mode { id: "build".into(), ..Mode::default() }]);
    stage.post("t1", "delegate:write:a");
    stage.settle();
    let id = child(&stage);
    assert_eq!(session(&stage, &id).1.state().meta.mode, stage.session().state().meta.mode);
    assert_eq!(stage.runs.borrow().len(), 0, "the mode only allows reads");
    stage.post("t2", "fork:leave:");
    stage.settle();
    let outcome = outcomes(&stage.others.disk(&child(&stage))).pop().unwrap();
    assert!(outcome.as_str().unwrap().contains("a subagent cannot use this tool"), "{outcome}");
}

#[test]
fn older_rules_do_not_lift_a_denial_in_a_child() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    stage.tick(ms(1_000));
    // A decision in the child carries the tenant's new rules; the parent does not have them yet.
    let mut approval = request("POST /approvals/w", "", &json!({"decision": "approve"}));
    set_header(&mut approval, "prefer", "respond-async");
    approval.principal.policy.rules.tools.insert("write_it".into(), Policy::Deny);
    approval.principal.policy.version = 1;
    stage.crash();
    ask(stage.others.host(&id), approval, &id).unwrap();
    stage.settle();
    assert_eq!(stage.runs.borrow().len(), 0);
    assert_eq!(session(&stage, &id).1.state().guidance.tenant_policy.rules.tools["write_it"], Policy::Deny);
}

#[test]
fn grants_in_a_child_stay_unless_the_parent_revokes_them() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    approve(&stage, &id, "w", Decision::AlwaysAllowTool);
    let patch = json!({"permissions": {"tools": {"echo": "deny"}}});
    ask(stage.host(), request("PATCH /v1/sessions/s", "", &patch), "s").unwrap();
    stage.settle();
    let theirs = session(&stage, &id).1.state().meta.permissions.clone();
    assert_eq!((theirs.tools.get("write_it"), theirs.tools.get("echo")), (None, Some(&Policy::Deny)));
    assert!(theirs.grants.tools.contains("write_it"));
    assert_eq!(
        stage.session().state().meta.permissions.tools["write_it"],
        Policy::Ask,
        "here it is not granted"
    );
}

#[test]
fn the_newest_of_the_tenants_rules_apply_in_a_child() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    let show = |host, id: &str, deny: bool| {
        let mut call = request("GET /v1/sessions/s", "", &json!({}));
        if deny {
            call.principal.policy.rules.tools.insert("write_it".into(), Policy::Deny);
            call.principal.policy.version = 1;
        }
        ask(host, call, id).unwrap();
        stage.run();
    };
    show(stage.host(), "s", true);
    show(stage.others.host(&id), &id, false);
    show(stage.host(), "s", true);
    approve(&stage, &id, "w", Decision::Approve);
    stage.settle();
    assert_eq!(stage.runs.borrow().len(), 0);
}
