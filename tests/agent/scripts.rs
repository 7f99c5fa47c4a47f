//! Models and decisions that several tests use.

use crate::stage::Stage;
use edge_harness::agent::host::suspensions::ApprovalDecision;
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer};
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

/// A decision of a caller who may approve any call.
pub fn ruling(decision: Decision) -> ApprovalDecision {
    ApprovalDecision {
        decision,
        reason: None,
        args: None,
        args_hash: None,
        is_approver: true,
        request_id: None,
    }
}

/// Number of responses since the user's last message.
pub fn step_of(request: &ModelRequest) -> usize {
    let own = request.messages.iter().rev().take_while(|message| message.role != Role::User);
    own.filter(|message| message.role == Role::Assistant).count()
}
