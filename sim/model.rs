//! The simulated model. Its response is a function of the request, so that it is the same again after a
//! crash; only its errors are temporary.

pub mod one_shot;
pub mod planner;

use super::{
    ledger::{Ask, Ledger},
    scenario::{FinalResponse, StepScript, TurnScript, mark},
};
use edge_harness::ports::{Model, Models};
use edge_harness::session::{tokens, window::SUMMARY_ID};
use edge_harness::types::{
    BackgroundTasks, FinishReason, Message, ModelError, ModelErrorKind, ModelEvent, ModelLimits,
    ModelRequest, ModelResponse, Part, Role, ToolCall, Usage, message::text_of,
};
use futures::{
    StreamExt,
    stream::{LocalBoxStream, unfold},
};
use serde_json::json;
use std::{collections::VecDeque, rc::Rc};

/// Output tokens of each response.
pub const TOKENS: u64 = 10;
/// Size of the instructions and tools of a simulated world, in tokens. In worlds without subagents, up to 250 more than
/// theirs.
pub const FIXED: u64 = 4_600;

/// Size of the tools for background tasks, in tokens.
const BACKGROUND: u64 = 1_500;

pub type Piece = (u64, Result<ModelEvent, ModelError>);

/// The model of all sessions.
pub const PRIMARY: &str = "sim/model";
/// The model that takes over when it fails.
pub const FALLBACK: &str = "sim/fallback";

/// The models. They respond alike, but fail independently.
pub struct SimModels(pub Rc<Ledger>);

impl Models for SimModels {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        if self.0.scenario.run.is_some() {
            return Ok((Rc::new(planner::Planner(Rc::clone(&self.0))), "sim".into()));
        }
        let model = SimModel { ledger: Rc::clone(&self.0), is_fallback: id == FALLBACK };
        Ok((Rc::new(model), "sim".into()))
    }

    fn limits(&self, _id: &str) -> ModelLimits {
        ModelLimits { window: fixed(&self.0) + self.0.scenario.context.claimed_room, percent: 100 }
    }

    fn default_model(&self) -> String {
        PRIMARY.into()
    }
}

struct SimModel {
    ledger: Rc<Ledger>,
    is_fallback: bool,
}

impl Model for SimModel {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let (ledger, is_fallback) = (Rc::clone(&self.ledger), self.is_fallback);
        if let Some(pieces) = one_shot::answer(&ledger, &request) {
            return play(ledger, None, pieces, Vec::new());
        }
        check_request(&ledger, &request);
        let shown =
            request.tail.match_indices("Task trn_").filter_map(|(at, _)| request.tail.get(at + 5..at + 41));
        let shown: Vec<String> = shown.map(str::to_owned).collect();
        if is_woken(&request) {
            let text = vec![Part::Text { text: "goes on".into() }];
            return play(ledger, None, pieces(text, 5, FinishReason::Stop), shown);
        }
        let said = users(&request.messages).last().map(Message::text).unwrap_or_default();
        let step = step_of(&request);
        let reflects = request.tail.contains("Look back at the last step");
        let place = {
            let mut asks = ledger.asks.borrow_mut();
            asks.push(Ask {
                said: said.clone(),
                step,
                is_fallback,
                tools_off: request.tools_off,
                reflects,
                hangs: ledger
                    .scenario
                    .turn(&said)
                    .and_then(|(_, turn)| turn.steps.get(step))
                    .is_some_and(|script| script.hangs),
                repairs: request.tail.contains("Your last answer did not fit"),
                began: ledger.moment(),
                at: ledger.sched.now(),
                left: None,
                left_at: 0,
                answered: false,
            });
            asks.len() - 1
        };
        ledger.say("model", || {
            let model = if is_fallback { FALLBACK } else { PRIMARY };
            format!(
                "{model} is asked: {said} step {step}{}",
                if request.tools_off { ", no tools" } else { "" }
            )
        });
        let pieces = match ledger.scenario.turn(&said) {
            Some((session, turn)) => {
                let place = (step, is_fallback);
                answer(&ledger, &mark(session), turn, place, request.tools_off, reflects)
            }
            None => {
                ledger.find(10, format!("the model is not shown the user's message, but {said:?}"));
                vec![(0, Err(ModelError::new(ModelErrorKind::Invalid, "unknown message")))]
            }
        };
        let pieces = overflow(&ledger, &request).unwrap_or(pieces);
        play(ledger, Some(place), pieces, shown)
    }
}

