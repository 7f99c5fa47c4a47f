//! Ends a turn: seals it, and stores its end in one commit.
//!
//! Synchronous, so that nothing runs between checking the permit and sealing. Later writes of the turn are
//! refused. Whatever the reason, each call gets exactly one outcome, the streamed text becomes a message, and
//! the log gets one terminal record.

use super::{
    HarnessAgent, HookDraft, RuntimeContext,
    admission::unknown,
    ending::{Ending, INTERRUPTED, cited, cut_off, is_bound},
    hook::{HookEvent, OnError, PostCall, SubStepError},
    verification,
};
use crate::session::{Draft, WriteError};
use crate::turn::{TurnMachine, citations};
use crate::types::{
    CallId, CallStatus, DenyReason, EventKind, FinishReason, Message, Part, Reply, Role, Source, StopReason,
    ToolOutcome, ToolSpec, TurnEnd, TurnPhase, TurnStatus,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

/// Seals the turn and stores its end.
pub(super) fn seal(agent: &HarnessAgent, cx: &RuntimeContext, ending: Ending) -> Result<(), WriteError> {
    let session = &cx.session;
    if !session.holds(&cx.permit) {
        return Err(WriteError::Stale);
    }
    let cut_off = ending.message.is_none();
    let (last, citations) = last_message(agent, cx, &ending);
    let earlier = || {
        let messages = session.messages();
        let own = messages.into_iter().rev().take_while(|message| message.turn == *cx.turn());
        let spoke = |message: &Rc<Message>| message.role == Role::Assistant && !message.text().is_empty();
        let last = own.into_iter().find(spoke)?;
        // Messages of the window may be shortened; the reply is the complete message.
        Some(session.complete_message(&last).unwrap_or(last))
    };
    let output = ending.output.or_else(|| verification::output(cx).filter(|_| last.is_none()));
    let reply = last.clone().or_else(earlier).map(|message| Reply::new(&message, output));
    let names = call_names(cx);
    let verification = verification::fault(agent, cx)?;
    let claimed = session.claimed_calls()?;

    session.commit(cx.clock.now(), |draft| {
        let Some(mut turn) = draft.state().activity.turn.clone() else { return };
        if let Some(gauge) = cx.state.take_gauge() {
            draft.set_gauge(gauge);
        }
        let mut outcomes = cx.state.outcomes();
        draft.close_message();
        let shown = if cut_off { Vec::new() } else { cx.state.shown_background() };
        draft.tasks_shown(cx.turn(), &shown);
        if matches!(ending.reason, StopReason::Canceled | StopReason::Error) {
            draft.tasks_not_shown(cx.turn());
        }
        for record in ending.records {
            draft.record(Some(&turn.id), record);
        }
        // Usage of subagents whose calls are resolved was charged when they were resolved.
        let waiting = session.waiting_calls();
        for status in ending.statuses.iter().filter(|status| waiting.contains(&status.call_id)) {
            let charged = TurnMachine(&mut turn).charge_subagent(status);
            draft.record(Some(&turn.id), charged);
        }
        if let TurnPhase::Tools { calls } = &turn.phase {
            for call in calls.iter().filter(|call| call.status != CallStatus::Done) {
                let name = names
                    .iter()
                    .find(|(id, _)| *id == call.call_id)
                    .map(|(_, name)| name.clone())
                    .unwrap_or_default();
                let begun = call.status == CallStatus::Started
                    || cx.state.has_begun(&call.call_id)
                    || claimed.contains(&call.call_id);
                let resolved = ending.resolved.iter().find(|(id, _)| *id == call.call_id);
                let status = ending.statuses.iter().find(|status| status.call_id == call.call_id);
                // What is stored counts: a child may have reported while it was being canceled.
                let outcome = match resolved.map(|(_, outcome)| outcome.clone()) {
                    Some(outcome) => outcome,
                    None if let Some(status) = status => status.outcome(),
                    None if ending.interrupted && call.status == CallStatus::Waiting => {
                        ToolOutcome::denied(DenyReason::Declined, INTERRUPTED)
                    }
                    None => {
                        cut_off_outcome(agent, session.state().client_tools(), &name, begun, ending.reason)
                    }
                };
                *outcomes.entry(outcome.name().to_owned()).or_default() += 1;
                let call_id = call.call_id.clone();
                draft.record(Some(&turn.id), EventKind::completed(call_id, name, outcome));
            }
        }
        // After the outcomes: providers require tool results directly after their calls.
        if let Some(message) = last {
            draft.record(Some(&turn.id), EventKind::MessageCompleted { message });
        }
        if let Some(counted) = TurnMachine::usage_event(&turn, &ending.spent, cx.state.model()) {
            draft.record(Some(&turn.id), counted);
        }
        TurnMachine(&mut turn).add_usage(ending.spent);
        turn.steps += u32::from(ending.counts_step);
        let bound = Some(ending.reason).filter(|reason| is_bound(*reason)).or(ending.bound);
        if let Some(limit) = bound {
            draft.record(Some(&turn.id), EventKind::BudgetExceeded { limit });
        }
        let (usage, cost_usd) = (turn.usage, turn.cost_usd);
        let mut sub_steps_failed = cx.state.sub_steps_failed();
        match &ending.error {
            Some(error) => {
                for hook in agent.hooks.at(HookEvent::Error) {
                    isolated(hook.name(), draft, &mut sub_steps_failed, |draft| {
                        hook.on_error(
                            &mut OnError { error, usage, cost_usd, draft: HookDraft::new(draft) },
                            cx,
                        )
                    });
                }
            }
            None => {
                let (reply, stop_reason) = (reply.as_ref(), ending.reason);
                for hook in agent.hooks.at(HookEvent::PostCall) {
                    isolated(hook.name(), draft, &mut sub_steps_failed, |draft| {
                        hook.post_call(
                            &mut PostCall {
                                reply,
                                usage,
                                cost_usd,
                                stop_reason,
                                draft: HookDraft::new(draft),
                            },
                            cx,
                        )
                    });
                }
            }
        }
        for (step, reason) in &sub_steps_failed {
            let (step, reason) = (step.clone(), reason.clone());
            draft.record(Some(&turn.id), EventKind::SubStepFailed { step, reason });
        }
        let status = match ending.reason {
            StopReason::Canceled => TurnStatus::Canceled,
            StopReason::Error => TurnStatus::Failed,
            _ => TurnStatus::Completed,
        };
        let end = TurnEnd {
            status,
            stop_reason: ending.reason,
            reply,
            reply_ref: None,
            usage: turn.usage,
            cost_usd: turn.cost_usd,
            steps: turn.steps,
            reflections: turn.reflections,
            outcomes,
            model: cx.state.model(),
            prompt_render_hash: cx.state.prompt_render_hash(),
            citations,
            budget: Some(turn.budget),
            finish: (!cut_off && ending.finish != FinishReason::Stop).then_some(ending.finish),
            error: ending.error,
            message: None,
            verification,
            sub_steps_failed: sub_steps_failed.into_iter().map(|(step, _)| step).collect(),
        };
        let kind = match status {
            TurnStatus::Canceled => EventKind::TurnCanceled(end),
            TurnStatus::Failed => EventKind::TurnFailed(end),
            _ => EventKind::TurnCompleted(end),
        };
        draft.record(Some(&turn.id), kind);
        draft.end_turn();
    })?;
    Ok(())
}

/// Runs one sub-step of the end. If it fails or panics, its changes are undone and its name is listed.
fn isolated(
    name: &str,
    draft: &mut Draft,
    failed: &mut Vec<(String, String)>,
    step: impl FnOnce(&mut Draft) -> Result<(), SubStepError>,
) {
    let before = draft.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| step(draft)));
    let reason = match ended {
        Ok(Ok(())) => return,
        Ok(Err(SubStepError(reason))) => reason,
        Err(_panic) => "internal error: the sub-step panicked".to_owned(),
    };
    *draft = before;
    failed.push((name.to_owned(), reason));
}

