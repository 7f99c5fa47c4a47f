//! Calls the model, retries where that helps, and journals the response.

use super::{
    ending::{Ending, is_bound},
    fallback, find_tools,
    hook::{HookEvent, PostReasoning, PreReasoning},
    preparer::{self, PrepareError, PreparedRequest, Purpose, turn_error},
    react::ReactAgent,
    stream::{self, FailedAttempt},
    toolkit::SpecDigest,
    verification,
};
use crate::model::retry::RetryPolicy;
use crate::session::{WriteError, tokens};
use crate::turn::{PricedUsage, TurnMachine, structured};
use crate::types::{
    CompactReason, Effect, EventKind, FinishReason, Message, MessageId, ModelError, ModelErrorKind,
    ModelRequest, ModelResponse, Part, Role, StopReason, ToolCall, TurnError, Usage, WindowUse, id,
};
use std::{collections::HashSet, rc::Rc};

/// The result of a model call.
enum Called {
    /// The model has responded, with this message.
    Responded(MessageId, ModelResponse),
    /// The request was too long. The window is smaller now.
    Shrunk,
    /// The model failed, and another one has taken over.
    TakenOver,
    /// The model failed.
    Failed(ModelError),
}

impl ReactAgent<'_> {
    /// Makes one model call, with retries. Returns the ending if the turn ends with it.
    pub(super) async fn reason(&self, purpose: Purpose) -> Result<Option<Ending>, WriteError> {
        let mut is_shrunk = false;
        let (prepared, started, message, response) = loop {
            let prepared = match self.prepare_request(purpose).await {
                Ok(prepared) => prepared,
                Err(error) => return error.ending().map(Some),
            };
            let started = self.cx.clock.now();
            match self.call_model(&prepared, is_shrunk).await? {
                Called::Responded(message, response) => break (prepared, started, message, response),
                Called::Shrunk => is_shrunk = true,
                Called::TakenOver => is_shrunk = false,
                Called::Failed(error) => {
                    return Ok(Some(match purpose {
                        // A turn that hits a bound completes with or without a final summary.
                        Purpose::Summary(reason) if is_bound(reason) => Ending::new(reason),
                        _ => Ending::failed(turn_error(&error)),
                    }));
                }
            }
        };

        let elapsed = self.cx.clock.now().since(started);
        let mut response = self.with_usable_calls(response);
        self.measure(&prepared, &mut response.usage);
        let event = PostReasoning { step: prepared.step, response, elapsed };
        for hook in self.agent.hooks.at(HookEvent::PostReasoning) {
            hook.post_reasoning(&event, self.cx).await;
        }
        self.journal_response(message, event.response, prepared.price, purpose)
    }

    /// Calls the model until it responds, or another attempt with this request cannot help. `is_shrunk` is whether the window
    /// was shrunk for this model.
    async fn call_model(&self, prepared: &PreparedRequest, is_shrunk: bool) -> Result<Called, WriteError> {
        let mut tries = 1;
        loop {
            let message = self.agent.new_id();
            let request = self.with_media(prepared).await;
            let has_media = request.media.has_content();
            let events = prepared.provider.stream(request);
            let FailedAttempt { error, shown } = match stream::forward(self.cx, &message, events).await {
                Ok(response) => return Ok(Called::Responded(message, response)),
                Err(failed) => failed,
            };
            if error.kind == ModelErrorKind::Overflow && !is_shrunk && self.agent.context_manager.is_some() {
                if shown {
                    // Close the message first: records drafted while it streams are deferred.
                    self.restart_message(error.kind.code())?;
                }
                if self.shrink_context(prepared).await? {
                    return Ok(Called::Shrunk);
                }
            }
            // The provider may have refused a file: one that is damaged, or has too many pages. Without this, it would
            // refuse each further turn of the session.
            let is_refused = matches!(error.kind, ModelErrorKind::Invalid | ModelErrorKind::Overflow);
            if is_refused && has_media && !shown {
                self.cx.state.refuse_media();
                continue;
            }
            let mut random = [0; 4];
            self.agent.entropy.fill(&mut random);
            let delay = RetryPolicy::default().delay(tries, &error, u32::from_le_bytes(random));
            if !shown && let Some(model) = fallback::next(self, prepared, &error, delay.is_some()) {
                fallback::take_over(self, model, &prepared.model, error.kind)?;
                return Ok(Called::TakenOver);
            }
            let Some(delay) = delay else { return Ok(Called::Failed(error)) };
            if shown {
                self.restart_message(error.kind.code())?;
            }
            tries += 1;
            self.cx.clock.sleep(delay).await;
        }
    }

    /// Prepares a model call: shrinks the window if necessary, builds the request and runs the hooks.
    pub(super) async fn prepare_request(&self, purpose: Purpose) -> Result<PreparedRequest, PrepareError> {
        self.cx.state.await_prefetch().await;
        let step = self.cx.session.state().activity.turn.as_ref().map(|turn| turn.steps);
        self.agent.hooks.filter_tools(step, self.cx).await;
        let mut prepared = preparer::prepare(self.agent, self.cx, self.cx.messages(), purpose)?;
        // A remote agent has its own context: it gets the newest message only. A run reads its log.
        let is_apart = {
            let state = self.cx.session.state();
            self.agent.remote_kind_of(&state.meta).is_some() || state.meta.id.is_run()
        };
        let Some(context_manager) = self.agent.context_manager.as_ref().filter(|_| !is_apart) else {
            return Ok(self.run_pre_reasoning(prepared).await?);
        };
        let known = self.cx.session.state().activity.gauge.of(&prepared.model).fixed;
        let fixed = if known > 0 { known } else { self.measure_fixed(&prepared.request).0 };
        // Before the hooks, so that their changes to the request are kept.
        context_manager.strategy.before_call(&context_manager.in_turn(self.cx, &prepared.model, fixed)).await;
        prepared.request.messages = self.cx.messages();
        let prepared = self.run_pre_reasoning(prepared).await?;
        let handle = context_manager.in_turn(self.cx, &prepared.model, prepared.fixed);
        let fill = handle.fill();
        // A request over the limit would certainly be refused.
        if fill.total() > fill.limit()
            && context_manager.strategy.make_room(&handle, CompactReason::Tokens).await.unwrap_or(false)
        {
            let prepared = preparer::prepare(self.agent, self.cx, self.cx.messages(), purpose)?;
            return Ok(self.run_pre_reasoning(prepared).await?);
        }
        Ok(prepared)
    }

    /// Returns the estimated tokens of a request that are not part of the conversation, and the hash of its tools.
    fn measure_fixed(&self, request: &ModelRequest) -> (u64, [u8; 32]) {
        let SpecDigest { tokens, hash } = if self.cx.state.has_chosen(&request.tools) {
            self.agent.toolkit.digest(&request.tools)
        } else {
            // A hook has replaced the tools.
            request.tools.iter().map(|spec| SpecDigest::of(spec)).collect()
        };
        let texts = [&request.system, &request.volatile, &request.tail];
        (tokens + texts.into_iter().map(|text| tokens::of_text(text)).sum::<u64>(), hash)
    }

    /// Runs the `PreReasoning` hooks and measures the request.
    async fn run_pre_reasoning(&self, mut prepared: PreparedRequest) -> Result<PreparedRequest, TurnError> {
        let mut event = PreReasoning { step: prepared.step, request: prepared.request };
        for hook in self.agent.hooks.at(HookEvent::PreReasoning) {
            hook.pre_reasoning(&mut event, self.cx).await?;
        }
        prepared.request = event.request;
        let (fixed, tools) = self.measure_fixed(&prepared.request);
        self.cx.state.rendered(&prepared.model, &prepared.request.system, tools);
        prepared.fixed = fixed;
        // Measured now, because the window may change before the response arrives.
        prepared.estimated = prepared.fixed + self.cx.session.context().tokens();
        Ok(prepared)
    }

    /// Shrinks the window after the provider rejected the request as too long. Returns whether it became
    /// smaller.
    async fn shrink_context(&self, prepared: &PreparedRequest) -> Result<bool, WriteError> {
        let Some(context_manager) = &self.agent.context_manager else { return Ok(false) };
        let estimated = prepared.estimated;
        self.journal(Vec::new(), |draft, _| {
            let mut gauge = draft.state().activity.gauge.of(&prepared.model);
            gauge.fixed = prepared.fixed;
            gauge.refuse(estimated);
            draft.set_gauge(gauge);
        })?;
        let handle = context_manager.in_turn(self.cx, &prepared.model, prepared.fixed);
        Ok(context_manager.strategy.make_room(&handle, CompactReason::Overflow).await.unwrap_or(false))
    }

    /// Calibrates the token estimate with the reported usage, and adds how full the window is.
    fn measure(&self, prepared: &PreparedRequest, usage: &mut Usage) {
        let estimated = prepared.estimated;
        let mut gauge = self.cx.session.state().activity.gauge.of(&prepared.model);
        gauge.fixed = prepared.fixed;
        gauge.learn(estimated, usage.input_tokens);
        let limits = self.agent.models.limits(&prepared.model);
        gauge.accept(limits.estimated_window());
        let input = if usage.input_tokens > 0 { usage.input_tokens } else { gauge.counted(estimated) };
        usage.window = Some(WindowUse { used: input + usage.output_tokens, limit: limits.window });
        self.cx.state.gauge(gauge);
    }

    /// Voids the streamed part of a message by recording an event under its sequence number.
    fn restart_message(&self, reason: &str) -> Result<(), WriteError> {
        let kind = EventKind::TurnResumed { epoch: self.cx.permit.epoch, reason: reason.to_owned() };
        self.journal(vec![kind], |draft, _| draft.close_message())
    }

    /// Journals a response: its message, its calls and the state of the machine. The final response is left
    /// to the finalizer, which stores it with the end of the turn.
    fn journal_response(
        &self,
        message_id: MessageId,
        response: ModelResponse,
        price: Option<crate::types::Price>,
        purpose: Purpose,
    ) -> Result<Option<Ending>, WriteError> {
        let ModelResponse { mut parts, usage, finish } = response;
        let spent = PricedUsage { usage, price };
        let is_incomplete = matches!(finish, FinishReason::Length | FinishReason::ContentFilter);
        if purpose != Purpose::Step || is_incomplete {
            // Dropped: calls made although tools are off, and calls that may be cut off.
            parts.retain(|part| !matches!(part, Part::ToolCall(_)));
        }
        let message = Rc::new(Message {
            id: message_id,
            seq: 0,
            role: Role::Assistant,
            parts,
            created_at: self.cx.clock.now(),
            turn: self.cx.turn().to_owned(),
            interrupted: false,
        });
        let paused = finish == FinishReason::Pause && purpose == Purpose::Step;
        if message.calls().next().is_none() && !paused {
            return match self.final_response(message, spent, finish, purpose)? {
                Some(ending) if matches!(purpose, Purpose::Step | Purpose::Summary(StopReason::End)) => {
                    self.verify(ending)
                }
                ending => Ok(ending),
            };
        }
        self.journal_step(&message, spent, false)?;
        Ok(None)
    }

    /// Journals a response after which the turn goes on. `verifies` is whether its calls are those of the server, and not of
    /// the model.
    pub(super) fn journal_step(
        &self,
        message: &Rc<Message>,
        spent: PricedUsage,
        verifies: bool,
    ) -> Result<(), WriteError> {
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        let mut kinds = Vec::with_capacity(calls.len() + 1);
        if message.parts.iter().any(|part| !matches!(part, Part::ToolCall(_))) {
            kinds.push(EventKind::MessageCompleted { message: Rc::clone(message) });
        }
        for call in &calls {
            let state = self.cx.session.state();
            let effect = self
                .agent
                .spec(state.client_tools(), &call.name)
                .map_or(Effect::default(), |spec| spec.effect);
            kinds.push(EventKind::ToolStarted {
                message: message.id.clone(),
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                args: call.args.clone(),
                invalid: call.invalid.clone(),
                effect,
            });
        }
        kinds.extend(self.usage_record(&spent));
        self.journal(kinds, |draft, state| {
            draft.close_message();
            draft.tasks_shown(self.cx.turn(), &self.cx.state.shown_background());
            if calls.is_empty() {
                TurnMachine(state).model_paused(spent);
            } else {
                TurnMachine(state).model_responded(spent, &calls);
            }
            if verifies {
                TurnMachine(state).verification_called();
            }
        })
    }

    /// Ends the turn with the final response, unless it must match a schema and does not.
    fn final_response(
        &self,
        message: Rc<Message>,
        spent: PricedUsage,
        finish: FinishReason,
        purpose: Purpose,
    ) -> Result<Option<Ending>, WriteError> {
        let counts_step = !matches!(purpose, Purpose::Summary(_));
        let reason = match purpose {
            Purpose::Summary(reason) if is_bound(reason) => reason,
            _ => self.stop_reason(&spent, finish),
        };
        if reason == StopReason::End && message.text().trim().is_empty() {
            return self.retry_empty(message, spent, counts_step);
        }
        let mut ending =
            Ending { message: Some(Rc::clone(&message)), spent, finish, counts_step, ..Ending::new(reason) };
        let schema = self
            .cx
            .session
            .state()
            .activity
            .turn
            .as_ref()
            .and_then(|turn| turn.options.output_schema.clone());
        let Some(schema) = schema else { return Ok(Some(ending)) };
        match structured::parse(&schema, &message.text()) {
            Ok(output) => {
                ending.output = Some(output);
                return Ok(Some(ending));
            }
            Err(misfit) => {
                let message = format!("the reply does not match output_schema: {misfit}");
                ending.error = Some(TurnError::new("output_invalid", message, true));
                ending.bound = Some(reason).filter(|reason| is_bound(*reason));
                ending.reason = StopReason::Error;
            }
        }
        let may_repair = reason == StopReason::End
            && self.cx.session.state().activity.turn.as_ref().is_some_and(TurnMachine::may_repair);
        if !may_repair {
            return Ok(Some(ending));
        }
        let completed = [EventKind::MessageCompleted { message }].into_iter();
        self.journal(completed.chain(self.usage_record(&spent)).collect(), |draft, state| {
            draft.close_message();
            draft.tasks_shown(self.cx.turn(), &self.cx.state.shown_background());
            TurnMachine(state).schema_violated(spent);
        })?;
        Ok(None)
    }

    /// Returns why a turn ends with a response.
    fn stop_reason(&self, spent: &PricedUsage, finish: FinishReason) -> StopReason {
        let state = self.cx.session.state();
        let limit = state.activity.turn.as_ref().and_then(|turn| {
            let tokens = turn.usage.total_tokens + spent.usage.total_tokens;
            TurnMachine::exhausted(turn, tokens)
        });
        match (finish, limit) {
            // The output limit of the call was what the turn had left.
            (FinishReason::Length, Some(StopReason::Tokens)) => StopReason::Tokens,
            (FinishReason::Length, _) => StopReason::Length,
            (FinishReason::ContentFilter, _) => StopReason::ContentFilter,
            _ => StopReason::End,
        }
    }

    /// Asks the model again after a response without text and calls, which models that reason sometimes give.
    fn retry_empty(
        &self,
        message: Rc<Message>,
        spent: PricedUsage,
        counts_step: bool,
    ) -> Result<Option<Ending>, WriteError> {
        if !self.cx.session.state().activity.turn.as_ref().is_some_and(TurnMachine::may_retry_empty) {
            if verification::has_reply(self.cx) {
                // The model has nothing to add to what it said before the verification.
                return Ok(Some(Ending { spent, counts_step, ..self.verified() }));
            }
            let why = "the model returned a response without text, also when it was asked again";
            let error = TurnError::new("empty_answer", why, true);
            return Ok(Some(Ending { message: Some(message), spent, counts_step, ..Ending::failed(error) }));
        }
        let resumed =
            EventKind::TurnResumed { epoch: self.cx.permit.epoch, reason: "empty_answer".to_owned() };
        let kinds = [resumed].into_iter().chain(self.usage_record(&spent)).collect();
        self.journal(kinds, |draft, state| {
            draft.close_message();
            TurnMachine(state).responded_empty(spent);
        })?;
        Ok(None)
    }

    /// Returns the record of a model call's usage.
    pub(super) fn usage_record(&self, spent: &PricedUsage) -> Option<EventKind> {
        let model = self.cx.state.model();
        let state = self.cx.session.state();
        state.activity.turn.as_ref().and_then(|turn| TurnMachine::usage_event(turn, spent, model))
    }

    /// Replaces calls of `call_tool` by what they call, and call ids that are missing, invalid in a path or already used:
    /// providers require ids to be unique within a request.
    fn with_usable_calls(&self, mut response: ModelResponse) -> ModelResponse {
        if self.cx.session.state().meta.id.is_run() {
            // Their ids are new, and say what they are for.
            return response;
        }
        find_tools::unwrap(&mut response.parts, &self.agent.toolkit);
        let messages = self.cx.session.messages();
        let shown = messages.iter().flat_map(|message| message.calls().map(|call| call.call_id.clone()));
        // Earlier calls of this turn may have left the window.
        let mut taken: HashSet<_> = shown.chain(self.cx.state.call_ids()).collect();
        for part in &mut response.parts {
            if let Part::ToolCall(call) = part
                && (!id::is_valid(&call.call_id)
                    || !taken.insert(call.call_id.clone())
                    // A late decision on an earlier suspension must not apply to this call.
                    || self.cx.session.was_suspended(&call.call_id).unwrap_or(true))
            {
                call.call_id = self.agent.new_id();
                taken.insert(call.call_id.clone());
            }
        }
        response
    }
}
