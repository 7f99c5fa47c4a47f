//! The card of an agent, with which clients find it.

use super::modes;
use super::rpc::VERSION;
use crate::http::gateway::GatewayCall;
use crate::http::request::RequestExt;
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{auth, crypto, etag, request_limit};
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, ErrorCode, Problem};
use http::StatusCode;
use serde_json::{Value, json};

/// How long a client may use a card without asking again, in seconds.
const MAX_AGE: &str = "public, max-age=300";
/// The same for a card that depends on the credential.
const PRIVATE_MAX_AGE: &str = "private, max-age=300";

/// `GET /.well-known/agent-card.json`: the card of the default agent.
pub async fn of_deployment(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    respond(call, DEFAULT_AGENT, "/a2a", MAX_AGE)
}

/// `GET /a2a/{agent}/.well-known/agent-card.json`. The card of an agent that a tenant has stored needs a credential of the
/// tenant.
pub async fn of_agent(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let agent = call.params.get("agent");
    let path = format!("/a2a/{agent}");
    if call.gateway.agents.is_of_deployment(&agent.into()) {
        return respond(call, agent, &path, MAX_AGE);
    }
    let missing = || Problem::not_found("agent");
    // Cards are public, and agents of a tenant are not.
    if call.request.header("authorization").is_none() {
        return Err(missing());
    }
    let caller = auth::caller(call.gateway, call.request).await?;
    request_limit::count(call.gateway, &caller).await?;
    let id = AgentId::parse(agent).ok_or_else(missing)?;
    call.gateway.agents.check(&caller.tenant, &id).await.map_err(|problem| match problem.code {
        ErrorCode::UnknownAgent | ErrorCode::AgentGone => missing(),
        _ => problem,
    })?;
    respond(call, agent, &path, PRIVATE_MAX_AGE)
}

fn respond(
    call: &GatewayCall<'_>,
    agent: &str,
    path: &str,
    max_age: &'static str,
) -> Result<Response, Problem> {
    let url = format!("{}{path}", call.request.origin());
    let card = card(agent, &url, call.gateway.config.push_notifications).to_string();
    let tag = etag::quoted(&crypto::sha256_hex(card.as_bytes())[..32]);
    let is_known = call
        .request
        .header("if-none-match")
        .is_some_and(|tags| etag::matches_weakly(tags, tag.trim_matches('"')));
    let response = match is_known {
        true => response::empty(StatusCode::NOT_MODIFIED),
        false => response::bytes(StatusCode::OK, "application/json", card),
    };
    Ok(response.with("etag", &tag).with("cache-control", max_age))
}

fn card(agent: &str, url: &str, push_notifications: bool) -> Value {
    json!({
        "name": agent,
        "description": format!("The agent {agent:?} of this server. It remembers its contexts."),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}],
        "capabilities": {"streaming": true, "pushNotifications": push_notifications, "extendedAgentCard": false},
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {
            "scheme": "Bearer", "description": "An API key, or a token of the tenant's identity provider",
        }}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "defaultInputModes": modes::INPUT,
        "defaultOutputModes": modes::OUTPUT,
        "skills": [{
            "id": "chat", "name": "Chat", "description": "Answers messages, with the tools and the memory of the agent.",
            "tags": ["chat"],
        }],
    })
}
