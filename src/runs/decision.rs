//! Decides what a run does next.

use super::call::DIAGRAM;
use super::drawing::Drawing;
use super::fold::{Check, Run, StepState, StepStatus};
use super::plan::{Step, StepType};
use crate::types::{OnDecline, StopReason, TurnStatus};
use serde::Serialize;

/// Maximum number of repairs of a turn.
const MAX_REPAIRS: u32 = 2;

/// The tools that read the project before the plan, each called once.
pub(super) const CONTEXT: [&str; 4] = ["local_repo_tree", "local_repo_map", "local_git_status", "local_read"];

/// What a run does next.
#[derive(Debug)]
pub enum Next<'a> {
    /// It calls these tools, which read the project.
    Context(Vec<&'static str>),
    /// It asks the model for a plan.
    Plan,
    /// It does these steps side by side.
    Steps(Vec<&'a Step>),
    /// It renders the diagrams of these steps, or stores what was rendered.
    Draw(Vec<&'a StepState>),
    /// It verifies what it has changed.
    Verify,
    /// It asks the model to repair what this output of the verification shows.
    Repair(&'a str),
    /// It writes the report.
    Report,
    /// It ends.
    Finish,
}

/// Why a run has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct RunError {
    /// `step_failed`, `step_declined`, `verification_failed`, `budget_exceeded`, or the error of the turn.
    pub code: String,
    /// The step, if one has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What happened.
    pub message: String,
}

impl RunError {
    fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), step: None, message: message.into() }
    }
}

impl Run {
    /// Decides what comes next, once all calls of the last decision are completed. `has` is whether the session has a tool,
    /// `verifies` whether it can verify changes.
    pub fn next(&self, has: impl Fn(&str) -> bool, verifies: bool) -> Next<'_> {
        if self.refused.is_some() {
            return if self.has_reported { Next::Finish } else { Next::Report };
        }
        if !self.has_context && self.source.is_none() {
            let tools: Vec<_> = CONTEXT.into_iter().filter(|name| has(name)).collect();
            if !tools.is_empty() {
                return Next::Context(tools);
            }
        }
        if self.source.is_none() {
            return Next::Plan;
        }
        if self.step_failure().is_none() {
            match &self.check {
                Check::Failed(output) if self.repairs.1 < MAX_REPAIRS => return Next::Repair(output),
                Check::Failed(_) => {}
                Check::None | Check::Passed | Check::Skipped(_) => {
                    let wave = self.wave();
                    // A repair has steps before its verification; other changes are verified before the next steps.
                    let repairs = wave.iter().any(|own| own.repair == self.repairs.0 && own.repair > 0);
                    // A verification could not pass without the steps that failed, and a repair would do their work.
                    let is_left = |own: &StepState| {
                        own.status == StepStatus::Pending && own.is_repeated && own.step.kind.writes()
                    };
                    if self.is_dirty && verifies && !repairs && !self.steps.iter().any(is_left) {
                        return Next::Verify;
                    }
                    if !wave.is_empty() {
                        return Next::Steps(wave.into_iter().map(|own| &own.step).collect());
                    }
                    let drawings = self.drawings(has(DIAGRAM));
                    if !drawings.is_empty() {
                        return Next::Draw(drawings);
                    }
                }
            }
        }
        if self.has_reported { Next::Finish } else { Next::Report }
    }

    /// Returns the steps to do side by side. Steps of the Worker come first, and those that wait for a person last, so that
    /// all others are done before; those of a repair come before all others.
    fn wave(&self) -> Vec<&StepState> {
        let has_succeeded = |id: &String| {
            self.steps.iter().any(|own| own.step.id == *id && own.status == StepStatus::Succeeded)
        };
        let is_ready = |own: &&StepState| {
            own.status == StepStatus::Pending && own.step.depends_on.iter().all(has_succeeded)
        };
        let ready: Vec<&StepState> = self.steps.iter().filter(is_ready).collect();
        let class = |own: &StepState| {
            let in_worker = matches!(own.step.kind, StepType::Note | StepType::Diagram | StepType::Model);
            (std::cmp::Reverse(own.repair), self.asks_for(&own.step), !in_worker)
        };
        let first = ready.iter().map(|own| class(own)).min();
        let mut wave: Vec<&StepState> = ready.into_iter().filter(|own| Some(class(own)) == first).collect();
        // One text of the model at a time: the limits of the turn are checked between them, and a failure repeats only one.
        let mut has_model = false;
        wave.retain(|own| own.step.kind != StepType::Model || !std::mem::replace(&mut has_model, true));
        wave
    }

    /// Returns the steps whose diagrams are to be rendered, if that is possible, or stored.
    fn drawings(&self, renders: bool) -> Vec<&StepState> {
        let is_due = |own: &&StepState| match own.drawing {
            Drawing::None => {
                renders && own.step.kind == StepType::Diagram && own.status == StepStatus::Succeeded
            }
            Drawing::Rendered(_) => true,
            Drawing::Running | Drawing::Stored | Drawing::Failed(_) => false,
        };
        self.steps.iter().filter(is_due).collect()
    }

    /// Returns why the run has failed.
    pub(super) fn failure(&self) -> Option<RunError> {
        if let Some(end) = &self.end {
            match (end.status, end.stop_reason) {
                (TurnStatus::Canceled, _) => return None,
                (TurnStatus::Failed, _) => {
                    return Some(match &end.error {
                        Some(error) => RunError::new(&error.code, error.message.clone()),
                        None => RunError::new("internal", "the turn failed"),
                    });
                }
                (_, StopReason::End) => {}
                (_, reason) => {
                    let reason = serde_json::to_value(reason).unwrap_or_default();
                    let limit = reason.as_str().unwrap_or("limit");
                    let message =
                        format!("the run has reached its limit of {limit:?}; retry it with a larger budget");
                    return Some(RunError::new("budget_exceeded", message));
                }
            }
        }
        if let Some(reason) = &self.refused {
            return Some(RunError::new("plan_refused", format!("the plan was refused: {reason}")));
        }
        self.step_failure().or_else(|| match &self.check {
            Check::Failed(_) if self.repairs.1 >= MAX_REPAIRS => {
                Some(RunError::new("verification_failed", "the verification fails also after the repairs"))
            }
            _ => None,
        })
    }

    /// Returns the failure of the first step that has failed.
    fn step_failure(&self) -> Option<RunError> {
        let ends = |own: &&StepState| match own.status {
            StepStatus::Failed => true,
            StepStatus::Skipped => own.is_declined && self.on_decline == OnDecline::Fail,
            _ => false,
        };
        let own = self.steps.iter().find(ends)?;
        let (code, what) =
            if own.is_declined { ("step_declined", "was declined") } else { ("step_failed", "failed") };
        let why = own.error.as_deref().unwrap_or_default();
        let message = format!("the step {:?} {what}: {why}", own.step.id);
        Some(RunError { step: Some(own.step.id.clone()), ..RunError::new(code, message) })
    }
}
