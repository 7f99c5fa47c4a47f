//! A run as clients see it.

use super::decision::RunError;
use super::fold::{Run, StepState, StepStatus};
use super::plan::{PlanSource, StepType};
use crate::types::{CallId, RunSpec, SessionId, TurnStatus};
use serde::Serialize;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It is accepted, and nothing of it has begun.
    Queued,
    /// It works, or waits for a runner.
    Running,
    /// It waits for a person.
    Waiting,
    /// All of its steps are done or skipped, and the verification did not fail.
    Succeeded,
    /// A step or the verification has failed, or a limit is reached.
    Failed,
    /// It was canceled.
    Canceled,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// It reads the project.
    Context,
    /// The model writes the plan.
    Plan,
    /// It does the steps.
    Execute,
    /// It verifies what it has changed, or repairs it.
    Verify,
    /// It writes the report.
    Document,
    /// It has ended.
    Done,
}

/// A run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "RunState")]
pub struct RunView {
    /// The run's id, which is also that of its session.
    pub id: SessionId,
    /// The state.
    pub status: RunStatus,
    /// What it does.
    pub phase: RunPhase,
    /// The goal; the text of the spec if there is one.
    pub goal: String,
    /// The spec.
    pub spec: Option<RunSpec>,
    /// Where the plan comes from.
    pub plan_source: Option<PlanSource>,
    /// The steps, in the order of their dependencies; those of repairs last.
    pub steps: Vec<StepView>,
    /// Number of repairs after failed verifications.
    pub repairs: u32,
    /// The path of the report in the workspace.
    pub report: Option<String>,
    /// Why it has failed.
    pub error: Option<RunError>,
}

/// A step of a run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "RunStep")]
pub struct StepView {
    /// The id.
    pub id: String,
    /// What it does.
    pub title: String,
    /// The kind of work.
    #[serde(rename = "type")]
    pub kind: StepType,
    /// The state.
    pub status: StepStatus,
    /// Whether a person must approve it.
    pub needs_approval: bool,
    /// Steps that must succeed before.
    pub depends_on: Vec<String>,
    /// The id of its newest call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The hash of the arguments to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often it was started.
    pub attempts: u32,
    /// The files that it has written into the workspace.
    pub files: Vec<String>,
}

impl Run {
    /// Returns the run as clients see it.
    pub fn view(&self) -> RunView {
        let failure = self.failure();
        let status = match &self.end {
            Some(end) if end.status == TurnStatus::Canceled => RunStatus::Canceled,
            Some(_) if failure.is_some() => RunStatus::Failed,
            Some(_) => RunStatus::Succeeded,
            None if self.waits() => RunStatus::Waiting,
            None if self.calls == 0 => RunStatus::Queued,
            None => RunStatus::Running,
        };
        RunView {
            id: self.id.clone(),
            status,
            phase: self.phase(),
            goal: self.goal.clone(),
            spec: self.spec.clone(),
            plan_source: self.source,
            steps: self.steps.iter().map(|own| self.view_of(own)).collect(),
            repairs: self.repairs.0,
            report: self.report.clone(),
            error: failure.filter(|_| status == RunStatus::Failed),
        }
    }

    fn view_of(&self, own: &StepState) -> StepView {
        let file = own.step.file().filter(|_| own.status == StepStatus::Succeeded);
        StepView {
            id: own.step.id.clone(),
            title: own.step.title.clone(),
            kind: own.step.kind,
            status: own.status,
            needs_approval: self.asks_for(&own.step),
            depends_on: own.step.depends_on.clone(),
            call_id: own.call.clone(),
            args_hash: own.args_hash.clone(),
            error: own.error.clone(),
            attempts: own.attempts,
            files: file.map(|name| Self::path(&self.id, &name)).into_iter().collect(),
        }
    }

    fn phase(&self) -> RunPhase {
        let runs = |own: &StepState| matches!(own.status, StepStatus::Running | StepStatus::WaitingApproval);
        match () {
            () if self.has_ended() => RunPhase::Done,
            () if self.has_reported => RunPhase::Document,
            () if self.source.is_none() && self.is_reading() => RunPhase::Context,
            () if self.source.is_none() => RunPhase::Plan,
            () if self.is_verifying() => RunPhase::Verify,
            () if self.steps.iter().any(runs) => RunPhase::Execute,
            () if matches!(self.check, super::fold::Check::Failed(_)) => RunPhase::Verify,
            () => RunPhase::Execute,
        }
    }
}
