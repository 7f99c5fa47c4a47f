//! The state of a run, which follows from the log of its session.

use super::call::{ARTIFACT, Purpose};
use super::drawing::Drawing;
use super::plan::{Plan, PlanSource, REPORT, Step, of_args};
use crate::types::{
    CallId, DenyReason, EventKind, OnDecline, Record, RunApprovals, RunSpec, RunTurn, SessionId, StopReason,
    ToolOutcome, TurnError, TurnStatus,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The events that a run depends on.
pub const KINDS: &[&str] = &[
    "turn.started",
    "run.requested",
    "tool.started",
    "tool.approval_required",
    "tool.suspended",
    "approval.decided",
    "tool.completed",
    "turn.completed",
    "turn.failed",
    "turn.canceled",
];
/// Longest output of a call that is kept, in characters.
const MAX_OUTPUT: usize = 8_000;

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// It has not begun.
    Pending,
    /// It runs, or waits for a runner.
    Running,
    /// It waits for an approval.
    WaitingApproval,
    /// It has succeeded.
    Succeeded,
    /// It has failed, or its outcome is unknown.
    Failed,
    /// It did not run: it was declined or canceled, or a step before it did not succeed.
    Skipped,
}

/// A step of the run, and how far it is.
#[derive(Clone, Debug)]
pub struct StepState {
    pub step: Step,
    /// 0 for the steps of the plan, otherwise the number of the repair.
    pub repair: u32,
    /// Its state, apart from an approval that it waits for: see [`Run::status_of`].
    pub status: StepStatus,
    /// Its newest call, or the one that renders its diagram if a person is asked about it.
    pub call: Option<CallId>,
    /// The hash of the arguments that wait for an approval, or were decided on.
    pub args_hash: Option<String>,
    pub attempts: u32,
    /// Why it did not succeed.
    pub error: Option<String>,
    /// The start and the end of its output.
    pub output: String,
    /// The text that it has written into a file of the run.
    pub text: Option<String>,
    /// Whether a person declined it.
    pub is_declined: bool,
    /// Whether a retry does it again because its earlier call did not succeed.
    pub is_repeated: bool,
    /// How far the rendering of its diagram is.
    pub drawing: Drawing,
}

/// The result of the newest verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// There was none yet, or the run has changed something since.
    None,
    Passed,
    /// With its output.
    Failed(String),
    /// It did not run, for this reason.
    Skipped(String),
}

/// How the newest turn has ended.
#[derive(Clone, Debug)]
pub struct End {
    pub status: TurnStatus,
    pub stop_reason: StopReason,
    pub error: Option<TurnError>,
}

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) id: SessionId,
    pub(super) goal: String,
    pub(super) spec: Option<RunSpec>,
    pub(super) approvals: RunApprovals,
    pub(super) on_decline: OnDecline,
    /// Names and outputs of the calls that have read the project.
    pub(super) context: Vec<(String, String)>,
    pub(super) has_context: bool,
    pub(super) source: Option<PlanSource>,
    pub(super) steps: Vec<StepState>,
    /// Number of calls.
    pub(super) calls: u32,
    /// Number of repairs, of the run and of its newest turn.
    pub(super) repairs: (u32, u32),
    pub(super) check: Check,
    /// Whether the project may have changed since the newest verification.
    pub(super) is_dirty: bool,
    /// Whether the newest turn has asked for the report to be written.
    pub(super) has_reported: bool,
    /// Why the newest plan was refused, if it was.
    pub(super) refused: Option<String>,
    pub(super) report: Option<String>,
    pub(super) end: Option<End>,
    /// The calls that wait for a person.
    waits: BTreeSet<CallId>,
    /// The tools of the calls that are not completed.
    open: BTreeMap<CallId, String>,
    /// The text of the newest message.
    message: String,
}

