//! Builds the prompt, always in the same order: the stable part first, so that the providers' caches hit, and
//! the part that changes from call to call last.
//!
//! instructions → tools → conversation, with date, loaded context and tasks before the user's last message →
//! self-critique → the caller's schema → the purpose of this call

use super::{HarnessAgent, RuntimeContext, ending::Ending, finished_tasks, reflection, run};
use crate::ports::{Model, StoreError, session_store::Select, within};
use crate::session::{TaskList, WriteError};
use crate::turn::structured;
use crate::types::{
    EventKind, Message, ModelError, ModelRequest, Price, Role, SessionState, StopReason, TurnError,
    TurnState, call::untrusted,
};
use futures::future::join_all;
use std::rc::Rc;
use std::time::Duration;

/// Timeout for loading one context source.
const LOAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a model call could not be prepared.
#[derive(Debug)]
pub(super) enum PrepareError {
    /// The turn fails with this error.
    Turn(TurnError),
    /// The turn was restarted, or the store failed.
    Write(WriteError),
}

impl PrepareError {
    /// Returns the ending of a turn that fails.
    ///
    /// # Errors
    /// The write error, after which the turn does not end here.
    pub fn ending(self) -> Result<Ending, WriteError> {
        match self {
            Self::Turn(error) => Ok(Ending::failed(error)),
            Self::Write(error) => Err(error),
        }
    }
}

impl From<TurnError> for PrepareError {
    fn from(error: TurnError) -> Self {
        Self::Turn(error)
    }
}

impl From<WriteError> for PrepareError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// The purpose of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of the loop.
    Step,
    /// A critique of the last step.
    Reflection,
    /// The final call, without tools.
    Summary(StopReason),
}

/// A model call that is ready to be sent.
pub(super) struct PreparedRequest {
    /// The provider.
    pub provider: Rc<dyn Model>,
    /// The model, as `provider/model`.
    pub model: String,
    /// The price, if known.
    pub price: Option<Price>,
    /// The step, starting at 0.
    pub step: u32,
    /// The request.
    pub request: ModelRequest,
    /// Estimated tokens of the request without the conversation, measured after the hooks.
    pub fixed: u64,
    /// Estimated tokens of the whole request, measured after the hooks.
    pub estimated: u64,
}

/// Loads all context sources concurrently. A source that fails or times out is skipped and listed.
pub(super) async fn load_context(agent: &HarnessAgent, cx: &RuntimeContext, message: &Message) {
    let loads = agent.context.iter().map(|source| async move {
        let loaded = within(cx.clock.as_ref(), LOAD_TIMEOUT, async { source.load(message, cx).await }).await;
        (source.name(), loaded.unwrap_or_else(|unfinished| Err(unfinished.into())))
    });
    for (name, loaded) in join_all(loads).await {
        match loaded {
            Ok(text) => cx.state.add_context(text),
            Err(error) => cx.state.sub_step_failed(name, &error.to_string()),
        }
    }
}

/// Stores the task list as of the start of the turn. All prompts of the turn show this version, so that their
/// prefix is stable; later changes appear in the tools' results.
pub(super) fn show_tasks(cx: &RuntimeContext, message: &Message) -> Result<(), StoreError> {
    let mut tasks = cx.session.state().guidance.tasks.clone();
    if cx.permit.epoch > 1 {
        // Before a restart the turn may have changed the list; the log holds the earlier version.
        let kinds = &["task.list_updated"];
        let before = Select { before: Some(message.seq), kinds, newest_first: true, ..Select::default() };
        let record = cx.session.first(before)?;
        tasks = match record.map(|record| record.kind) {
            Some(EventKind::TaskListUpdated { tasks }) => tasks,
            _ => Vec::new(),
        };
    }
    if !tasks.is_empty() {
        let list = TaskList::prompt_text("current-task-list", &tasks);
        cx.state.show_tasks(format!("Your tasks at the start of this turn:\n{}", untrusted(&list)));
    }
    Ok(())
}

/// The model of a request.
struct Chosen {
    /// Its id, `provider/model`.
    model: String,
    provider: Rc<dyn Model>,
    /// The provider's own name for it.
    name: String,
    price: Option<Price>,
}

/// Chooses the model of a request: the remote agent that does the work of the session; or the session's model, or the one
/// that has taken over.
fn choose(agent: &HarnessAgent, cx: &RuntimeContext, state: &SessionState) -> Result<Chosen, ModelError> {
    if let Some(kind) = agent.remote_kind_of(&state.meta) {
        let (name, provider) = (format!("remote/{kind}"), agent.find_remote(kind)?);
        // What its work costs is between its operator and this one.
        return Ok(Chosen { model: name.clone(), name, provider, price: Some(Price::default()) });
    }
    let limits = &state.guidance.tenant_policy.limits;
    // A model that has taken over before a restart may not be usable any more.
    let taken_over = cx.state.fallback().filter(|model| agent.find_model(model, limits).is_ok());
    let model = taken_over.unwrap_or_else(|| agent.model_of(&state.meta));
    let (provider, name) = agent.find_model(&model, limits)?;
    let price = agent.models.price(&model);
    Ok(Chosen { model, provider, name, price })
}

