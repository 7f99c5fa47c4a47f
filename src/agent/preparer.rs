//! Puts the prompt together, always in the same order: what is stable first, so that providers'
//! caches hit, and what changes from call to call last.
//!
//! instructions → tools → conversation, with date, loaded context and tasks before the user's last message →
//! reflection → the caller's schema → what this call is for

use super::{HarnessAgent, RuntimeContext, reflection};
use crate::ports::{Model, StoreError, session_store::Select, within};
use crate::session::{TaskList, WriteError};
use crate::turn::structured;
use crate::types::{
    EventKind, Message, ModelError, ModelRequest, Price, Role, StopReason, ToolSpec, TurnError, TurnState,
    call::untrusted,
};
use async_trait::async_trait;
use futures::future::join_all;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::rc::Rc;

/// How long a source of context may take, in milliseconds. The turn goes on without it then.
const LOAD_MS: u64 = 2_000;

/// Text that a turn is given along, such as memories that fit what the user said. All sources of an
/// agent are loaded at once, when a turn (re)starts.
#[async_trait(?Send)]
pub trait ContextSource {
    /// The name, for logs and for the list of what failed.
    fn name(&self) -> &'static str;

    /// Loads what fits `message`. It is shown to the model as untrusted text.
    ///
    /// # Errors
    /// Why it could not; the turn goes on without it.
    async fn load(&self, message: &Message, cx: &RuntimeContext) -> Result<Option<String>, String>;
}

/// What a model call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of the loop.
    Step,
    /// A look back at the last step.
    Reflection,
    /// The last call, without tools.
    Summary(StopReason),
}

/// A model call that is ready to be made.
pub(super) struct PreparedRequest {
    /// The model.
    pub provider: Rc<dyn Model>,
    /// The model's id, as `provider/model`.
    pub model: String,
    /// What it costs.
    pub price: Option<Price>,
    /// The step, from 0.
    pub step: u32,
    /// What it is asked.
    pub request: ModelRequest,
    /// Tokens of the request beside the conversation, by our estimate; known when hooks have seen it.
    pub fixed: u64,
    /// Tokens of the whole request, by our estimate; known as late.
    pub estimated: u64,
}

/// Loads every source of context at once. What fails or takes too long is left out and listed.
pub(super) async fn load_context(agent: &HarnessAgent, cx: &RuntimeContext, message: &Message) {
    let loads = agent.context.iter().map(|source| async move {
        let loaded = within(cx.clock.as_ref(), LOAD_MS, async { source.load(message, cx).await }).await;
        (source.name(), loaded.unwrap_or_else(|unfinished| Err(unfinished.to_string())))
    });
    for (name, loaded) in join_all(loads).await {
        match loaded {
            Ok(text) => cx.state.add_context(text),
            Err(reason) => cx.state.sub_step_failed(name, &reason),
        }
    }
}

/// Takes note of what the agent had set itself to do when the turn started: its prompts show that, so that they
/// begin alike, and what tools answered tells what has changed since.
pub(super) fn show_tasks(cx: &RuntimeContext, message: &Message) -> Result<(), StoreError> {
    let mut tasks = cx.session.state().tasks.clone();
    if cx.permit.epoch > 1 {
        // The turn may have changed them before it was restarted.
        let kinds = &["task.list_updated"];
        let before = Select { before: Some(message.seq), kinds, newest_first: true, ..Select::default() };
        let record = cx.session.records(Select { limit: 1, ..before })?.pop();
        tasks = match record.map(|record| record.kind) {
            Some(EventKind::TaskListUpdated { tasks }) => tasks,
            _ => Vec::new(),
        };
    }
    if !tasks.is_empty() {
        let list = TaskList::prompt_text("current-task-list", &tasks);
        cx.state.show_tasks(format!("Your tasks, as they stood when this turn began:\n{}", untrusted(&list)));
    }
    Ok(())
}

