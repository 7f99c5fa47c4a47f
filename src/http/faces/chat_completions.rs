//! OpenAI's Chat Completions: `POST /v1/chat/completions`. Models are the names of agents.
//!
//! With a session (header `x-session-id`, or `metadata.session_id`) the agent remembers, and only what follows the last
//! message of the assistant is new. Without one, the messages are all that the agent knows, and the session that runs
//! the turn is erased afterwards. The ids of calls then end with the id of that session, so that the results of the
//! client's tools find it.

mod chunk;
#[cfg(not(target_family = "wasm"))]
mod openapi;
mod request;

use self::chunk::{Chunk, ChunkChoice, Head, MessageDelta};
#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
use self::request::ChatRequest;
use super::{
    children::flattened,
    exchange::{Exchange, named, renamed, waiting},
    openai::{self, FailedTurn, messages::Conversation},
    sse,
    text::TextOut,
};
use crate::http::body;
use crate::http::face::{Face, Target};
use crate::http::owner::session_id;
use crate::http::pattern::Params;
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response};
use crate::http::route::{POST, Route, face, run};
use crate::http::session::call::Call;
use crate::http::session::feed;
use crate::http::session::subscription::TurnFormat;
use crate::session::{
    frame::{Event, Frame},
    hub::{ByteReceiver, Interrupted, Projection},
};
use crate::types::{
    Delta, ErrorCode, EventKind, Pending, Problem, Scope, SessionId, StopReason, TurnEnd, TurnId, Usage,
    WaitKind,
};
use futures::{
    FutureExt, TryStreamExt,
    future::{LocalBoxFuture, ready},
};
use http::StatusCode;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

/// The routes.
pub static ROUTES: &[Route] = &[face(POST, "/v1/chat/completions", Scope::Chat, &FACE, run!(create))];

/// The face.
pub static FACE: Face = Face { target, problem: openai::problem };

/// The header that names a session.
const SESSION: &str = "x-session-id";

/// Returns the session that the client has chosen.
fn chosen_session(request: &Request, chat: &ChatRequest) -> Option<String> {
    request.header(SESSION).or_else(|| chat.session()).map(str::to_owned)
}

fn target(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let chat: ChatRequest = body::json(request)?;
    let chosen = chosen_session(request, &chat);
    let session = match chosen.as_deref() {
        Some(id) => Some(session_id(id, "/metadata/session_id")?),
        None => chat.answered_call().and_then(openai::session_of_call),
    };
    let agent = chat.agent_and_model().0.map(str::to_owned);
    Ok(Target { session, agent, user: chat.user, ..Target::default() })
}

/// `POST /v1/chat/completions`.
pub async fn create(call: &Call<'_>) -> Result<Response, Problem> {
    let request: ChatRequest = body::json(call.request)?;
    let chosen = chosen_session(call.request, &request);
    let user = call.named_user(request.user.clone())?;
    let session = call.find(user.as_deref())?;
    let continued = session.filter(|_| request.answered_call().is_some());
    let turn = continued.and_then(|session| Some((session, session.current_turn()?)));
    let part = turn.map_or(Ok(0), |(session, turn)| session.waits(&turn))?;
    let completion = Rc::new(Completion {
        model: request.model.clone(),
        created: call.host.now().0 / 1000,
        part,
        streams: request.stream,
        includes_usage: request.includes_usage(),
        session: chosen.is_none().then(|| call.session_id.clone()),
        written: Rc::default(),
    });
    let (agent, model) = request.agent_and_model();
    let (agent, model) = (agent.map(str::to_owned), model.map(str::to_owned));
    let waiting = session.map(|session| waiting(session)).transpose()?;
    let (conversation, message) = request.read(call.principal.user.is_none(), waiting.as_deref())?;
    let Conversation { transcript, new, .. } = conversation;
    let exchange = Exchange { user, agent, model, is_ephemeral: chosen.is_none() };
    let suffix = completion.session.as_ref().map(|session| format!(".{session}")).unwrap_or_default();
    exchange.run(call, transcript, new, message, &suffix, completion).await.map_err(with_own_names)
}

/// Names the fields of a native message as the request names them.
fn with_own_names(problem: Problem) -> Problem {
    renamed(
        problem,
        &[
            ("/client_tools", "/tools"),
            ("/max_output_tokens", "/max_completion_tokens"),
            ("/output_schema", "/response_format/json_schema/schema"),
            ("/instructions", "/messages"),
            ("/agent", "/model"),
            ("/content", "/messages"),
            ("/parts", "/messages"),
        ],
    )
}

