//! Drives the loop: asks the turn machine for the next step, performs it, and journals the result.

use super::{
    HarnessAgent, RuntimeContext,
    admission::{OpenCall, PreparedCall, prepare},
    ending::Ending,
    executor::{Executed, execute},
    preparer::{PrepareError, PreparedRequest, Purpose},
    reflection::{self, Reflection},
};
use crate::ports::StoreError;
use crate::session::{
    DocumentKey, Draft, WriteError,
    suspensions::{Resolved, row},
};
use crate::turn::{Step, TurnMachine, scheduler};
use crate::types::{
    CallState, DenyReason, EventKind, InboxKind, Part, Role, Spawned, StopReason, Suspension, Thinking,
    Timestamp, ToolCall, ToolOutcome, TurnPhase, TurnState, Wait, background::Subagents,
};
use futures::future::join_all;
use std::rc::Rc;

/// The loop of one turn.
pub(super) struct ReactAgent<'a> {
    pub agent: &'a HarnessAgent,
    pub cx: &'a Rc<RuntimeContext>,
}

impl ReactAgent<'_> {
    /// Runs until the turn ends. Returns `None` if the turn is suspended.
    pub async fn run(&self) -> Result<Option<Ending>, WriteError> {
        loop {
            let step = match &self.cx.session.state().activity.turn {
                Some(turn) => TurnMachine::next(turn, self.cx.clock.now()),
                None => return Err(WriteError::Stale),
            };
            let ending = match step {
                Step::CallModel => self.reason(Purpose::Step).await?,
                Step::Summarize { reason } => self.reason(Purpose::Summary(reason)).await?,
                Step::CallTools(calls) => {
                    self.act(calls).await?;
                    None
                }
                Step::Reflect => {
                    self.reflect().await?;
                    None
                }
                Step::Wait => return Ok(None),
                Step::Done { reason: StopReason::End, error: None } => Some(self.verified()),
                Step::Done { reason, error } => Some(Ending { error, ..Ending::new(reason) }),
            };
            if ending.is_some() {
                return Ok(ending);
            }
        }
    }

    /// Commits the records of a step, and applies them to the runtime state.
    pub(super) fn journal(
        &self,
        kinds: Vec<EventKind>,
        draft: impl FnOnce(&mut Draft, &mut TurnState),
    ) -> Result<(), WriteError> {
        self.cx.session.commit_turn(&self.cx.permit, self.cx.clock.now(), |change, state| {
            if let Some(gauge) = self.cx.state.take_gauge() {
                change.set_gauge(gauge);
            }
            draft(change, state);
            for kind in &kinds {
                change.record(Some(self.cx.turn()), kind.clone());
            }
        })?;
        let state = self.cx.session.state();
        kinds
            .iter()
            .for_each(|kind| self.cx.state.observe(|name| self.agent.spec(state.client_tools(), name), kind));
        Ok(())
    }

    /// Runs the open calls of the step, wave by wave. If any call must be suspended before it runs, no call runs and the
    /// turn waits. If a call is suspended while it runs, the turn waits after its wave.
    async fn act(&self, open: Vec<CallState>) -> Result<(), WriteError> {
        let made = self.calls_of_step();
        let mut prepared = Vec::with_capacity(open.len());
        for state in open {
            let found = made.iter().enumerate().find(|(_, call)| call.call_id == state.call_id);
            let Some((index, call)) = found else { continue };
            let within = match &self.cx.session.state().activity.turn {
                Some(turn) => TurnMachine::within_budget(turn, index),
                None => return Err(WriteError::Stale),
            };
            let resolved =
                if state.asked { self.cx.session.resolved(&call.call_id)? } else { Resolved::default() };
            let open = OpenCall { call: call.clone(), status: state.status, within_budget: within, resolved };
            prepared.push(prepare(self.agent, self.cx, open).await);
        }
        if prepared.is_empty() {
            // Impossible with an intact log. Retrying the same calls would loop forever.
            return Err(WriteError::Store(StoreError(
                "the log does not contain the calls of this step".into(),
            )));
        }
        self.limit_subagents(&mut prepared);
        // Calls for further subagents are prepared again when these have ended.
        let (subagents, others): (Vec<_>, Vec<_>) = prepared.iter().partition(|call| call.starts_subagent());
        let in_background = self.cx.session.state().subagents.open().count();
        let room = self.agent.settings.max_subagents.saturating_sub(in_background).max(1);
        let at_once = subagents.into_iter().take(room);
        let suspensions: Vec<Suspension> =
            others.into_iter().chain(at_once).filter_map(PreparedCall::suspension).cloned().collect();
        if !suspensions.is_empty() {
            return self.suspend(suspensions);
        }
        let claims: Vec<_> = prepared.iter().map(|call| call.claim.clone()).collect();
        let mut left = prepared.into_iter();
        for wave in scheduler::waves(&claims) {
            if self.run_wave(left.by_ref().take(wave.len()).collect()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Denies the calls that would start more subagents than a turn may have.
    fn limit_subagents(&self, prepared: &mut [PreparedCall]) {
        let most = self.agent.settings.max_subagents_per_turn;
        let started = self.cx.session.state().activity.turn.as_ref().map_or(0, |turn| turn.subagents);
        let left = most.saturating_sub(started) as usize;
        for call in prepared.iter_mut().filter(|call| call.starts_subagent()).skip(left) {
            call.deny(DenyReason::Budget, format!("a turn may start at most {most} subagents"));
        }
        let at_once = self.agent.settings.max_subagents;
        let (room, open, is_ephemeral) = {
            let state = self.cx.session.state();
            let subagents = &state.subagents;
            (subagents.room(at_once), subagents.open().count(), state.meta.ephemeral)
        };
        let room = if is_ephemeral { 0 } else { room };
        let may_go_on = |call: &&mut PreparedCall| {
            let child = call.suspension().and_then(Suspension::child);
            child.is_some_and(|child| child.task.timeout_seconds.is_some())
        };
        for call in prepared.iter_mut().filter(may_go_on).skip(room) {
            let reason = if is_ephemeral {
                "this conversation is not stored, so no subagent can go on after it".to_owned()
            } else if open >= at_once {
                format!(
                    "at most {at_once} subagents work in the background at a time: wait for one, or cancel one"
                )
            } else {
                "you have not been shown the results of many tasks; read them first".to_owned()
            };
            call.deny(DenyReason::Budget, reason);
        }
    }

    /// Numbers the tasks of children that may go on in the background when the turn is over, and adds the settings of these
    /// children. Returns the subagents that the agent can then send further tasks.
    fn set_children(&self, suspensions: &mut [Suspension]) -> Option<Vec<Spawned>> {
        let children = suspensions.iter().filter(|own| own.child().is_some()).count() as u64;
        let state = self.cx.session.state();
        let turn = state.activity.turn.as_ref()?;
        let mut subagents = None;
        for suspension in suspensions {
            let Wait::Child(child) = &mut suspension.wait else { continue };
            if child.task.timeout_seconds.is_some() {
                subagents.get_or_insert_with(|| Subagents::clone(&state.subagents)).give(&mut child.task);
                // The turn, which may go on at the same time, has a share, too.
                let settings = self.agent.child_settings(&state, turn, &child.task, children + 1);
                child.settings = Some(Box::new(settings));
            }
        }
        subagents.map(|subagents| subagents.spawned)
    }

    /// Stores the suspensions of the step. The turn's clock stops until they are resolved.
    fn suspend(&self, mut suspensions: Vec<Suspension>) -> Result<(), WriteError> {
        let spawned = self.set_children(&mut suspensions);
        let subagents = suspensions.iter().filter(|own| own.child().is_some()).count();
        let waits = Waits::new(suspensions)?;
        let now = self.cx.clock.now();
        self.journal(waits.records(), |draft, state| {
            waits.store(draft, state, now);
            TurnMachine(state).subagents_started(subagents);
            spawned.into_iter().for_each(|spawned| draft.set_spawned(spawned));
        })
    }

    /// Runs the calls of a wave. Returns whether the turn waits because a call was suspended.
    async fn run_wave(&self, mut wave: Vec<PreparedCall>) -> Result<bool, WriteError> {
        wave.iter_mut().for_each(|call| call.admit(self.agent, self.cx));
        let id = |call: &PreparedCall| call.call.call_id.clone();
        let journaled: Vec<_> = wave.iter().filter(|call| call.needs_journal()).map(id).collect();
        if !journaled.is_empty() {
            self.journal(Vec::new(), |_, state| TurnMachine(state).calls_started(&journaled))?;
        }
        let executed = join_all(wave.iter().map(|call| execute(self.agent, self.cx, call))).await;
        let reflect = self.should_reflect(executed.iter().filter_map(Executed::outcome));
        let is_verified = self.is_verified(executed.iter().filter_map(Executed::outcome));
        let (mut stored, mut shown) = (Vec::new(), Vec::new());
        let (mut done, mut suspensions) = (Vec::new(), Vec::new());
        let mut kinds = Vec::with_capacity(wave.len());
        for (call, executed) in wave.iter().zip(executed) {
            match executed {
                Executed::Completed(mut completed) => {
                    stored.append(&mut completed.stored);
                    shown.append(&mut completed.shown);
                    done.push(id(call));
                    let usage = std::mem::take(&mut completed.usage);
                    kinds.push(completed.record(call));
                    kinds.extend(usage.into_iter().map(|usage| usage.event(&call.call.name)));
                }
                Executed::Suspended(suspension) => suspensions.push(*suspension),
            }
        }
        let (waits, now) = (Waits::new(suspensions)?, self.cx.clock.now());
        kinds.extend(waits.records());
        self.journal(kinds, |draft, state| {
            TurnMachine(state).calls_done(&done, reflect);
            if is_verified {
                TurnMachine(state).verified();
            }
            stored.into_iter().for_each(|stored| stored.draft(Some(self.cx.turn()), draft));
            draft.tasks_shown(self.cx.turn(), &shown);
            waits.store(draft, state, now);
        })?;
        Ok(!waits.0.is_empty())
    }

    /// Returns whether the model should review this step before the next one, provided that the step ends
    /// here.
    fn should_reflect<'a>(&self, mut outcomes: impl Iterator<Item = &'a ToolOutcome>) -> bool {
        let (settings, state) = (&self.agent.settings, self.cx.session.state());
        let Some(turn) = &state.activity.turn else { return false };
        if state.meta.id.is_run() {
            // The plan says what comes next.
            return false;
        }
        if turn.options.think.unwrap_or(settings.think) == Thinking::Off {
            return false;
        }
        let every = u64::from(settings.reflect_every);
        if every > 0 && state.activity.totals.turns.is_multiple_of(every) {
            return true;
        }
        let messages = self.cx.session.messages();
        let step = messages.iter().rev().take_while(|message| message.role == Role::Tool);
        let mut earlier = step.flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::ToolResult { outcome, .. } => Some(outcome),
            _ => None,
        });
        let failed = |outcome: &ToolOutcome| {
            use ToolOutcome::{Failure, Timeout, Unknown};
            matches!(outcome, Failure { .. } | Timeout { .. } | Unknown { .. })
        };
        outcomes.any(failed) || earlier.any(failed)
    }

    async fn reflect(&self) -> Result<(), WriteError> {
        let claimed = self.cx.session.commit_turn(&self.cx.permit, self.cx.clock.now(), |_, state| {
            TurnMachine(state).claim_reflection()
        })?;
        let reflection = if claimed {
            match self.prepare_request(Purpose::Reflection).await {
                Ok(PreparedRequest { provider, price, request, .. }) => {
                    reflection::reflect(self.cx, provider, price, request).await
                }
                Err(PrepareError::Turn(error)) => Reflection::stub(&error.message),
                Err(PrepareError::Write(error)) => return Err(error),
            }
        } else {
            Reflection::stub("the turn's limit of reflections is reached")
        };
        let Reflection { should_continue, note, stub, spent } = reflection;
        let thought = [EventKind::TurnReflected { should_continue, note, stub }].into_iter();
        self.journal(thought.chain(self.usage_record(&spent)).collect(), |_, state| {
            TurnMachine(state).add_usage(spent);
            TurnMachine(state).reflected(should_continue);
        })
    }

    /// Returns the calls of the current step, in the order of the model's response.
    fn calls_of_step(&self) -> Vec<ToolCall> {
        let Some(TurnPhase::Tools { calls }) =
            self.cx.session.state().activity.turn.as_ref().map(|turn| turn.phase.clone())
        else {
            return Vec::new();
        };
        let messages = self.cx.session.messages();
        let own = messages.iter().rev().take_while(|message| message.turn == *self.cx.turn());
        let made: Vec<&ToolCall> = own.flat_map(|message| message.calls()).collect();
        let find = |state: &CallState| {
            made.iter().find(|call| call.call_id == state.call_id).map(|call| (*call).clone())
        };
        calls.iter().filter_map(find).collect()
    }
}

