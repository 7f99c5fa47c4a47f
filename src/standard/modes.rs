//! The modes of the standard agent.

use crate::types::{Mode, mode::PLAN};

const PLAN_INSTRUCTIONS: &str = "You are in plan mode: gather the information you need, and change nothing. Work out what \
to do and how, and ask the user with ask_user where you cannot decide. Write the plan with plan_write: the goal, the \
steps in order, what each step changes, and how to verify it. When the plan is complete, call plan_exit to submit it to \
the user. Carry out nothing before the plan is approved.";

/// Returns the modes `build`, which may do everything, and `plan`, which may only read.
pub(super) fn standard() -> Vec<Mode> {
    let mode = |id: &str, description: &str| Mode {
        id: id.to_owned(),
        description: Some(description.to_owned()),
        ..Mode::default()
    };
    let build = Mode { default: true, ..mode("build", "Carries out tasks with all tools.") };
    let plan = Mode {
        instructions: Some(PLAN_INSTRUCTIONS.to_owned()),
        read_only: true,
        ..mode(PLAN, "Reads and writes a plan; changes nothing else.")
    };
    vec![build, plan]
}