/// One response: how it is written, and what is collected of it unless it streams.
struct Completion {
    model: String,
    created: u64,
    /// How often the turn has waited before the response.
    part: u32,
    streams: bool,
    includes_usage: bool,
    /// The session, which the ids of calls then end with.
    session: Option<SessionId>,
    written: Rc<RefCell<Whole>>,
}

/// A response that does not stream.
#[derive(Default)]
struct Whole {
    text: String,
    reasoning: String,
    /// The lengths of both up to the end of the last complete message.
    completed: (usize, usize),
    end: Option<Result<Value, FailedTurn>>,
}

impl Completion {
    /// Returns the writer of the response with this id, before which the turn has waited so often.
    fn choice(&self, id: String, waits: u32) -> Box<dyn Projection> {
        let head = Head {
            id,
            object: if self.streams { "chat.completion.chunk" } else { "chat.completion" },
            created: self.created,
            model: self.model.clone(),
        };
        Box::new(Choice {
            head,
            streams: self.streams,
            includes_usage: self.includes_usage,
            session: self.session.clone(),
            written: Rc::clone(&self.written),
            earlier_waits: waits,
            has_begun: false,
            has_ended: false,
            text: TextOut::default(),
            usage: Usage::default(),
        })
    }
}

impl TurnFormat for Completion {
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection> {
        self.choice(format!("chatcmpl-{turn}-{}", self.part), 0)
    }

    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        self.choice(format!("chatcmpl-{turn}-{waits}"), waits)
    }

    fn still_waiting(&self, turn: &TurnId, resolved: usize) -> Box<dyn Projection> {
        self.choice(format!("chatcmpl-{turn}-{}-{resolved}", self.part), 0)
    }

    fn respond<'a>(
        &'a self,
        turn: &'a TurnId,
        written: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        async move {
            if self.streams {
                return Ok(feed::response(written, "text/event-stream"));
            }
            let interrupted = |_| {
                let detail = format!("turn {turn} was interrupted; its session continues it");
                Problem::new(ErrorCode::Unavailable, detail)
            };
            written.try_for_each(|_| ready(Ok(()))).await.map_err(interrupted)?;
            let end = self.written.borrow_mut().end.take();
            match end.ok_or_else(|| interrupted(Interrupted))? {
                Ok(completion) => response::json(StatusCode::OK, &completion),
                Err(failed) => failed.response(),
            }
        }
        .boxed_local()
    }
}

/// Writes a turn as the one choice of a completion.
struct Choice {
    head: Head,
    streams: bool,
    includes_usage: bool,
    session: Option<SessionId>,
    written: Rc<RefCell<Whole>>,
    /// How often the turn has waited before the response begins.
    earlier_waits: u32,
    has_begun: bool,
    has_ended: bool,
    text: TextOut,
    usage: Usage,
}

impl Projection for Choice {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if self.has_ended {
            return;
        }
        if self.earlier_waits > 0 {
            self.earlier_waits -= u32::from(event.is_wait());
            return;
        }
        let record = match event {
            Event::Delta(Delta::Text { delta, .. }) => {
                let text = self.text.add(delta);
                return self.say(&text, out);
            }
            Event::Delta(Delta::Reasoning { delta, .. }) => return self.reason(delta, out),
            Event::Delta(Delta::ToolInput { .. } | Delta::ToolProgress(_)) => return,
            Event::Record(record) => record,
        };
        match &record.kind {
            EventKind::MessageCompleted { .. } => self.end_message(),
            EventKind::TurnResumed { .. } => self.void_message(),
            EventKind::UsageUpdated { total, .. } => self.usage = *total,
            EventKind::TurnWaiting { pending } => self.wait(&flattened(pending), out),
            EventKind::TurnFailed(end) => self.fail(end, out),
            EventKind::TurnCompleted(end) | EventKind::TurnCanceled(end) => {
                self.usage = end.usage;
                self.finish(None, finish_reason(end.stop_reason), out);
            }
            _ => {}
        }
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.has_ended
    }
}

impl Choice {
    /// Sends text, or keeps it for the whole response.
    fn say(&mut self, text: &str, out: &mut Vec<u8>) {
        match self.streams {
            true if text.is_empty() => {}
            true => self.chunk(MessageDelta { content: Some(text), ..MessageDelta::default() }, None, out),
            false => self.written.borrow_mut().text.push_str(text),
        }
    }

