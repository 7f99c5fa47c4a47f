//! Tests of plans, decisions and the report.

#![allow(clippy::unwrap_used)]

use super::call::Purpose;
use super::drawing::Drawing;
use super::fold::{Check, Run, StepStatus};
use super::{About, Next, Plan, PlanSource, RunPhase, RunStatus, Step, StepType, is_mermaid};
use crate::types::{
    CallId, DenyReason, Effect, EventKind, Message, OnDecline, Part, Role, RunApprovals, RunTurn, StopReason,
    Timestamp, ToolOutcome, TurnEnd, TurnStatus,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{collections::BTreeSet, rc::Rc};

/// The log of a run, written by hand.
pub(super) struct Stage {
    pub run: Run,
}

impl Stage {
    pub fn new(approvals: RunApprovals, on_decline: OnDecline) -> Self {
        let mut stage = Self { run: Run::new("run_1".into()) };
        stage.message("Reach it.");
        stage.run.apply(EventKind::RunRequested(RunTurn::Start { spec: None, approvals, on_decline }));
        stage
    }

    fn message(&mut self, text: &str) {
        let message = Message {
            id: "m".into(),
            seq: 1,
            role: Role::User,
            parts: vec![Part::text(text)],
            created_at: Timestamp(0),
            turn: "t".into(),
            interrupted: false,
        };
        self.run.apply(EventKind::TurnStarted { message: Rc::new(message) });
    }

    pub fn retry(&mut self, from: Option<&str>) {
        self.message("Again.");
        self.run.apply(EventKind::RunRequested(RunTurn::Retry { from: from.map(str::to_owned) }));
    }

    pub fn start(&mut self, purpose: &Purpose, name: &str, args: Value) -> CallId {
        let call_id = purpose.call_id(&"run_1".into(), self.run.calls + 1);
        let (message, effect) = ("m".into(), Effect::default());
        let name = name.to_owned();
        let started =
            EventKind::ToolStarted { message, call_id: call_id.clone(), name, args, invalid: None, effect };
        self.run.apply(started);
        call_id
    }

    fn ask(&mut self, call: &CallId, name: &str) {
        self.run.apply(EventKind::ToolApprovalRequired {
            call_id: call.clone(),
            name: name.to_owned(),
            args: json!({}),
            args_hash: "hash".into(),
            category: crate::types::Category::Execute,
            expires_at: Timestamp(9),
        });
    }

    pub fn complete(&mut self, call: &CallId, outcome: ToolOutcome) {
        self.run.apply(EventKind::completed(call.clone(), "local_shell".into(), outcome));
    }

    /// Makes a call with this outcome.
    pub fn call(&mut self, purpose: &Purpose, name: &str, outcome: ToolOutcome) {
        let call = self.start(purpose, name, json!({}));
        self.complete(&call, outcome);
    }

    pub fn plan(&mut self, plan: &Plan) {
        let call = self.start(&Purpose::Plan, super::PLAN, json!(plan));
        self.complete(&call, good("recorded"));
    }

    pub fn end(&mut self, status: TurnStatus, reason: StopReason) {
        self.run.apply(match status {
            TurnStatus::Canceled => EventKind::TurnCanceled(TurnEnd::ended(status, reason)),
            _ => EventKind::TurnCompleted(TurnEnd::ended(status, reason)),
        });
    }

    /// Returns the run as it is read from the log.
    pub fn read(&self) -> Run {
        let mut run = self.run.clone();
        run.settle();
        run
    }

    /// Describes what comes next, for a session with a runner.
    pub fn next(&self) -> String {
        match self.read().next(|_| true, true) {
            Next::Steps(steps) => steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>().join(" "),
            Next::Draw(steps) => {
                format!("Draw {}", steps.iter().map(|own| own.step.id.as_str()).collect::<Vec<_>>().join(" "))
            }
            other => format!("{other:?}"),
        }
    }

    fn step(&mut self, id: &str, outcome: ToolOutcome) {
        self.call(&Purpose::Step(id.to_owned()), "local_shell", outcome);
    }

    fn statuses(&self) -> Vec<(String, StepStatus)> {
        self.read().view(About::default()).steps.into_iter().map(|step| (step.id, step.status)).collect()
    }
}

pub(super) fn good(text: &str) -> ToolOutcome {
    ToolOutcome::Result { result: json!(text) }
}

fn find(text: &str) -> Option<Plan> {
    Plan::find(text, PlanSource::Model, &BTreeSet::new())
}

fn command(id: &str, depends_on: &[&str]) -> Value {
    json!({"id": id, "title": id, "type": "command", "command": format!("do {id}"), "depends_on": depends_on})
}

fn plan_of(steps: &[Value]) -> Plan {
    find(&json!({ "steps": steps }).to_string()).unwrap()
}

#[test]
fn a_plan_is_found_within_fences_and_prose() {
    let json = json!({"steps": [command("b", &["a"]), command("a", &[])]}).to_string();
    for text in [
        json.clone(),
        format!("```json\n{json}\n```\nThis plan {{works}}."),
        format!("Sure! {{\"note\": 1}} Here: {json} Good luck."),
    ] {
        let plan = find(&text).unwrap();
        let ids: Vec<_> = plan.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"], "{text}");
    }
}

#[test]
fn a_text_without_a_valid_plan_has_none() {
    let steps = |steps: Value| json!({ "steps": steps }).to_string();
    for text in [
        "I would run the tests.".to_owned(),
        steps(json!([])),
        steps(json!([command("a", &[]), command("a", &[])])),
        steps(json!([command("a", &["b"])])),
        steps(json!([command("a", &["b"]), command("b", &["a"])])),
        steps(json!([command("a", &["a"])])),
        steps(json!([command("a b", &[])])),
        steps(json!([{"id": "a", "type": "dance"}])),
        steps(json!([{"id": "a", "type": "command", "command": " "}])),
        steps(json!([{"id": "a", "type": "patch", "path": "x"}])),
        steps(json!([{"id": "a", "type": "diagram", "content": " "}])),
        steps(json!((0..51).map(|n| command(&format!("s{n}"), &[])).collect::<Vec<_>>())),
        "{".repeat(10_000),
    ] {
        assert_eq!(find(&text), None, "{text}");
    }
    assert!(Plan::fallback().steps.iter().all(|step| step.needs_approval && step.kind == StepType::Command));
}

#[test]
fn a_diagram_begins_with_its_type() {
    for source in [
        "graph TD\nA-->B",
        "%% drawn\n\nsequenceDiagram\nA->>B: x",
        "stateDiagram-v2\n[*] --> A",
        "---\ntitle: x\n---\n%%{init: {}}%%\n  gitGraph:\n  commit",
        "C4Context",
        "xychart-beta\nline [1, 2]",
    ] {
        assert!(is_mermaid(source), "{source}");
    }
    for source in ["A --> B", "", "%% graph TD", "---\ngraph TD", "graphs TD", "```mermaid\ngraph TD\n```"] {
        assert!(!is_mermaid(source), "{source}");
    }
}

/// A run with a note and two diagrams that are written.
fn drawn() -> Stage {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    let diagram = |id: &str| json!({"id": id, "type": "diagram", "content": "graph TD\nA-->B"});
    let note = json!({"id": "n", "type": "note", "content": "x"});
    stage.plan(&plan_of(&[diagram("a"), diagram("b"), note]));
    assert_eq!(stage.next(), "a b n");
    for id in ["a", "b", "n"] {
        stage.call(&Purpose::Step(id.to_owned()), super::ARTIFACT, good("wrote"));
    }
    stage
}

#[test]
fn no_step_writes_the_file_of_the_report() {
    let note = |id: &str| json!({"id": id, "type": "note", "content": "x"});
    let plan = plan_of(&[note("report"), note("Report"), note("reports")]);
    let files: Vec<_> = plan.steps.iter().filter_map(Step::file).collect();
    assert_eq!(files, ["report.step.md", "Report.step.md", "reports.md"]);
}

#[test]
fn diagrams_are_rendered_and_stored_after_the_steps() {
    let mut stage = drawn();
    let drawing = |id: &str| Purpose::Drawing(id.to_owned());
    assert_eq!(stage.next(), "Draw a b");
    let call = stage.start(&drawing("a"), "local_diagram", json!({}));
    stage.ask(&call, "local_diagram");
    assert_eq!(stage.read().call_of("a"), Some(&call));
    let statuses = || stage.statuses().into_iter().map(|(_, status)| status).collect::<Vec<_>>();
    assert_eq!(statuses(), [StepStatus::WaitingApproval, StepStatus::Succeeded, StepStatus::Succeeded]);
    let waits = EventKind::ToolSuspended {
        call_id: call.clone(),
        name: "local_diagram".into(),
        kind: crate::types::WaitKind::External,
        payload: json!({}),
        expires_at: Timestamp(9),
    };
    stage.run.apply(waits);
    assert!(stage.statuses().iter().all(|(_, status)| *status == StepStatus::Succeeded));
    stage.complete(&call, good("<svg/>"));
    let artifact = crate::types::ArtifactRef {
        r#ref: "art_1".into(),
        bytes: 20_000,
        mime_type: "text/plain".into(),
        preview: "<svg xmlns".into(),
        expires_at: None,
    };
    stage.call(&drawing("b"), "local_diagram", ToolOutcome::Artifact { result: artifact });
    assert_eq!(stage.next(), "Draw a b", "stores them");
    let stores = |stage: &Stage| match stage.read().next(|_| true, true) {
        Next::Draw(steps) => steps.into_iter().map(|own| own.drawing.clone()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        stores(&stage),
        [Drawing::Rendered(json!({"content": "<svg/>"})), Drawing::Rendered(json!({"artifact": "art_1"}))]
    );
    stage.call(&drawing("a"), super::ARTIFACT, good("wrote"));
    stage.call(&drawing("b"), super::ARTIFACT, good("wrote"));
    assert_eq!(stage.next(), "Report");
    let view = stage.read().view(About::default());
    assert_eq!(view.steps[0].files, ["runs/run_1/a.mmd", "runs/run_1/a.svg"]);
    assert_eq!(view.steps[2].files, ["runs/run_1/n.md"]);
    assert!(stage.read().report().contains("`runs/run_1/b.mmd` in the workspace, rendered as `b.svg`"));
}

#[test]
fn a_diagram_that_is_not_rendered_fails_no_run_and_a_retry_renders_it() {
    let mut stage = drawn();
    let run = stage.read();
    assert!(matches!(run.next(|_| false, true), Next::Report), "nothing renders it");
    for (id, outcome) in [("a", ToolOutcome::failure("no arrow")), ("b", good("[no output]"))] {
        stage.call(&Purpose::Drawing(id.to_owned()), "local_diagram", outcome);
    }
    assert_eq!(stage.next(), "Report");
    let report = stage.read().report();
    assert!(report.contains("Succeeded."), "{report}");
    assert!(report.contains("a.mmd` in the workspace, not rendered: Error: no arrow\n"), "{report}");
    assert!(
        report.contains("b.mmd` in the workspace, not rendered: the runner returned no SVG\n"),
        "{report}"
    );
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.steps[0].files.len()), (RunStatus::Succeeded, 1));
    stage.retry(None);
    assert_eq!(stage.next(), "Draw a b");
}

