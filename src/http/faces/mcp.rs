//! The Model Context Protocol over Streamable HTTP: `POST /mcp`, for clients of both eras (see `message.rs`), and
//! `GET /mcp` (see `resume.rs`).
//!
//! Agents and the search of memory are tools, files of workspaces are resources, and modes and skills are prompts. A call that asks
//! an agent runs in the object of its session. All other requests are handled in the gateway.

mod ask;
mod calls;
mod completion;
mod elicitation;
mod event_id;
mod fault;
#[cfg(feature = "fixtures")]
mod fixtures;
mod handshake;
mod message;
#[cfg(not(target_family = "wasm"))]
mod openapi;
mod outcome;
mod prompts;
mod resources;
pub mod resume;
mod rpc;
mod subscriptions;
mod task;
mod tools;
mod version;
mod writer;

use self::ask::RequestState;
use self::fault::Fault;
use self::handshake::{HEADER as SESSION_HEADER, Handshake};
use self::message::{Asked, ClientMessage, Era, Reply};
#[cfg(not(target_family = "wasm"))]
pub(super) use self::openapi::operations;
use self::rpc::{Failure, cached};
use self::tools::{AskArgs, Tool};
use self::version::{LEGACY, MODERN, TASKS};
use crate::http::cors;
use crate::http::face::{Face, Target};
use crate::http::gateway::TenantCall;
use crate::http::oauth;
use crate::http::owner;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response, ResponseExt};
use crate::http::route::{GET, Handler, POST, Route, Split, run, split};
use crate::http::session::call::Call;
use crate::types::{AgentId, ErrorCode, Problem, Scope, SessionId};
use http::StatusCode;
use serde_json::{Value, json};

/// The routes.
pub static ROUTES: &[Route] = &[
    split(POST, "/mcp", Scope::Read, &FACE, run!(handle), run!(in_session)).names_provider(),
    Route::new(
        GET,
        "/mcp",
        Handler::Split(Scope::Read, &FACE, run!(resume::at_gateway), run!(resume::in_session)),
    )
    .problems(FACE.problem)
    .names_provider(),
    Route::new(GET, "/.well-known/oauth-protected-resource", Handler::Public(run!(oauth::metadata))),
    Route::new(GET, "/.well-known/oauth-protected-resource/mcp", Handler::Public(run!(oauth::metadata))),
];

/// The face.
pub static FACE: Face = Face { target, problem: rpc::problem };

/// How long a client may cache what the server can do, in milliseconds: it changes with the deployment.
const DISCOVER_TTL_MS: u64 = 3_600_000;

const INSTRUCTIONS: &str = "Ask an agent with ask_agent. It works by itself, and its turns may take minutes.";

/// `POST /mcp`: handles a message in the gateway, or forwards one that concerns a turn.
pub async fn handle(call: &TenantCall<'_>) -> Result<Split, Problem> {
    cors::check_origin(&call.gateway.config.origins, call.request)?;
    match message::read(call.request) {
        Ok(ClientMessage::Asked(asked)) => handle_request(call, asked).await.map(Split::from),
        Ok(ClientMessage::Notice(notice)) => match notice.cancels() {
            Some((handshake, id)) => {
                may_chat(call)?;
                calls::session(call, handshake, id).await.map(Split::ForwardTo)
            }
            None => Ok(accepted()),
        },
        Ok(ClientMessage::Reply(reply)) => match answers(&reply) {
            Some((session, _)) => {
                may_chat(call)?;
                Ok(Split::ForwardTo(session))
            }
            None => Ok(accepted()),
        },
        Err((id, fault)) => Ok(Split::Response(fault.respond(id.as_ref()))),
    }
}

/// Handles a request; `None` for one that concerns a turn.
async fn handle_request(call: &TenantCall<'_>, asked: Asked) -> Result<Option<Response>, Problem> {
    if asked.method == "initialize" && !asked.is_modern() {
        return initialize(call, &asked).map(Some);
    }
    #[cfg(feature = "fixtures")]
    if fixtures::client::session(&asked).is_some() {
        return Ok(None);
    } else if let Some(response) = fixtures::respond(&asked) {
        return Ok(Some(response));
    }
    if asked.method == "subscriptions/listen" && asked.is_modern() {
        return match subscriptions::listen(call, &asked).await {
            Ok(response) => Ok(Some(response)),
            Err(failure) => rpc::respond(&asked, call.request_id, Err(failure)).map(Some),
        };
    }
    match result(call, &asked).await {
        Ok(None) => Ok(None),
        Ok(Some(value)) => rpc::respond(&asked, call.request_id, Ok(value)).map(Some),
        Err(failure) => rpc::respond(&asked, call.request_id, Err(failure)).map(Some),
    }
}

/// Responds to a message that has no result and concerns no turn.
fn accepted() -> Split {
    Split::Response(response::empty(StatusCode::ACCEPTED))
}

/// Requires the scope of what concerns a turn. The route itself requires less.
fn may_chat(call: &TenantCall<'_>) -> Result<(), Problem> {
    let missing = || Problem::new(ErrorCode::MissingScope, "asking an agent needs the scope chat");
    call.caller.scopes.allow(Scope::Chat).then_some(()).ok_or_else(missing)
}

