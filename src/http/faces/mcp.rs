//! The Model Context Protocol over Streamable HTTP: `POST /mcp`, for clients of both eras (see `message.rs`).
//!
//! Agents and the search of memory are tools, files of workspaces are resources, and modes are prompts. A call that asks
//! an agent runs in the object of its session. All other requests are handled in the gateway.

mod ask;
mod completion;
mod elicitation;
mod fault;
#[cfg(feature = "fixtures")]
mod fixtures;
mod handshake;
mod message;
mod outcome;
mod prompts;
mod resources;
mod rpc;
mod subscriptions;
mod task;
mod tools;
mod version;
mod writer;

use self::ask::RequestState;
use self::fault::Fault;
use self::handshake::{HEADER as SESSION_HEADER, Handshake};
use self::message::{Asked, ClientMessage, Era, Notice, Reply};
use self::rpc::{Failure, cached};
use self::tools::{AskArgs, Tool};
use self::version::{LEGACY, MODERN, TASKS};
use crate::http::cors;
use crate::http::face::{Face, Target};
use crate::http::gateway::TenantCall;
use crate::http::owner;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::http::response::{self, Response, ResponseExt};
use crate::http::session::call::Call;
use crate::types::{AgentId, ErrorCode, Problem, Scope, SessionId};
use http::StatusCode;
use serde_json::{Value, json};

/// The face.
pub static FACE: Face = Face { target, problem: rpc::problem };

/// How long a client may cache what the server can do, in milliseconds: it changes with the deployment.
const DISCOVER_TTL_MS: u64 = 3_600_000;

const INSTRUCTIONS: &str = "Ask an agent with ask_agent. It works by itself, and its turns may take minutes.";

/// `POST /mcp`: handles a message in the gateway; `None` for one that concerns a turn.
pub async fn handle(call: &TenantCall<'_>) -> Result<Option<Response>, Problem> {
    cors::check_origin(&call.gateway.config.origins, call.request)?;
    let asked = match message::read(call.request) {
        Ok(ClientMessage::Asked(asked)) => asked,
        Ok(ClientMessage::Notice(notice)) => return accepted(call, cancels(&notice).is_some()),
        Ok(ClientMessage::Reply(reply)) => return accepted(call, answers(&reply).is_some()),
        Err((id, fault)) => return Ok(Some(fault.respond(id.as_ref()))),
    };
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

/// Responds to a message that has no result, unless its session has to handle it.
fn accepted(call: &TenantCall<'_>, concerns_session: bool) -> Result<Option<Response>, Problem> {
    if concerns_session {
        may_chat(call)?;
        return Ok(None);
    }
    Ok(Some(response::empty(StatusCode::ACCEPTED)))
}

/// Requires the scope of what concerns a turn. The route itself requires less.
fn may_chat(call: &TenantCall<'_>) -> Result<(), Problem> {
    let missing = || Problem::new(ErrorCode::MissingScope, "asking an agent needs the scope chat");
    call.caller.scopes.allow(Scope::Chat).then_some(()).ok_or_else(missing)
}

/// Returns the result of a request; `None` if its session has to handle it.
async fn result(call: &TenantCall<'_>, asked: &Asked) -> Result<Option<Value>, Failure> {
    let config = &call.gateway.config;
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
                    Some(_) => Ok(()),
                    None => AskArgs::read(asked).map(drop),
                });
                match checked {
                    Ok(()) => return Ok(None),
                    Err(problem) => tools::failed(problem)?,
                }
            }
        },
        ("resources/list", _) => resources::list(call, asked).await?,
        ("resources/templates/list", _) => resources::templates(asked),
        ("resources/read", _) => resources::read(call, asked).await?,
        ("completion/complete", _) => completion::complete(call, asked).await?,
        ("prompts/list", _) => prompts::list(config, asked),
        ("prompts/get", _) => prompts::get(config, asked)?,
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

/// Returns the session of a request that a legacy client cancels; `None` for any other notification.
fn cancels(notice: &Notice) -> Option<&SessionId> {
    let handshake = notice.handshake.as_ref().filter(|_| notice.method == "notifications/cancelled");
    handshake.map(Handshake::session)
}

/// Returns the session and the call that a legacy client's answer to a form is for.
fn answers(reply: &Reply) -> Option<(SessionId, &str)> {
    let (session, call) = reply.id.as_str()?.split_once('/')?;
    Some((SessionId::parse(session)?, call))
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
    let controls = |session| Ok(Target { session: Some(session), controls: true, ..Target::default() });
    let asked = match message::read(request) {
        Ok(ClientMessage::Asked(asked)) => asked,
        Ok(ClientMessage::Notice(notice)) => {
            return controls(cancels(&notice).ok_or_else(unexpected)?.clone());
        }
        Ok(ClientMessage::Reply(reply)) => return controls(answers(&reply).ok_or_else(unexpected)?.0),
        Err(_) => return Err(unexpected()),
    };
    #[cfg(feature = "fixtures")]
    if let Some(session) = fixtures::client::session(&asked) {
        return controls(session);
    }
    if asked.is_about_task() {
        return controls(task::of(&asked).map_err(|_| unexpected())?.session);
    }
    let agent = agent_of(&asked)?;
    let session = match (RequestState::of(&asked)?, &asked.era) {
        (Some(state), _) => Some(state.session),
        (None, Era::Modern { .. }) => AskArgs::read(&asked)?.1,
        (None, Era::Legacy { handshake }) => {
            let named = AskArgs::read(&asked)?.1;
            named.or_else(|| handshake.as_ref().map(|own| own.session_with(&agent)))
        }
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
