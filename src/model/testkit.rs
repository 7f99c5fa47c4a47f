//! Scripted providers for tests of the wires.
#![allow(clippy::unwrap_used)]

use super::{
    client::{ErrorFormatter, HttpModel},
    wire::{Endpoint, Wire},
};
use crate::{
    ports::{Clock, Http, HttpError, HttpRequest, HttpResponse, Model},
    types::{
        Effect, Message, ModelError, ModelEvent, ModelRequest, ModelResponse, Part, Role, Timestamp,
        ToolCall, ToolOutcome, ToolSpec,
    },
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    executor::block_on,
    future::{self, LocalBoxFuture},
    stream,
};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// One step of a scripted body.
pub(super) enum BodyStep {
    Bytes(Vec<u8>),
    /// Advances the clock before the next step.
    Pause(Duration),
    Break,
    Hang,
}

/// A clock on which sleeping advances the time at once.
#[derive(Default)]
pub(super) struct FakeClock {
    pub(super) now: Rc<Cell<Timestamp>>,
    pub(super) sleeps: RefCell<Vec<Duration>>,
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        self.now.get()
    }

    fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()> {
        self.sleeps.borrow_mut().push(span);
        let (now, until) = (self.now.clone(), self.now.get() + span);
        async move { now.set(now.get().max(until)) }.boxed_local()
    }
}

/// Responds to every request with the same script.
pub(super) struct FakeHttp {
    status: u16,
    headers: Vec<(String, String)>,
    script: RefCell<Option<Vec<BodyStep>>>,
    clock: Rc<FakeClock>,
    pub(super) seen: RefCell<Vec<HttpRequest>>,
}

#[async_trait(?Send)]
impl Http for FakeHttp {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.seen.borrow_mut().push(request);
        let Some(script) = self.script.borrow_mut().take() else {
            return Err(HttpError("no route with key sk-secret".into()));
        };
        let now = self.clock.now.clone();
        let body = stream::iter(script).filter_map(move |step| {
            let now = now.clone();
            async move {
                match step {
                    BodyStep::Bytes(bytes) => Some(Ok(Bytes::from(bytes))),
                    BodyStep::Break => Some(Err(HttpError("reset".into()))),
                    BodyStep::Pause(span) => {
                        now.set(now.get() + span);
                        None
                    }
                    BodyStep::Hang => future::pending().await,
                }
            }
        });
        Ok(HttpResponse { status: self.status, headers: self.headers.clone(), body: body.boxed_local() })
    }
}

pub(super) struct Rig {
    pub(super) model: HttpModel,
    pub(super) http: Rc<FakeHttp>,
    pub(super) clock: Rc<FakeClock>,
}

/// Creates a model whose server responds with `status` and `script`; without a script the connection fails.
pub(super) fn rig(wire: &'static (dyn Wire + Sync), status: u16, script: Option<Vec<BodyStep>>) -> Rig {
    let clock = Rc::new(FakeClock::default());
    let http = Rc::new(FakeHttp {
        status,
        headers: vec![("retry-after".into(), "3".into())],
        script: RefCell::new(script),
        clock: clock.clone(),
        seen: RefCell::default(),
    });
    let model = HttpModel {
        wire,
        endpoint: Endpoint { base_url: "https://host/v1/".into(), key: Some("sk-secret".into()) },
        http: http.clone(),
        clock: clock.clone(),
        errors: ErrorFormatter { provider: "fake".into(), key: Some("sk-secret".into()) },
    };
    Rig { model, http, clock }
}

/// Everything that a call produced: text, reasoning, tool input by index, and the final result.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) inputs: Vec<(String, String)>,
    pub(super) end: Result<ModelResponse, ModelError>,
}

pub(super) fn call(model: &dyn Model, request: ModelRequest) -> Outcome {
    let events: Vec<_> = block_on(model.stream(request).collect());
    let (mut text, mut thinking, mut inputs) = (String::new(), String::new(), Vec::new());
    let (mut end, mut ends) = (None, 0);
    for event in events {
        assert_eq!(ends, 0, "no event may follow the last one");
        match event {
            Ok(ModelEvent::Text(piece)) => text += &piece,
            Ok(ModelEvent::Reasoning(piece)) => thinking += &piece,
            Ok(ModelEvent::ToolInput { index, name, delta }) => {
                if inputs.len() <= index {
                    inputs.resize(index + 1, (name, String::new()));
                }
                inputs[index].1 += &delta;
            }
            Ok(ModelEvent::Done(response)) => (end, ends) = (Some(Ok(response)), 1),
            Err(error) => (end, ends) = (Some(Err(error)), 1),
        }
    }
    Outcome { text, thinking, inputs, end: end.unwrap() }
}

/// Decodes a complete response that arrives in the given chunks.
pub(super) fn decode(wire: &'static (dyn Wire + Sync), chunks: Vec<Vec<u8>>) -> Outcome {
    let script = chunks.into_iter().map(BodyStep::Bytes).collect();
    call(&rig(wire, 200, Some(script)).model, ModelRequest::default())
}

pub(super) fn decode_whole(wire: &'static (dyn Wire + Sync), body: &str) -> Outcome {
    decode(wire, vec![body.as_bytes().to_vec()])
}

/// Splits `body` at the given positions (modulo its length).
pub(super) fn cut_at(body: &str, cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|c| c % body.len()).collect();
    cuts.push(body.len());
    cuts.sort_unstable();
    let mut from = 0;
    cuts.into_iter().map(|to| body.as_bytes()[std::mem::replace(&mut from, to)..to].to_vec()).collect()
}

pub(super) fn bytewise(body: &str) -> Vec<Vec<u8>> {
    body.bytes().map(|b| vec![b]).collect()
}

pub(super) fn message(role: Role, parts: Vec<Part>) -> Rc<Message> {
    let created_at = Timestamp(0);
    Rc::new(Message {
        id: "msg".into(),
        seq: 1,
        role,
        parts,
        created_at,
        turn: "trn".into(),
        interrupted: false,
    })
}

pub(super) fn user(text: &str) -> Rc<Message> {
    message(Role::User, vec![Part::text(text)])
}

pub(super) fn tool_call(id: &str, name: &str, args: Value) -> Part {
    Part::ToolCall(ToolCall { call_id: id.into(), name: name.into(), args, invalid: None })
}

pub(super) fn result(id: &str, name: &str, outcome: ToolOutcome) -> Rc<Message> {
    message(Role::Tool, vec![Part::ToolResult { call_id: id.into(), name: name.into(), outcome }])
}

pub(super) fn ok(text: &str) -> ToolOutcome {
    ToolOutcome::Result { result: json!(text) }
}

pub(super) fn spec(name: &str) -> Rc<ToolSpec> {
    Rc::new(ToolSpec {
        name: name.into(),
        description: format!("Does {name}."),
        parameters: json!({"type":"object","required":["what"]}).into(),
        effect: Effect::ReadOnly,
        idempotent: true,
        retry_on_timeout: true,
        varies: false,
        category: Default::default(),
        control: false,
        suspends: None,
        client_may_repeat: false,
    })
}

/// Returns the JSON body of an encoded request.
pub(super) fn sent(wire: &dyn Wire, request: &ModelRequest) -> Value {
    let endpoint = Endpoint { base_url: "https://host".into(), key: None };
    serde_json::from_slice(&wire.encode(&endpoint, request).unwrap().body.unwrap()).unwrap()
}