#[test]
fn independent_steps_run_side_by_side_and_those_with_approval_last() {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    assert!(stage.next().starts_with("Context"), "{}", stage.next());
    assert_eq!(stage.read().view(About::default()).status, RunStatus::Queued);
    stage.call(&Purpose::Context, "local_repo_tree", good("a.txt"));
    assert_eq!(stage.next(), "Plan");
    let mut gated = command("gated", &[]);
    gated["needs_approval"] = json!(true);
    let note = json!({"id": "note", "type": "note", "content": "x"});
    stage.plan(&plan_of(&[gated, command("a", &[]), command("b", &[]), command("last", &["a"]), note]));
    assert_eq!(stage.next(), "note");
    stage.call(&Purpose::Step("note".into()), super::ARTIFACT, good("wrote"));
    assert_eq!(stage.next(), "a b");
    stage.step("a", good("A"));
    stage.step("b", good("B"));
    assert_eq!(stage.next(), "Verify");
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    assert_eq!(stage.next(), "last");
    stage.step("last", good("L"));
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    assert_eq!(stage.next(), "gated");
    let call = stage.start(&Purpose::Step("gated".into()), "local_shell", json!({}));
    assert!(stage.run.asks(&call) && !stage.run.asks(&Purpose::Verify.call_id(&"run_1".into(), 1)));
    assert!(stage.run.asks(&"run_1.step.1.absent".into()), "an unknown step cannot have been checked");
    stage.complete(&call, good("G"));
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    assert_eq!(stage.next(), "Report");
    stage.call(&Purpose::Report, super::ARTIFACT, good("wrote"));
    assert_eq!(stage.next(), "Finish");
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.phase), (RunStatus::Succeeded, RunPhase::Done));
    assert_eq!(view.report.as_deref(), Some("runs/run_1/report.md"));
}

