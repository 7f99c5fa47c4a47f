//! A2A 1.0 over JSON-RPC: `POST /a2a` for the default agent, `POST /a2a/{agent}` for another. A context is a session, a
//! task is a turn, and the messages of the assistant are its artifacts.

mod card;
mod list;
mod message;
mod modes;
#[cfg(not(target_family = "wasm"))]
mod openapi;
mod push;
mod rpc;
mod task;
mod writer;

pub use self::card::{of_agent, of_deployment};
use self::list::ListParams;
use self::message::SendParams;
#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
pub use self::push::PushSender;
use self::push::{OneConfig, PushConfig};
use self::rpc::{Asked, Fault, Method};
use self::task::{State, Task};
use self::writer::Writer;
use super::children::flattened;
use super::exchange::{Exchange, renamed};
use super::task_id::TaskId;
use super::transcript::Transcript;
use crate::agent::SessionHost;
use crate::http::face::{Face, Target};
use crate::http::gateway::TenantCall;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response};
use crate::http::route::{GET, Handler, POST, Route, Split, run, split};
use crate::http::session::call::Call;
use crate::http::session::subscription::{TurnFormat, TurnSubscription};
use crate::http::session::{feed, turns};
use crate::session::hub::{ByteReceiver, Projection};
use crate::types::{ErrorCode, Problem, Scope, SessionId, Timestamp, TurnId};
use futures::{
    FutureExt, TryStreamExt,
    future::{LocalBoxFuture, ready},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::{Rc, Weak};

/// The routes.
pub static ROUTES: &[Route] = &[
    Route::new(GET, "/.well-known/agent-card.json", Handler::Public(run!(of_deployment))),
    Route::new(GET, "/a2a/{agent}/.well-known/agent-card.json", Handler::Public(run!(of_agent))),
    split(POST, "/a2a", Scope::Chat, &FACE, run!(at_gateway), run!(run)).serves_readers().allows_slash(),
    split(POST, "/a2a/{agent}", Scope::Chat, &FACE, run!(at_gateway), run!(run))
        .serves_readers()
        .allows_slash(),
];

/// The face.
pub static FACE: Face = Face { target, problem: rpc::problem };

/// The parameters of a request about one task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OneTask {
    id: String,
    history_length: Option<usize>,
}

/// Reads which session a request concerns. Requests that concern none were answered in the gateway.
fn target(request: &Request, params: &Params) -> Result<Target, Problem> {
    let is_known =
        |fault| Problem::internal(format!("the gateway passed on a request with a fault: {fault:?}"));
    let asked = Asked::read(request).map_err(is_known)?;
    let session = session_of(&asked).map_err(is_known)?;
    let agent = Some(params.get("agent")).filter(|agent| !agent.is_empty()).map(str::to_owned);
    let controls = !matches!(asked.method, Method::Send | Method::Stream);
    Ok(Target { session, agent, user: None, controls })
}

fn session_of(asked: &Asked) -> Result<Option<SessionId>, Fault> {
    let found = match asked.method {
        Method::Send | Method::Stream => asked.params::<SendParams>()?.message.session(),
        Method::Get | Method::Cancel | Method::Subscribe => {
            TaskId::parse(&asked.params::<OneTask>()?.id).map(|id| Some(id.session))
        }
        Method::CreatePush | Method::GetPush | Method::ListPush | Method::DeletePush => {
            TaskId::parse(&asked.params::<OneConfig>()?.task_id).map(|id| Some(id.session))
        }
        Method::List => {
            let id = asked.params::<ListParams>()?.context_id;
            let fault = || Problem::field("/params/contextId", "not the id of a context");
            SessionId::parse(&id).map(Some).ok_or_else(fault)
        }
    };
    found.map_err(|problem| Fault::of(problem, asked.id.clone()))
}

/// Answers requests that one session cannot serve.
pub async fn at_gateway(call: &TenantCall<'_>) -> Result<Split, Problem> {
    let served = served_here(call).await;
    Ok(served.unwrap_or_else(|fault| Some(fault.respond(call.request_id))).into())
}

/// Responds to a request that concerns no session, or more than one.
async fn served_here(call: &TenantCall<'_>) -> Result<Option<Response>, Fault> {
    let asked = Asked::read(call.request)?;
    if !asked.method.only_reads() && !call.caller.scopes.allow(Scope::Chat) {
        let problem = Problem::new(ErrorCode::MissingScope, "this method needs the scope chat");
        return Err(Fault::of(problem, asked.id));
    }
    if !call.gateway.config.push_notifications && concerns_push(&asked)? {
        return Err(push::not_enabled(&asked.id));
    }
    if asked.method == Method::List {
        let params: ListParams = asked.params()?;
        if params.context_id.is_empty() {
            let found = list::of_caller(call, &asked, &params).await;
            let found = found.map_err(|problem| Fault::of(problem, asked.id.clone()))?;
            return respond(&asked, &found).map(Some);
        }
    }
    session_of(&asked).map(|_| None)
}

