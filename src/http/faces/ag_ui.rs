//! AG-UI: `POST /ag-ui`. A thread is a session; a run is a turn, or the part of a turn after an interrupt.

#[cfg(not(target_family = "wasm"))]
mod openapi;
mod request;
mod writer;

#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
use self::request::{Asked, RunInput};
use self::writer::Writer;
use super::exchange::{Exchange, waiting};
use crate::agent::SessionHost;
use crate::http::body;
use crate::http::face::{Face, Target};
use crate::http::owner::session_id;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response};
use crate::http::route::{POST, Route, face, run};
use crate::http::session::call::Call;
use crate::http::session::feed;
use crate::http::session::subscription::{TurnFormat, TurnSubscription};
use crate::session::{
    Session,
    hub::{ByteReceiver, Projection},
};
use crate::types::{CallId, Part, Problem, Role, Scope, TurnId};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    rc::{Rc, Weak},
};

/// Most messages of a snapshot.
const MAX_SNAPSHOT: usize = 200;
/// Maximum size of the records of these messages, in bytes.
const MAX_SNAPSHOT_BYTES: usize = 4 << 20;

/// The routes.
pub static ROUTES: &[Route] = &[face(POST, "/ag-ui", Scope::Chat, &FACE, run!(run))];

/// The face.
pub static FACE: Face = Face { target, problem: response::problem };

fn target(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let input: RunInput = body::json(request)?;
    let session = session_id(&input.thread_id, "/threadId")?;
    Ok(Target { session: Some(session), agent: input.agent(), user: input.user(), ..Target::default() })
}

/// How a run is written.
struct Run {
    thread: String,
    run: String,
    host: Weak<SessionHost>,
    /// The messages so far, for a client that has no new message.
    snapshot: Cell<Option<Value>>,
    /// The calls whose results the client has in its messages.
    answered: Vec<CallId>,
}

impl Run {
    fn writer(&self, waits: u32) -> Writer {
        // The host holds the reader's stream, which holds this.
        let host = Weak::clone(&self.host);
        let read_state = move || {
            let session = host.upgrade().and_then(|host| host.open().ok().flatten());
            session.map(|session| session.state().meta.state.clone()).unwrap_or_default()
        };
        let (thread, run, snapshot) = (self.thread.clone(), self.run.clone(), self.snapshot.take());
        let mut writer = Writer::new(thread, run, Box::new(read_state), waits, snapshot);
        writer.answered.clone_from(&self.answered);
        writer
    }
}

impl TurnFormat for Run {
    fn projection(&self, _turn: &TurnId) -> Box<dyn Projection> {
        Box::new(self.writer(0))
    }

    fn replay(&self, _turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        Box::new(self.writer(waits))
    }

    fn respond<'a>(
        &'a self,
        _turn: &'a TurnId,
        events: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        ready(Ok(feed::response(events, "text/event-stream"))).boxed_local()
    }
}

/// `POST /ag-ui`: posts the last message of the user, continues after an interrupt or the calls of the client's tools, or
/// follows the thread as it is: the running turn, or what a turn waits for.
pub async fn run(call: &Call<'_>) -> Result<Response, Problem> {
    let input: RunInput = body::json(call.request)?;
    let (agent, user) = (input.agent(), call.named_user(input.user())?);
    let session = call.find(user.as_deref())?;
    let pending = session.map(|session| waiting(session)).transpose()?.unwrap_or_default();
    let (thread, run, host) = (input.thread_id.clone(), input.run_id.clone(), Rc::downgrade(call.host));
    let Asked { transcript, new, message, answered } = input.read(call.principal.user.is_none(), &pending)?;
    let run = Run { thread, run, host, snapshot: Cell::default(), answered };
    if let Some(new) = new {
        let exchange = Exchange { user, agent, model: None, is_ephemeral: false };
        return exchange.run(call, transcript, new, message, "", Rc::new(run)).await;
    }
    let Some(session) = session else {
        let detail = "expected a message of the user, a result of a tool, or an entry in `resume`";
        return Err(Problem::field("/messages", detail));
    };
    let turn = session.current_turn();
    // A running turn is sent from its start.
    let sent = turn.as_ref().filter(|turn| !session.is_waiting(turn));
    let run = Run { snapshot: Some(messages(session, sent)?).into(), ..run };
    let Some(turn) = turn else {
        let mut events = Vec::new();
        run.writer(0).write_idle(&mut events);
        return Ok(feed::of_bytes(call, events));
    };
    TurnSubscription::current(call, session, &turn, Rc::new(run))?.respond(session).await
}

/// Returns the newest messages of the conversation; of this turn only the message that started it.
fn messages(session: &Session, turn: Option<&TurnId>) -> Result<Value, Problem> {
    let messages = session.newest_messages(turn, MAX_SNAPSHOT, MAX_SNAPSHOT_BYTES)?;
    let shown = messages.into_iter().map(|message| match message.role {
        Role::User => json!({"id": message.id, "role": "user", "content": message.prompt_text()}),
        Role::Assistant => {
            let calls: Vec<_> = message
                .calls()
                .map(|call| {
                    let function = json!({"name": call.name, "arguments": call.args.to_string()});
                    json!({"id": call.call_id, "type": "function", "function": function})
                })
                .collect();
            let mut shown = json!({"id": message.id, "role": "assistant", "content": message.text()});
            if !calls.is_empty() {
                shown["toolCalls"] = calls.into();
            }
            shown
        }
        Role::Tool => {
            let result = message.parts.iter().find_map(|part| match part {
                Part::ToolResult { call_id, outcome, .. } => {
                    Some((call_id.to_string(), outcome.model_text()))
                }
                _ => None,
            });
            let (call_id, text) = result.unwrap_or_default();
            json!({"id": format!("result-{call_id}"), "role": "tool", "toolCallId": call_id, "content": text})
        }
    });
    Ok(shown.collect())
}
