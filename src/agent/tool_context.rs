//! The context of a tool call: who is calling, and what the tool may do. Never stored.

use super::{RuntimeContext, StateRules, ToolError, context::FinishFollowUps, state::Merged};
use crate::ports::{CancelToken, Clock, session_store::Select, within};
use crate::session::artifacts::{Content, Stored};
use crate::session::{ArtifactReader, Draft, Modes, Permit, Session, TaskError, TaskList, WriteError, fold};
use crate::types::{
    AgentId, BackgroundTask, CallId, CallProgress, CallUsage, Delta, EventKind, FileRef, Message, Mode,
    PlanRef, SessionId, Source, Spawned, SubagentSkills, TaskView, TenantId, Timestamp, ToolOutcome,
    ToolProgress, Tools, TurnId, UserId, Wait, WorkspaceOwner,
};
use bytes::Bytes;
use futures::{
    future::{Either, select},
    pin_mut,
};
use serde_json::{Map, Value};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// How long a call waits for follow-ups.
const MAX_FOLLOW_UP_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of sources that one call may cite.
const MAX_SOURCES: usize = 50;

/// The only way for a tool call to change the session. Open from the start of the call until it has an
/// outcome, its turn ends, or the turn is restarted.
#[derive(Clone)]
pub struct WriteGate {
    session: Rc<Session>,
    permit: Permit,
    cancel: CancelToken,
    clock: Rc<dyn Clock>,
}

impl WriteGate {
    pub(super) fn new(cx: &RuntimeContext, cancel: CancelToken) -> Self {
        let (session, permit, clock) = (Rc::clone(&cx.session), cx.permit.clone(), Rc::clone(&cx.clock));
        Self { session, permit, cancel, clock }
    }

    /// Returns whether the call may still change anything. Check this right before each write to a store
    /// other than the session's.
    pub fn is_open(&self) -> bool {
        !self.cancel.is_canceled() && self.session.holds(&self.permit)
    }

    /// Changes the session if the gate is open. Check and write happen without an await in between.
    pub(crate) fn commit<T>(&self, draft: impl FnOnce(&mut Draft) -> T) -> Result<T, WriteError> {
        if self.cancel.is_canceled() {
            return Err(WriteError::Stale);
        }
        self.session.commit_turn(&self.permit, self.clock.now(), |change, _| draft(change))
    }
}

/// The context of a tool call: who is calling, and what the tool may do.
#[derive(Clone)]
pub struct ToolContext {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
    /// The session's id.
    pub session: SessionId,
    /// The turn's id.
    pub turn: TurnId,
    /// The call's id.
    pub call_id: CallId,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The deadline of the call.
    pub deadline: Timestamp,
    /// Canceled when the call is no longer awaited. The tool keeps running for a limited time to finish
    /// external work, but can no longer change the session.
    pub cancel: CancelToken,
    /// Read access to the session's artifacts.
    pub artifacts: ArtifactReader,
    /// The workspace that the session works on.
    pub workspace: WorkspaceOwner,
    /// Which of the agent's skills the session has.
    pub skills: Rc<SubagentSkills>,
    /// The agent's modes.
    pub modes: Rc<Modes>,
    /// The call's write access to the session.
    pub gate: WriteGate,
    /// The answer, if the call was suspended for one.
    pub answer: Option<Value>,
    /// The payload that was shown with the suspension; see
    /// [`Tool::suspension_payload`](super::Tool::suspension_payload).
    pub shown: Value,
    /// What the call has stored with `ToolContext::wait`, if it was suspended while it ran.
    pub progress: Option<Value>,
    state_rules: Rc<StateRules>,
    finish_follow_ups: FinishFollowUps,
    sources: Rc<RefCell<Vec<Source>>>,
    outputs: Rc<RefCell<CallOutputs>>,
    shown_tasks: Rc<RefCell<Vec<TurnId>>>,
    search_work: Rc<Cell<u64>>,
    empty_waits: Rc<Cell<u32>>,
    wait: Rc<RefCell<Option<CallWait>>>,
    /// The tools that the session has, for the tool that searches them.
    pub(super) usable: Tools,
}