impl Run {
    /// Folds the records of a run's log.
    pub fn of<E>(id: SessionId, records: impl Iterator<Item = Result<Record, E>>) -> Result<Self, E> {
        let mut run = Self::new(id);
        for record in records {
            run.apply(record?.kind);
        }
        run.settle();
        Ok(run)
    }

    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            goal: String::new(),
            spec: None,
            approvals: RunApprovals::default(),
            on_decline: OnDecline::default(),
            context: Vec::new(),
            has_context: false,
            source: None,
            steps: Vec::new(),
            calls: 0,
            repairs: (0, 0),
            check: Check::None,
            is_dirty: false,
            has_reported: false,
            refused: None,
            report: None,
            end: None,
            waits: BTreeSet::new(),
            open: BTreeMap::new(),
            message: String::new(),
        }
    }

    /// Returns whether the newest turn has ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns whether the newest turn was canceled.
    pub(super) fn is_canceled(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == TurnStatus::Canceled)
    }

    /// Returns whether the run has a step with this id.
    pub fn has_step(&self, id: &str) -> bool {
        self.steps.iter().any(|own| own.step.id == id)
    }

    /// Returns the call of a step that waits or was decided on.
    pub fn call_of(&self, step: &str) -> Option<&CallId> {
        self.steps.iter().find(|own| own.step.id == step)?.call.as_ref()
    }

    /// Returns whether a person must approve the call.
    pub fn asks(&self, call: &CallId) -> bool {
        let Some(Purpose::Step(id)) = Purpose::of(call) else { return false };
        let asks = |own: &StepState| self.asks_for(&own.step);
        // A step that is not in the plan cannot have been checked.
        self.steps.iter().find(|own| own.step.id == id).is_none_or(asks)
    }

    pub(super) fn asks_for(&self, step: &Step) -> bool {
        step.needs_approval || self.approvals == RunApprovals::All
    }

    /// Returns the state of a step, which waits if the call that does its work or renders its diagram does.
    pub(super) fn status_of(&self, own: &StepState) -> StepStatus {
        match &own.call {
            Some(call) if self.waits.contains(call) => StepStatus::WaitingApproval,
            _ => own.status,
        }
    }

    /// Returns whether a call waits for a person.
    pub(super) fn waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Returns whether the run reads the project.
    pub(super) fn is_reading(&self) -> bool {
        self.calls == 0 || self.is_open(|purpose| *purpose == Purpose::Context)
    }

    /// Returns whether a call is not completed.
    pub(super) fn is_working(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether a verification runs.
    pub(super) fn is_verifying(&self) -> bool {
        self.is_open(|purpose| *purpose == Purpose::Verify)
    }

    fn is_open(&self, is: impl Fn(&Purpose) -> bool) -> bool {
        self.open.keys().filter_map(Purpose::of).any(|purpose| is(&purpose))
    }

    /// Returns the path of a file of the run in the workspace.
    pub fn path(id: &SessionId, name: &str) -> String {
        format!("runs/{id}/{name}")
    }

    pub(super) fn apply(&mut self, event: EventKind) {
        match event {
            EventKind::TurnStarted { message } => self.message = message.text(),
            EventKind::RunRequested(turn) => self.begin(turn),
            EventKind::ToolStarted { call_id, name, args, .. } => self.started(call_id, name, &args),
            EventKind::ToolApprovalRequired { call_id, args_hash, .. } => {
                if let Some(step) = self.step_of(&call_id) {
                    (step.call, step.args_hash) = (Some(call_id.clone()), Some(args_hash));
                }
                self.waits.insert(call_id);
            }
            EventKind::ApprovalDecided { call_id, .. } | EventKind::ToolSuspended { call_id, .. } => {
                self.waits.remove(&call_id);
            }
            EventKind::ToolCompleted { call_id, outcome, .. } => self.completed(&call_id, &outcome),
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.waits.clear();
                let (status, stop_reason) = (end.status, end.stop_reason);
                self.end = Some(End { status, stop_reason, error: end.error });
            }
            _ => {}
        }
    }

    fn begin(&mut self, turn: RunTurn) {
        (self.end, self.has_reported, self.repairs.1, self.refused) = (None, false, 0, None);
        match turn {
            RunTurn::Start { spec, approvals, on_decline } => {
                self.goal = std::mem::take(&mut self.message);
                (self.spec, self.approvals, self.on_decline) = (spec, approvals, on_decline);
            }
            RunTurn::Retry { from } => self.reset(from.as_deref()),
        }
    }

    /// Makes the steps pending that a retry does again: those that did not succeed, and a step with those after it.
    fn reset(&mut self, from: Option<&str>) {
        let mut again: BTreeSet<String> = from.map(str::to_owned).into_iter().collect();
        // Steps are in the order of their dependencies.
        for own in &mut self.steps {
            let step = &own.step;
            let is_after = step.depends_on.iter().any(|id| again.contains(id));
            let is_again = is_after || again.contains(&step.id) || own.status != StepStatus::Succeeded;
            if is_again {
                again.insert(step.id.clone());
                own.is_repeated = own.attempts > 0 && own.status != StepStatus::Succeeded;
                (own.status, own.error, own.is_declined) = (StepStatus::Pending, None, false);
            }
            // A picture that was rendered and not stored is rendered again: the artifact that has it may have expired.
            if is_again || own.drawing != Drawing::Stored {
                own.drawing = Drawing::None;
            }
        }
        if self.check != Check::Passed {
            self.check = Check::None;
            self.is_dirty |= self.steps.iter().any(|own| own.attempts > 0 && own.step.kind.writes());
        }
    }

    fn started(&mut self, call: CallId, name: String, args: &Value) {
        self.calls += 1;
        match Purpose::of(&call) {
            Some(Purpose::Context) => self.has_context = true,
            Some(Purpose::Plan) => self.planned(of_args(args)),
            Some(Purpose::Report) => self.has_reported = true,
            Some(Purpose::Verify) => self.is_dirty = false,
            Some(Purpose::Step(_)) => {
                let newest = call.clone();
                let content = args.get("content").and_then(Value::as_str).filter(|_| name == ARTIFACT);
                if let Some(step) = self.step_of(&call) {
                    step.text = content.map(|text| excerpt(text, MAX_OUTPUT));
                    (step.status, step.call, step.args_hash) = (StepStatus::Running, Some(newest), None);
                    step.attempts += 1;
                }
            }
            Some(Purpose::Drawing(_)) => {
                if let Some(step) = self.step_of(&call) {
                    step.drawing = Drawing::Running;
                }
            }
            None => {}
        }
        self.open.insert(call, name);
    }

    fn planned(&mut self, plan: Option<Plan>) {
        let Some(Plan { source, steps }) = plan else { return };
        let mut repair = 0;
        if source == PlanSource::Repair {
            self.repairs = (self.repairs.0 + 1, self.repairs.1 + 1);
            repair = self.repairs.0;
            if !steps.is_empty() {
                // Verified again after the repair.
                (self.check, self.is_dirty) = (Check::None, true);
            }
        } else {
            self.source = Some(source);
        }
        self.steps.extend(steps.into_iter().map(|step| StepState {
            step,
            repair,
            status: StepStatus::Pending,
            call: None,
            args_hash: None,
            attempts: 0,
            error: None,
            output: String::new(),
            text: None,
            is_declined: false,
            is_repeated: false,
            drawing: Drawing::None,
        }));
    }

    /// Forgets the newest plan, which a rule or a person has refused.
    fn refuse_plan(&mut self, reason: String) {
        let repair = self.steps.last().map_or(0, |own| own.repair);
        self.steps.retain(|own| own.repair != repair || own.attempts > 0);
        if repair == 0 {
            self.source = None;
        }
        self.refused = Some(reason);
    }

    fn completed(&mut self, call: &CallId, outcome: &ToolOutcome) {
        self.waits.remove(call);
        let name = self.open.remove(call).unwrap_or_default();
        let output = excerpt(&outcome.model_text(), MAX_OUTPUT);
        match Purpose::of(call) {
            Some(Purpose::Context) if !outcome.is_error() => self.context.push((name, output)),
            Some(Purpose::Plan) if outcome.is_error() => self.refuse_plan(output),
            Some(Purpose::Verify) => {
                self.check = match outcome {
                    ToolOutcome::Denied { denied: DenyReason::Declined | DenyReason::Permission, .. } => {
                        Check::Skipped(output)
                    }
                    _ if outcome.is_error() => Check::Failed(output),
                    _ => Check::Passed,
                }
            }
            Some(Purpose::Report) if !outcome.is_error() => {
                self.report = Some(Self::path(&self.id, REPORT));
            }
            Some(Purpose::Step(_)) => self.step_completed(call, &name, outcome, output),
            Some(Purpose::Drawing(_)) => {
                let output = excerpt(&output, 1_000);
                if let Some(step) = self.step_of(call) {
                    step.drawing = match name.as_str() {
                        ARTIFACT if outcome.is_error() => Drawing::Failed(output),
                        ARTIFACT => Drawing::Stored,
                        _ => Drawing::of(outcome, output),
                    };
                }
            }
            _ => {}
        }
    }

    fn step_completed(&mut self, call: &CallId, tool: &str, outcome: &ToolOutcome, output: String) {
        let is_denied = matches!(outcome, ToolOutcome::Denied { .. });
        let Some(own) = self.step_of(call) else { return };
        let reason = |outcome: &ToolOutcome| excerpt(&outcome.model_text(), 1_000);
        let is_canceled = match outcome {
            ToolOutcome::Denied { denied, .. } => *denied == DenyReason::Canceled,
            // The turn ended while the Worker wrote a file. A restart repeats such a call, so no other has this outcome.
            ToolOutcome::Unknown { .. } => tool == ARTIFACT,
            _ => false,
        };
        match outcome {
            ToolOutcome::Denied { denied: DenyReason::Declined, .. } => {
                (own.status, own.is_declined) = (StepStatus::Skipped, true);
                own.error = Some(reason(outcome));
            }
            _ if is_canceled => {
                own.status = StepStatus::Skipped;
                own.error = Some(reason(outcome));
            }
            _ if outcome.is_error() => {
                own.status = StepStatus::Failed;
                own.error = Some(reason(outcome));
            }
            _ => (own.status, own.error) = (StepStatus::Succeeded, None),
        }
        own.output = output;
        if !is_denied && tool != ARTIFACT {
            (self.is_dirty, self.check) = (true, Check::None);
        }
    }

    fn step_of(&mut self, call: &CallId) -> Option<&mut StepState> {
        let Some(Purpose::Step(id) | Purpose::Drawing(id)) = Purpose::of(call) else { return None };
        self.steps.iter_mut().find(|own| own.step.id == id)
    }

    /// Skips the steps that can no longer run.
    pub(super) fn settle(&mut self) {
        let is_over = self.failure().is_some() || self.has_ended();
        let mut unmet: BTreeSet<String> = BTreeSet::new();
        for own in &mut self.steps {
            let blocked = own.step.depends_on.iter().find(|id| unmet.contains(*id));
            if own.status == StepStatus::Pending && (blocked.is_some() || is_over) {
                own.status = StepStatus::Skipped;
                own.error = Some(match blocked {
                    Some(id) => format!("it depends on the step {id:?}, which did not succeed"),
                    None => "the run ended before it".to_owned(),
                });
            }
            if matches!(own.status, StepStatus::Failed | StepStatus::Skipped) {
                unmet.insert(own.step.id.clone());
            }
        }
    }
}

/// Returns a text of at most `most` characters: its start and its end.
pub(super) fn excerpt(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{start}\n[… {} characters left out …]\n{end}", count - 2 * half)
}
