//! OpenAI's Responses: `POST /v1/responses`. Models are the names of agents, conversations are sessions.
//!
//! A response is a part of a turn: from its start, or from a decision or a result, until it ends or waits again. It is
//! not stored: it is written from the log of the session, whose id is part of its own.

mod chunks;
mod echo;
mod id;
#[cfg(not(target_family = "wasm"))]
mod openapi;
mod partial;
mod request;
mod socket;
mod writer;
mod written;

use self::echo::defaults;
use self::id::ResponseId;
#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
use self::request::ResponseRequest;
pub use self::socket::ResponsesSocket;
use self::writer::Writer;
use self::written::Written;
use super::exchange::{Exchange, New, renamed, waiting};
use super::openai::{self, messages::Conversation};
use crate::http::body;
use crate::http::face::{Face, Target};
use crate::http::pattern::Params;
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response};
use crate::http::route::{DELETE, GET, Handler, POST, Route, about, face, run};
use crate::http::session::call::Call;
use crate::http::session::subscription::{TurnFormat, TurnSubscription};
use crate::http::session::{feed, turns};
use crate::ports::session_store::{PAGE_RECORDS, Select};
use crate::session::{
    Session,
    hub::{ByteReceiver, Interrupted, Projection},
};
use crate::types::{
    CallId, Cursor, Decision, ErrorCode, EventKind, Message, Part, Problem, Scope, Timestamp, TurnId,
};
use futures::{
    FutureExt, TryStreamExt,
    future::{LocalBoxFuture, ready},
};
use http::StatusCode;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

/// The routes.
pub static ROUTES: &[Route] = &[
    face(POST, "/v1/responses", Scope::Chat, &CREATE, run!(create)),
    about(GET, "/v1/responses/{response}", Scope::Read, &ONE, run!(show)),
    about(DELETE, "/v1/responses/{response}", Scope::Chat, &ONE, run!(delete)),
    about(POST, "/v1/responses/{response}/cancel", Scope::Chat, &ONE, run!(cancel)),
    about(GET, "/v1/responses/{response}/input_items", Scope::Read, &ONE, run!(input_items)),
    Route::new(GET, "/v1/responses", Handler::Socket(&ResponsesSocket)).problems(openai::problem),
];

/// The face of a request that creates a response.
pub static CREATE: Face = Face { target: of_body, problem: openai::problem };
/// The face of a request about a response.
pub static ONE: Face = Face { target: of_path, problem: openai::problem };

fn of_body(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let asked: ResponseRequest = body::json(request)?;
    let session = asked.session()?.or_else(|| asked.waiting_session());
    let agent = openai::agent_and_model(&asked.model).0.map(str::to_owned);
    Ok(Target { session, agent, user: asked.user, ..Target::default() })
}

fn of_path(_request: &Request, params: &Params) -> Result<Target, Problem> {
    let id = ResponseId::parse(params.get("response"))?;
    Ok(Target { session: Some(id.session), ..Target::default() })
}

/// How one request reads a response.
struct Reading {
    id: ResponseId,
    fields: Value,
    /// What ids of calls end with for the client.
    suffix: String,
    asked_at: Timestamp,
    /// Whether the client reads events.
    streams: bool,
    /// Whether the client does not wait.
    is_background: bool,
    /// The number of the last event that the client has.
    after: Option<u64>,
    /// The calls whose results the client has sent.
    answered: Vec<CallId>,
    written: RefCell<Option<Rc<RefCell<Written>>>>,
}

impl Reading {
    fn of(call: &Call<'_>, id: ResponseId, fields: Value) -> Self {
        let asked_at = call.host.now();
        Self {
            id,
            fields,
            suffix: String::new(),
            asked_at,
            streams: false,
            is_background: false,
            after: None,
            answered: Vec::new(),
            written: RefCell::default(),
        }
    }

    /// Creates the writer of a part of a turn, of which this many parts are skipped.
    fn writer(&self, turn: &TurnId, part: u32, skip: u32) -> Writer {
        self.writer_of(&ResponseId { turn: turn.clone(), part, ..self.id.clone() }, skip)
    }

    fn writer_of(&self, id: &ResponseId, skip: u32) -> Writer {
        let written = Written::new(id, self.asked_at, &self.suffix, self.fields.clone());
        let written = Rc::new(RefCell::new(written));
        self.written.replace(Some(Rc::clone(&written)));
        let mut writer = Writer::new(written, self.streams);
        (writer.after, writer.skip) = (self.after, skip);
        writer.answered.clone_from(&self.answered);
        writer
    }
}

