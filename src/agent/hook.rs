//! Hooks: the points where capabilities attach to the loop.
//!
//! ```text
//! PreCall ─▶ ┌ PreReasoning ─▶ model ─▶ PostReasoning ─┐ ─▶ PostCall
//!            └── PostActing ◀─ tools ◀─ PreActing ◀────┘
//!                    any failure of the turn ─▶ Error
//! ```

use super::{HookDraft, RuntimeContext, ToolFilter};
use crate::session::artifacts::Stored;
use crate::types::{
    Message, ModelRequest, ModelResponse, Reply, StopReason, ToolCall, ToolOutcome, ToolSpec, TurnError,
    Usage, WorkspaceOwner,
};
use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use std::time::Duration;

/// The seven events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookEvent {
    /// Before the first step.
    PreCall,
    /// Before each model call.
    PreReasoning,
    /// After each model call.
    PostReasoning,
    /// Before each tool call.
    PreActing,
    /// After each tool call.
    PostActing,
    /// After the last step.
    PostCall,
    /// When the turn fails.
    Error,
}

impl HookEvent {
    /// All seven, in the order of a turn.
    pub const ALL: [Self; 7] = [
        Self::PreCall,
        Self::PreReasoning,
        Self::PostReasoning,
        Self::PreActing,
        Self::PostActing,
        Self::PostCall,
        Self::Error,
    ];
}

/// Before the first step of a turn, and again when the turn restarts.
pub struct PreCall {
    /// The user's message as the model will see it in this turn. The log keeps the original.
    pub message: Message,
}

/// Before each model call.
pub struct PreReasoning {
    /// The step, starting at 0.
    pub step: u32,
    /// The request.
    pub request: ModelRequest,
}

/// After each model call.
pub struct PostReasoning {
    /// The step, starting at 0.
    pub step: u32,
    /// The response. Its text was already streamed to listeners.
    pub response: ModelResponse,
    /// How long the call took.
    pub elapsed: Duration,
}

/// Before each tool call.
pub struct PreActing<'a> {
    /// The call. Changed arguments are used for the run; the log keeps the model's.
    pub call: ToolCall,
    /// The tool's specification, or `None` if the tool is unknown.
    pub spec: Option<&'a ToolSpec>,
}

/// The decision of a hook on a tool call. The strictest decision of all hooks applies.
#[derive(Clone, Debug, PartialEq)]
pub enum ActDecision {
    /// The call may run.
    Continue,
    /// The call does not run; this is its outcome.
    Outcome(ToolOutcome),
    /// The call is denied; the model reads the reason.
    Deny(String),
}

/// After each tool call.
pub struct PostActing<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// The outcome. A hook may change it before it is recorded.
    pub outcome: ToolOutcome,
    /// How long the call took.
    pub elapsed: Duration,
    /// The stored output, if a hook moved it to an artifact and set [`ToolOutcome::Artifact`]. Its pointer is
    /// committed together with the outcome.
    pub stored: Option<Stored>,
}

/// After the last step, before the end is stored.
pub struct PostCall<'a> {
    /// The reply.
    pub reply: Option<&'a Reply>,
    /// The usage of the turn.
    pub usage: Usage,
    /// The cost in US dollars, as far as prices are known.
    pub cost_usd: Option<f64>,
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// Changes to commit together with the end of the turn.
    pub draft: HookDraft<'a>,
}

/// A non-fatal failure at the end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubStepError(pub String);

/// When the turn fails, before its end is stored.
pub struct OnError<'a> {
    /// The error.
    pub error: &'a TurnError,
    /// The usage of the turn.
    pub usage: Usage,
    /// The cost in US dollars, as far as prices are known.
    pub cost_usd: Option<f64>,
    /// Changes to commit together with the end of the turn.
    pub draft: HookDraft<'a>,
}

/// A capability of the loop. Implement the events you want and name them in [`Hook::events`].
///
/// At every event a user's hooks run before the built-in ones, each group by ascending priority.
///
/// ```
/// use edge_harness::agent::{Hook, RuntimeContext, hook::{ActDecision, HookEvent, PreActing}};
/// use edge_harness::types::Effect;
///
/// /// Keeps the agent off the network at night.
/// struct Curfew;
///
/// #[async_trait::async_trait(?Send)]
/// impl Hook for Curfew {
///     fn name(&self) -> &'static str { "curfew" }
///     fn events(&self) -> &'static [HookEvent] { &[HookEvent::PreActing] }
///
///     async fn pre_acting(&self, event: &mut PreActing<'_>, cx: &RuntimeContext) -> ActDecision {
///         let hour = cx.clock.now().0 / 3_600_000 % 24;
///         match event.spec.map(|spec| spec.effect) {
///             Some(Effect::NetworkRead) if hour < 6 => ActDecision::Deny("the network is closed until 06:00 UTC".into()),
///             _ => ActDecision::Continue,
///         }
///     }
/// }
/// ```
#[async_trait(?Send)]
pub trait Hook {
    /// Returns the name, for logs and for
    /// [`HarnessBuilder::without_hook`](super::HarnessBuilder::without_hook).
    fn name(&self) -> &'static str;

    /// Returns the events at which the hook runs.
    fn events(&self) -> &'static [HookEvent];

    /// Hooks with a lower priority run earlier.
    fn priority(&self) -> i32 {
        0
    }

    /// Starts reading what [`Hook::pre_reasoning`] will need, while the message that starts a turn is stored. It is
    /// polled before the message is stored, and awaited before the first model call. Only for hooks of
    /// [`HookEvent::PreReasoning`].
    fn prefetch(&self, _workspace: &WorkspaceOwner) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }

    /// Returns which of the agent's tools the session has now. Asked before each request is built (with the number of its
    /// step), and before each call. What it does not keep is neither offered nor found, and does not run. Only for hooks of
    /// [`HookEvent::PreReasoning`].
    fn tool_filter<'a>(
        &'a self,
        _step: Option<u32>,
        _cx: &'a RuntimeContext,
    ) -> Option<LocalBoxFuture<'a, ToolFilter>> {
        None
    }

    /// See [`PreCall`].
    ///
    /// # Errors
    /// Fails the turn.
    async fn pre_call(&self, _event: &mut PreCall, _cx: &RuntimeContext) -> Result<(), TurnError> {
        Ok(())
    }

    /// See [`PreReasoning`].
    ///
    /// # Errors
    /// Fails the turn.
    async fn pre_reasoning(&self, _event: &mut PreReasoning, _cx: &RuntimeContext) -> Result<(), TurnError> {
        Ok(())
    }

    /// See [`PostReasoning`].
    async fn post_reasoning(&self, _event: &PostReasoning, _cx: &RuntimeContext) {}

    /// See [`PreActing`].
    async fn pre_acting(&self, _event: &mut PreActing<'_>, _cx: &RuntimeContext) -> ActDecision {
        ActDecision::Continue
    }

    /// See [`PostActing`].
    async fn post_acting(&self, _event: &mut PostActing<'_>, _cx: &RuntimeContext) {}

    /// See [`PostCall`]. Synchronous: its changes become durable in the commit that ends the turn.
    ///
    /// # Errors
    /// Undoes the changes of this hook, and lists it in `sub_steps_failed`. The turn ends as planned.
    fn post_call(&self, _event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        Ok(())
    }

    /// See [`OnError`]. Synchronous like [`Hook::post_call`].
    ///
    /// # Errors
    /// See [`Hook::post_call`].
    fn on_error(&self, _event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        Ok(())
    }
}
