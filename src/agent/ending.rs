//! How a turn ends: decided by the code that runs the turn, carried out by the finalizer.

use super::RuntimeContext;
use crate::turn::{PricedUsage, citations};
use crate::types::{
    CallId, ChildStatus, EventKind, FinishReason, Message, MessageId, Part, Role, Source, StopReason,
    ToolOutcome, TurnError, message::text_of,
};
use serde_json::Value;
use std::rc::Rc;

/// The reason given for suspended calls when a new message of the user ends their turn.
pub(super) const INTERRUPTED: &str = "interrupted_by_user_message";

/// How a turn ends.
pub(super) struct Ending {
    /// The reason.
    pub reason: StopReason,
    /// The error of a failed turn.
    pub error: Option<TurnError>,
    /// The final message, not stored yet.
    pub message: Option<Rc<Message>>,
    /// The usage of the final model call.
    pub spent: PricedUsage,
    /// The message parsed as JSON, where a schema was requested.
    pub output: Option<Value>,
    /// The bound that was hit before the turn failed.
    pub bound: Option<StopReason>,
    /// The finish reason of the final model call.
    pub finish: FinishReason,
    /// Whether the final model call counts as a step.
    pub counts_step: bool,
    /// Whether a new message of the user ended the turn while calls were suspended.
    pub interrupted: bool,
    /// Records of how suspended calls were resolved.
    pub records: Vec<EventKind>,
    /// Final statuses of children, including those that this end canceled.
    pub statuses: Vec<ChildStatus>,
    /// Outcomes of calls that were resolved while their step still waited for others.
    pub resolved: Vec<(CallId, ToolOutcome)>,
}

impl Ending {
    pub(super) fn new(reason: StopReason) -> Self {
        Self {
            reason,
            error: None,
            message: None,
            spent: PricedUsage::default(),
            output: None,
            bound: None,
            finish: FinishReason::Stop,
            counts_step: false,
            interrupted: false,
            records: Vec::new(),
            statuses: Vec::new(),
            resolved: Vec::new(),
        }
    }

    /// Creates the ending of a turn that failed.
    pub(super) fn failed(error: TurnError) -> Self {
        Self { error: Some(error), ..Self::new(StopReason::Error) }
    }
}

/// Returns whether this reason is one of the turn's bounds.
pub(super) fn is_bound(reason: StopReason) -> bool {
    use StopReason::{Cost, Deadline, MaxSteps, MaxToolCalls, Tokens};
    matches!(reason, MaxSteps | MaxToolCalls | Deadline | Tokens | Cost)
}

/// Returns the sources that the reply cites, if it may cite any.
pub(super) fn cited(cx: &RuntimeContext) -> Vec<Source> {
    let state = cx.session.state();
    let is_wanted = state
        .activity
        .turn
        .as_ref()
        .is_some_and(|turn| turn.options.show_citations && turn.options.output_schema.is_none());
    if is_wanted { citations::select(&cx.state.sources()) } else { Vec::new() }
}

/// Returns the message that holds the text of an interrupted response.
pub(super) fn cut_off(id: MessageId, text: String, cx: &RuntimeContext) -> Rc<Message> {
    let parts = vec![Part::Text { text }];
    debug_assert!(!text_of(&parts).is_empty());
    Rc::new(Message {
        id,
        seq: 0,
        role: Role::Assistant,
        parts,
        created_at: cx.clock.now(),
        turn: cx.turn().clone(),
        interrupted: true,
    })
}