#[test]
fn a_failed_step_ends_the_run_and_a_retry_continues_it() {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    stage.call(&Purpose::Context, "local_repo_tree", ToolOutcome::failure("no folder"));
    stage.plan(&plan_of(&[command("a", &[]), command("b", &["a"]), command("c", &["b"]), command("d", &[])]));
    stage.step("a", good("A"));
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    stage.step("b", ToolOutcome::failure("exit code 1"));
    assert_eq!(stage.next(), "Report");
    stage.call(&Purpose::Report, super::ARTIFACT, good("wrote"));
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    let error = view.error.unwrap();
    assert_eq!((view.status, error.step.as_deref()), (RunStatus::Failed, Some("b")));
    assert_eq!(error.message, "the step \"b\" failed: Error: exit code 1");
    let of = |status| move |id: &str| (id.to_owned(), status);
    let skipped = of(StepStatus::Skipped);
    assert_eq!(stage.statuses()[1..], [of(StepStatus::Failed)("b"), skipped("c"), skipped("d")]);

    stage.retry(None);
    assert_eq!(stage.next(), "b d", "a verification could not pass without the step");
    stage.step("b", good("B"));
    stage.step("d", good("D"));
    assert_eq!(stage.next(), "Verify");
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    stage.step("c", good("C"));
    stage.call(&Purpose::Verify, "local_verify", good("ok"));
    stage.end(TurnStatus::Completed, StopReason::End);
    assert_eq!(stage.read().view(About::default()).status, RunStatus::Succeeded);
    stage.retry(Some("b"));
    assert_eq!(stage.next(), "b", "and those after it");
    assert_eq!(stage.statuses()[2], of(StepStatus::Pending)("c"));
}

