//! Ends a turn: seals it, and stores everything that its end means in one commit.
//!
//! Synchronous, so that nothing comes between the check of the permit and the seal. After it every
//! write of the turn is refused. Whatever the reason, each call gets its one outcome, the text that
//! listeners saw becomes a message, and the log gets its one terminal record.

use super::{
    HarnessAgent, RuntimeContext, executor,
    hook::{HookEvent, OnError, PostCall},
    react,
};
use crate::session::{WriteError, view};
use crate::types::{
    CallStatus, DenyReason, EventKind, FinishReason, Message, Role, StopReason, ToolOutcome, TurnEnd,
    TurnError, TurnPhase, TurnStatus, Usage,
};
use std::rc::Rc;

/// How a turn is to end.
pub(super) struct Ending {
    /// Why.
    pub reason: StopReason,
    /// What failed.
    pub error: Option<TurnError>,
    /// The last answer, not stored yet.
    pub message: Option<Rc<Message>>,
    /// Its tokens.
    pub usage: Usage,
    /// Why it ended.
    pub finish: FinishReason,
    /// Whether a model call is to be counted with it.
    pub answered: bool,
}

impl Ending {
    pub(super) fn new(reason: StopReason) -> Self {
        Self {
            reason,
            error: None,
            message: None,
            usage: Usage::default(),
            finish: FinishReason::Stop,
            answered: false,
        }
    }
}

/// Seals the turn and stores its end.
pub(super) fn seal(agent: &HarnessAgent, cx: &RuntimeContext, ending: Ending) -> Result<(), WriteError> {
    let session = &cx.session;
    if !session.holds(&cx.permit) {
        return Err(WriteError::Stale);
    }
    let cut_off = ending.message.is_none();
    let last = match (ending.message, session.hub().streamed()) {
        (Some(message), _) => Some(message),
        (None, Some((id, text))) => Some(react::interrupted(id, text, cx)),
        (None, None) => None,
    };
    let earlier = || {
        let messages = session.messages();
        let own = messages.into_iter().rev().take_while(|message| message.turn == cx.turn());
        own.into_iter().find(|message| message.role == Role::Assistant && !message.text().is_empty())
    };
    let reply = last.clone().or_else(earlier).map(|message| view::reply(&message));
    let names = call_names(cx);

    session.commit(cx.clock.now(), |draft| {
        let Some(mut turn) = draft.state.turn.clone() else { return };
        draft.close_message();
        if let Some(message) = last {
            draft.record(Some(&turn.id), EventKind::MessageCompleted { message });
        }
        if let TurnPhase::Tools { calls } = &turn.phase {
            for call in calls.iter().filter(|call| call.status != CallStatus::Done) {
                let name = names
                    .iter()
                    .find(|(id, _)| *id == call.call_id)
                    .map(|(_, name)| name.clone())
                    .unwrap_or_default();
                let outcome = cut_off_outcome(agent, &name, call.status, ending.reason);
                let (call_id, elapsed_ms) = (call.call_id.clone(), 0);
                draft.record(Some(&turn.id), EventKind::ToolCompleted { call_id, name, outcome, elapsed_ms });
            }
        }
        turn.usage += ending.usage;
        turn.steps += u32::from(ending.answered);
        let status = match ending.reason {
            StopReason::Canceled => TurnStatus::Canceled,
            StopReason::Error => TurnStatus::Failed,
            _ => TurnStatus::Completed,
        };
        match &ending.error {
            Some(error) => {
                let mut event = OnError { error, usage: turn.usage, draft };
                for hook in agent.hooks.at(HookEvent::Error) {
                    hook.on_error(&mut event, cx);
                }
            }
            None => {
                let mut event =
                    PostCall { reply: reply.as_ref(), usage: turn.usage, stop_reason: ending.reason, draft };
                for hook in agent.hooks.at(HookEvent::PostCall) {
                    hook.post_call(&mut event, cx);
                }
            }
        }
        let end = TurnEnd {
            status,
            stop_reason: ending.reason,
            reply,
            usage: turn.usage,
            steps: turn.steps,
            budget: Some(turn.budget),
            finish: (!cut_off && ending.finish != FinishReason::Stop).then_some(ending.finish),
            error: ending.error,
            message: None,
            sub_steps_failed: Vec::new(),
        };
        let kind = match status {
            TurnStatus::Canceled => EventKind::TurnCanceled(end),
            TurnStatus::Failed => EventKind::TurnFailed(end),
            _ => EventKind::TurnCompleted(end),
        };
        draft.record(Some(&turn.id), kind);
        draft.state.turn = None;
    })?;
    Ok(())
}

fn call_names(cx: &RuntimeContext) -> Vec<(String, String)> {
    let messages = cx.session.messages();
    let own = messages.iter().rev().take_while(|message| message.turn == cx.turn());
    own.flat_map(|message| message.calls().map(|call| (call.call_id.clone(), call.name.clone()))).collect()
}

/// What a call becomes when its turn ends before it has an outcome.
fn cut_off_outcome(agent: &HarnessAgent, name: &str, status: CallStatus, reason: StopReason) -> ToolOutcome {
    let idempotent = agent.toolkit.get(name).is_some_and(|(spec, _)| spec.idempotent);
    let (denied, why) = match reason {
        StopReason::Deadline => (DenyReason::Deadline, "the turn's time was over"),
        _ => (DenyReason::Canceled, "the turn was ended"),
    };
    match status {
        CallStatus::Begun if !idempotent => executor::unknown(&format!("{why} while the tool was running")),
        _ => ToolOutcome::denied(denied, why),
    }
}