/// What a running call waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallWait {
    pub wait: Wait,
    /// What the call needs to continue.
    pub progress: Value,
}

/// What is stored with the outcome of a call.
#[derive(Default)]
pub(super) struct CallOutputs {
    /// The files that the tool has stored.
    pub files: Vec<Stored>,
    /// What the call has consumed of models.
    pub usage: Vec<CallUsage>,
}

impl ToolContext {
    pub(super) fn new(
        cx: &RuntimeContext,
        call_id: &CallId,
        deadline: Timestamp,
        cancel: CancelToken,
    ) -> Self {
        Self {
            tenant: cx.tenant.clone(),
            user: cx.user.clone(),
            agent: cx.agent.clone(),
            session: cx.session_id(),
            turn: cx.turn().to_owned(),
            call_id: call_id.to_owned(),
            clock: Rc::clone(&cx.clock),
            deadline,
            gate: WriteGate::new(cx, cancel.clone()),
            cancel,
            artifacts: ArtifactReader::new(&cx.artifacts),
            workspace: cx.workspace(),
            skills: Rc::clone(&cx.skills),
            modes: Rc::clone(&cx.modes),
            answer: None,
            shown: Value::Null,
            progress: None,
            state_rules: Rc::clone(&cx.state_rules),
            finish_follow_ups: Rc::clone(&cx.finish_follow_ups),
            sources: Rc::default(),
            outputs: Rc::default(),
            shown_tasks: Rc::default(),
            search_work: cx.state.search_work(),
            empty_waits: cx.state.empty_waits(),
            wait: Rc::default(),
            usable: Tools::default(),
        }
    }