/// Prepares a call of the session's model.
pub(super) fn prepare(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    messages: Vec<Rc<Message>>,
    purpose: Purpose,
) -> Result<Result<PreparedRequest, TurnError>, WriteError> {
    let state = cx.session.state();
    let turn = state.turn.as_ref().ok_or(WriteError::Stale)?;
    let model = state.meta.model.clone().unwrap_or_else(|| agent.models.default_model());
    let (provider, name) = match agent.models.resolve(&model) {
        Ok(found) => found,
        Err(error) => return Ok(Err(turn_error(&error))),
    };
    let price = agent.models.price(&model);
    if turn.budget.max_cost_usd.is_some() && price.is_none() {
        // The model was changed since the message was accepted.
        let message = format!("there is no price for model {model:?}, and the turn has a bound in money");
        return Ok(Err(TurnError { code: "price_unknown".into(), message, retryable: false }));
    }
    let now = cx.clock.now().to_rfc3339();
    let mut volatile = vec![format!("Today is {} (UTC).", now.get(..10).unwrap_or_default())];
    if let Some(plan) = &state.plan {
        volatile.push(format!("The user has approved the plan in `{}`: read it, and follow it.", plan.path));
    }
    volatile.extend(cx.state.context().iter().map(|text| untrusted(text)));
    volatile.extend(cx.state.tasks());
    let tail = tail(cx, turn, &messages, purpose);
    let mode = agent.mode(&state).map(|mode| mode.id.as_str());
    let tools = cx.state.tools(mode, || agent.tools_for(&state, &messages));
    // An answer of all the window would be refused as too long.
    let most = agent.models.limits(&model).window / 2;
    let left = turn.budget.max_tokens.map(|max| max.saturating_sub(turn.usage.total_tokens).clamp(1, most));
    let request = ModelRequest {
        model: name,
        system: agent.system(&state),
        volatile: volatile.join("\n\n"),
        tail,
        messages,
        tools,
        max_output_tokens: left.map(|left| u32::try_from(left).unwrap_or(u32::MAX)),
        thinking: turn.options.think.unwrap_or(agent.settings.think),
        tools_off: purpose != Purpose::Step,
    };
    Ok(Ok(PreparedRequest { provider, model, price, step: turn.steps, request, fixed: 0, estimated: 0 }))
}

/// What is said behind the conversation. Words that are not the harness's own are marked.
fn tail(cx: &RuntimeContext, turn: &TurnState, messages: &[Rc<Message>], purpose: Purpose) -> String {
    let mut tail = Vec::new();
    let goes_on = messages.last().is_some_and(|message| message.role == Role::Assistant);
    if goes_on && turn.repairs == 0 && purpose == Purpose::Step {
        // The provider paused: it wants its own words back, and nothing behind them.
        return String::new();
    }
    if let Some(note) = cx.state.reflection() {
        tail.push(format!("What you thought about an earlier step:\n{}", untrusted(&note)));
    }
    if let Some(schema) = turn.options.output_schema.as_ref().filter(|_| purpose != Purpose::Reflection) {
        tail.push(structured::instruction(schema));
        // The answer that did not fit stands last, or is long past.
        let answer = messages.last().filter(|message| message.role == Role::Assistant && turn.repairs > 0);
        if let Some(Err(misfit)) = answer.map(|answer| structured::parse(schema, &answer.text())) {
            let misfit = untrusted(&misfit);
            tail.push(format!("Your last answer did not fit:\n{misfit}\nGive the whole answer again."));
        }
    }
    match purpose {
        Purpose::Step => {}
        Purpose::Reflection => tail.push(reflection::QUESTION.into()),
        Purpose::Summary(reason) => tail.push(summary_prompt(reason).into()),
    }
    if !tail.is_empty() {
        tail.insert(0, "(This is said by the harness that runs you, not by the user.)".into());
    }
    tail.join("\n\n")
}

/// A model's error as the turn's.
pub(super) fn turn_error(error: &ModelError) -> TurnError {
    TurnError {
        code: error.kind.code().to_owned(),
        message: error.message.clone(),
        retryable: error.is_retryable(),
    }
}

/// What the model is told about its last call.
fn summary_prompt(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxSteps => {
            "This turn has no steps left, and you cannot call tools any more. Answer now: what was done, \
             what was found, and what is left to do."
        }
        StopReason::MaxToolCalls => {
            "This turn's tool calls are spent, and you cannot call tools any more. Answer now: what was \
             done, what was found, and what is left to do."
        }
        StopReason::Deadline => {
            "This turn's time is all but over, and you cannot call tools any more. Answer now, in a few words."
        }
        _ => "Answer now, with what you have. You cannot call tools any more.",
    }
}

/// SHA-256 of the stable part of a prompt, in hex: the same as long as instructions and tools are.
pub(super) fn render_hash(system: &str, tools: &[ToolSpec]) -> String {
    let tool = |spec: &ToolSpec| json!([spec.name, spec.description, spec.parameters]);
    let tools: Value = tools.iter().map(tool).collect();
    let mut hash = Sha256::new();
    hash.update(system);
    hash.update([0]);
    hash.update(tools.to_string());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
