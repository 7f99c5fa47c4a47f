//! The simulated model. Its answer is a function of the request, so that it says the same when it is
//! asked again after a crash; only its troubles pass.

use super::{
    outside::{Ask, Outside},
    plan::{LastWord, StepPlan, TurnPlan, mark},
};
use edge_harness::ports::{Model, Models};
use edge_harness::types::{
    FinishReason, Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Part, Role,
    ToolCall, Usage, message::text_of,
};
use futures::{
    StreamExt,
    stream::{LocalBoxStream, unfold},
};
use serde_json::json;
use std::{collections::VecDeque, rc::Rc};

/// Tokens of each answer.
pub const TOKENS: u64 = 10;

type Piece = (u64, Result<ModelEvent, ModelError>);

/// The only model there is.
pub struct SimModels(pub Rc<Outside>);

impl Models for SimModels {
    fn resolve(&self, _id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        Ok((Rc::new(SimModel(Rc::clone(&self.0))), "sim".into()))
    }

    fn default_model(&self) -> String {
        "sim/model".into()
    }
}

struct SimModel(Rc<Outside>);

impl Model for SimModel {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let outside = Rc::clone(&self.0);
        look_at(&outside, &request);
        let mut users = request.messages.iter().filter(|message| message.role == Role::User);
        let said = users.next_back().map(|message| message.text()).unwrap_or_default();
        let step = step_of(&request);
        let reflects = request.tail.contains("Look back at the last step");
        let place = {
            let mut asks = outside.asks.borrow_mut();
            asks.push(Ask {
                said: said.clone(),
                step,
                tools_off: request.tools_off,
                reflects,
                repairs: request.tail.contains("Your last answer did not fit"),
                began: outside.moment(),
                at: outside.sched.now(),
                left: None,
                left_at: 0,
                answered: false,
            });
            asks.len() - 1
        };
        outside.say("model", || {
            format!("asked: {said} step {step}{}", if request.tools_off { ", no tools" } else { "" })
        });
        let pieces = match outside.plan.turn(&said) {
            Some((session, turn)) => {
                answer(&outside, &mark(session), turn, step, request.tools_off, reflects)
            }
            None => vec![(0, Err(ModelError::new(ModelErrorKind::Invalid, "nobody said that")))],
        };
        let asked = Asked { outside, place };
        unfold((VecDeque::from(pieces), asked), |(mut pieces, asked)| async move {
            let (pause, piece) = pieces.pop_front()?;
            if pause > 0 {
                asked.outside.sched.sleep(pause).await;
            }
            if matches!(piece, Ok(ModelEvent::Done(_))) {
                asked.outside.asks.borrow_mut()[asked.place].answered = true;
            }
            Some((piece, (pieces, asked)))
        })
        .boxed_local()
    }
}

/// Notes when nobody reads an answer any more.
struct Asked {
    outside: Rc<Outside>,
    place: usize,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let moment = self.outside.moment();
        let mut asks = self.outside.asks.borrow_mut();
        asks[self.place].left = Some(moment);
        asks[self.place].left_at = self.outside.sched.now();
    }
}

/// How many answers the model has given since the user spoke last.
fn step_of(request: &ModelRequest) -> usize {
    let own = request.messages.iter().rev().take_while(|message| message.role != Role::User);
    own.filter(|message| message.role == Role::Assistant).count()
}

/// What a provider would refuse, or must never see.
fn look_at(outside: &Outside, request: &ModelRequest) {
    let mut open: VecDeque<&str> = VecDeque::new();
    for message in &request.messages {
        if message.role == Role::Tool {
            for part in &message.parts {
                let Part::ToolResult { call_id, .. } = part else { continue };
                if open.pop_front() != Some(call_id) {
                    outside.find(1, format!("the model reads a result of {call_id} out of place"));
                }
            }
            continue;
        }
        if let Some(call) = open.front() {
            outside.find(1, format!("the model reads no result of {call}"));
        }
        open = message.calls().map(|call| call.call_id.as_str()).collect();
    }
    if let Some(call) = open.front() {
        outside.find(1, format!("the model reads no result of {call} in the end"));
    }
    let said: Vec<String> = users(&request.messages).map(Message::text).collect();
    let places: Vec<Option<usize>> = said.iter().map(|said| Some(outside.plan.turn(said)?.0)).collect();
    if let Some(alien) = places.iter().position(|place| *place != places[0] || place.is_none()) {
        outside.find(7, format!("the model reads {:?} beside {:?}", said[alien], said[0]));
    }
}

fn users(messages: &[Rc<Message>]) -> impl Iterator<Item = &Message> {
    messages.iter().map(Rc::as_ref).filter(|message| message.role == Role::User)
}

