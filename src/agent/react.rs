//! Drives the loop: asks the machine what is next, does it, and journals what came of it.

use super::{
    HarnessAgent, RuntimeContext,
    executor::{self, Plan, Prepared},
    finalizer::Ending,
    hook::{HookEvent, PostReasoning, PreReasoning},
    stream::{self, Failed},
};
use crate::model::retry::RetryPolicy;
use crate::ports::StoreError;
use crate::session::WriteError;
use crate::turn::{Step, TurnMachine, scheduler};
use crate::types::{
    CallState, CallStatus, Effect, EventKind, FinishReason, Message, ModelError, ModelRequest, ModelResponse,
    Part, Role, StopReason, Thinking, ToolCall, TurnError, TurnPhase, id, message::text_of,
};
use futures::future::join_all;
use std::{collections::HashSet, rc::Rc};

/// One call of the agent, in progress.
pub(super) struct ReactAgent<'a> {
    pub agent: &'a HarnessAgent,
    pub cx: &'a Rc<RuntimeContext>,
    /// What the user said, as the model sees it in this call.
    pub message: Rc<Message>,
}

impl ReactAgent<'_> {
    /// Runs until the turn is to end.
    pub async fn run(&self) -> Result<Ending, WriteError> {
        loop {
            let step = match &self.cx.session.state().turn {
                Some(turn) => TurnMachine::next(turn, self.cx.clock.now()),
                None => return Err(WriteError::Stale),
            };
            let ending = match step {
                Step::CallModel => self.reason().await?,
                Step::CallTools(calls) => {
                    self.act(calls).await?;
                    None
                }
                Step::Done { reason, error } => Some(Ending { error, ..Ending::new(reason) }),
            };
            if let Some(ending) = ending {
                return Ok(ending);
            }
        }
    }

    /// One model call, tried again where that makes sense. Returns the turn's end if this is it.
    async fn reason(&self) -> Result<Option<Ending>, WriteError> {
        let (step, model, allowed) = {
            let state = self.cx.session.state();
            let turn = state.turn.as_ref().ok_or(WriteError::Stale)?;
            let model = state.meta.model.clone().unwrap_or_else(|| self.agent.models.default_model());
            (turn.steps, model, turn.tools.clone())
        };
        let (provider, name) = match self.agent.models.resolve(&model) {
            Ok(found) => found,
            Err(error) => return Ok(Some(Ending::failed(turn_error(&error)))),
        };
        let request = ModelRequest {
            model: name,
            system: self.agent.instructions.clone(),
            volatile: format!(
                "Today is {} (UTC).",
                self.cx.clock.now().to_rfc3339().get(..10).unwrap_or_default()
            ),
            messages: self.context(),
            tools: self.agent.toolkit.specs(allowed.as_deref()),
            max_output_tokens: None,
            thinking: Thinking::Off,
        };
        let mut event = PreReasoning { step, request };
        for hook in self.agent.hooks.at(HookEvent::PreReasoning) {
            if let Err(error) = hook.pre_reasoning(&mut event, self.cx).await {
                return Ok(Some(Ending::failed(error)));
            }
        }

        let started = self.cx.clock.now();
        let mut tries = 1;
        let (message, response) = loop {
            let message = self.agent.new_id(id::MESSAGE);
            let events = provider.stream(event.request.clone());
            let Failed { error, shown } = match stream::pass_on(self.cx, &message, events).await {
                Ok(response) => break (message, response),
                Err(failed) => failed,
            };
            let mut random = [0; 4];
            self.agent.entropy.fill(&mut random);
            let Some(delay) = RetryPolicy::default().delay_ms(tries, &error, u32::from_le_bytes(random))
            else {
                return Ok(Some(Ending::failed(turn_error(&error))));
            };
            if shown {
                self.restart_message(error.kind.code())?;
            }
            tries += 1;
            self.cx.clock.sleep(delay).await;
        };

        let elapsed_ms = self.cx.clock.now().since(started);
        let event = PostReasoning { step, response: self.with_usable_ids(response), elapsed_ms };
        for hook in self.agent.hooks.at(HookEvent::PostReasoning) {
            hook.post_reasoning(&event, self.cx).await;
        }
        self.answered(message, event.response)
    }

    /// Voids the part of an answer that listeners have seen: a record takes its number.
    fn restart_message(&self, reason: &str) -> Result<(), WriteError> {
        let turn = self.cx.turn();
        self.cx.session.commit_turn(&self.cx.permit, self.cx.clock.now(), |draft, state| {
            draft.close_message();
            let kind = EventKind::TurnResumed { epoch: state.epoch, reason: reason.to_owned() };
            draft.record(Some(turn), kind);
        })
    }

    /// Journals an answer: the message, the calls, and where the machine stands now. The last
    /// answer is left to the finalizer, to be stored with the turn's end.
    fn answered(&self, message_id: String, response: ModelResponse) -> Result<Option<Ending>, WriteError> {
        let ModelResponse { parts, usage, finish } = response;
        let now = self.cx.clock.now();
        let turn = self.cx.turn().to_owned();
        let message = Rc::new(Message {
            id: message_id,
            seq: 0,
            role: Role::Assistant,
            parts,
            created_at: now,
            turn: turn.clone(),
            interrupted: false,
        });
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        if calls.is_empty() && finish != FinishReason::Pause {
            return Ok(Some(Ending {
                message: Some(message),
                usage,
                finish,
                answered: true,
                ..Ending::new(StopReason::End)
            }));
        }
        self.cx.session.commit_turn(&self.cx.permit, now, |draft, state| {
            let mut machine = TurnMachine(state);
            if calls.is_empty() {
                machine.model_paused(usage);
            } else {
                machine.model_answered(usage, &calls);
            }
            draft.close_message();
            if message.parts.iter().any(|part| !matches!(part, Part::ToolCall(_))) {
                draft.record(Some(&turn), EventKind::MessageCompleted { message: Rc::clone(&message) });
            }
            for call in calls {
                let effect =
                    self.agent.toolkit.get(&call.name).map_or(Effect::default(), |(spec, _)| spec.effect);
                draft.record(
                    Some(&turn),
                    EventKind::ToolStarted {
                        message: message.id.clone(),
                        call_id: call.call_id,
                        name: call.name,
                        args: call.args,
                        invalid: call.invalid,
                        effect,
                    },
                );
            }
        })?;
        Ok(None)
    }

    /// Runs the open calls of the step, wave by wave.
    async fn act(&self, open: Vec<CallState>) -> Result<(), WriteError> {
        let made = self.calls_of_step();
        let calls: Vec<(usize, ToolCall, CallStatus)> = open
            .into_iter()
            .filter_map(|state| {
                let (index, call) =
                    made.iter().enumerate().find(|(_, call)| call.call_id == state.call_id)?;
                Some((index, call.clone(), state.status))
            })
            .collect();
        if calls.is_empty() {
            // Never with a log that is whole. To come back for the same calls at once would never end.
            return Err(WriteError::Store(StoreError("the log lacks the calls of this step".into())));
        }
        let specs: Vec<_> =
            calls.iter().map(|(_, c, _)| self.agent.toolkit.get(&c.name).map(|(spec, _)| spec)).collect();
        for wave in scheduler::waves(&specs) {
            // A tool that ran until the turn's deadline is the last: what is left gets its outcome
            // with the turn's end.
            let deadline = self.cx.session.state().turn.as_ref().map(|turn| turn.deadline);
            if deadline.is_some_and(|deadline| self.cx.clock.now() >= deadline) {
                return Ok(());
            }
            let mut prepared = Vec::with_capacity(wave.len());
            for (index, call, status) in wave.iter().filter_map(|place| calls.get(*place)) {
                let within = match &self.cx.session.state().turn {
                    Some(turn) => TurnMachine::within_budget(turn, *index),
                    None => return Err(WriteError::Stale),
                };
                prepared.push(executor::prepare(self.agent, self.cx, call.clone(), *status, within).await);
            }
            self.run_wave(&prepared).await?;
        }
        Ok(())
    }

    async fn run_wave(&self, prepared: &[Prepared]) -> Result<(), WriteError> {
        let journaled: Vec<&str> = prepared
            .iter()
            .filter(|p| matches!(p.plan, Plan::Run { journal: true, .. }))
            .map(|p| p.call.call_id.as_str())
            .collect();
        if !journaled.is_empty() {
            self.cx.session.commit_turn(&self.cx.permit, self.cx.clock.now(), |_, state| {
                TurnMachine(state).calls_begun(&journaled);
            })?;
        }
        let outcomes = join_all(prepared.iter().map(|p| executor::execute(self.agent, self.cx, p))).await;
        let done: Vec<&str> = prepared.iter().map(|p| p.call.call_id.as_str()).collect();
        self.cx.session.commit_turn(&self.cx.permit, self.cx.clock.now(), |draft, state| {
            TurnMachine(state).calls_done(&done);
            for (prepared, (outcome, elapsed_ms)) in prepared.iter().zip(outcomes) {
                let (call_id, name) = (prepared.call.call_id.clone(), prepared.call.name.clone());
                draft.record(
                    Some(self.cx.turn()),
                    EventKind::ToolCompleted { call_id, name, outcome, elapsed_ms },
                );
            }
        })
    }

    /// All calls of the step at hand, in the order of the response, as the log has them.
    fn calls_of_step(&self) -> Vec<ToolCall> {
        let Some(TurnPhase::Tools { calls }) =
            self.cx.session.state().turn.as_ref().map(|turn| turn.phase.clone())
        else {
            return Vec::new();
        };
        let messages = self.cx.session.messages();
        let own = messages.iter().rev().take_while(|message| message.turn == self.cx.turn());
        let made: Vec<&ToolCall> = own.flat_map(|message| message.calls()).collect();
        let find = |state: &CallState| {
            made.iter().find(|call| call.call_id == state.call_id).map(|call| (*call).clone())
        };
        calls.iter().filter_map(find).collect()
    }

    /// What the model sees: the window, with this call's message as hooks left it.
    fn context(&self) -> Vec<Rc<Message>> {
        let mut messages = self.cx.session.messages();
        if let Some(own) = messages.iter_mut().rev().find(|message| message.id == self.message.id) {
            *own = Rc::clone(&self.message);
        }
        messages
    }

    /// Gives calls an id of ours where the provider's is missing, unfit for a path, or taken:
    /// providers want ids that are unique within a request.
    fn with_usable_ids(&self, mut response: ModelResponse) -> ModelResponse {
        let messages = self.cx.session.messages();
        let mut taken: HashSet<String> =
            messages.iter().flat_map(|message| message.calls().map(|call| call.call_id.clone())).collect();
        for part in &mut response.parts {
            if let Part::ToolCall(call) = part
                && (!id::is_valid(&call.call_id) || !taken.insert(call.call_id.clone()))
            {
                call.call_id = self.agent.new_id(id::CALL);
                taken.insert(call.call_id.clone());
            }
        }
        response
    }
}

fn turn_error(error: &ModelError) -> TurnError {
    TurnError {
        code: error.kind.code().to_owned(),
        message: error.message.clone(),
        retryable: error.is_retryable(),
    }
}

/// The message that a cut-off answer leaves behind.
pub(super) fn interrupted(id: String, text: String, cx: &RuntimeContext) -> Rc<Message> {
    let parts = vec![Part::Text { text }];
    debug_assert!(!text_of(&parts).is_empty());
    Rc::new(Message {
        id,
        seq: 0,
        role: Role::Assistant,
        parts,
        created_at: cx.clock.now(),
        turn: cx.turn().to_owned(),
        interrupted: true,
    })
}
