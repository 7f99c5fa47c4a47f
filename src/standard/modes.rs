//! The modes of the standard agent.

use crate::types::{Mode, mode::PLAN};

const PLAN_INSTRUCTIONS: &str = "You are in plan mode: look at whatever you need, and change nothing. Find out what is to be \
done and how, and ask the user with ask_user where you cannot decide. Write the plan down with plan_write: the goal, \
the steps in their order, what each of them changes, and how it is checked. When it is complete call plan_exit, so that \
the user judges it. Carry nothing out before the plan is approved.";

/// `build`, which does everything, and `plan`, which only looks.
pub(super) fn standard() -> Vec<Mode> {
    let mode = |id: &str, description: &str| Mode {
        id: id.to_owned(),
        description: Some(description.to_owned()),
        ..Mode::default()
    };
    let build = Mode { default: true, ..mode("build", "Does what it is asked to, with all its tools.") };
    let plan = Mode {
        instructions: Some(PLAN_INSTRUCTIONS.to_owned()),
        read_only: true,
        ..mode(PLAN, "Looks and makes a plan; changes nothing.")
    };
    vec![build, plan]
}