fn answer(
    outside: &Outside,
    mark: &str,
    turn: &TurnPlan,
    step: usize,
    tools_off: bool,
    reflects: bool,
) -> Vec<Piece> {
    let text = |text: String| vec![Part::Text { text }];
    if reflects {
        let word = if step.is_multiple_of(3) { "STOP" } else { "CONTINUE" };
        return pieces(text(format!("{word} {mark} thought about {step}")), 3, FinishReason::Stop);
    }
    if tools_off {
        let mut parts = text(format!("{mark} sums up “{}” after {step}", turn.said));
        // It was told that it cannot.
        parts.extend(
            step.is_multiple_of(2)
                .then(|| call_part(&call_id(mark, turn, step, 99), "send", json!({ "key": "z" }), false)),
        );
        return pieces(parts, 5, FinishReason::Stop);
    }
    let Some(planned) = turn.steps.get(step) else { return last_word(mark, turn, step) };
    let mut parts = Vec::new();
    if planned.words {
        parts.extend(text(format!("{mark} step {step} — wörds 世界 of “{}”", turn.said)));
    }
    for (place, call) in planned.calls.iter().enumerate() {
        let id = if call.named { call_id(mark, turn, step, place) } else { String::new() };
        parts.push(call_part(&id, call.tool, call.args.clone(), call.invalid));
    }
    let finish = if planned.pauses { FinishReason::Pause } else { FinishReason::ToolCalls };
    let mut pieces = pieces(parts, planned.pace, finish);
    trouble(outside, turn, step, planned, &mut pieces);
    pieces
}

fn trouble(outside: &Outside, turn: &TurnPlan, step: usize, planned: &StepPlan, pieces: &mut Vec<Piece>) {
    if planned.hangs {
        pieces.truncate(1);
        pieces.push((86_400_000, Err(ModelError::new(ModelErrorKind::Stalled, "it hangs"))));
    }
    let Some((kind, times)) = planned.trouble else { return };
    let mut tries = outside.tries.borrow_mut();
    let tried = tries.entry((turn.said.clone(), step)).or_default();
    *tried += 1;
    if *tried <= times {
        pieces.truncate(step % 3);
        pieces.push((2, Err(ModelError::new(kind, "as planned"))));
    }
}

fn last_word(mark: &str, turn: &TurnPlan, step: usize) -> Vec<Piece> {
    let text = |text: String| vec![Part::Text { text }];
    match turn.last {
        LastWord::Text => {
            pieces(text(format!("{mark} the end of “{}” after {step} 🎉", turn.said)), 9, FinishReason::Stop)
        }
        LastWord::Nothing => pieces(Vec::new(), 1, FinishReason::Stop),
        LastWord::Json => pieces(text(json!({ "answer": mark }).to_string()), 4, FinishReason::Stop),
        LastWord::Refused => pieces(text(format!("{mark} no")), 1, FinishReason::ContentFilter),
    }
}

/// Unique in its session, as providers' ids are.
fn call_id(mark: &str, turn: &TurnPlan, step: usize, place: usize) -> String {
    let number: String = turn.said.chars().skip(mark.chars().count() + 1).take_while(|c| *c != ' ').collect();
    format!("{number}.{step}.{place}")
}

fn call_part(id: &str, name: &str, args: serde_json::Value, invalid: bool) -> Part {
    Part::ToolCall(ToolCall {
        call_id: id.into(),
        name: name.into(),
        args: if invalid { json!({ "_raw": "{\"key\": " }) } else { args },
        invalid: invalid.then(|| "EOF while parsing a value".into()),
    })
}

/// An answer, its text in pieces of a few characters.
fn pieces(parts: Vec<Part>, pace: u64, finish: FinishReason) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let text: Vec<char> = text_of(&parts).chars().collect();
    for (number, piece) in text.chunks(6).enumerate() {
        // Some pieces come together, some alone.
        let pause = if number.is_multiple_of(3) { pace } else { 0 };
        pieces.push((pause, Ok(ModelEvent::Text(piece.iter().collect()))));
    }
    let calls = parts.iter().filter(|part| matches!(part, Part::ToolCall(_))).count();
    for index in 0..calls {
        pieces.push((0, Ok(ModelEvent::ToolInput { index, name: "x".into(), delta: "{".into() })));
    }
    let usage = Usage { input_tokens: 4, output_tokens: 6, total_tokens: TOKENS, ..Usage::default() };
    pieces.push((pace, Ok(ModelEvent::Done(ModelResponse { parts, usage, finish }))));
    pieces
}
