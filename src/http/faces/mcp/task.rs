//! Turns as tasks: the extension `io.modelcontextprotocol/tasks` of version 2026-07-28. A client that declares it gets a
//! task as the result of a call that asks an agent, and reads the result of the turn with `tasks/get`. Nothing is stored
//! for that: a task is what the log and the state of its session say about the turn.

use super::super::children::flattened;
use super::super::exchange::named;
use super::super::task_id::TaskId;
use super::fault::Fault;
use super::message::{Asked, Era};
use super::rpc::{self, Failure};
use super::version::TASKS;
use super::{elicitation, outcome};
use crate::agent::SessionHost;
use crate::http::response::{self, Response};
use crate::http::session::call::Call;
use crate::http::session::subscription::{ResponseMode, TurnFormat};
use crate::http::session::turns;
use crate::ports::session_store::Select;
use crate::session::{
    Session,
    frame::Event,
    hub::{ByteReceiver, Projection},
};
use crate::types::{
    ErrorCode, EventKind, Pending, Problem, Record, Scope, SessionId, Timestamp, TurnEnd, TurnId, TurnStatus,
};
use futures::{FutureExt, future::LocalBoxFuture};
use http::StatusCode;
use serde_json::{Value, json};
use std::rc::{Rc, Weak};

/// How often a client should read a task, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2_000;

/// Returns the task that a request names.
///
/// # Errors
/// For a client without the extension, and for an id that no task has.
pub(super) fn of(asked: &Asked) -> Result<TaskId, Fault> {
    if !asked.reads_tasks() {
        return Err(missing());
    }
    let id =
        asked.text("taskId").ok_or_else(|| Fault::invalid_params("`taskId` must be the id of a task"))?;
    TaskId::parse(id).map_err(|_| unknown())
}

/// Returns the error for a client without the extension.
pub(super) fn missing() -> Fault {
    Fault::missing_capability(&json!({"extensions": {TASKS: {}}}))
}

fn unknown() -> Fault {
    Fault::invalid_params("unknown task")
}

/// Handles a request about one task.
pub(super) async fn run(call: &Call<'_>, asked: &Asked) -> Result<Response, Problem> {
    let result = serve(call, asked).await;
    rpc::respond(asked, call.request_id, result)
}

async fn serve(call: &Call<'_>, asked: &Asked) -> Result<Value, Failure> {
    let id = of(asked)?;
    let session = match call.session() {
        Err(problem) if problem.code == ErrorCode::NotFound => return Err(unknown().into()),
        found => found?,
    };
    let task = Task::read(session, &id)?.ok_or_else(unknown)?;
    match asked.method.as_str() {
        "tasks/get" => {
            let Era::Modern { elicits, .. } = asked.era else { return Err(unknown().into()) };
            let may_approve = call.principal.scopes.allow(Scope::Approve);
            return Ok(task.details(session, elicits.then_some(may_approve))?);
        }
        "tasks/cancel" => drop(turns::end(call.host, &id.turn).await?),
        _ => update(call, session, asked, &id).await?,
    }
    Ok(json!({}))
}

/// Passes on what the user says to calls that wait. The rest is ignored, as the extension asks for.
async fn update(call: &Call<'_>, session: &Rc<Session>, asked: &Asked, id: &TaskId) -> Result<(), Failure> {
    let responses = asked.params.get("inputResponses").and_then(Value::as_object);
    let responses = responses.ok_or_else(|| Fault::invalid_params("`inputResponses` must be an object"))?;
    let pending = flattened(&session.pending()?);
    let own = pending.iter().filter(|call| call.turn == id.turn);
    let given = own.filter_map(|call| elicitation::given(call, Some(responses.get(&*call.call_id)?)));
    for result in given {
        result.send(call, session, "", ResponseMode::Receipt).await?;
    }
    Ok(())
}

/// A turn as a task.
struct Task {
    id: TaskId,
    created_at: Timestamp,
    updated_at: Timestamp,
    state: State,
}

enum State {
    Working,
    /// The turn waits for these calls.
    Waiting(Vec<Pending>),
    Ended(Box<TurnEnd>),
}