/// Returns the turn's final message, complete or interrupted, and the sources that it cites.
fn last_message(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    ending: &Ending,
) -> (Option<Rc<Message>>, Vec<Source>) {
    let session = &cx.session;
    match (&ending.message, session.hub().streamed()) {
        (Some(message), _) if !message.text().is_empty() || !needs_apology(ending.reason) => {
            let citations = cited(cx);
            if citations.is_empty() || message.text().is_empty() || ending.error.is_some() {
                return (Some(Rc::clone(message)), Vec::new());
            }
            let mut message = Message::clone(message);
            message.parts.push(Part::text(citations::render(&citations)));
            (Some(Rc::new(message)), citations)
        }
        // The message before the verification is the reply, and has the sources already.
        (None, None) if ending.reason == StopReason::End => (None, cited(cx)),
        (None, Some((id, text))) => (Some(cut_off(id, text, cx)), Vec::new()),
        (_, None) if needs_apology(ending.reason) && !verification::has_reply(cx) => {
            let id = agent.new_id();
            (Some(cut_off(id, apology(ending.reason).into(), cx)), Vec::new())
        }
        _ => (None, Vec::new()),
    }
}

/// Returns whether a turn that ends for this reason without text of the model gets a reply that says so.
fn needs_apology(reason: StopReason) -> bool {
    is_bound(reason) || matches!(reason, StopReason::Length | StopReason::ContentFilter)
}

/// Returns the reply of a turn that ends without text of the model.
fn apology(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Deadline => "I ran out of time before I could answer.",
        StopReason::Tokens => "This turn's tokens were used up before I could answer.",
        StopReason::Cost => "This turn's budget was used up before I could answer.",
        StopReason::Length => {
            "My answer was cut off before its first word, because it reached the model's output limit."
        }
        StopReason::ContentFilter => "The model's provider withheld the answer.",
        StopReason::MaxToolCalls => "This turn's tool calls were used up before I could answer.",
        _ => "This turn's steps were used up before I could answer.",
    }
}

fn call_names(cx: &RuntimeContext) -> Vec<(CallId, String)> {
    let messages = cx.session.messages();
    let own = messages.iter().rev().take_while(|message| message.turn == *cx.turn());
    own.flat_map(|message| message.calls().map(|call| (call.call_id.clone(), call.name.clone()))).collect()
}

/// Returns the outcome of a call that had none when its turn ended.
fn cut_off_outcome(
    agent: &HarnessAgent,
    of_client: &[ToolSpec],
    name: &str,
    begun: bool,
    reason: StopReason,
) -> ToolOutcome {
    let spec = agent.spec(of_client, name);
    let idempotent = spec.is_some_and(|spec| spec.idempotent);
    let reads = spec.is_some_and(|spec| spec.effect.is_read());
    let late = reason == StopReason::Deadline;
    match (begun, late) {
        (true, true) if idempotent => {
            let reason = "the tool did not return before the turn's deadline".to_owned();
            ToolOutcome::Timeout { reason, retryable: false }
        }
        (true, _) if !reads => unknown("the turn ended while the tool was running"),
        (_, true) => ToolOutcome::denied(DenyReason::Deadline, "the turn's deadline passed"),
        (_, false) => ToolOutcome::denied(DenyReason::Canceled, "the turn ended"),
    }
}
