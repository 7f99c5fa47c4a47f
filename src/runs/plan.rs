//! Plans: what a model writes, checked.

use crate::types::json::from_value;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of steps of a plan.
const MAX_STEPS: usize = 50;
/// Maximum length of the id of a step.
const MAX_ID: usize = 64;
/// The name of the report.
pub(super) const REPORT: &str = "report.md";
/// Commands of the plan that is used if the model writes none.
const FALLBACK: [(&str, &str); 2] = [("test", "make test"), ("diagrams", "make diagrams")];

/// Where a plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanSource {
    /// The model has written it.
    Model,
    /// The model's text contained no valid plan.
    Fallback,
    /// The model has written it to repair a failed verification.
    Repair,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepType {
    /// Runs a command on the runner.
    Command,
    /// Changes files on the runner.
    Patch,
    /// Writes a text.
    Note,
    /// Writes a diagram in Mermaid.
    Diagram,
    /// Asks the model for a text.
    Model,
    /// Gives a task to a subagent.
    Agent,
}

impl StepType {
    /// Returns whether the step may change the project.
    pub fn writes(self) -> bool {
        matches!(self, Self::Command | Self::Patch | Self::Agent)
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Unique within the run: 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub id: String,
    /// What the step does, in a few words.
    #[serde(default)]
    pub title: String,
    /// The kind of work.
    #[serde(rename = "type")]
    pub kind: StepType,
    /// Whether a person must approve the step before it runs.
    #[serde(default)]
    pub needs_approval: bool,
    /// Steps that must succeed before.
    #[serde(default, deserialize_with = "list")]
    pub depends_on: Vec<String>,
    /// The command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The file whose whole content the step writes, in place of a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The text of a note, a diagram or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What the model or the subagent is asked to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The kind of subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The steps of a plan, in an order in which they can run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where it comes from.
    pub source: PlanSource,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Finds the plan in the text of a model: a JSON object with `steps`, alone or within other text. `taken` are the ids of
    /// the run's earlier steps, on which the new ones may depend.
    pub fn find(text: &str, source: PlanSource, taken: &BTreeSet<&str>) -> Option<Self> {
        let objects = text.match_indices('{').map(|(at, _)| text.get(at..).unwrap_or_default());
        // A plan has few objects before it; the bound keeps long prose with many braces cheap.
        objects.take(50).find_map(|rest| {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let mut found = values.next()?.ok()?;
            // A plan of the model says nothing about its source.
            found.as_object_mut()?.insert("source".to_owned(), json!(source));
            let plan = of_args(&found)?;
            sorted(plan.steps, taken).map(|steps| Self { source, steps })
        })
    }

    /// Returns the plan to use if the model has written none. All of its commands need an approval.
    pub fn fallback() -> Self {
        let step = |(id, command): (&str, &str)| Step {
            id: id.to_owned(),
            title: format!("Run {command}"),
            kind: StepType::Command,
            needs_approval: true,
            depends_on: Vec::new(),
            command: Some(command.to_owned()),
            patch: None,
            path: None,
            content: None,
            prompt: None,
            agent: None,
        };
        Self { source: PlanSource::Fallback, steps: FALLBACK.into_iter().map(step).collect() }
    }
}

/// Reads a list that a model may leave out as `null`.
fn list<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Checks the steps and sorts them by their dependencies, otherwise in the given order. `None` if they are no plan.
fn sorted(steps: Vec<Step>, taken: &BTreeSet<&str>) -> Option<Vec<Step>> {
    let ids: BTreeSet<String> = steps.iter().map(|step| step.id.clone()).collect();
    let is_known = |id: &String| ids.contains(id) || taken.contains(id.as_str());
    let are_valid = (1..=MAX_STEPS).contains(&steps.len())
        && ids.len() == steps.len()
        && steps.iter().all(|step| {
            is_step_id(&step.id)
                && !taken.contains(step.id.as_str())
                && step.is_complete()
                && step.depends_on.iter().all(is_known)
        });
    if !are_valid {
        return None;
    }
    let mut left: BTreeMap<usize, Step> = steps.into_iter().enumerate().collect();
    let (mut done, mut ordered) = (BTreeSet::new(), Vec::with_capacity(left.len()));
    while !left.is_empty() {
        let is_ready = |step: &Step| step.depends_on.iter().all(|id| done.contains(id) || !ids.contains(id));
        // None is ready if they depend on each other.
        let place = left.iter().find(|(_, step)| is_ready(step)).map(|(place, _)| *place)?;
        let step = left.remove(&place)?;
        done.insert(step.id.clone());
        ordered.push(step);
    }
    Some(ordered)
}

fn is_step_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

impl Step {
    /// Returns whether the step has what its type needs.
    fn is_complete(&self) -> bool {
        let has = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        match self.kind {
            StepType::Command => has(&self.command),
            StepType::Patch => has(&self.patch) || (has(&self.path) && self.content.is_some()),
            StepType::Note | StepType::Diagram => has(&self.content),
            StepType::Model | StepType::Agent => has(&self.prompt),
        }
    }

    /// Returns the name of the file that the step writes into the workspace. It is not that of the report, and an id has no
    /// dot, so no other step has it.
    pub fn file(&self) -> Option<String> {
        let ending = match self.kind {
            StepType::Note | StepType::Model => "md",
            StepType::Diagram => "mmd",
            StepType::Command | StepType::Patch | StepType::Agent => return None,
        };
        let name = format!("{}.{ending}", self.id);
        Some(if name.eq_ignore_ascii_case(REPORT) { format!("{}.step.{ending}", self.id) } else { name })
    }

    /// Returns the name of the file with the rendered diagram of the step.
    pub(super) fn drawing(&self) -> String {
        format!("{}.svg", self.id)
    }
}

/// Reads the plan from the arguments of a call of [`PLAN`](super::PLAN).
pub(super) fn of_args(args: &Value) -> Option<Plan> {
    from_value(args.clone()).ok()
}
