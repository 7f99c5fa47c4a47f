//! A run as clients see it.

use super::decision::RunError;
use super::drawing::Drawing;
use super::fold::{Check, Run, StepState, StepStatus};
use super::plan::{PlanSource, StepType};
use crate::types::{AgentId, CallId, RunSpec, SessionId, Timestamp, Usage, UserId};
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
    /// It cannot be read at the moment. Only lists have such runs, with what the list itself stores.
    Unknown,
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
    /// It cannot be read at the moment.
    Unknown,
}

/// What the session of a run says about it.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// See [`RunView::agent`].
    pub agent: Option<AgentId>,
    /// See [`RunView::user`].
    pub user: Option<UserId>,
    /// See [`RunView::title`].
    pub title: Option<String>,
    /// See [`RunView::usage`].
    pub usage: Usage,
    /// See [`RunView::cost_usd`].
    pub cost_usd: Option<f64>,
    /// When it was created, and when it last changed.
    pub times: (Timestamp, Timestamp),
}

/// A run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Run")]
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
    /// The agent.
    pub agent: Option<AgentId>,
    /// The user.
    pub user: Option<UserId>,
    /// The title.
    pub title: Option<String>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Cost of all turns in US dollars, if the model has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
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
    /// The id of its newest call, or of the one that renders its diagram if a person is asked about it.
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

impl RunView {
    /// Returns a run that cannot be read.
    pub fn unknown(id: SessionId, about: About) -> Self {
        Self { status: RunStatus::Unknown, phase: RunPhase::Unknown, ..Run::new(id).view(about) }
    }
}

impl Run {
    /// Returns the run as clients see it.
    pub fn view(&self, about: About) -> RunView {
        let failure = self.failure();
        let status = match &self.end {
            Some(_) if self.is_canceled() => RunStatus::Canceled,
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
            agent: about.agent,
            user: about.user,
            title: about.title,
            usage: about.usage,
            cost_usd: about.cost_usd,
            created_at: about.times.0,
            updated_at: about.times.1,
        }
    }

    fn view_of(&self, own: &StepState) -> StepView {
        let file = own.step.file().filter(|_| own.status == StepStatus::Succeeded);
        let drawing = (own.drawing == Drawing::Stored).then(|| own.step.drawing());
        StepView {
            id: own.step.id.clone(),
            title: own.step.title.clone(),
            kind: own.step.kind,
            status: self.status_of(own),
            needs_approval: self.asks_for(&own.step),
            depends_on: own.step.depends_on.clone(),
            call_id: own.call.clone(),
            args_hash: own.args_hash.clone(),
            error: own.error.clone(),
            attempts: own.attempts,
            files: file.into_iter().chain(drawing).map(|name| Self::path(&self.id, &name)).collect(),
        }
    }

    fn phase(&self) -> RunPhase {
        let runs = |own: &StepState| own.status == StepStatus::Running;
        match () {
            () if self.has_ended() => RunPhase::Done,
            () if self.has_reported => RunPhase::Document,
            () if self.source.is_none() && self.is_reading() => RunPhase::Context,
            () if self.source.is_none() => RunPhase::Plan,
            () if self.is_verifying() => RunPhase::Verify,
            () if self.steps.iter().any(runs) => RunPhase::Execute,
            () if matches!(self.check, Check::Failed(_)) => RunPhase::Verify,
            () => RunPhase::Execute,
        }
    }
}
