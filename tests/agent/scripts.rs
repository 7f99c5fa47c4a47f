//! Models and decisions that several tests use.

use crate::discipline::Cite;
use crate::stage::Stage;
use edge_harness::agent::host::suspensions::ApprovalDecision;
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer, call};
use edge_harness::standard::Config;
use edge_harness::types::{Category, Decision, ModelRequest, Part, Policy, Role};

/// A reply of one text.
pub fn says(text: &str) -> ScriptedResponse {
    answer(vec![Part::text(text)])
}

/// Makes these calls, and says `Done` after their results.
pub fn calls_first(calls: fn() -> Vec<Part>) -> impl Fn(&ModelRequest) -> ScriptedResponse {
    move |request| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(calls()),
    }
}

/// A session in which calls of `write_it` need an approval.
pub fn asking(script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static) -> Stage {
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.categories.insert(Category::Other, Policy::Ask);
    });
    stage
}

/// A session whose model cites two sources, keeps a task list and submits a plan, with one call per step.
pub fn planning() -> Stage {
    const CALLS: [(&str, &str); 5] = [
        ("cite", r#"{"local": 1, "web": 1}"#),
        ("task_write", r#"{"tasks": [{"content": "Paint"}]}"#),
        ("plan_enter", "{}"),
        ("plan_write", r##"{"content": "# Plan\n1. Paint it."}"##),
        ("plan_exit", r#"{"summary": "Paint."}"#),
    ];
    let script = |request: &ModelRequest| {
        let step = step_of(request);
        answer(vec![match CALLS.get(step) {
            Some((name, args)) => call(&format!("c{step}"), name, serde_json::from_str(args).unwrap()),
            None => Part::text("Done"),
        }])
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(Cite));
    stage.with_modes(Config::default().agent.modes)
}

/// A decision of a caller who may approve any call.
pub fn ruling(decision: Decision) -> ApprovalDecision {
    ApprovalDecision { decision, reason: None, args: None, args_hash: None, is_approver: true }
}

/// Number of responses since the user's last message.
pub fn step_of(request: &ModelRequest) -> usize {
    let own = request.messages.iter().rev().take_while(|message| message.role != Role::User);
    own.filter(|message| message.role == Role::Assistant).count()
}
