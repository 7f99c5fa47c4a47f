//! 23: a run ends, and its log, its view, its files and what its runners have done agree.
//!
//! The state of each step is derived here from the records, by other code than the core's.

use super::clients::RunWitness;
use crate::{
    invariants::{Entry, View},
    model::planner::TEXT,
    tools::runner::VERIFY,
    world::World,
};
use edge_harness::runs::{About, Run};
use edge_harness::types::{FilePath, Owner, Record};
use futures::executor::block_on;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A step as the records show it.
#[derive(Default)]
struct Step {
    plan: Value,
    calls: usize,
    /// How often it may have been called: at first, and once for each retry that does it again.
    turns: usize,
    status: &'static str,
}

/// The log, read record by record.
#[derive(Default)]
struct Reading {
    steps: Vec<(String, Step)>,
    asks_for_all: bool,
    approved: BTreeSet<String>,
    /// The tools of all calls.
    names: BTreeMap<String, String>,
    plans: BTreeMap<String, Value>,
    answers: BTreeMap<String, usize>,
    outcomes: BTreeMap<String, Value>,
    /// Whether a step has changed something since the last verification that passed or was denied.
    is_unverified: bool,
    found: Vec<String>,
}

pub fn check(world: &World, witness: &RunWitness) {
    let node = world.node(0);
    let view = View::of(&node);
    let mut reading = Reading::default();
    view.entries.iter().for_each(|entry| reading.read(entry));
    let last = witness.last.borrow();
    if last["status"].is_null() {
        reading.found.push(format!("the run cannot be read: {last}"));
    }
    reading.answered(witness, &view);
    reading.shown(&last);
    reading.files(world, &last);

    let records = view.entries.iter().map(|entry| serde_json::from_str::<Record>(&entry.json));
    let folded = Run::of(node.session.clone(), records).map(|run| run.view(About::default()));
    let folded = folded.ok().and_then(|view| serde_json::to_value(view).ok()).unwrap_or_default();
    for field in ["status", "phase", "steps", "repairs", "report", "error", "plan_source"] {
        if folded[field] != last[field] {
            reading.found.push(format!("the view has {field} {}, the log {}", last[field], folded[field]));
        }
    }
    for what in reading.found {
        world.ledger.find(23, what);
    }
}