impl Task {
    /// Reads a task; `None` if there is no such turn.
    fn read(session: &Session, id: &TaskId) -> Result<Option<Self>, Problem> {
        let of_turn = Select { turn: Some(&id.turn), ..Select::default() };
        let first = session.first(of_turn)?;
        if first.is_none() && !session.state().activity.queue.contains(&id.turn) {
            return Ok(None);
        }
        let last = session.first(Select { newest_first: true, ..of_turn })?;
        // The record of a message that was queued a moment ago may follow later.
        let updated_at = session.state().activity.totals.updated_at;
        let at = |record: Option<Record>| record.map_or(updated_at, |record| record.at);
        let state = match session.turn_ended(&id.turn)? {
            Some(end) => State::Ended(Box::new(end)),
            None if session.is_waiting(&id.turn) => {
                let pending = flattened(&session.pending()?);
                State::Waiting(pending.into_iter().filter(|call| call.turn == id.turn).collect())
            }
            None => State::Working,
        };
        Ok(Some(Self { id: id.clone(), created_at: at(first), updated_at: at(last), state }))
    }

    /// Returns the fields that every form of a task has.
    fn view(&self, status: &str) -> Value {
        json!({
            "taskId": self.id.to_string(),
            "status": status,
            "createdAt": self.created_at.to_rfc3339(),
            "lastUpdatedAt": self.updated_at.to_rfc3339(),
            "ttlMs": null,
            "pollIntervalMs": POLL_INTERVAL_MS,
        })
    }

    /// Returns the task with what belongs to its status. `forms` is whether the caller may approve calls, and `None` for a
    /// client that shows no forms.
    fn details(&self, session: &Session, forms: Option<bool>) -> Result<Value, Problem> {
        let TaskId { turn, session: session_id } = &self.id;
        Ok(match &self.state {
            State::Working => self.view("working"),
            State::Waiting(pending) => {
                let requests =
                    forms.map_or_else(Vec::new, |may_approve| elicitation::requests(pending, may_approve));
                let mut view = self.view(if requests.is_empty() { "working" } else { "input_required" });
                view["statusMessage"] = match requests.is_empty() {
                    true => outcome::waits_elsewhere(session_id, pending),
                    false => format!("The turn waits for a decision or an answer: {}.", named(pending)),
                }
                .into();
                if !requests.is_empty() {
                    let by_id = requests.into_iter().map(|(id, request)| (id.to_string(), request));
                    view["inputRequests"] = Value::Object(by_id.collect());
                }
                view
            }
            State::Ended(end) if end.status == TurnStatus::Canceled => self.view("cancelled"),
            State::Ended(end) => {
                let mut view = self.view("completed");
                view["result"] = outcome::ended(session_id, turn, end, &last_text(session, turn)?);
                view["result"]["resultType"] = "complete".into();
                view
            }
        })
    }
}

/// Returns the text of the last message of a turn.
fn last_text(session: &Session, turn: &TurnId) -> Result<String, Problem> {
    let messages =
        Select { turn: Some(turn), kinds: &["message.completed"], newest_first: true, ..Select::default() };
    Ok(match session.first(messages)?.map(|record| record.kind) {
        Some(EventKind::MessageCompleted { message }) => message.text(),
        _ => String::new(),
    })
}

/// Responds to a call at once, with the task that it has created.
pub(super) struct Created {
    request: Value,
    session: SessionId,
    host: Weak<SessionHost>,
}

impl Created {
    pub fn new(call: &Call<'_>, asked: &Asked) -> Self {
        let (request, session) = (asked.id.clone(), call.session_id.clone());
        Self { request, session, host: Rc::downgrade(call.host) }
    }
}

impl TurnFormat for Created {
    fn projection(&self, _turn: &TurnId) -> Box<dyn Projection> {
        Box::new(Unread)
    }

    fn replay(&self, turn: &TurnId, _waits: u32) -> Box<dyn Projection> {
        self.projection(turn)
    }

    fn respond<'a>(
        &'a self,
        turn: &'a TurnId,
        _written: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        async move {
            let id = TaskId { turn: turn.clone(), session: self.session.clone() };
            let session = self.host.upgrade().map(|host| host.open()).transpose()?.flatten();
            let session = session.ok_or_else(|| Problem::not_found("session"))?;
            let task = Task::read(&session, &id)?.ok_or_else(|| Problem::not_found("turn"))?;
            let mut result = task.view("working");
            result["resultType"] = "task".into();
            response::json(StatusCode::OK, &rpc::completed(&self.request, true, result))
        }
        .boxed_local()
    }
}

/// The events of a turn to which the response does not belong.
struct Unread;

impl Projection for Unread {
    fn write(&mut self, _event: Event<'_>, _out: &mut Vec<u8>) {}
}