impl TurnFormat for Reading {
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection> {
        Box::new(self.writer(turn, self.id.part, 0))
    }

    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        Box::new(self.writer(turn, waits, waits))
    }

    fn still_waiting(&self, turn: &TurnId, resolved: usize) -> Box<dyn Projection> {
        Box::new(self.writer_of(&ResponseId { turn: turn.clone(), resolved, ..self.id.clone() }, 0))
    }

    fn respond<'a>(
        &'a self,
        turn: &'a TurnId,
        events: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        async move {
            if self.streams {
                return Ok(feed::response(events, "text/event-stream"));
            }
            let interrupted = |_| {
                let id = ResponseId { turn: turn.clone(), ..self.id.clone() };
                let detail =
                    format!("the response was interrupted and continues; read it at /v1/responses/{id}");
                Problem::new(ErrorCode::Unavailable, detail)
            };
            if !self.is_background {
                events.try_for_each(|_| ready(Ok(()))).await.map_err(interrupted)?;
            }
            let written = self.written.borrow().clone().ok_or_else(|| interrupted(Interrupted))?;
            let response = written.borrow().response();
            response::json(StatusCode::OK, &response)
        }
        .boxed_local()
    }
}

/// `POST /v1/responses`.
pub async fn create(call: &Call<'_>) -> Result<Response, Problem> {
    let asked: ResponseRequest = body::json(call.request)?;
    let chosen = asked.session()?;
    // Before the body is consumed.
    let (streams, is_background, fields) = (asked.stream, asked.is_background(), asked.echo());
    let is_ephemeral = chosen.is_none() && (!asked.is_stored() || asked.waiting_session().is_some());
    let (agent, model) = openai::agent_and_model(&asked.model);
    let (agent, model) = (agent.map(str::to_owned), model.map(str::to_owned));
    let user = call.named_user(asked.user.clone())?;
    let previous = asked.previous_response_id.clone();
    asked.check_storage()?;
    let session = call.find(user.as_deref())?;
    let waiting = session.map(|session| waiting(session)).transpose()?;
    let (conversation, message) = asked.read(call.principal.user.is_none(), waiting.as_deref())?;
    if let Some(previous) = previous {
        let previous = ResponseId::parse(&previous)?;
        check_newest(session.map(Rc::as_ref), &previous)?;
    }
    let continued = session.filter(|_| matches!(conversation.new, New::Results(_)));
    let (mut part, mut answered) = (0, Vec::new());
    if let Some(session) = continued
        && let Some(turn) = session.current_turn()
    {
        part = session.waits(&turn)?;
        let answers = session.resolved_since_wait(&turn)?.into_iter().filter_map(|kind| match kind {
            EventKind::AnswerGiven { call_id, .. } => Some(call_id),
            _ => None,
        });
        answered.extend(answers);
    }
    let suffix = if is_ephemeral { format!(".{}", call.session_id) } else { String::new() };
    answered.extend(conversation.answered(&suffix));
    let id = ResponseId { turn: TurnId::none(), part, resolved: 0, session: call.session_id.clone() };
    let reading = Reading::of(call, id, fields);
    let reading = Reading { suffix: suffix.clone(), streams, is_background, answered, ..reading };
    let Conversation { transcript, new, .. } = conversation;
    let exchange = Exchange { user, agent, model, is_ephemeral };
    exchange.run(call, transcript, new, message, &suffix, Rc::new(reading)).await.map_err(with_own_names)
}

/// Checks that a response belongs to the newest turn of its session: a conversation has no branches.
fn check_newest(session: Option<&Session>, previous: &ResponseId) -> Result<(), Problem> {
    let Some(session) = session else { return Err(Problem::not_found("response")) };
    let started = Select { kinds: &["turn.started"], newest_first: true, ..Select::default() };
    match session.first(started)? {
        Some(record) if record.turn.as_ref() == Some(&previous.turn) => Ok(()),
        _ => {
            let detail =
                "not the newest response of its conversation; fork the session to continue from here";
            Err(Problem::field("/previous_response_id", detail))
        }
    }
}

/// Names the fields of a native message as the request names them.
fn with_own_names(problem: Problem) -> Problem {
    renamed(
        problem,
        &[
            ("/client_tools", "/tools"),
            ("/output_schema", "/text/format/schema"),
            ("/agent", "/model"),
            ("/content", "/input"),
            ("/parts", "/input"),
        ],
    )
}

/// `GET /v1/responses/{response}`: the response so far, or with `?stream=true` its events, of which
/// `?starting_after=` skips those that the client has.
pub async fn show(call: &Call<'_>) -> Result<Response, Problem> {
    let id = ResponseId::parse(call.params.get("response"))?;
    let session = call.session()?;
    if call.request.query("stream").as_deref() != Some("true") {
        return response::json(StatusCode::OK, &whole(call, session, &id)?);
    }
    let after = match call.request.query("starting_after").map(|after| after.parse()) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => return Err(Problem::field("?starting_after", "expected a number")),
    };
    // Refuses the id of a response that does not exist.
    whole(call, session, &id)?;
    let fields = defaults(&session.state().meta.agent);
    let reading = Reading { streams: true, after, ..Reading::of(call, id.clone(), fields) };
    if id.resolved > 0 {
        let mut events = Vec::new();
        partial::write(session, &id, &mut reading.writer_of(&id, 0), &mut events)?;
        return Ok(feed::of_bytes(call, events));
    }
    TurnSubscription::replay(call, session, &id.turn, Rc::new(reading), id.part)?.respond(session).await
}

