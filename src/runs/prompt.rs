//! The requests of a run to its model.

use super::call::{APPLY_PATCH, SHELL, SUBAGENT, WRITE};
use super::fold::{Run, StepState, StepStatus, excerpt};
use super::plan::Step;
use crate::types::call::untrusted;

/// The types of steps, each with the tool that it needs.
const TYPES: [(Option<&str>, &str); 7] = [
    (Some(SHELL), r#""command" (with "command", for the shell)"#),
    (Some(APPLY_PATCH), r#""patch" (with "patch", a unified diff)"#),
    (Some(WRITE), r#""patch" (with "path" and "content", the whole new file)"#),
    (None, r#""note" (with "content")"#),
    (None, r#""diagram" (with "content", in Mermaid: the type of the diagram first)"#),
    (None, r#""model" (with "prompt": you are asked for a text, which becomes a file)"#),
    (Some(SUBAGENT), r#""agent" (with "prompt", and "agent" if a certain kind of subagent should do it)"#),
];
/// Most text of other steps in a request, in characters.
const MAX_INPUT: usize = 4_000;

/// Returns the form of a plan for a session with these tools.
fn form(tools: &[String]) -> String {
    let has = |tool: &Option<&str>| tool.is_none_or(|tool| tools.iter().any(|own| own == tool));
    let types: Vec<&str> = TYPES.iter().filter(|(tool, _)| has(tool)).map(|(_, text)| *text).collect();
    format!(
        r#"Answer with one JSON object and nothing else: {{"steps": [...]}}. Each step has:
- "id": unique, 1 to 64 of A-Z a-z 0-9 _ -
- "title": a few words
- "type": one of {}
- "needs_approval": true if a person should look at it before it runs
- "depends_on": ids of the steps that must succeed before; steps that do not depend on each other may run side by side
The changes are verified by the project's own checks after each step that writes, so plan no such step."#,
        types.join(", ")
    )
}

/// Returns the request for a plan.
pub(super) fn plan(run: &Run, tools: &[String]) -> String {
    let mut text = format!("Plan how to reach this goal in steps.\n\n# Goal\n\n{}\n", run.goal);
    for (tool, output) in &run.context {
        text.push_str(&format!("\n# Output of {tool}\n\n{}\n", untrusted(output)));
    }
    format!("{text}\n{}", form(tools))
}

/// Returns the request for the steps of a repair.
pub(super) fn repair(run: &Run, output: &str, tools: &[String]) -> String {
    let done = |own: &&StepState| own.status == StepStatus::Succeeded;
    let steps: String = run.steps.iter().filter(done).map(|own| line(&own.step)).collect();
    let ids: Vec<&str> = run.steps.iter().map(|own| own.step.id.as_str()).collect();
    format!(
        "The project's checks fail after the steps below. Plan the steps that repair this.\n\n# Goal\n\n{}\n\n# Done\n\n\
         {steps}\n# Output of the checks\n\n{}\n\n{}\nThese ids are taken: {}",
        run.goal,
        untrusted(output),
        form(tools),
        ids.join(", ")
    )
}

fn line(step: &Step) -> String {
    let what = [&step.command, &step.patch, &step.path].into_iter().flatten().next();
    let what = what.map(|what| format!(": {}", excerpt(what, MAX_INPUT))).unwrap_or_default();
    format!("- {} ({}){what}\n", step.id, step.title)
}

/// Returns the request for the text of a step.
pub(super) fn step(run: &Run, step: &Step) -> String {
    let mut text = format!(
        "Write the text of one step of a larger job. Answer with the text alone.\n\n# Goal of the job\n\n{}\n\n# Task\n\n{}\n",
        run.goal,
        step.prompt.as_deref().unwrap_or(&step.title)
    );
    for own in run.steps.iter().filter(|own| step.depends_on.contains(&own.step.id)) {
        // A file of the run is more than the line that confirms it.
        let output = own.text.as_ref().unwrap_or(&own.output);
        let output = untrusted(&excerpt(output, MAX_INPUT));
        text.push_str(&format!("\n# Output of the step {}\n\n{output}\n", own.step.id));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_the_types_of_steps_that_the_tools_can_do() {
        let types = |tools: &[&str]| {
            let form = form(&tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>());
            let types = ["command", "patch", "note", "diagram", "model", "agent"];
            types.into_iter().filter(|kind| form.contains(&format!("\"{kind}\" (with"))).collect::<Vec<_>>()
        };
        assert_eq!(types(&[]), ["note", "diagram", "model"]);
        assert_eq!(types(&["local_shell"]), ["command", "note", "diagram", "model"]);
        assert_eq!(types(&["local_write", "subagent"]), ["patch", "note", "diagram", "model", "agent"]);
    }
}
