//! A run as the server describes it, and as text.

use crate::output::short;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;

/// A run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Run {
    /// The run's id, which is that of its session.
    pub(crate) id: String,
    /// `queued`, `running`, `waiting`, `succeeded`, `failed` or `canceled`.
    pub(crate) status: String,
    phase: String,
    agent: String,
    goal: String,
    spec: Option<Spec>,
    plan_source: Option<String>,
    steps: Vec<Step>,
    repairs: u32,
    report: Option<String>,
    error: Option<Failure>,
}

/// The spec of a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    name: String,
}

/// Why a run has failed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Failure {
    message: String,
}

/// A step of a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    id: String,
    title: String,
    #[serde(rename = "type")]
    kind: String,
    status: String,
    needs_approval: bool,
    depends_on: Vec<String>,
    args_hash: Option<String>,
    error: Option<String>,
    attempts: u32,
    files: Vec<String>,
}

impl Run {
    /// Returns whether the run has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "canceled")
    }
}

/// Returns a run as text: its state, its steps, and the commands that decide on those that wait.
pub(crate) fn page(run: &Run) -> String {
    let mut text = format!("{} {}", run.id, run.status);
    if !run.phase.is_empty() && !run.is_over() {
        let _ = write!(text, " ({})", run.phase);
    }
    field(&mut text, "agent", &run.agent);
    match &run.spec {
        // The goal is then the text of the spec.
        Some(spec) => field(&mut text, "spec", &spec.name),
        None => field(&mut text, "goal", &on_a_line(&run.goal)),
    }
    field(&mut text, "plan", run.plan_source.as_deref().unwrap_or_default());
    for step in &run.steps {
        text.push('\n');
        text.push_str(&line(step));
        if step.status == "waiting_approval" {
            let _ = write!(text, "\n    {}", approval(&run.id, &step.id, step.args_hash.as_deref()));
        }
    }
    if run.repairs > 0 {
        field(&mut text, "repairs", &run.repairs.to_string());
    }
    field(&mut text, "report", run.report.as_deref().unwrap_or_default());
    field(&mut text, "error", &run.error.as_ref().map(|error| on_a_line(&error.message)).unwrap_or_default());
    text
}

/// Adds a line with a field that has a value.
fn field(text: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let _ = write!(text, "\n{name}: {value}");
    }
}

fn on_a_line(text: &str) -> String {
    short(&text.into())
}

/// Returns the plan in the arguments of the call that records it: a line for each step.
pub(crate) fn plan(args: &Value) -> String {
    let mut text = format!("plan ({}):", args["source"].as_str().unwrap_or_default());
    let steps = args["steps"].as_array().into_iter().flatten();
    for step in steps.filter_map(|step| Step::deserialize(step).ok()) {
        let _ = write!(text, "\n{}", line(&step));
    }
    text
}

fn line(step: &Step) -> String {
    let mark = match step.status.as_str() {
        "succeeded" => '✓',
        "failed" => '✗',
        "skipped" => '–',
        "running" => '▶',
        "waiting_approval" => '?',
        _ => '·',
    };
    let mut text = format!("  {mark} {} {}: {}", step.id, step.kind, on_a_line(&step.title));
    let mut notes = Vec::new();
    match step.status.as_str() {
        "" | "pending" if step.needs_approval => notes.push("needs approval".to_owned()),
        "" | "pending" | "succeeded" => {}
        status => notes.push(status.replace('_', " ")),
    }
    if !step.depends_on.is_empty() && matches!(step.status.as_str(), "" | "pending") {
        notes.push(format!("after {}", step.depends_on.join(", ")));
    }
    if step.attempts > 1 {
        notes.push(format!("attempt {}", step.attempts));
    }
    if !step.files.is_empty() {
        notes.push(step.files.join(", "));
    }
    notes.extend(step.error.as_deref().map(on_a_line));
    if !notes.is_empty() {
        let _ = write!(text, " ({})", notes.join("; "));
    }
    text
}

/// Returns the command that approves a step, and applies only to the arguments with this hash.
pub(crate) fn approval(run: &str, step: &str, args_hash: Option<&str>) -> String {
    let hash = args_hash.map(|hash| format!(" --args-hash {hash}"));
    format!("agentctl runs approve {run} {step}{}", hash.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn run(value: Value) -> Run {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_run_shows_its_steps_and_how_to_approve_them() {
        let steps = json!([
            {"id": "s1", "type": "command", "title": "Run the tests", "status": "succeeded", "needs_approval": true},
            {"id": "s2", "type": "patch", "title": "Fix\nit", "status": "waiting_approval", "needs_approval": true,
             "args_hash": "abc", "attempts": 2},
            {"id": "s3", "type": "note", "title": "Say so", "status": "pending", "depends_on": ["s1", "s2"]},
        ]);
        let shown = page(&run(json!({
            "id": "run_1", "status": "waiting", "phase": "execute", "agent": "coder", "goal": "Make it work.",
            "spec": null, "plan_source": "model", "steps": steps, "repairs": 1, "report": null, "error": null,
        })));
        let expected = "run_1 waiting (execute)\nagent: coder\ngoal: Make it work.\nplan: model
  ✓ s1 command: Run the tests
  ? s2 patch: Fix it (waiting approval; attempt 2)
    agentctl runs approve run_1 s2 --args-hash abc
  · s3 note: Say so (after s1, s2)
repairs: 1";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_run_that_has_ended_shows_its_report_or_its_error() {
        let failed = run(json!({
            "id": "run_2", "status": "failed", "phase": "execute", "spec": {"name": "fix", "hash": "x"},
            "steps": [{"id": "a", "type": "command", "title": "t", "status": "failed", "error": "exit code 1"}],
            "report": "runs/run_2/report.md", "error": {"step": "a", "message": "it broke"},
        }));
        assert!(failed.is_over());
        let expected = "run_2 failed\nspec: fix\n  ✗ a command: t (failed; exit code 1)\n\
                        report: runs/run_2/report.md\nerror: it broke";
        assert_eq!(page(&failed), expected);
    }

    #[test]
    fn a_newer_server_and_a_hostile_one_do_no_harm() {
        let strange = run(json!({"id": "run_3", "status": "resting", "steps": [{}], "more": 1}));
        assert_eq!(page(&strange), "run_3 resting\n  ·  : ");
        assert!(!strange.is_over());
        assert_eq!(plan(&Value::Null), "plan ():");
        let args = json!({"source": "fallback", "steps": [
            {"id": "t", "type": "command", "title": "x".repeat(500), "needs_approval": true}, 7]});
        let shown = plan(&args);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.ends_with("… (needs approval)") && shown.len() < 250, "{shown}");
    }
}