/// Streams a response. `place` is the index of its [`Ask`], unless it is a one-shot call or of a turn that finished tasks
/// have started. `shown` are the background tasks that the request has shown.
fn play(
    ledger: Rc<Ledger>,
    place: Option<usize>,
    pieces: Vec<Piece>,
    shown: Vec<String>,
) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
    let asked = AskGuard { ledger, place };
    unfold((VecDeque::from(pieces), asked, shown), |(mut pieces, asked, shown)| async move {
        let (pause, piece) = pieces.pop_front()?;
        if pause > 0 {
            asked.ledger.sched.sleep(pause).await;
        }
        if let Ok(ModelEvent::Done(_)) = &piece {
            asked.ledger.shown.borrow_mut().extend(shown.iter().cloned());
            if let Some(place) = asked.place {
                asked.ledger.asks.borrow_mut()[place].answered = true;
            }
        }
        Some((piece, (pieces, asked, shown)))
    })
    .boxed_local()
}

/// Returns the tokens of a request, by the core's estimate.
fn tokens_of(ledger: &Ledger, request: &ModelRequest) -> u64 {
    let mut measured = ledger.measured.borrow_mut();
    let tools = match &*measured {
        Some((tools, tokens)) if Rc::ptr_eq(tools, &request.tools) => *tokens,
        _ => {
            measured
                .insert((
                    Rc::clone(&request.tools),
                    request.tools.iter().map(|tool| tokens::of_tool(tool)).sum(),
                ))
                .1
        }
    };
    let texts = [&request.system, &request.volatile, &request.tail];
    texts.into_iter().map(|text| tokens::of_text(text)).sum::<u64>()
        + tools
        + request.messages.iter().map(|message| tokens::of_message(message)).sum::<u64>()
}

/// Returns the size of the instructions and tools, in tokens.
fn fixed(ledger: &Ledger) -> u64 {
    let in_background = ledger.scenario.subagents.background != BackgroundTasks::Off;
    FIXED + if in_background { BACKGROUND } else { 0 }
}

/// Returns the model's error for a request that is too long.
fn overflow(ledger: &Ledger, request: &ModelRequest) -> Option<Vec<Piece>> {
    let scenario = &ledger.scenario.context;
    let tokens = tokens_of(ledger, request);
    // If the disk refuses the write, the window cannot be shrunk.
    let refused = ledger.refused_at.get() == ledger.sched.now();
    if tokens > fixed(ledger) + scenario.claimed_room && !refused {
        ledger.find(
            4,
            format!("a request of {tokens} tokens for a window of {}", fixed(ledger) + scenario.claimed_room),
        );
    }
    (tokens * scenario.percent / 100 > fixed(ledger) + scenario.room).then(|| {
        ledger.say("model", || format!("too long: {tokens} tokens"));
        vec![(1, Err(ModelError::new(ModelErrorKind::Overflow, "too long")))]
    })
}

/// Records when a response is no longer read.
struct AskGuard {
    ledger: Rc<Ledger>,
    place: Option<usize>,
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let moment = self.ledger.moment();
        let mut asks = self.ledger.asks.borrow_mut();
        asks[place].left = Some(moment);
        asks[place].left_at = self.ledger.sched.now();
    }
}

/// Returns the number of responses since the user's last message. The last response contains its number, in
/// case earlier ones have left the window.
fn step_of(request: &ModelRequest) -> usize {
    let own = request.messages.iter().rev().take_while(|message| message.role != Role::User);
    let mut own = own.filter(|message| message.role == Role::Assistant);
    let Some(last) = own.next() else { return 0 };
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().ok();
    let said = last.text();
    let stated = ["step ", "after "].iter().find_map(|word| number(said.rsplit_once(word)?.1));
    let called = last.calls().find_map(|call| number(call.call_id.split('.').nth(1)?));
    match stated.or(called) {
        Some(step) => step + 1,
        // A final response without a number was rejected: it is repeated.
        None if last.calls().next().is_none() => usize::MAX,
        None => own.count() + 1,
    }
}

/// Checks that a provider would accept the request, and that it contains only allowed content.
fn check_request(ledger: &Ledger, request: &ModelRequest) {
    let mut open: VecDeque<&str> = VecDeque::new();
    for message in &request.messages {
        if message.role == Role::Tool {
            for part in &message.parts {
                let Part::ToolResult { call_id, .. } = part else { continue };
                if open.pop_front() != Some(call_id) {
                    ledger.find(1, format!("the request has a result of {call_id} in the wrong position"));
                }
            }
            continue;
        }
        if let Some(call) = open.front() {
            ledger.find(1, format!("the request has no result of {call}"));
        }
        open = message.calls().map(|call| call.call_id.as_str()).collect();
    }
    if let Some(call) = open.front() {
        ledger.find(1, format!("the request ends without a result of {call}"));
    }
    let said: Vec<String> = users(&request.messages).map(Message::text).collect();
    let places: Vec<Option<usize>> = said.iter().map(|said| Some(ledger.scenario.turn(said)?.0)).collect();
    if let Some(alien) = places.iter().position(|place| *place != places[0] || place.is_none()) {
        ledger.find(7, format!("the request has {:?} beside {:?}", said[alien], said[0]));
    }
}