/// New suspensions of a step, with their rows.
struct Waits(Vec<(Suspension, (DocumentKey, String))>);

impl Waits {
    fn new(suspensions: Vec<Suspension>) -> Result<Self, StoreError> {
        let with_row = |own: Suspension| row(&own).map(|row| (own, row));
        suspensions.into_iter().map(with_row).collect::<Result<_, _>>().map(Self)
    }

    fn suspensions(&self) -> impl Iterator<Item = &Suspension> + Clone {
        self.0.iter().map(|(suspension, _)| suspension)
    }

    /// Returns the records that announce them.
    fn records(&self) -> Vec<EventKind> {
        let mut kinds: Vec<EventKind> = self.suspensions().map(suspension_record).collect();
        let pending: Vec<_> =
            self.suspensions().filter(|own| !own.is_delegated()).map(Suspension::pending).collect();
        if !pending.is_empty() {
            kinds.push(EventKind::TurnWaiting { pending });
        }
        kinds
    }

    /// Stores them. From here on the turn waits, if there are any.
    fn store(&self, draft: &mut Draft, state: &mut TurnState, now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        let ids: Vec<_> = self.suspensions().map(|own| own.call_id.clone()).collect();
        TurnMachine(state).wait_for(&ids, now);
        state.set_waits(self.suspensions());
        if self.suspensions().any(|own| InboxKind::of(own.wait.kind()).is_some()) {
            draft.list_in_inbox();
        }
        self.0.iter().for_each(|(_, (key, json))| draft.put(key.clone(), json.clone()));
    }
}

/// Returns the record that announces a suspension.
fn suspension_record(suspension: &Suspension) -> EventKind {
    let Suspension { call_id, name, wait, category, args, args_hash, expires_at, .. } = suspension.clone();
    match wait {
        Wait::Approval => {
            EventKind::ToolApprovalRequired { call_id, name, args, args_hash, category, expires_at }
        }
        Wait::Question(_) | Wait::Plan(_) | Wait::External(_) | Wait::Auth(_) => {
            let (kind, payload) = (wait.kind(), wait.payload());
            EventKind::ToolSuspended { call_id, name, kind, payload, expires_at }
        }
        Wait::Child(child) => {
            let crate::types::ChildTask { session, agent, task, forked, .. } = child.task;
            EventKind::SubagentStarted { call_id, session, agent, task, forked }
        }
    }
}