#[test]
fn a_step_that_failed_is_done_again_before_its_changes_are_verified() {
    let mut gated = command("fix", &[]);
    gated["needs_approval"] = json!(true);
    let unknown = ToolOutcome::Unknown { reason: "the runner is gone".into() };
    for outcome in
        [ToolOutcome::failure("it broke"), unknown, ToolOutcome::denied(DenyReason::Canceled, "stop")]
    {
        let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
        stage.plan(&plan_of(&[gated.clone(), command("a", &[])]));
        stage.step("a", good("A"));
        stage.call(&Purpose::Verify, "local_verify", good("ok"));
        stage.step("fix", outcome);
        stage.end(TurnStatus::Completed, StopReason::End);
        stage.retry(Some("a"));
        assert_eq!(stage.next(), "a");
        stage.step("a", good("A"));
        assert_eq!(stage.next(), "fix");
        // Its first call may have changed something.
        stage.step("fix", ToolOutcome::denied(DenyReason::Declined, "no"));
        assert_eq!(stage.next(), "Verify");
    }
}

#[test]
fn a_declined_step_is_skipped_with_those_after_it_or_ends_the_run() {
    let declined = || ToolOutcome::denied(DenyReason::Declined, "no");
    for on_decline in [OnDecline::Skip, OnDecline::Fail] {
        let mut stage = Stage::new(RunApprovals::All, on_decline);
        stage.plan(&plan_of(&[command("a", &[]), command("b", &["a"]), command("c", &[])]));
        assert_eq!(stage.next(), "a c");
        stage.step("a", declined());
        stage.step("c", good("C"));
        stage.call(&Purpose::Verify, "local_verify", good("ok"));
        stage.end(TurnStatus::Completed, StopReason::End);
        let view = stage.read().view(About::default());
        let code = view.error.map(|error| error.code);
        match on_decline {
            OnDecline::Skip => assert_eq!((view.status, code), (RunStatus::Succeeded, None)),
            OnDecline::Fail => {
                assert_eq!((view.status, code.as_deref()), (RunStatus::Failed, Some("step_declined")));
            }
        }
        assert_eq!(stage.statuses()[1].1, StepStatus::Skipped);
    }
}

