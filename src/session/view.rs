//! A session and its turns as clients read them: projections of the log and the state.

use super::{Session, fold, reply};
use crate::ports::{
    StoreError,
    session_store::{PAGE_BYTES, Records, Select},
};
use crate::types::message::json_weight;
use crate::types::{
    AgentId, AgentVersion, Budget, CallId, CallStatus, EventKind, Message, Parent, Pending, Reply, Role,
    SessionId, SessionPermissions, SessionStatus, Source, StopReason, Timestamp, ToolOutcome, TurnEnd,
    TurnError, TurnId, TurnPhase, TurnStatus, Usage, UserId, Verification,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, rc::Rc};

/// Size of the arguments and outcomes in a [`TurnView`] above which further calls are left out, in bytes.
const MAX_CALL_BYTES: usize = 4 << 20;

/// `GET /v1/sessions/{id}`.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionView {
    id: SessionId,
    agent: AgentId,
    /// The version of the agent.
    agent_version: AgentVersion,
    user: UserId,
    title: Option<String>,
    title_pinned: bool,
    status: SessionStatus,
    mode: Option<String>,
    model: Option<String>,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_turn: Option<TurnId>,
    pending: Vec<Pending>,
    queue: Vec<QueuedView>,
    metadata: Map<String, Value>,
    state: Map<String, Value>,
    permissions: SessionPermissions,
    budget: Budget,
    last_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    context: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
}

/// A queued message.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "QueuedMessage")]
pub struct QueuedView {
    /// The id under which the message can be removed from the queue: that of its turn.
    id: TurnId,
    /// The turn that the message will start.
    turn: TurnId,
    /// The place in the queue, from 1.
    position: usize,
}

/// A tool call in `GET …/turns/{turn}`.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "TurnCall")]
pub struct CallView {
    call_id: CallId,
    name: String,
    args: Value,
    #[serde(flatten)]
    outcome: Option<ToolOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    was_coerced: bool,
    /// Whether the tool finished only after its call had this outcome.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

/// `GET …/turns/{turn}`.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "Turn")]
pub struct TurnView {
    /// The turn.
    pub id: TurnId,
    /// The status.
    pub status: TurnStatus,
    stop_reason: Option<StopReason>,
    reply: Option<Reply>,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    budget: Option<Budget>,
    model: Option<String>,
    steps: u32,
    reflections: u32,
    calls: Vec<CallView>,
    /// Number of further calls, left out because the others exceed 4 MiB.
    #[serde(skip_serializing_if = "is_zero")]
    omitted_calls: u32,
    #[serde(skip)]
    call_bytes: usize,
    outcomes: BTreeMap<String, u32>,
    citations: Vec<Source>,
    prompt_render_hash: Option<String>,
    pending: Vec<Pending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    sub_steps_failed: Vec<String>,
    #[serde(rename = "judgements")]
    grades: Vec<Grade>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<TurnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_position: Option<usize>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A judge's grade of a reply.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "Judgement")]
pub struct Grade {
    judge: String,
    score: f64,
    reason: String,
}

/// The response to a message, once its turn has ended or waits.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "TurnResponse")]
pub struct TurnAnswer {
    turn_id: TurnId,
    status: TurnStatus,
    stop_reason: Option<StopReason>,
    reply: Option<Reply>,
    usage: Usage,
    pending: Vec<Pending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<TurnError>,
}

impl TurnAnswer {
    /// Creates the response for a turn that has ended.
    pub fn new(turn: &TurnId, end: TurnEnd) -> Self {
        Self {
            turn_id: turn.to_owned(),
            status: end.status,
            stop_reason: Some(end.stop_reason),
            reply: end.reply,
            usage: end.usage,
            pending: Vec::new(),
            verification: end.verification,
            error: end.error,
        }
    }
}

impl From<TurnView> for TurnAnswer {
    fn from(view: TurnView) -> Self {
        Self {
            turn_id: view.id,
            status: view.status,
            stop_reason: view.stop_reason,
            reply: view.reply,
            usage: view.usage,
            pending: view.pending,
            verification: view.verification,
            error: view.error,
        }
    }
}

impl Session {
    /// Returns the session as clients see it.
    ///
    /// # Errors
    /// If the store fails.
    pub fn view(&self) -> Result<SessionView, StoreError> {
        let pending = self.pending()?;
        let state = self.state();
        let (meta, totals) = (&state.meta, &state.activity.totals);
        let queued = |(index, turn): (usize, &TurnId)| QueuedView {
            id: turn.clone(),
            turn: turn.clone(),
            position: index + 1,
        };
        Ok(SessionView {
            id: meta.id.clone(),
            agent: meta.agent.clone(),
            agent_version: meta.agent_version,
            user: meta.user.clone(),
            title: meta.title.clone(),
            title_pinned: meta.title_pinned,
            status: state.status(),
            mode: meta.mode.clone(),
            model: meta.model.clone(),
            usage: totals.usage,
            cost_usd: totals.cost_usd,
            created_at: meta.created_at,
            updated_at: totals.updated_at,
            current_turn: state.activity.turn.as_ref().map(|turn| turn.id.clone()),
            pending,
            queue: state.activity.queue.iter().enumerate().map(queued).collect(),
            metadata: meta.metadata.clone(),
            state: meta.state.clone(),
            permissions: meta.permissions.clone(),
            budget: meta.budget,
            last_seq: self.last_seq(),
            context: self.context().progress(),
            parent: meta.parent.clone(),
        })
    }

