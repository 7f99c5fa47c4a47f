//! Runs, and how their runners and people behave.

use crate::dice::Dice;
use serde_json::{Value, json};

/// A run, and how its runners and people behave.
#[derive(Clone)]
pub struct RunScenario {
    pub steps: Vec<StepPlan>,
    /// Whether the model responds to the request for a plan with prose.
    pub is_prose: bool,
    pub approvals: &'static str,
    pub on_decline: &'static str,
    /// How many responses of the model to each request are errors.
    pub troubles: u32,
    pub runners: usize,
    /// How often a runner is killed during a call, in percent.
    pub deaths: u64,
    /// How often a call of a runner fails, in percent.
    pub failures: u64,
    /// How often a person leaves a step that waits, until its suspension expires, in percent.
    pub leaves: u64,
    /// When people cancel the run, in milliseconds from the start.
    pub cancels: Vec<u64>,
    pub retries: usize,
}

/// A step of the plan.
#[derive(Clone)]
pub struct StepPlan {
    pub id: String,
    pub kind: &'static str,
    pub needs_approval: bool,
    pub depends_on: Vec<String>,
}

impl StepPlan {
    /// Returns the step as the model writes it.
    pub fn json(&self) -> Value {
        let Self { id, kind, needs_approval, depends_on } = self;
        json!({
            "id": id, "title": id, "type": kind, "needs_approval": needs_approval, "depends_on": depends_on,
            "command": format!("do {id}"), "patch": format!("patch {id}"), "prompt": format!("Write {id}."),
            "content": if *kind == "diagram" { "graph TD\nA-->B".to_owned() } else { format!("The note {id}.") },
        })
    }
}

/// Draws a run.
pub fn draw_run(dice: &mut Dice) -> RunScenario {
    let mut steps: Vec<StepPlan> = Vec::new();
    for n in 0..dice.within(1, 6) {
        let mut depends_on: Vec<String> = Vec::new();
        for before in &steps {
            if dice.chance(40) {
                depends_on.push(before.id.clone());
            }
        }
        let kind = dice.pick(&["command", "command", "command", "patch", "note", "diagram", "model"]);
        steps.push(StepPlan { id: format!("s{n}"), kind, needs_approval: dice.chance(30), depends_on });
    }
    RunScenario {
        steps,
        is_prose: dice.chance(10),
        approvals: dice.pick(&["plan", "plan", "plan", "all"]),
        on_decline: dice.pick(&["skip", "skip", "fail"]),
        troubles: dice.pick(&[0, 0, 0, 1, 2]),
        runners: dice.pick(&[1, 1, 2]),
        deaths: dice.pick(&[0, 0, 5, 20]),
        failures: dice.pick(&[0, 5, 20]),
        leaves: dice.pick(&[0, 0, 0, 20]),
        cancels: (0..dice.pick(&[0, 0, 0, 1, 2])).map(|_| dice.below(40_000)).collect(),
        retries: dice.pick(&[0, 1, 2, 3]),
    }
}