/// The start of the message of a turn that finished tasks start.
pub const WOKEN: &str = "<system-reminder>";

/// Returns whether finished tasks have started the turn.
fn is_woken(request: &ModelRequest) -> bool {
    let last = request.messages.iter().rfind(|message| message.role == Role::User);
    last.is_some_and(|message| message.text().starts_with(WOKEN))
}

/// Returns the users' messages, without summaries.
fn users(messages: &[Rc<Message>]) -> impl Iterator<Item = &Message> {
    let said = |message: &&Message| {
        message.role == Role::User
            && !message.id.starts_with(SUMMARY_ID)
            && !message.text().starts_with(WOKEN)
    };
    messages.iter().map(Rc::as_ref).filter(said)
}

fn answer(
    ledger: &Ledger,
    mark: &str,
    turn: &TurnScript,
    (step, is_fallback): (usize, bool),
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
        // A call although tools are off, which the core must drop.
        parts.extend(
            step.is_multiple_of(2)
                .then(|| call_part(&call_id(mark, turn, step, 99), "send", json!({ "key": "z" }), false)),
        );
        return pieces(parts, 5, FinishReason::Stop);
    }
    let Some(script) = turn.steps.get(step) else { return final_response(mark, turn, step) };
    let mut parts = Vec::new();
    if script.words {
        parts.extend(text(format!("{mark} step {step} — wörds 世界 of “{}”", turn.said)));
    }
    for (place, call) in script.calls.iter().enumerate() {
        let id = if call.named { call_id(mark, turn, step, place) } else { String::new() };
        parts.push(call_part(&id, call.tool, call.args.clone(), call.invalid));
    }
    let finish = if script.pauses { FinishReason::Pause } else { FinishReason::ToolCalls };
    let mut pieces = pieces(parts, script.pace, finish);
    trouble(ledger, turn, (step, is_fallback), script, &mut pieces);
    pieces
}

fn trouble(
    ledger: &Ledger,
    turn: &TurnScript,
    (step, is_fallback): (usize, bool),
    script: &StepScript,
    pieces: &mut Vec<Piece>,
) {
    if script.hangs {
        pieces.truncate(1);
        pieces.push((86_400_000, Err(ModelError::new(ModelErrorKind::Stalled, "it hangs"))));
    }
    let Some((kind, times)) = script.trouble else { return };
    let mut tries = ledger.tries.borrow_mut();
    let tried = tries.entry((turn.said.clone(), step, is_fallback)).or_default();
    *tried += 1;
    // The model that takes over fails less often.
    let times = if is_fallback { times / 2 } else { times };
    if *tried <= times {
        pieces.truncate(step % 3);
        pieces.push((2, Err(ModelError::new(kind, "as planned"))));
    }
}

fn final_response(mark: &str, turn: &TurnScript, step: usize) -> Vec<Piece> {
    let text = |text: String| vec![Part::Text { text }];
    match turn.last {
        FinalResponse::Text => {
            pieces(text(format!("{mark} the end of “{}” after {step} 🎉", turn.said)), 9, FinishReason::Stop)
        }
        FinalResponse::Nothing => pieces(Vec::new(), 1, FinishReason::Stop),
        FinalResponse::Json => pieces(text(json!({ "answer": mark }).to_string()), 4, FinishReason::Stop),
        FinalResponse::Refused => pieces(text(format!("{mark} no")), 1, FinishReason::ContentFilter),
    }
}

/// Unique within its session, as providers' ids are.
fn call_id(mark: &str, turn: &TurnScript, step: usize, place: usize) -> String {
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

/// Returns a response, with its text in chunks of a few characters.
pub fn pieces(parts: Vec<Part>, pace: u64, finish: FinishReason) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let text: Vec<char> = text_of(&parts).chars().collect();
    for (number, piece) in text.chunks(6).enumerate() {
        // Some chunks arrive together, some alone.
        let pause = if number.is_multiple_of(3) { pace } else { 0 };
        pieces.push((pause, Ok(ModelEvent::Text(piece.iter().collect()))));
    }
    let calls = parts.iter().filter(|part| matches!(part, Part::ToolCall(_))).count();
    for index in 0..calls {
        pieces.push((0, Ok(ModelEvent::ToolInput { index, name: "x".into(), delta: "{".into() })));
    }
    // Without a reported input size the core uses its own estimate.
    let usage = Usage { output_tokens: TOKENS, total_tokens: TOKENS, ..Usage::default() };
    pieces.push((pace, Ok(ModelEvent::Done(ModelResponse { parts, usage, finish }))));
    pieces
}
