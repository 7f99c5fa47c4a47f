//! The UI message stream of Vercel's AI SDK, for `useChat` and its transport: `POST /api/chat`. A chat is a session, and a
//! turn is one message of the assistant.

#[cfg(not(target_family = "wasm"))]
mod openapi;
mod request;
mod socket;
mod writer;

#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
use self::request::{Asked, ChatRequest, Decided};
pub use self::socket::ChatSocket;
use self::writer::Writer;
use super::children::flattened;
use super::exchange::{Exchange, New};
use crate::http::body;
use crate::http::face::{Face, Target};
use crate::http::owner::session_id;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response, ResponseExt};
use crate::http::route::{GET, Handler, POST, Route, about, face, run};
use crate::http::session::call::Call;
use crate::http::session::subscription::{TurnFormat, TurnSubscription};
use crate::http::session::{feed, turns};
use crate::session::{
    Session,
    hub::{ByteReceiver, Projection},
};
use crate::types::{ErrorCode, Problem, Scope, SessionId, SessionStatus, TurnId, WaitKind};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use http::StatusCode;
use serde_json::Value;
use std::rc::Rc;

/// The routes.
pub static ROUTES: &[Route] = &[
    Route::new(GET, "/api/chat", Handler::Socket(&ChatSocket)),
    face(POST, "/api/chat", Scope::Chat, &MESSAGE, run!(post)),
    about(GET, "/api/chat/{id}/stream", Scope::Read, &ONE, run!(resume)),
    about(POST, "/api/chat/{id}/stop", Scope::Chat, &ONE, run!(stop)),
];

/// The face of a request that posts a message.
pub static MESSAGE: Face = Face { target: of_body, problem: response::problem };
/// The face of a request about a chat.
pub static ONE: Face = Face { target: of_path, problem: response::problem };

fn of_body(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let ChatRequest { id, agent, user, .. } = body::json(request)?;
    Ok(Target { session: Some(session_id(&id, "/id")?), agent, user, ..Target::default() })
}

fn of_path(_request: &Request, params: &Params) -> Result<Target, Problem> {
    let session = SessionId::parse(params.get("id")).ok_or_else(|| Problem::not_found("session"))?;
    Ok(Target { session: Some(session), ..Target::default() })
}

/// How a turn is written.
struct UiStream {
    session: SessionId,
    /// The names of the tools that the client runs.
    client_tools: Vec<String>,
    /// Whether the client has the message up to the last wait.
    is_continued: bool,
    /// The calls that the client has decided in the message.
    decided: Vec<Decided>,
    /// The chunks that mark what the client has answered as done.
    answered: Vec<Value>,
}

impl UiStream {
    fn writer(&self, turn: &TurnId) -> Writer {
        Writer::new(
            &self.session,
            turn,
            self.client_tools.clone(),
            self.decided.clone(),
            self.answered.clone(),
        )
    }
}

impl TurnFormat for UiStream {
    fn projection(&self, turn: &TurnId) -> Box<dyn Projection> {
        Box::new(self.writer(turn))
    }

    fn replay(&self, turn: &TurnId, waits: u32) -> Box<dyn Projection> {
        let writer = self.writer(turn);
        Box::new(if self.is_continued { writer.after(waits) } else { writer.through(waits) })
    }

    fn respond<'a>(
        &'a self,
        _turn: &'a TurnId,
        chunks: ByteReceiver,
    ) -> LocalBoxFuture<'a, Result<Response, Problem>> {
        let response =
            feed::response(chunks, "text/event-stream").with("x-vercel-ai-ui-message-stream", "v1");
        ready(Ok(response)).boxed_local()
    }
}

/// `POST /api/chat`: posts the last message of the user, or continues the last message of the assistant.
pub async fn post(call: &Call<'_>) -> Result<Response, Problem> {
    let asked: ChatRequest = body::json(call.request)?;
    let user = call.named_user(asked.user.clone())?;
    let session = call.find(user.as_deref())?;
    let mut client_tools = asked.client_tools();
    let agent = asked.agent.clone();
    let pending = session.map(|session| session.pending()).transpose()?.unwrap_or_default();
    let mut pending = flattened(&pending);
    pending.retain(|call| call.kind != WaitKind::Subagent);
    let Asked { transcript, new, message, decided, answered } =
        asked.read(|id| pending.iter().find(|call| call.call_id == *id).map(|call| call.kind))?;
    // A new message ends a turn that waits, and with it the tools of that turn.
    let continued = session.filter(|_| matches!(new, New::Results(_)));
    client_tools.extend(tools_of_clients(call, continued));
    let session_id = call.session_id.clone();
    let format = UiStream { session: session_id, client_tools, is_continued: true, decided, answered };
    if let (New::Results(results), Some(session)) = (&new, session)
        && results.is_empty()
    {
        return follow_on(call, session, format).await;
    }
    let format = Rc::new(format);
    let exchange = Exchange { user, agent, model: None, is_ephemeral: false };
    exchange.run(call, transcript, new, message, "", format).await
}

/// Continues a message whose calls were decided elsewhere, or by a request whose response was lost.
async fn follow_on(call: &Call<'_>, session: &Rc<Session>, format: UiStream) -> Result<Response, Problem> {
    let turn = session.current_turn();
    let status = session.state().status();
    match (turn, status) {
        (Some(turn), SessionStatus::Waiting) => {
            TurnSubscription::waiting(call, session, &turn, Rc::new(format))?.respond(session).await
        }
        (Some(turn), SessionStatus::Running) if session.waits(&turn)? > 0 => {
            TurnSubscription::current(call, session, &turn, Rc::new(format))?.respond(session).await
        }
        _ => {
            let detail = "no call of this message waits for the client";
            Err(Problem::new(ErrorCode::NotWaiting, detail))
        }
    }
}

/// Returns the names of the tools whose results clients send: of the agent, and of the current turn of the session.
fn tools_of_clients(call: &Call<'_>, session: Option<&Rc<Session>>) -> Vec<String> {
    let agent = call.host.agent();
    let toolkit = agent.toolkit();
    let is_answered = |name: &&str| {
        let kind = toolkit.get(name).and_then(|(spec, _)| spec.suspends);
        matches!(kind, Some(WaitKind::External | WaitKind::Question | WaitKind::Plan))
    };
    let mut names: Vec<_> = toolkit.names().filter(is_answered).map(str::to_owned).collect();
    if let Some(session) = session {
        names.extend(session.state().client_tools().iter().map(|spec| spec.name.clone()));
    }
    names
}

/// `GET /api/chat/{id}/stream`: the running turn from its beginning, or 204.
pub async fn resume(call: &Call<'_>) -> Result<Response, Problem> {
    let nothing = || Ok(response::empty(StatusCode::NO_CONTENT));
    let user = call.named_user(None)?;
    let Some(session) = call.find(user.as_deref())? else { return nothing() };
    let turn = session.current_turn();
    let turn = turn.filter(|_| session.state().status() == SessionStatus::Running);
    let Some(turn) = turn else { return nothing() };
    let client_tools = tools_of_clients(call, Some(session));
    let format = UiStream {
        session: call.session_id.clone(),
        client_tools,
        is_continued: false,
        decided: Vec::new(),
        answered: Vec::new(),
    };
    TurnSubscription::current(call, session, &turn, Rc::new(format))?.respond(session).await
}

/// `POST /api/chat/{id}/stop`: aborts the running turn.
pub async fn stop(call: &Call<'_>) -> Result<Response, Problem> {
    turns::abort(call).await
}
