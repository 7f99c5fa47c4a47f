//! Random plans with random outcomes, run to their end.

#![allow(clippy::unwrap_used)]

use super::call::{DIAGRAM, Purpose};
use super::drawing::Drawing;
use super::tests::{Stage, good};
use super::{ARTIFACT, About, Next, Plan, PlanSource, RunStatus, StepStatus, StepType};
use crate::types::{DenyReason, OnDecline, RunApprovals, StopReason, ToolOutcome, TurnStatus};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::json;
use std::collections::BTreeSet;

/// What a step is, and how its call ends.
#[derive(Clone, Debug)]
struct Drawn {
    kind: u8,
    gated: bool,
    after: Vec<Index>,
    outcome: u8,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (0..4u8, any::<bool>(), vec(any::<Index>(), 0..3), 0..12u8)
        .prop_map(|(kind, gated, after, outcome)| Drawn { kind, gated, after, outcome })
}

fn outcome(n: u8, gated: bool, kind: StepType) -> ToolOutcome {
    match n {
        0 => ToolOutcome::failure("it broke"),
        // A write of a file is repeated until its outcome is known.
        1 if !matches!(kind, StepType::Note | StepType::Diagram) => {
            ToolOutcome::Unknown { reason: "the runner is gone".into() }
        }
        2 if gated => ToolOutcome::denied(DenyReason::Declined, "no"),
        _ => good("done"),
    }
}

fn plan(steps: &[Drawn]) -> Plan {
    let steps: Vec<_> = steps
        .iter()
        .enumerate()
        .map(|(n, drawn)| {
            // Of earlier steps only, so that there is no cycle.
            let after =
                drawn.after.iter().filter(|_| n > 0).map(|index| format!("s{}", index.index(n.max(1))));
            let after: BTreeSet<_> = after.collect();
            let kind = ["command", "patch", "note", "diagram"][drawn.kind as usize];
            json!({
                "id": format!("s{n}"), "type": kind, "needs_approval": drawn.gated, "depends_on": after,
                "command": "c", "patch": "p", "content": "n",
            })
        })
        .rev()
        .collect();
    Plan::find(&json!({ "steps": steps }).to_string(), PlanSource::Model, &BTreeSet::new()).unwrap()
}

proptest! {
    #[test]
    fn every_run_ends_in_one_state(
        steps in vec(drawn(), 1..12),
        checks in vec(0..4u8, 0..8),
        fails_on_decline in any::<bool>(),
        verifies in any::<bool>(),
    ) {
        let on_decline = if fails_on_decline { OnDecline::Fail } else { OnDecline::Skip };
        let mut stage = Stage::new(RunApprovals::Plan, on_decline);
        stage.plan(&plan(&steps));
        let (mut checks, mut ran, mut repairs) = (checks.into_iter(), Vec::<String>::new(), 0);
        let mut rounds = 0;
        loop {
            rounds += 1;
            prop_assert!(rounds < 200, "the run does not end");
            let run = stage.read();
            match run.next(|tool| tool == DIAGRAM, verifies) {
                Next::Steps(wave) => {
                    let gated: BTreeSet<bool> = wave.iter().map(|step| step.needs_approval).collect();
                    prop_assert_eq!(gated.len(), 1, "approvals have a wave of their own");
                    for step in wave {
                        prop_assert!(!ran.contains(&step.id), "{} ran twice", step.id);
                        let view = run.view(About::default());
                        for before in &step.depends_on {
                            let before = view.steps.iter().find(|own| own.id == *before).unwrap();
                            prop_assert_eq!(before.status, StepStatus::Succeeded);
                        }
                        let n = step.id.strip_prefix('s').and_then(|n| n.parse::<usize>().ok());
                        let of = n.and_then(|n| steps.get(n)).map_or(9, |drawn| drawn.outcome);
                        let outcome = outcome(of, step.needs_approval, step.kind);
                        if !matches!(outcome, ToolOutcome::Denied { .. }) {
                            ran.push(step.id.clone());
                        }
                        let is_file = matches!(step.kind, StepType::Note | StepType::Diagram);
                        let tool = if is_file { ARTIFACT } else { "local_shell" };
                        stage.call(&Purpose::Step(step.id.clone()), tool, outcome);
                    }
                }
                Next::Draw(wave) => {
                    for own in wave {
                        prop_assert_eq!(own.status, StepStatus::Succeeded);
                        let tool = match own.drawing {
                            Drawing::Rendered(_) => ARTIFACT,
                            _ => DIAGRAM,
                        };
                        // Some are not rendered, and others are not stored.
                        let fails = own.step.id.len() % 2 == usize::from(tool == ARTIFACT);
                        let outcome = if fails { ToolOutcome::failure("no") } else { good("<svg/>") };
                        stage.call(&Purpose::Drawing(own.step.id.clone()), tool, outcome);
                    }
                }
                Next::Verify => {
                    prop_assert!(verifies);
                    let outcome = match checks.next() {
                        Some(0) => ToolOutcome::failure("a test fails"),
                        Some(1) => ToolOutcome::denied(DenyReason::Declined, "no"),
                        _ => good("ok"),
                    };
                    stage.call(&Purpose::Verify, "local_verify", outcome);
                }
                Next::Repair(_) => {
                    repairs += 1;
                    let id = format!("fix{repairs}");
                    let fix = json!({"id": id, "type": "command", "command": "c"});
                    let mut fix = Plan::find(
                        &json!({ "steps": [fix] }).to_string(),
                        PlanSource::Repair,
                        &BTreeSet::new(),
                    ).unwrap();
                    if repairs % 2 == 0 {
                        fix.steps.clear();
                    }
                    stage.plan(&fix);
                }
                Next::Report => stage.call(&Purpose::Report, ARTIFACT, good("wrote")),
                Next::Finish => break,
                other @ (Next::Context(_) | Next::Plan) => prop_assert!(false, "{:?}", other),
            }
        }
        stage.end(TurnStatus::Completed, StopReason::End);
        prop_assert!(repairs <= 2);
        let view = stage.read().view(About::default());
        prop_assert!(matches!(view.status, RunStatus::Succeeded | RunStatus::Failed));
        prop_assert_eq!(view.status == RunStatus::Failed, view.error.is_some());
        let fails = view.steps.iter().any(|step| step.status == StepStatus::Failed);
        prop_assert!(!fails || view.status == RunStatus::Failed);
        for step in &view.steps {
            use StepStatus::{Failed, Skipped, Succeeded};
            prop_assert!(matches!(step.status, Succeeded | Failed | Skipped), "{:?}", step);
            let has_run = ran.contains(&step.id);
            prop_assert_eq!(has_run, step.status != Skipped, "{:?}", step);
            for before in &step.depends_on {
                let before = view.steps.iter().find(|own| own.id == *before).unwrap();
                prop_assert!(before.status == Succeeded || step.status == Skipped);
            }
        }
        // A run that succeeded has nothing left but what was declined, and what depends on it.
        let is_whole = view.status == RunStatus::Failed
            || !fails_on_decline
            || view.steps.iter().all(|step| step.status == StepStatus::Succeeded);
        prop_assert!(is_whole);
    }
}
