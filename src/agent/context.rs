//! Who is speaking, and what a tool may do: bound to each call, never stored.

use super::{RuntimeState, StateRules, ToolError};
use crate::fault::{self, Fault};
use crate::ports::{CancelToken, Clock, Spawner, session_store::Select};
use crate::session::{
    ArtifactReader, Artifacts, Draft, Modes, Permit, Session, TaskError, TaskList, WriteError, fold,
};
use crate::types::{EventKind, Message, Mode, PlanRef, Source, TenantId, Timestamp};
use futures::{
    future::{Either, select},
    pin_mut,
};
use serde_json::{Map, Value};
use std::{cell::RefCell, rc::Rc};

/// Most sources that a call names.
const MAX_SOURCES: usize = 50;

/// What hooks know of the turn at hand.
#[derive(Clone)]
pub struct RuntimeContext {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: String,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: Rc<Session>,
    /// The right to write for this (re)start of the turn.
    pub permit: Permit,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// Work that outlives the turn.
    pub spawner: Rc<dyn Spawner>,
    /// The session's large things.
    pub artifacts: Rc<Artifacts>,
    /// The agent's modes.
    pub modes: Rc<Modes>,
    /// What the callers' own state must be like.
    pub state_rules: Rc<StateRules>,
    /// What this turn has done so far.
    pub state: Rc<RuntimeState>,
}

impl RuntimeContext {
    /// The session's id.
    pub fn session_id(&self) -> String {
        self.session.state().meta.id.clone()
    }

    /// The turn's id.
    pub fn turn(&self) -> &str {
        &self.permit.turn
    }

    /// What the model sees of the conversation: the context window, with what the user said as hooks left it.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        let mut messages = self.session.messages();
        let Some(said) = self.state.user_message() else { return messages };
        // Mostly hooks have left it as it was.
        let is_other = |own: &&mut Rc<Message>| own.id == said.id && own.parts != said.parts;
        if let Some(own) = messages.iter_mut().rev().find(is_other) {
            let said = Rc::new(Message { seq: own.seq, ..Message::clone(&said) });
            *own = self.session.context().shortened(own.seq, said);
        }
        messages
    }
}

/// The one way by which a call changes the session: open from the call's start until it has its
/// outcome, its turn ends, or another machine takes the turn over.
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

    /// Whether the call may still change anything. Ask right before each write to a store that
    /// is not the session's own.
    pub fn is_open(&self) -> bool {
        !self.cancel.is_canceled() && self.session.holds(&self.permit)
    }

    /// Changes the session, if the gate is open: check and write are one.
    pub(crate) fn commit<T>(&self, draft: impl FnOnce(&mut Draft) -> T) -> Result<T, WriteError> {
        if fault::active(Fault::LateWrites) {
            return Ok(self.session.commit(self.clock.now(), draft)?);
        }
        if self.cancel.is_canceled() {
            return Err(WriteError::Stale);
        }
        self.session.commit_turn(&self.permit, self.clock.now(), |change, _| draft(change))
    }
}

/// What a tool knows of its call, and may do in it.
#[derive(Clone)]
pub struct ToolContext {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: String,
    /// The agent.
    pub agent: String,
    /// The session's id.
    pub session: String,
    /// The turn's id.
    pub turn: String,
    /// The call's id.
    pub call_id: String,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// When the call must have ended.
    pub deadline: Timestamp,
    /// Set when nobody waits for the call any more. The tool is let run for a while, so that what
    /// it has begun outside can end, but it changes nothing of ours.
    pub cancel: CancelToken,
    /// The session's large things, to be read.
    pub artifacts: ArtifactReader,
    /// The agent's modes.
    pub modes: Rc<Modes>,
    /// The right to write.
    pub gate: WriteGate,
    /// What was answered, where the call has waited for an answer.
    pub answer: Option<Value>,
    /// What was shown to whoever answered; see [`Tool::suspension_payload`](super::Tool::suspension_payload).
    pub shown: Value,
    state_rules: Rc<StateRules>,
    sources: Rc<RefCell<Vec<Source>>>,
}