/// Builds a request to the session's model, or to the one that has taken over.
pub(super) fn prepare(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    messages: Vec<Rc<Message>>,
    purpose: Purpose,
) -> Result<PreparedRequest, PrepareError> {
    let state = cx.session.state();
    let turn = state.activity.turn.as_ref().ok_or(WriteError::Stale)?;
    let Chosen { model, provider, name, price } =
        choose(agent, cx, &state).map_err(|error| turn_error(&error))?;
    let provider = run::model(agent, cx, &state, provider).map_err(WriteError::Store)?;
    if turn.budget.max_cost_usd.is_some() && price.is_none() {
        // The model was changed after the message was accepted.
        let message = format!("there is no price for model {model:?}, but the turn has a cost limit");
        return Err(TurnError::new("price_unknown", message, false).into());
    }
    let now = cx.clock.now().to_rfc3339();
    let mut volatile = vec![format!("Today is {} (UTC).", now.get(..10).unwrap_or_default())];
    volatile.extend(cx.state.context().iter().map(|text| untrusted(text)));
    volatile.extend(cx.state.tasks());
    let tail = tail(cx, turn, &messages, purpose)?;
    let mode = agent.mode(&state).map(|mode| mode.id.as_str());
    let tools = cx.state.tools(mode, || agent.tools_for(&state, &cx.state, &messages));
    // Providers reject a request whose response may fill the whole window.
    let most = agent.models.limits(&model).window / 2;
    let left = turn.budget.max_tokens.map(|max| max.saturating_sub(turn.usage.total_tokens).clamp(1, most));
    let left = left.map(|left| u32::try_from(left).unwrap_or(u32::MAX));
    let request = ModelRequest {
        model: name,
        system: agent.system(&state),
        volatile: volatile.join("\n\n"),
        tail,
        messages,
        media: Rc::default(),
        tools,
        max_output_tokens: left.into_iter().chain(turn.options.max_output_tokens).min(),
        thinking: turn.options.think.unwrap_or(agent.settings.think),
        tenant: Some(cx.tenant.clone()),
        tools_off: purpose != Purpose::Step,
    };
    Ok(PreparedRequest { provider, model, price, step: turn.steps, request, fixed: 0, estimated: 0 })
}

/// Returns the text after the conversation. Text that the harness did not write is marked as untrusted.
fn tail(
    cx: &RuntimeContext,
    turn: &TurnState,
    messages: &[Rc<Message>],
    purpose: Purpose,
) -> Result<String, WriteError> {
    let mut tail = Vec::new();
    cx.state.show_background(Vec::new());
    let goes_on = messages.last().is_some_and(|message| message.role == Role::Assistant);
    if goes_on && turn.repairs == 0 && purpose == Purpose::Step {
        // The provider paused its response and expects it back unchanged, with nothing after it.
        return Ok(String::new());
    }
    if turn.empty_responses > 0 && purpose != Purpose::Reflection {
        tail.push("Your last response contained no text. Answer the user in words.".into());
    }
    if let Some(note) = cx.state.reflection() {
        tail.push(format!("Your review of an earlier step:\n{}", untrusted(&note)));
    }
    if purpose != Purpose::Reflection {
        tail.extend(finished_tasks::reminder(cx)?);
    }
    if let Some(schema) = turn.options.output_schema.as_ref().filter(|_| purpose != Purpose::Reflection) {
        tail.push(structured::instruction(schema));
        // An invalid reply is the last message until it has been repaired.
        let reply = messages.last().filter(|message| message.role == Role::Assistant && turn.repairs > 0);
        if let Some(Err(misfit)) = reply.map(|reply| structured::parse(schema, &reply.text())) {
            let misfit = untrusted(&misfit.to_string());
            tail.push(format!(
                "Your last answer did not fit the schema:\n{misfit}\nRepeat the whole answer, corrected."
            ));
        }
    }
    match purpose {
        Purpose::Step => {}
        Purpose::Reflection => tail.push(reflection::QUESTION.into()),
        Purpose::Summary(reason) => tail.push(summary_prompt(reason).into()),
    }
    if !tail.is_empty() {
        tail.insert(0, "(This text comes from the harness that runs you, not from the user.)".into());
    }
    Ok(tail.join("\n\n"))
}

/// Converts a model's error to the turn's.
pub(super) fn turn_error(error: &ModelError) -> TurnError {
    let known = TurnError::new(error.kind.code(), error.message.clone(), error.is_retryable());
    TurnError { cause: error.cause.clone(), ..known }
}

/// Returns the instruction of the final model call.
fn summary_prompt(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxSteps => {
            "This turn has no steps left, and you can no longer call tools. Answer now: what was done, what \
             was found, and what remains to be done."
        }
        StopReason::MaxToolCalls => {
            "This turn has no tool calls left, and you can no longer call tools. Answer now: what was done, \
             what was found, and what remains to be done."
        }
        StopReason::Deadline => {
            "This turn is about to reach its deadline, and you can no longer call tools. Answer now, in a few words."
        }
        _ => "Answer now, with what you have. You can no longer call tools.",
    }
}