/// Returns a response as it is now.
fn whole(call: &Call<'_>, session: &Rc<Session>, id: &ResponseId) -> Result<Value, Problem> {
    let fields = defaults(&session.state().meta.agent);
    let reading = Reading::of(call, id.clone(), fields);
    if id.resolved > 0 {
        let mut writer = reading.writer_of(id, 0);
        partial::write(session, id, &mut writer, &mut Vec::new())?;
        return Ok(writer.written.borrow().response());
    }
    let mut writer = reading.writer(&id.turn, id.part, id.part);
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let (frames, more) = session.replay(cursor, Some(&id.turn), true, PAGE_RECORDS)?;
        for frame in &frames {
            frame.read(|event| writer.write(event, &mut Vec::new()))?;
        }
        next = more;
    }
    let is_queued = id.part == 0 && session.state().activity.queue.contains(&id.turn);
    let written = writer.written.borrow();
    if !written.has_begun() && !is_queued {
        return Err(Problem::not_found("response"));
    }
    let mut response = written.response();
    if is_queued {
        response["status"] = "queued".into();
    }
    Ok(response)
}

/// `POST /v1/responses/{response}/cancel`.
pub async fn cancel(call: &Call<'_>) -> Result<Response, Problem> {
    let id = ResponseId::parse(call.params.get("response"))?;
    let session = call.session()?;
    whole(call, session, &id)?;
    // An earlier part of the turn is complete. The newest one is, too, while the turn waits, and then any that follows it
    // because of a decision.
    let waits = id.part + u32::from(session.is_waiting(&id.turn) && id.resolved == 0);
    if waits == session.waits(&id.turn)? && (id.resolved == 0 || session.is_waiting(&id.turn)) {
        turns::end(call.host, &id.turn).await?;
    }
    response::json(StatusCode::OK, &whole(call, session, &id)?)
}

/// `DELETE /v1/responses/{response}`. Erases its session, which must have no other turn.
pub async fn delete(call: &Call<'_>) -> Result<Response, Problem> {
    let id = ResponseId::parse(call.params.get("response"))?;
    let session = call.session()?;
    whole(call, session, &id)?;
    let mut started = session.records(Select { kinds: &["turn.started"], ..Select::default() });
    if !started
        .try_fold(true, |own, record| Ok::<_, Problem>(own && record?.turn.as_ref() == Some(&id.turn)))?
    {
        let detail = "its conversation has other responses; delete the session with DELETE /v1/sessions/{id}";
        return Err(Problem::new(ErrorCode::AlreadyExists, detail));
    }
    drop(started);
    call.host.erase(&call.principal.tenant, call.session_id).await?;
    response::json(StatusCode::OK, &json!({"id": id.to_string(), "object": "response", "deleted": true}))
}

/// `GET /v1/responses/{response}/input_items`.
pub async fn input_items(call: &Call<'_>) -> Result<Response, Problem> {
    let id = ResponseId::parse(call.params.get("response"))?;
    let session = call.session()?;
    whole(call, session, &id)?;
    let kinds = &["turn.started", "turn.waiting", "answer.given", "approval.decided"];
    let mut items = Vec::new();
    let mut waits = 0;
    for record in session.records(Select { turn: Some(&id.turn), kinds, ..Select::default() }) {
        match record?.kind {
            EventKind::TurnWaiting { .. } => waits += 1,
            _ if waits != id.part => {}
            EventKind::TurnStarted { message } => items.push(input_message(&message)),
            EventKind::AnswerGiven { call_id, answer, .. } => {
                let output = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
                let id = format!("fco_{call_id}");
                items.push(json!({
                    "type": "function_call_output", "id": id, "call_id": call_id, "output": output,
                    "status": "completed",
                }));
            }
            EventKind::ApprovalDecided { call_id, decision, reason, .. } => items.push(json!({
                "type": "mcp_approval_response", "id": format!("mcpa_{call_id}"),
                "approval_request_id": format!("mcpr_{call_id}"),
                "approve": decision != Decision::Decline, "reason": reason,
            })),
            _ => {}
        }
    }
    if id.resolved > 0 {
        items.truncate(id.resolved);
    }
    let end = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (end(items.first()), end(items.last()));
    response::json(
        StatusCode::OK,
        &json!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": false}),
    )
}

fn input_message(message: &Message) -> Value {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({"type": "input_text", "text": text})),
        Part::File(file) => Some(json!({"type": "input_file", "file_id": file.r#ref, "filename": file.name})),
        _ => None,
    });
    json!({
        "type": "message", "id": message.id, "role": "user", "status": "completed",
        "content": parts.collect::<Vec<_>>(),
    })
}