    /// Sends reasoning, or keeps it for the whole response.
    fn reason(&mut self, text: &str, out: &mut Vec<u8>) {
        match self.streams {
            true if text.is_empty() => {}
            true => {
                let delta = MessageDelta { reasoning_content: Some(text), ..MessageDelta::default() };
                self.chunk(delta, None, out);
            }
            false => self.written.borrow_mut().reasoning.push_str(text),
        }
    }

    fn end_message(&mut self) {
        self.text.end_message();
        let whole = &mut *self.written.borrow_mut();
        whole.completed = (whole.text.len(), whole.reasoning.len());
    }

    /// Voids the text of the current message, as far as it was not sent.
    fn void_message(&mut self) {
        if self.streams {
            return self.text.restart();
        }
        self.text.forget();
        let whole = &mut *self.written.borrow_mut();
        whole.text.truncate(whole.completed.0);
        whole.reasoning.truncate(whole.completed.1);
    }

    /// Hands out the calls of the client's tools. Other calls that wait cannot be decided here, so the text names them.
    fn wait(&mut self, pending: &[Pending], out: &mut Vec<u8>) {
        let (own, others): (Vec<_>, Vec<_>) =
            pending.iter().partition(|call| call.kind == WaitKind::External);
        if own.is_empty() {
            let names = named(others);
            let notice = self.text.add(&format!("[This turn waits for a decision or an answer: {names}.]"));
            self.say(&notice, out);
            return self.finish(None, "stop", out);
        }
        let calls = own.into_iter().enumerate().map(|(index, call)| {
            let id = match &self.session {
                Some(session) => format!("{}.{session}", call.call_id),
                None => call.call_id.to_string(),
            };
            let function = json!({"name": call.name, "arguments": call.args.to_string()});
            let mut value = json!({"id": id, "type": "function", "function": function});
            if self.streams {
                value["index"] = index.into();
            }
            value
        });
        let calls: Vec<_> = calls.collect();
        self.finish(Some(calls), "tool_calls", out);
    }

    fn fail(&mut self, end: &TurnEnd, out: &mut Vec<u8>) {
        self.has_ended = true;
        let failed = FailedTurn::new(end.error.as_ref());
        match self.streams {
            true => sse::write(failed.event(), out),
            false => self.written.borrow_mut().end = Some(Err(failed)),
        }
    }

    /// Ends the response, with these calls of tools.
    fn finish(&mut self, tool_calls: Option<Vec<Value>>, reason: &str, out: &mut Vec<u8>) {
        self.has_ended = true;
        let usage = usage(&self.usage);
        if self.streams {
            // In a chunk of their own: the `openai` package ignores calls in the chunk with the reason.
            if let Some(calls) = tool_calls.as_deref() {
                let delta = MessageDelta { tool_calls: Some(calls), ..MessageDelta::default() };
                self.chunk(delta, None, out);
            }
            self.chunk(MessageDelta::default(), Some(reason), out);
            if self.includes_usage {
                sse::write(&Chunk { head: &self.head, choices: &[], usage: Some(usage) }, out);
            }
            out.extend_from_slice(b"data: [DONE]\n\n");
            return;
        }
        let whole = &mut *self.written.borrow_mut();
        let text = Some(std::mem::take(&mut whole.text)).filter(|text| !text.is_empty());
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if let Some(calls) = tool_calls {
            message["tool_calls"] = calls.into();
        }
        if !whole.reasoning.is_empty() {
            message["reasoning_content"] = std::mem::take(&mut whole.reasoning).into();
        }
        let mut body = json!(self.head);
        body["choices"] =
            json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}]);
        body["usage"] = usage;
        whole.end = Some(Ok(body));
    }

    fn chunk(&mut self, delta: MessageDelta<'_>, finish_reason: Option<&str>, out: &mut Vec<u8>) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let delta = MessageDelta { role: is_first.then_some("assistant"), ..delta };
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason };
        sse::write(&Chunk { head: &self.head, choices: &[choice], usage: None }, out);
    }
}

fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Length | StopReason::Tokens | StopReason::MaxSteps | StopReason::MaxToolCalls => "length",
        StopReason::Deadline | StopReason::Cost => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::End | StopReason::Canceled | StopReason::Error | StopReason::Waiting => "stop",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