#[test]
fn a_refused_plan_is_not_done_and_a_retry_plans_again() {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    let call = stage.start(&Purpose::Plan, super::PLAN, json!(plan_of(&[command("a", &[])])));
    stage.complete(&call, ToolOutcome::denied(DenyReason::Permission, "no"));
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.steps.len()), (RunStatus::Failed, 0));
    assert_eq!(view.error.map(|error| error.code).as_deref(), Some("plan_refused"));
    stage.retry(None);
    assert_eq!(stage.read().failure().map(|error| error.code), None);
}

#[test]
fn a_call_that_expires_has_failed() {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    stage.plan(&plan_of(&[command("a", &[])]));
    stage.step("a", ToolOutcome::denied(DenyReason::Expired, "no answer came in time"));
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    assert_eq!(
        (view.status, view.error.map(|error| error.code)),
        (RunStatus::Failed, Some("step_failed".into()))
    );
}

#[test]
fn a_failed_verification_is_repaired_at_most_twice() {
    let mut stage = Stage::new(RunApprovals::Plan, OnDecline::Skip);
    stage.plan(&plan_of(&[command("a", &[]), command("z", &["a"])]));
    stage.step("a", good("A"));
    stage.call(&Purpose::Verify, "local_verify", ToolOutcome::failure("one test fails"));
    assert_eq!(stage.next(), "Repair(\"Error: one test fails\")");
    let steps = [command("fix", &["a"])];
    let mut repair = plan_of(&[command("a", &[]), steps[0].clone()]);
    repair.source = PlanSource::Repair;
    repair.steps.remove(0);
    stage.plan(&repair);
    assert_eq!(stage.next(), "fix", "before the other steps");
    stage.step("fix", good("F"));
    assert_eq!(stage.next(), "Verify");
    stage.call(&Purpose::Verify, "local_verify", ToolOutcome::failure("it still fails"));
    // The model has no idea.
    stage.plan(&Plan { source: PlanSource::Repair, steps: Vec::new() });
    assert_eq!(stage.next(), "Report");
    assert_eq!(stage.run.check, Check::Failed("Error: it still fails".into()));
    let report = stage.read().report();
    assert!(
        report.contains("Failed: the verification fails") && report.contains("    Error: it still fails"),
        "{report}"
    );
    stage.end(TurnStatus::Completed, StopReason::End);
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.repairs), (RunStatus::Failed, 2));
    assert_eq!(view.error.unwrap().code, "verification_failed");
}

#[test]
fn a_run_that_is_canceled_or_has_reached_a_limit_says_so() {
    let mut stage = Stage::new(RunApprovals::All, OnDecline::Skip);
    stage.plan(&plan_of(&[command("a", &[]), command("b", &["a"])]));
    let call = stage.start(&Purpose::Step("a".into()), "local_shell", json!({}));
    stage.ask(&call, "local_shell");
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.steps[0].status), (RunStatus::Waiting, StepStatus::WaitingApproval));
    assert!(stage.read().report().contains("Not finished."));
    assert_eq!(
        (view.steps[0].args_hash.as_deref(), &view.steps[0].call_id),
        (Some("hash"), &Some(call.clone()))
    );
    stage.complete(&call, ToolOutcome::denied(DenyReason::Canceled, "aborted"));
    stage.end(TurnStatus::Canceled, StopReason::Canceled);
    let view = stage.read().view(About::default());
    assert_eq!((view.status, view.error), (RunStatus::Canceled, None));
    assert!(stage.read().report().contains("Canceled."));
    assert!(view.steps.iter().all(|step| step.status == StepStatus::Skipped));

    stage.retry(None);
    stage.end(TurnStatus::Completed, StopReason::Cost);
    let error = stage.read().view(About::default()).error.unwrap();
    assert_eq!(error.code, "budget_exceeded");
}