impl ToolContext {
    pub(super) fn new(cx: &RuntimeContext, call_id: &str, deadline: Timestamp, cancel: CancelToken) -> Self {
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
            modes: Rc::clone(&cx.modes),
            answer: None,
            shown: Value::Null,
            state_rules: Rc::clone(&cx.state_rules),
            sources: Rc::default(),
        }
    }

    /// Runs work that leaves nothing half done, such as reading from the network: it is dropped as
    /// soon as the call is over.
    ///
    /// # Errors
    /// When the call is over first.
    pub async fn unless_canceled<T>(&self, work: impl Future<Output = T>) -> Result<T, ToolError> {
        let over = self.cancel.canceled();
        pin_mut!(work, over);
        match select(work, over).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(ToolError::new("nobody waits for this call any more")),
        }
    }

    /// Names where the answer comes from. The reply may cite it. More than 50 a call are dropped.
    pub fn cite(&self, source: Source) {
        let mut sources = self.sources.borrow_mut();
        if sources.len() < MAX_SOURCES {
            sources.push(source);
        }
    }

    pub(super) fn take_sources(&self) -> Vec<Source> {
        self.sources.take()
    }

    /// Messages of this session's log, whole and oldest first: those with numbers from `from` to `to`. Of very
    /// many records the first `limit` are read; then the number comes along with which to go on.
    ///
    /// # Errors
    /// When the store broke.
    pub fn messages(
        &self,
        from: u64,
        to: u64,
        limit: usize,
    ) -> Result<(Vec<Rc<Message>>, Option<u64>), ToolError> {
        let select =
            Select { after: from.saturating_sub(1), kinds: fold::MESSAGE_KINDS, limit, ..Select::default() };
        let records = self.gate.session.records(select);
        let records = records.map_err(|error| ToolError::new(error.to_string()))?;
        let mut messages = Vec::new();
        for record in &records {
            fold::fold(&mut messages, record);
        }
        messages.retain(|message| message.seq <= to);
        let last = records.last().filter(|last| records.len() == limit && last.seq < to);
        Ok((messages, last.map(|last| last.seq + 1)))
    }

    /// The session's own state, as callers and tools set it.
    pub fn state(&self) -> Map<String, Value> {
        self.gate.session.state().meta.state.clone()
    }

    /// The mode that the session is in, if the agent has any.
    pub fn mode(&self) -> Option<&Mode> {
        self.modes.current(self.gate.session.state().meta.mode.as_deref())
    }

    /// The plan that was approved last.
    pub fn plan(&self) -> Option<PlanRef> {
        self.gate.session.state().plan.clone()
    }

    /// Sets the plan that turns are pointed to, and goes over to the mode `to`, if one is named: from the next
    /// model call on.
    ///
    /// # Errors
    /// When there is no such mode or the current one does not lead there; when the call is over, or the store
    /// broke.
    pub fn switch_mode(&self, to: Option<&str>, plan: Option<PlanRef>) -> Result<(), ToolError> {
        if self.gate.session.state().meta.parent.is_some() {
            let stays = "a subagent stays in the mode of the session that sent it out: do the task yourself";
            return Err(ToolError::permanent(stays));
        }
        let stored = self.gate.session.state().meta.mode.clone();
        let to = to.map(|to| self.modes.transition(stored.as_deref(), to)).transpose();
        let to = to.map_err(|error| ToolError::new(error.to_string()))?;
        let switched = self.gate.commit(|draft| {
            if let Some(to) = to {
                draft.switch_mode(&self.modes, Some(&self.turn), to);
            }
            draft.state.plan = plan;
        });
        switched.map_err(|error| ToolError::new(error.to_string()))
    }

    /// What the agent has set itself to do.
    pub(crate) fn tasks(&self) -> TaskList {
        TaskList(self.gate.session.state().tasks.clone())
    }

    /// Changes what the agent has set itself to do, and says how it was and how it is.
    ///
    /// # Errors
    /// When the change is not fit, the call is over, or the store broke.
    pub(crate) fn change_tasks(
        &self,
        change: impl FnOnce(&mut TaskList) -> Result<(), TaskError>,
    ) -> Result<(TaskList, TaskList), ToolError> {
        let before = self.tasks();
        let mut after = before.clone();
        change(&mut after).map_err(|error| ToolError::new(error.to_string()))?;
        if after != before {
            let tasks = after.0.clone();
            let written = self.gate.commit(|draft| {
                draft.state.tasks.clone_from(&tasks);
                draft.record(Some(&self.turn), EventKind::TaskListUpdated { tasks });
            });
            written.map_err(|error| ToolError::new(error.to_string()))?;
        }
        Ok((before, after))
    }

    /// Writes down in the log that something happened.
    ///
    /// # Errors
    /// When the call is over, or the store broke.
    pub(crate) fn record(&self, kind: EventKind) -> Result<(), ToolError> {
        let written = self.gate.commit(|draft| draft.record(Some(&self.turn), kind));
        written.map_err(|error| ToolError::new(error.to_string()))
    }

    /// Sets one key of the session's state; null removes it.
    ///
    /// # Errors
    /// When the state would not be as it must, the call is over, or the store broke.
    pub fn set_state(&self, key: &str, value: Value) -> Result<(), ToolError> {
        let merged = self.state_rules.set(&self.state(), key, value).map_err(ToolError::new)?;
        if merged.changed_keys.is_empty() && self.gate.is_open() {
            return Ok(());
        }
        let written = self.gate.commit(|draft| {
            draft.state.meta.state = merged.state;
            let changed_keys = merged.changed_keys;
            draft.record(Some(&self.turn), EventKind::StateChanged { changed_keys });
        });
        written.map_err(|error| ToolError::new(error.to_string()))
    }
}