/// Returns the step that a call does.
fn step_of(call: &str) -> Option<&str> {
    let mut parts = call.split('.').skip(1);
    (parts.next()? == "step").then(|| parts.nth(1)).flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Reading {
    fn step(&mut self, id: &str) -> Option<&mut Step> {
        self.steps.iter_mut().find(|(own, _)| own == id).map(|(_, step)| step)
    }

    fn status(&self, id: &str) -> &'static str {
        self.steps.iter().find(|(own, _)| own == id).map_or("", |(_, step)| step.status)
    }

    fn read(&mut self, entry: &Entry) {
        let (value, call) = (&entry.value, text(&entry.value, "call_id").to_owned());
        match entry.kind.as_str() {
            "run.requested" if value["kind"] == "retry" => self.retried(value["from"].as_str()),
            "run.requested" => self.asks_for_all = value["approvals"] == "all",
            "tool.started" => self.started(call, value),
            "approval.decided" if value["decision"] != "decline" => drop(self.approved.insert(call)),
            "answer.given" => {
                let count = self.answers.entry(call).or_default();
                *count += 1;
                if *count > 1 {
                    self.found.push(format!("{} was answered twice", text(value, "call_id")));
                }
            }
            "tool.completed" => self.completed(&call, value),
            _ => {}
        }
    }

    fn retried(&mut self, from: Option<&str>) {
        let mut again: BTreeSet<String> = from.map(str::to_owned).into_iter().collect();
        for (id, step) in &mut self.steps {
            let before = step.plan["depends_on"].as_array().into_iter().flatten();
            let is_after = before.filter_map(Value::as_str).any(|id| again.contains(id));
            if is_after || again.contains(id) || step.status != "succeeded" {
                again.insert(id.clone());
                step.status = "skipped";
                step.turns = step.calls + 1;
            }
        }
    }

    fn started(&mut self, call: String, value: &Value) {
        self.names.insert(call.clone(), text(value, "name").to_owned());
        if text(value, "name") == "run_plan" {
            self.plans.insert(call, value["args"]["steps"].clone());
            return;
        }
        let Some(id) = step_of(&call) else { return };
        let Some(step) = self.step(id) else {
            return self.found.push(format!("{call} is of a step that is not planned"));
        };
        step.calls += 1;
        let (calls, turns) = (step.calls, step.turns);
        let before: Vec<String> =
            step.plan["depends_on"].as_array().into_iter().flatten().map(name).collect();
        if calls > turns {
            self.found.push(format!("{call} is a further call of a step that no retry has asked for"));
        }
        if let Some(before) = before.iter().find(|before| self.status(before) != "succeeded") {
            self.found.push(format!("{call} started before {before} succeeded"));
        }
    }

    fn completed(&mut self, call: &str, value: &Value) {
        self.outcomes.insert(call.to_owned(), value.clone());
        let is_good = matches!(text(value, "outcome"), "result" | "artifact");
        let tool = self.names.get(call).cloned().unwrap_or_default();
        if let Some(steps) = self.plans.remove(call).filter(|_| is_good) {
            for plan in steps.as_array().into_iter().flatten() {
                let step = Step { plan: plan.clone(), turns: 1, status: "skipped", ..Step::default() };
                self.steps.push((name(&plan["id"]), step));
            }
        }
        if tool == VERIFY {
            self.is_unverified &= !is_good && text(value, "outcome") != "denied";
        }
        let Some(id) = step_of(call) else { return };
        self.is_unverified |= is_good && tool.starts_with("local_");
        let (asks, is_approved) = (self.asks_for_all, self.approved.contains(call));
        let Some(step) = self.step(id) else { return };
        let asks = asks || step.plan["needs_approval"] == true;
        step.status = match text(value, "outcome") {
            _ if is_good => "succeeded",
            "denied" if matches!(text(value, "denied"), "declined" | "canceled") => "skipped",
            // The turn ended while the Worker wrote a file.
            "unknown" if tool == "run_artifact" => "skipped",
            _ => "failed",
        };
        if asks && is_good && !is_approved {
            self.found.push(format!("{call} ran without its approval"));
        }
    }

    /// Checks the answers that the server has accepted, and that nothing ran without an approval.
    fn answered(&mut self, witness: &RunWitness, view: &View) {
        let answered = witness.answered.borrow();
        for (call, result) in answered.iter() {
            let Some(outcome) = self.outcomes.get(call) else {
                self.found.push(format!("{call} was answered, and has no outcome"));
                continue;
            };
            // A turn that is canceled after the answer ends without it.
            let is_end = |own: &&Entry| own.kind == "turn.canceled" && own.value["turn"] == outcome["turn"];
            let is_canceled = matches!(text(outcome, "outcome"), "denied" | "unknown")
                && view.entries.iter().any(|own| is_end(&own));
            let is_kept = match result.get("answer") {
                Some(answer) => outcome["outcome"] == "result" && outcome["result"] == *answer,
                None => text(outcome, "reason").contains(text(result, "error")),
            };
            if !is_kept && !is_canceled {
                self.found.push(format!("{call} was answered with {result}, and its outcome is {outcome}"));
            }
        }
        for call in witness.ran.borrow().iter() {
            let Some(id) = step_of(call).map(str::to_owned) else { continue };
            let asks = self.step(&id).is_some_and(|step| step.plan["needs_approval"] == true);
            if (asks || self.asks_for_all) && !self.approved.contains(call) {
                self.found.push(format!("a runner ran {call} without its approval"));
            }
        }
    }

    /// Checks the states of the run and of its steps, as a client sees them.
    fn shown(&mut self, last: &Value) {
        if !matches!(text(last, "status"), "succeeded" | "failed" | "canceled") {
            self.found.push(format!("the run has not ended: {}", last["status"]));
        }
        let shown: Vec<(String, String)> = last["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|step| (name(&step["id"]), name(&step["status"])))
            .collect();
        let own: Vec<(String, String)> =
            self.steps.iter().map(|(id, step)| (id.clone(), step.status.to_owned())).collect();
        if shown != own {
            self.found.push(format!("the steps are {shown:?}, the records say {own:?}"));
        }
        if last["status"] == "succeeded" && self.is_unverified {
            self.found.push("the run succeeded without a verification of its last change".into());
        }
    }

    /// Checks that the workspace has the files of the steps that succeeded, and the report.
    fn files(&mut self, world: &World, last: &Value) {
        let session = &world.ledger.scenario.sessions[0];
        let owner =
            Owner { tenant: session.tenant.clone(), agent: "default".into(), user: session.user.clone() };
        let files = world.workspaces().open_for(&owner.into(), None);
        let read = |path: &str| {
            let path = FilePath::parse(path).ok()?;
            let (file, _) = block_on(files.read(&path)).ok()?;
            String::from_utf8(file.bytes.to_vec()).ok()
        };
        for step in last["steps"].as_array().into_iter().flatten() {
            let plan = self.step(text(step, "id")).map(|own| own.plan.clone()).unwrap_or_default();
            let expected = if plan["type"] == "model" { TEXT } else { text(&plan, "content") };
            for path in step["files"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if read(path).as_deref() != Some(expected) {
                    self.found.push(format!("{path} does not have what the step wrote"));
                }
            }
        }
        if let Some(report) = last["report"].as_str()
            && read(report).is_none()
        {
            self.found.push("there is no report".into());
        }
    }
}

fn name(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