/// Returns the result of a request; `None` if its session has to handle it.
async fn result(call: &TenantCall<'_>, asked: &Asked) -> Result<Option<Value>, Failure> {
    let value = match (asked.method.as_str(), asked.is_modern()) {
        ("server/discover", true) => discover(asked),
        ("ping", false) => json!({}),
        ("tools/list", _) => tools::list(call, asked).await?,
        ("tools/call", _) => match tools::find(asked)? {
            Tool::SearchMemory => tools::search(call, asked).await?,
            Tool::Ask(agent) => {
                may_chat(call)?;
                if owner::check_agent(call.gateway, &call.caller.tenant, Some(&agent), "/").await.is_err() {
                    return Err(tools::unknown(&tools::asks(&agent)).into());
                }
                let checked = RequestState::of(asked).and_then(|state| match state {
                    Some(_) => Ok(None),
                    None => session_of(asked, &agent),
                });
                match checked {
                    Ok(session) => {
                        calls::record(call, asked, session.as_ref()).await;
                        return Ok(None);
                    }
                    Err(problem) => tools::failed(problem)?,
                }
            }
        },
        ("resources/list", _) => resources::list(call, asked).await?,
        ("resources/templates/list", _) => resources::templates(asked),
        ("resources/read", _) => resources::read(call, asked).await?,
        ("completion/complete", _) => completion::complete(call, asked).await?,
        ("prompts/list", _) => prompts::list(call, asked).await?,
        ("prompts/get", _) => prompts::get(call, asked).await?,
        _ if asked.is_about_task() => {
            task::of(asked)?;
            if asked.method != "tasks/get" {
                may_chat(call)?;
            }
            return Ok(None);
        }
        _ => return Err(Fault::unknown_method(&asked.method, asked.is_modern()).into()),
    };
    Ok(Some(value))
}

fn capabilities() -> Value {
    json!({"tools": {}, "resources": {}, "prompts": {}, "completions": {}})
}

/// `server/discover`.
fn discover(asked: &Asked) -> Value {
    let mut capabilities = capabilities();
    capabilities["resources"] = json!({"subscribe": true});
    capabilities["extensions"] = json!({TASKS: {}});
    let about =
        json!({"supportedVersions": [MODERN], "capabilities": capabilities, "instructions": INSTRUCTIONS});
    cached(asked, DISCOVER_TTL_MS, about)
}

/// `initialize`: begins a handshake.
fn initialize(call: &TenantCall<'_>, asked: &Asked) -> Result<Response, Problem> {
    let requested = asked.text("protocolVersion").unwrap_or_default();
    let version = LEGACY.into_iter().find(|version| *version == requested).unwrap_or(LEGACY[0]);
    let elicits = asked.params.get("capabilities").is_some_and(message::elicits);
    let handshake = Handshake::new(call.gateway.make_id(), elicits);
    let result = json!({
        "protocolVersion": version, "capabilities": capabilities(), "serverInfo": rpc::server_info(),
        "instructions": INSTRUCTIONS,
    });
    Ok(rpc::respond(asked, call.request_id, Ok(result))?.with(SESSION_HEADER, &handshake.to_string()))
}

/// Returns the session and the call that a legacy client's answer to a form is for.
fn answers(reply: &Reply) -> Option<(SessionId, &str)> {
    let (session, call) = reply.id.as_str()?.split_once('/')?;
    Some((SessionId::parse(session)?, call))
}

/// Returns the session in which a call runs that asks this agent: the one that it names, or that of its client. `None` if
/// the call begins one.
fn session_of(asked: &Asked, agent: &AgentId) -> Result<Option<SessionId>, Problem> {
    let named = AskArgs::read(asked)?.1;
    Ok(match &asked.era {
        Era::Modern { .. } => named,
        Era::Legacy { handshake } => named.or_else(|| handshake.as_ref().map(|own| own.session_with(agent))),
    })
}

/// Returns the agent that a forwarded call asks.
fn agent_of(asked: &Asked) -> Result<AgentId, Problem> {
    match tools::find(asked) {
        Ok(Tool::Ask(agent)) => Ok(agent),
        _ => Err(unexpected()),
    }
}

/// Returns the problem of a message that was forwarded although it concerns no turn.
fn unexpected() -> Problem {
    Problem::internal("a message that concerns no turn was forwarded")
}

fn target(request: &Request, _params: &Params) -> Result<Target, Problem> {
    let Ok(ClientMessage::Asked(asked)) = message::read(request) else { return Err(unexpected()) };
    #[cfg(feature = "fixtures")]
    if let Some(session) = fixtures::client::session(&asked) {
        return Ok(Target::controlling(session));
    }
    if asked.is_about_task() {
        return Ok(Target::controlling(task::of(&asked).map_err(|_| unexpected())?.session));
    }
    let agent = agent_of(&asked)?;
    let session = match RequestState::of(&asked)? {
        Some(state) => Some(state.session),
        None => session_of(&asked, &agent)?,
    };
    Ok(Target { session, agent: Some(agent.to_string()), ..Target::default() })
}

/// Handles a message in the object of the session that it concerns.
pub async fn in_session(call: &Call<'_>) -> Result<Response, Problem> {
    match message::read(call.request) {
        Ok(ClientMessage::Asked(asked)) => {
            #[cfg(feature = "fixtures")]
            if let Some(response) = fixtures::client::call(call, &asked) {
                return Ok(response);
            }
            match asked.is_about_task() {
                true => task::run(call, &asked).await,
                false => ask::call(call, &asked, &agent_of(&asked)?).await,
            }
        }
        Ok(ClientMessage::Notice(notice)) => ask::cancel(call, &notice).await,
        Ok(ClientMessage::Reply(reply)) => match answers(&reply) {
            #[cfg(feature = "fixtures")]
            Some((_, id)) if fixtures::client::answer(call, id, &reply) => {
                Ok(response::empty(StatusCode::ACCEPTED))
            }
            Some((_, id)) => ask::answer(call, id, &reply).await,
            None => Ok(response::empty(StatusCode::ACCEPTED)),
        },
        Err((id, fault)) => Ok(fault.respond(id.as_ref())),
    }
}
