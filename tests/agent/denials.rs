//! A denied call never runs, whatever people grant, in any mode, and in subagents.

use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, meta, ms};
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer, call};
use edge_harness::types::{
    Category, Decision, Mode, ModelRequest, Part, Policy, ResolvedBy, Role, SessionStatus,
};
use proptest::prelude::*;
use serde_json::json;

/// Writes by itself, or spawns a subagent that does. The subagent may be a fork, or spawn another.
fn script(request: &ModelRequest) -> ScriptedResponse {
    let said = request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text();
    let (verb, rest) = said.split_once(':').unwrap_or((&said, ""));
    let send = |forked: bool| {
        let args = json!({"agent": "general-purpose", "task": rest, "forked": forked});
        answer(vec![call("d", "subagent", args)])
    };
    match (step_of(request), verb) {
        (0, "send") => send(false),
        (0, "fork") => send(true),
        (0, _) => answer(vec![call("w", "write_it", json!({"key": "a"}))]),
        _ => answer(vec![Part::text("done")]),
    }
}

/// An action of a person.
#[derive(Clone, Debug)]
enum Act {
    GrantTool,
    GrantCategory,
    Yolo(bool),
    /// A rule of the tenant or of the session.
    Rule(bool, Policy),
    Default(Policy),
    Mode(bool),
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Allow), Just(Policy::Ask), Just(Policy::Deny)]
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::GrantTool),
        Just(Act::GrantCategory),
        any::<bool>().prop_map(Act::Yolo),
        (any::<bool>(), any_policy()).prop_map(|(tenant, policy)| Act::Rule(tenant, policy)),
        any_policy().prop_map(Act::Default),
        any::<bool>().prop_map(Act::Mode),
    ]
}

fn act(stage: &Stage, act: &Act) {
    let (host, session) = (stage.host(), stage.session());
    let mut tenant = session.state().guidance.tenant_policy.clone();
    stage.permit(|permissions| match act {
        Act::GrantTool => drop(permissions.grants.tools.insert("write_it".into())),
        Act::GrantCategory => drop(permissions.grants.categories.insert(Category::Other)),
        Act::Yolo(on) => permissions.yolo = *on,
        Act::Rule(true, policy) => drop(tenant.rules.tools.insert("write_it".into(), *policy)),
        Act::Rule(false, policy) => drop(permissions.tools.insert("write_it".into(), *policy)),
        Act::Default(policy) => permissions.default = Some(*policy),
        Act::Mode(_) => {}
    });
    if let Act::Mode(plan) = act {
        let agent = host.agent();
        let modes = agent.modes();
        let mode = modes.current(Some(if *plan { "plan" } else { "build" })).unwrap();
        session.commit(host.now(), |draft| draft.switch_mode(modes, None, mode)).unwrap();
    }
    host.apply_tenant_policy(&"t".into(), &tenant).unwrap();
    stage.run();
}

/// Whether a rule forbids the call.
fn denied(stage: &Stage) -> bool {
    let session = stage.session();
    let state = session.state();
    let denies = |rule: Option<&Policy>| rule == Some(&Policy::Deny);
    denies(state.guidance.tenant_policy.rules.tools.get("write_it"))
        || denies(state.meta.permissions.tools.get("write_it"))
        || state.meta.mode.as_deref() == Some("plan")
}

/// Approves every suspended call permanently, in all sessions.
fn consent(stage: &Stage) {
    let by = ResolvedBy::default();
    let always = ruling(Decision::AlwaysAllowTool);
    for pending in stage.session().pending().unwrap() {
        let theirs = pending.payload["pending"].as_array().cloned().unwrap_or_default();
        match pending.payload["session"].as_str() {
            Some(id) => {
                let host = stage.others.host(id);
                for call in theirs {
                    let session = host.open().unwrap().unwrap();
                    let call = call["call_id"].as_str().unwrap();
                    host.decide(&session, &call.into(), always.clone(), by.clone()).unwrap();
                }
            }
            None => drop(stage.host().decide(&stage.session(), &pending.call_id, always.clone(), by.clone())),
        }
    }
    stage.settle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn forbidden_calls_never_run(
        rounds in prop::collection::vec(
            (prop::collection::vec(any_act(), 0..4), "(write|send:write|fork:write|fork:send:write):",
             prop::collection::vec(any_act(), 0..3)),
            1..4,
        ),
    ) {
        let plan = Mode { id: "plan".into(), read_only: true, ..Mode::default() };
        let (stage, _) = Stage::scripted(script, |builder| builder);
        stage.subagents.replace(Some(Vec::new()));
        let stage = stage.with_modes(vec![Mode { id: "build".into(), ..Mode::default() }, plan]);
        stage.host().create(meta(stage.host().now())).unwrap();
        for (n, (before, said, later)) in rounds.into_iter().enumerate() {
            before.iter().for_each(|own| act(&stage, own));
            stage.runs.borrow_mut().clear();
            let forbidden = denied(&stage);
            stage.post(&format!("t{n}"), &said);
            for _ in 0..40 {
                stage.tick(ms(50));
            }
            if forbidden {
                prop_assert!(stage.runs.borrow().is_empty(), "{said} ran without approval");
            }
            if stage.session().state().status() == SessionStatus::Waiting {
                later.iter().for_each(|own| act(&stage, own));
                let forbidden = denied(&stage);
                consent(&stage);
                if forbidden {
                    prop_assert!(stage.runs.borrow().is_empty(), "{said} ran by approval");
                }
            }
        }
        stage.check();
    }
}