    /// Returns the messages after record `after`, and the position of the next page: at most `limit`, and no more
    /// once they exceed [`PAGE_BYTES`].
    ///
    /// # Errors
    /// If the store fails.
    pub fn conversation(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Rc<Message>>, Option<u64>), StoreError> {
        let select = Select { after, kinds: fold::MESSAGE_KINDS, ..Select::default() };
        let mut messages: Vec<Rc<Message>> = Vec::new();
        let (mut bytes, mut end) = (0, after);
        for record in self.records(select) {
            let record = record?;
            let complete = messages.len();
            fold::fold(&mut messages, &record);
            // A message is complete once the next one has started.
            if messages.len() > complete {
                bytes +=
                    complete.checked_sub(1).and_then(|last| messages.get(last)).map_or(0, |m| m.weight());
                if complete == limit || bytes > PAGE_BYTES {
                    messages.truncate(complete);
                    return Ok((messages, Some(end)));
                }
            }
            end = record.seq;
        }
        Ok((messages, None))
    }

    /// Returns the newest messages of the conversation, oldest first: at most `limit`, and no further ones once their records
    /// exceed `bytes`. They begin with a message of the user, and lack what the agent has done in `turn`, if it is given.
    ///
    /// # Errors
    /// If the store fails.
    pub fn newest_messages(
        &self,
        turn: Option<&TurnId>,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Rc<Message>>, StoreError> {
        let select = Select { kinds: fold::MESSAGE_KINDS, newest_first: true, ..Select::default() };
        let (mut records, mut size, mut count) = (Vec::new(), 0, 0);
        for stored in Records::new(self.store(), select) {
            let stored = stored?;
            let record = self.parsed(&stored)?;
            let is_of_user = matches!(
                &record.kind,
                EventKind::TurnStarted { message } | EventKind::MessageCompleted { message }
                    if message.role == Role::User
            );
            if turn.is_some() && record.turn.as_ref() == turn && !is_of_user {
                continue;
            }
            size += stored.json.len();
            // A call is part of the message before it.
            count += usize::from(stored.kind != "tool.started");
            if size > bytes || count > limit {
                break;
            }
            records.push(record);
        }
        let mut messages = Vec::new();
        records.iter().rev().for_each(|record| {
            fold::fold(&mut messages, record);
        });
        let start = messages.iter().position(|message: &Rc<Message>| message.role == Role::User);
        messages.drain(..start.unwrap_or(messages.len()));
        Ok(messages)
    }

    /// Returns how a turn ended; `None` while it runs or if there is no such turn.
    ///
    /// # Errors
    /// If the store fails.
    pub fn turn_ended(&self, turn: &TurnId) -> Result<Option<TurnEnd>, StoreError> {
        let select = Select { turn: Some(turn), kinds: reply::ENDS, ..Select::default() };
        Ok(self.first(select)?.and_then(|record| record.kind.turn_end().cloned()))
    }

    /// Returns whether events of a turn may follow those in the log: it runs, waits or is in the queue, or has deferred
    /// records.
    pub fn has_open_turn(&self, turn: &TurnId) -> bool {
        let activity = &self.state().activity;
        activity.turn.as_ref().is_some_and(|own| own.id == *turn)
            || activity.queue.contains(turn)
            || activity.deferred.iter().any(|(of, _)| of.as_ref() == Some(turn))
    }

    /// Returns a turn as clients see it; `None` if there is no such turn.
    ///
    /// # Errors
    /// If the store fails.
    pub fn turn(&self, turn: &TurnId) -> Result<Option<TurnView>, StoreError> {
        let queue_position =
            self.state().activity.queue.iter().position(|queued| queued == turn).map(|i| i + 1);
        // Deferred records already count.
        let state = self.state();
        let deferred = state.activity.deferred.iter().filter(|(of, _)| of.as_deref() == Some(turn));
        let mut deferred = deferred.map(|(_, kind)| (state.activity.totals.updated_at, kind)).peekable();
        let mut records = self.records(Select { turn: Some(turn), ..Select::default() }).peekable();
        if records.peek().is_none() && queue_position.is_none() && deferred.peek().is_none() {
            return Ok(None);
        }
        let mut view = TurnView {
            id: turn.to_owned(),
            status: TurnStatus::Running,
            stop_reason: None,
            reply: None,
            usage: Usage::default(),
            cost_usd: None,
            budget: None,
            model: None,
            steps: 0,
            reflections: 0,
            calls: Vec::new(),
            omitted_calls: 0,
            call_bytes: 0,
            outcomes: BTreeMap::new(),
            citations: Vec::new(),
            prompt_render_hash: None,
            pending: Vec::new(),
            verification: None,
            sub_steps_failed: Vec::new(),
            grades: Vec::new(),
            error: None,
            epoch: None,
            queue_position,
            started_at: None,
            ended_at: None,
        };
        for record in records {
            let record = record?;
            view.fold(record.at, &record.kind);
        }
        deferred.for_each(|(at, kind)| view.fold(at, kind));
        if let Some(running) = state.activity.turn.as_ref().filter(|running| running.id == *turn) {
            view.usage = running.usage;
            view.cost_usd = running.cost_usd;
            view.budget = Some(running.budget);
            view.steps = running.steps;
            view.reflections = running.reflections;
            view.epoch = Some(running.epoch);
            if running.waits_for_people() {
                view.status = TurnStatus::Waiting;
                view.stop_reason = Some(StopReason::Waiting);
                view.pending = self.pending()?;
            }
        }
        Ok(Some(view))
    }

    /// Returns the calls of the current step without an outcome, with their status.
    pub fn open_calls(&self) -> Vec<(CallId, CallStatus)> {
        match self.state().activity.turn.as_ref().map(|turn| &turn.phase) {
            Some(TurnPhase::Tools { calls }) => calls
                .iter()
                .filter(|call| call.status != CallStatus::Done)
                .map(|call| (call.call_id.clone(), call.status))
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl TurnView {
    fn fold(&mut self, at: Timestamp, kind: &EventKind) {
        match kind {
            EventKind::TurnStarted { .. } => self.started_at = Some(at),
            EventKind::ToolStarted { .. } if self.call_bytes > MAX_CALL_BYTES => self.omitted_calls += 1,
            EventKind::ToolStarted { call_id, name, args, .. } => {
                self.call_bytes += json_weight(args);
                self.calls.push(CallView {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    args: args.clone(),
                    outcome: None,
                    elapsed_ms: None,
                    was_coerced: false,
                    late: false,
                });
            }
            EventKind::ToolCompleted { call_id, outcome, elapsed_ms, was_coerced, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == *call_id) {
                    self.call_bytes += outcome.model_text().len();
                    call.outcome = Some(outcome.clone());
                    call.elapsed_ms = Some(*elapsed_ms);
                    call.was_coerced = *was_coerced;
                }
            }
            EventKind::ToolLateResult { call_id, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == *call_id) {
                    call.late = true;
                }
            }
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.ended_at = Some(at);
                self.status = end.status;
                self.stop_reason = Some(end.stop_reason);
                self.reply = end.reply.clone();
                self.usage = end.usage;
                self.cost_usd = end.cost_usd;
                self.budget = end.budget;
                self.model = end.model.clone();
                self.steps = end.steps;
                self.reflections = end.reflections;
                self.outcomes = end.outcomes.clone();
                self.citations = end.citations.clone();
                self.prompt_render_hash = end.prompt_render_hash.clone();
                self.error = end.error.clone();
                self.verification = end.verification;
                self.sub_steps_failed = end.sub_steps_failed.clone();
            }
            EventKind::SubStepFailed { step, .. } => self.sub_steps_failed.push(step.clone()),
            EventKind::JudgeCompleted { judge, score, reason } => {
                self.grades.push(Grade { judge: judge.clone(), score: *score, reason: reason.clone() })
            }
            _ => {}
        }
    }
}