    /// Returns the counter of the work of the turn's searches, which calls share because searches of a wave
    /// run concurrently.
    pub(crate) fn search_work(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.search_work)
    }

    /// Runs `work`, such as reading from the network, and drops it as soon as the call is over. The work must
    /// be safe to drop at any await.
    ///
    /// # Errors
    /// If the call is over first.
    pub async fn unless_canceled<T>(&self, work: impl Future<Output = T>) -> Result<T, ToolError> {
        let over = self.cancel.canceled();
        pin_mut!(work, over);
        match select(work, over).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(ToolError::new("this call is over")),
        }
    }

    /// Runs the follow-ups that earlier turns of this session have requested, and waits for them, so that their
    /// results can be read: messages are indexed, facts are extracted. Waits at most 5 seconds; what is missing
    /// then follows later.
    ///
    /// # Errors
    /// If the call is over first.
    pub async fn finish_follow_ups(&self) -> Result<(), ToolError> {
        let finished = within(self.clock.as_ref(), MAX_FOLLOW_UP_WAIT, (self.finish_follow_ups)());
        self.unless_canceled(finished).await.map(drop)
    }

    /// Shows clients how far the call is. Nothing is stored, and nothing is shown once the call is over.
    pub fn report(&self, progress: ToolProgress) {
        if self.gate.is_open() {
            let shown = Delta::ToolProgress(CallProgress { call_id: self.call_id.clone(), progress });
            self.gate.session.show(&self.turn, &shown);
        }
    }

    /// Adds a source that the reply may cite. A call may cite at most 50 sources; more are dropped.
    pub fn cite(&self, source: Source) {
        let mut sources = self.sources.borrow_mut();
        if sources.len() < MAX_SOURCES {
            sources.push(source);
        }
    }

    /// Stores a file that the user can see. It becomes part of the session with the outcome of the call, lives as long
    /// as the session, and counts as one of its attachments.
    ///
    /// # Errors
    /// If the session's files have reached their limit, or a store fails.
    pub async fn store_file(
        &self,
        bytes: Bytes,
        mime_type: String,
        name: String,
    ) -> Result<FileRef, ToolError> {
        let content = Content { bytes, mime_type, name: Some(name) };
        let number = self.outputs.borrow().files.len();
        let stored = self.artifacts.store(&self.turn, &self.call_id, number, content).await;
        let stored = stored.map_err(|error| ToolError::new(error.to_string()))?;
        let file = stored.as_file();
        self.outputs.borrow_mut().files.push(stored);
        Ok(file)
    }

    /// Counts what the call has consumed of a model as usage of the tenant, under the tool's name.
    pub(crate) fn spend(&self, usage: CallUsage) {
        self.outputs.borrow_mut().usage.push(usage);
    }

    pub(super) fn take_outputs(&self) -> CallOutputs {
        self.outputs.take()
    }

    /// Suspends the call as soon as the tool returns, in place of its outcome. When the wait is over, the call runs again,
    /// possibly days later and after an eviction, with the answer and with `progress`.
    /// Returns what the tool must return.
    pub(crate) fn wait(&self, wait: Wait, progress: Value) -> ToolOutcome {
        *self.wait.borrow_mut() = Some(CallWait { wait, progress });
        ToolOutcome::failure("the call waits")
    }

    pub(super) fn take_wait(&self) -> Option<CallWait> {
        self.wait.take()
    }

    pub(super) fn take_sources(&self) -> Vec<Source> {
        self.sources.take()
    }

    /// Returns the subagents that can be sent further tasks.
    pub(crate) fn spawned(&self) -> Vec<Spawned> {
        self.gate.session.state().subagents.spawned.clone()
    }

    /// Returns the background tasks, oldest first.
    pub(crate) fn background_tasks(&self) -> Vec<BackgroundTask> {
        self.gate.session.state().subagents.tasks.clone()
    }

    /// Lists the background tasks without their results, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn list_background_tasks(&self) -> Result<Vec<TaskView>, ToolError> {
        self.gate.session.background_tasks().map_err(|error| ToolError::new(error.to_string()))
    }

    /// Returns a background task, with its result if it has ended.
    ///
    /// # Errors
    /// If there is no such task, or the store fails.
    pub(crate) fn background_task(&self, id: &TurnId) -> Result<TaskView, ToolError> {
        let task = self.gate.session.background_task(id);
        let task = task.map_err(|error| ToolError::new(error.to_string()))?;
        task.ok_or_else(|| ToolError::new(format!("there is no background task {id}")))
    }

    /// Cancels a background task, unless it has ended.
    ///
    /// # Errors
    /// If the call is over, or the store fails.
    pub(crate) fn cancel_background_task(&self, id: &TurnId) -> Result<(), ToolError> {
        let now = self.clock.now();
        let canceled = self.gate.commit(|draft| draft.cancel_task(id, now));
        canceled.map_err(|error| ToolError::new(error.to_string()))
    }

    /// Marks the result of a task as part of this call's outcome: it is shown to the model when the outcome is stored.
    pub(crate) fn show_task(&self, id: TurnId) {
        self.shown_tasks.borrow_mut().push(id);
    }

    pub(super) fn take_shown(&self) -> Vec<TurnId> {
        self.shown_tasks.take()
    }

    /// Returns the counter of the turn's waits in a row in which no task ended.
    pub(crate) fn empty_waits(&self) -> &Cell<u32> {
        &self.empty_waits
    }

    /// Reads complete messages of this session's log with sequence numbers from `from` to `to`, oldest first.
    /// At most `limit` records and one page ([`PAGE_BYTES`](crate::ports::session_store::PAGE_BYTES)) are read; if
    /// there are more, the sequence number to continue from is returned as well.
    ///
    /// # Errors
    /// If the store fails.
    pub fn messages(
        &self,
        from: u64,
        to: u64,
        limit: usize,
    ) -> Result<(Vec<Rc<Message>>, Option<u64>), ToolError> {
        let select =
            Select { after: from.saturating_sub(1), kinds: fold::MESSAGE_KINDS, limit, ..Select::default() };
        let page = self.gate.session.page(select);
        let (records, more) = page.map_err(|error| ToolError::new(error.to_string()))?;
        let mut messages = Vec::new();
        for record in &records {
            fold::fold(&mut messages, record);
        }
        messages.retain(|message| message.seq <= to);
        let last = records.last().filter(|last| more && last.seq < to);
        Ok((messages, last.map(|last| last.seq + 1)))
    }

    /// Returns the session's state.
    pub fn state(&self) -> Map<String, Value> {
        self.gate.session.state().meta.state.clone()
    }

    /// Returns the current mode of the session, if the agent has modes.
    pub fn mode(&self) -> Option<&Mode> {
        self.modes.current(self.gate.session.state().meta.mode.as_deref())
    }

    /// Returns the plan that was approved last.
    pub fn plan(&self) -> Option<PlanRef> {
        self.gate.session.state().guidance.plan.clone()
    }

    /// Sets the approved plan, and switches to the mode `to`, if given. Both take effect with the next model
    /// call.
    ///
    /// # Errors
    /// If there is no such mode, the current mode does not lead to it, the call is over, or the store fails.
    pub fn switch_mode(&self, to: Option<&str>, plan: Option<PlanRef>) -> Result<(), ToolError> {
        if self.gate.session.state().meta.parent.is_some() {
            let stays = "a subagent cannot leave the mode of its parent: do the task yourself";
            return Err(ToolError::permanent(stays));
        }
        let stored = self.gate.session.state().meta.mode.clone();
        let to = to.map(|to| self.modes.transition(stored.as_deref(), to)).transpose();
        let to = to.map_err(|error| ToolError::new(error.to_string()))?;
        let switched = self.gate.commit(|draft| {
            if let Some(to) = to {
                draft.switch_mode(&self.modes, Some(&self.turn), to);
            }
            draft.set_plan(plan);
        });
        switched.map_err(|error| ToolError::new(error.to_string()))
    }

    /// Returns the task list.
    pub(crate) fn tasks(&self) -> TaskList {
        TaskList(self.gate.session.state().guidance.tasks.clone())
    }

    /// Changes the task list. Returns it as it was before and as it is now.
    ///
    /// # Errors
    /// If the change is invalid, the call is over, or the store fails.
    pub(crate) fn change_tasks(
        &self,
        change: impl FnOnce(&mut TaskList) -> Result<(), TaskError>,
    ) -> Result<(TaskList, TaskList), ToolError> {
        let before = self.tasks();
        let mut after = before.clone();
        change(&mut after).map_err(|error| ToolError::new(error.to_string()))?;
        if after != before {
            let tasks = after.0.clone();
            let written = self.gate.commit(|draft| draft.set_tasks(&self.turn, tasks));
            written.map_err(|error| ToolError::new(error.to_string()))?;
        }
        Ok((before, after))
    }

    /// Appends a record to the log.
    ///
    /// # Errors
    /// If the call is over, or the store fails.
    pub(crate) fn record(&self, kind: EventKind) -> Result<(), ToolError> {
        let written = self.gate.commit(|draft| draft.record(Some(&self.turn), kind));
        written.map_err(|error| ToolError::new(error.to_string()))
    }

    /// Sets one key of the session's state; null removes it.
    ///
    /// # Errors
    /// If the new state is invalid, the call is over, or the store fails.
    pub fn set_state(&self, key: &str, value: Value) -> Result<(), ToolError> {
        let merged = self.state_rules.set(&self.state(), key, value)?;
        if merged.changed_keys.is_empty() && self.gate.is_open() {
            return Ok(());
        }
        let Merged { state, changed_keys } = merged;
        let written = self.gate.commit(|draft| draft.set_state(Some(&self.turn), state, changed_keys));
        written.map_err(|error| ToolError::new(error.to_string()))
    }
}
