//! Where capabilities attach to the loop.
//!
//! ```text
//! PreCall ─▶ ┌ PreReasoning ─▶ model ─▶ PostReasoning ─┐ ─▶ PostCall
//!            └── PostActing ◀─ tools ◀─ PreActing ◀────┘
//!                    any failure of the turn ─▶ Error
//! ```

use super::RuntimeContext;
use crate::session::artifacts::Stored;
use crate::types::{
    Message, ModelRequest, ModelResponse, Reply, StopReason, ToolCall, ToolOutcome, ToolSpec, TurnError,
    Usage,
};
use async_trait::async_trait;

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

/// Before the first step of a call, and again when the call is resumed after a restart.
pub struct PreCall {
    /// What the user said, as the model will see it in this call. The log keeps the original.
    pub message: Message,
}

/// Before each model call.
pub struct PreReasoning {
    /// The step, from 0.
    pub step: u32,
    /// What the model will be asked.
    pub request: ModelRequest,
}

/// After each model call.
pub struct PostReasoning {
    /// The step, from 0.
    pub step: u32,
    /// What the model answered. Its text is on its way to listeners already.
    pub response: ModelResponse,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// Before each tool call.
pub struct PreActing<'a> {
    /// The call. Its arguments may be changed; the log keeps the model's.
    pub call: ToolCall,
    /// The tool; none when it is unknown.
    pub spec: Option<&'a ToolSpec>,
}

/// What is to become of a call. The strictest answer of all hooks holds.
#[derive(Clone, Debug, PartialEq)]
pub enum ActDecision {
    /// It may run.
    Continue,
    /// It does not run, and this is its outcome.
    Answer(ToolOutcome),
    /// It does not run; the model reads why.
    Deny(String),
}

/// After each tool call.
pub struct PostActing<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// What became of it; may be changed before anybody sees it.
    pub outcome: ToolOutcome,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// The output, where a hook has put it apart and the outcome says so ([`ToolOutcome::Artifact`]): its
    /// pointer is stored with the outcome.
    pub stored: Option<Stored>,
}

/// After the last step, before the end is stored.
pub struct PostCall<'a> {
    /// The reply.
    pub reply: Option<&'a Reply>,
    /// Tokens of the turn.
    pub usage: Usage,
    /// What they cost in US dollars, as far as models have a price.
    pub cost_usd: Option<f64>,
    /// Why the turn ends.
    pub stop_reason: StopReason,
    /// Changes that are stored with the end of the turn, in the same commit.
    pub draft: &'a mut crate::session::Draft,
}

/// Something at a turn's end could not be done. The turn ends all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubStepError(pub String);

/// When the turn fails, before its end is stored.
pub struct OnError<'a> {
    /// What failed.
    pub error: &'a TurnError,
    /// Tokens of the turn.
    pub usage: Usage,
    /// What they cost in US dollars, as far as models have a price.
    pub cost_usd: Option<f64>,
    /// Changes that are stored with the end of the turn, in the same commit.
    pub draft: &'a mut crate::session::Draft,
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
    /// The name, for logs and toggles.
    fn name(&self) -> &'static str;

    /// The events it wants.
    fn events(&self) -> &'static [HookEvent];

    /// Lower runs earlier.
    fn priority(&self) -> i32 {
        0
    }

    /// See [`PreCall`].
    ///
    /// # Errors
    /// Ends the turn as failed.
    async fn pre_call(&self, _event: &mut PreCall, _cx: &RuntimeContext) -> Result<(), TurnError> {
        Ok(())
    }

    /// See [`PreReasoning`].
    ///
    /// # Errors
    /// Ends the turn as failed.
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

    /// See [`PostCall`]. Synchronous: it becomes durable in the same commit as the end.
    ///
    /// # Errors
    /// Undoes what it drafted, and lists the hook in `sub_steps_failed`. The turn ends as it would.
    fn post_call(&self, _event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        Ok(())
    }

    /// See [`OnError`]. Synchronous like [`Hook::post_call`].
    ///
    /// # Errors
    /// As with [`Hook::post_call`].
    fn on_error(&self, _event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        Ok(())
    }
}