/// Returns whether a request concerns push notifications.
fn concerns_push(asked: &Asked) -> Result<bool, Fault> {
    Ok(match asked.method {
        Method::Send | Method::Stream => {
            asked.params::<SendParams>()?.configuration.task_push_notification_config.is_some()
        }
        Method::CreatePush | Method::GetPush | Method::ListPush | Method::DeletePush => true,
        _ => false,
    })
}

/// Serves a request in its session.
pub async fn run(call: &Call<'_>) -> Result<Response, Problem> {
    let served = match Asked::read(call.request) {
        Ok(asked) => serve(call, Rc::new(asked)).await,
        Err(fault) => Err(fault),
    };
    Ok(served.unwrap_or_else(|fault| fault.respond(call.request_id)))
}

async fn serve(call: &Call<'_>, asked: Rc<Asked>) -> Result<Response, Fault> {
    let fault = |problem: Problem| Fault::of(problem, asked.id.clone());
    match asked.method {
        Method::Send | Method::Stream => send(call, &asked).await,
        Method::List => {
            let found = list::of_context(call, &asked.params()?).map_err(fault)?;
            respond(&asked, &found)
        }
        Method::Get => {
            let OneTask { id, history_length } = asked.params()?;
            let found = own_task(call, &id).map_err(fault)?.1;
            respond(&asked, &found.view(history_length, true))
        }
        Method::Cancel => {
            let (id, task) = own_task(call, &asked.params::<OneTask>()?.id).map_err(fault)?;
            if task.state.is_final() {
                return Err(Fault::over(-32002, "TASK_NOT_CANCELABLE", &asked.id));
            }
            let task = cancel(call, &id).await.map_err(fault)?;
            respond(&asked, &task.view(None, true))
        }
        Method::Subscribe => {
            let (_, task) = own_task(call, &asked.params::<OneTask>()?.id).map_err(fault)?;
            if task.state.is_final() {
                return Err(Fault::over(-32004, "UNSUPPORTED_OPERATION", &asked.id));
            }
            subscribe(call, task, &asked).await.map_err(fault)
        }
        Method::CreatePush => {
            let config: PushConfig = asked.params()?;
            let (id, task) = own_task(call, &config.task_id).map_err(fault)?;
            if task.state.is_final() {
                return Err(Fault::over(-32004, "UNSUPPORTED_OPERATION", &asked.id));
            }
            let created = push::create(call, &id, config).map_err(fault)?;
            respond(&asked, &created)
        }
        Method::GetPush | Method::ListPush | Method::DeletePush => {
            let one: OneConfig = asked.params()?;
            let (id, _) = own_task(call, &one.task_id).map_err(fault)?;
            let session = call.session().map_err(fault)?;
            let found = match asked.method {
                Method::ListPush => Ok(push::list(session, &id)),
                Method::DeletePush => push::delete(call, session, &one.key(&id)),
                _ => push::find(session, &id, &one.key(&id)),
            };
            respond(&asked, &found.map_err(fault)?)
        }
    }
}

fn respond(asked: &Asked, result: &Value) -> Result<Response, Fault> {
    response::json(StatusCode::OK, &asked.result(result))
        .map_err(|problem| Fault::of(problem, asked.id.clone()))
}

/// Returns a task of the caller.
fn own_task(call: &Call<'_>, id: &str) -> Result<(TaskId, Task), Problem> {
    let id = TaskId::parse(id)?;
    let session = call.session().map_err(|problem| match problem.code {
        ErrorCode::NotFound => Problem::not_found("task"),
        _ => problem,
    })?;
    let agent = call.params.get("agent");
    if !agent.is_empty() && *session.state().meta.agent != *agent {
        return Err(Problem::not_found("task"));
    }
    let task = Task::read(session, &id)?;
    Ok((id, task))
}

/// Posts a message, or what it says to the calls of a task that waits.
async fn send(call: &Call<'_>, asked: &Rc<Asked>) -> Result<Response, Fault> {
    let fault = |problem: Problem| Fault::of(problem, asked.id.clone());
    let SendParams { message, configuration } = asked.params()?;
    let user = call.named_user(None).map_err(fault)?;
    let task = message.task().map_err(fault)?;
    let pending = match &task {
        None => None,
        Some(id) => {
            let (_, task) = own_task(call, &id.to_string()).map_err(fault)?;
            if task.state != State::InputRequired {
                let detail = "the task does not wait for input; send a message without `taskId`";
                return Err(fault(Problem::new(ErrorCode::NotWaiting, detail)));
            }
            Some(call.session().and_then(|session| Ok(flattened(&session.pending()?))).map_err(fault)?)
        }
    };
    let format = Format {
        streams: asked.method == Method::Stream,
        returns_at_once: configuration.return_immediately,
        history: configuration.history_length,
        ..Format::new(call, asked)
    };
    let (new, mut body) = message.read(pending.as_deref()).map_err(fault)?;
    if let Some(config) = configuration.task_push_notification_config {
        let webhook = config.checked(call.host, "/params/configuration/taskPushNotificationConfig");
        let webhook = webhook.map_err(fault)?;
        match task {
            None => body.webhook = Some(webhook),
            Some(id) => {
                let session = call.session().map_err(fault)?;
                call.host.put_webhook(session, webhook.of(id.turn)).map_err(fault)?;
            }
        }
    }
    let agent = Some(call.params.get("agent")).filter(|agent| !agent.is_empty()).map(str::to_owned);
    let exchange = Exchange { user, agent, model: None, is_ephemeral: false };
    exchange
        .run(call, Transcript::default(), new, body, "", Rc::new(format))
        .await
        .map_err(with_own_names)
        .map_err(fault)
}

/// Names the fields of a native message as the request names them.
fn with_own_names(problem: Problem) -> Problem {
    renamed(
        problem,
        &[
            ("/agent", "/params/message/contextId"),
            ("/content", "/params/message/parts"),
            ("/parts", "/params/message/parts"),
        ],
    )
}

/// Aborts the turn of a task, or removes it from the queue.
async fn cancel(call: &Call<'_>, id: &TaskId) -> Result<Task, Problem> {
    let session = call.session()?;
    let has_begun = session.is_current_turn(&id.turn);
    turns::end(call.host, &id.turn).await?;
    if has_begun {
        return Task::read(session, id);
    }
    // The record of its end may wait for the end of the message that is being streamed.
    let mut task = Task::new(id.clone(), call.host.now());
    task.state = State::Canceled;
    Ok(task)
}

/// Follows a task until it ends: first the task as it is, then its changes.
async fn subscribe(call: &Call<'_>, task: Task, asked: &Rc<Asked>) -> Result<Response, Problem> {
    let session = call.session()?;
    let turn = task.id.turn.clone();
    let format = Rc::new(Format { streams: true, ..Format::new(call, asked) });
    let mut writer = Writer::new(Rc::clone(asked), task);
    writer.outlasts_waits = true;
    TurnSubscription::following(call, session, &turn, Box::new(writer), format)?.respond(session).await
}

/// How the task of a request is written.
struct Format {
    asked: Rc<Asked>,
    session: SessionId,
    host: Weak<SessionHost>,
    asked_at: Timestamp,
    streams: bool,
    returns_at_once: bool,
    history: Option<usize>,
}

impl Format {
    fn new(call: &Call<'_>, asked: &Rc<Asked>) -> Self {
        Self {
            asked: Rc::clone(asked),
            session: call.session_id.clone(),
            host: Rc::downgrade(call.host),
            asked_at: call.host.now(),
            streams: false,
            returns_at_once: false,
            history: None,
        }
    }

    fn writer(&self, turn: &TurnId) -> Writer {
        let id = TaskId { turn: turn.clone(), session: self.session.clone() };
        Writer::new(Rc::clone(&self.asked), Task::new(id, self.asked_at))
    }

    fn task(&self, turn: &TurnId) -> Result<Task, Problem> {
        let id = TaskId { turn: turn.clone(), session: self.session.clone() };
        read(&self.host, &id)
    }
}

fn read(host: &Weak<SessionHost>, id: &TaskId) -> Result<Task, Problem> {
    let session = host.upgrade().map(|host| host.open()).transpose()?.flatten();
    Task::read(&*session.ok_or_else(|| Problem::not_found("task"))?, id)
}

impl TurnFormat for Format {
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection> {
        let mut writer = self.writer(turn);
        if self.streams {
            // The host holds the stream, which holds the writer.
            let host = Weak::clone(&self.host);
            writer.before = Some(Box::new(move |id| read(&host, id).ok().map(|task| task.view(None, true))));
        }
        Box::new(writer)
    }

    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        let mut writer = self.writer(turn);
        writer.earlier_waits = waits;
        Box::new(writer)
    }

    fn joins_running_turn(&self) -> bool {
        true
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
            if !self.returns_at_once {
                // An interrupted turn continues: the task says so.
                events.try_for_each(|_| ready(Ok(()))).await.unwrap_or_default();
            }
            let task = self.task(turn)?;
            response::json(
                StatusCode::OK,
                &self.asked.result(&json!({"task": task.view(self.history, true)})),
            )
        }
        .boxed_local()
    }
}
