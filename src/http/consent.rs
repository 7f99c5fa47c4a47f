//! Where authorization servers send the browser of a user who was asked for consent at a server of MCP.

use super::credentials::valid_until;
use super::disposition::RESERVED;
use super::gateway::{Gateway, GatewayCall};
use super::request::RequestExt;
use super::response::{self, Response, ResponseExt};
use crate::ports::ReaderRequest;
use crate::types::{ConsentReply, ErrorCode, FinishedConsent, Principal, Problem, Scope, Scopes};
use http::StatusCode;
use percent_encoding::utf8_percent_encode;
use serde_json::json;

/// Maximum length of a parameter, in bytes.
const MAX_PARAMETER: usize = 4_096;

/// `GET /client-metadata.json`: who the deployment is, for authorization servers.
pub(super) async fn client_metadata(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let metadata = call.gateway.agents.mcp().client_metadata();
    let metadata = metadata.ok_or_else(|| Problem::not_found("metadata of a client"))?;
    Ok(response::json(StatusCode::OK, &metadata)?.with("cache-control", "public, max-age=3600"))
}

/// `GET /v1/oauth/callback`: ends a request for consent, and continues the call that waits for it. The state in the URL is the
/// credential.
pub(super) async fn callback(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let parameter = |name: &str| call.request.query(name).filter(|value| value.len() <= MAX_PARAMETER);
    let reply = ConsentReply {
        state: parameter("state").unwrap_or_default(),
        code: parameter("code"),
        iss: parameter("iss"),
    };
    let gateway = call.gateway;
    let finish = async {
        let finished = gateway.agents.mcp().finish_consent(&reply).await;
        let finished = finished
            .map_err(|error| Problem::unavailable("the consent cannot be stored; try again", error))?;
        let detail = "this link was used before, or has expired; ask the agent again";
        // Guessed states count like guessed credentials.
        finished.ok_or_else(|| Problem::new(ErrorCode::Unauthenticated, detail))
    };
    let now = gateway.clock.now();
    let finished = gateway.cache.failures.limited(call.request, now, finish).await?;
    resume(gateway, &finished).await;
    match &finished.outcome {
        Ok(()) => Ok(page(StatusCode::OK, "Connected. You can close this page.")),
        Err(why) => Ok(page(StatusCode::BAD_REQUEST, &format!("Not connected: the server {why}."))),
    }
}

/// Continues the call that waits. If that fails, the user is connected nevertheless, and can answer the call.
async fn resume(gateway: &Gateway, finished: &FinishedConsent) {
    let FinishedConsent { tenant, user, session, call, outcome } = finished;
    let action = if outcome.is_ok() { "accept" } else { "decline" };
    let body = json!({"answer": {"action": action}}).to_string();
    let not_resumed = |cause: &str| {
        gateway.log.line(&json!({
            "event": "consent.not_resumed", "tenant": tenant, "session": session, "cause": cause,
        }));
    };
    let policy = match gateway.directory.tenant(tenant).await {
        // The tenant of development has no row.
        Ok(found) => found.map(|tenant| tenant.policy()).unwrap_or_default(),
        Err(error) => return not_resumed(&error.to_string()),
    };
    let principal = Principal {
        user: Some(user.clone()),
        policy,
        valid_until: valid_until(gateway.clock.now(), None),
        ..Principal::new(tenant.clone(), Scopes::new(vec![Scope::Chat]))
    };
    let segment = |id: &str| utf8_percent_encode(id, RESERVED).to_string();
    let target = format!("/v1/sessions/{}/answers/{}", segment(session), segment(call));
    let headers: &[_] = &[("content-type", "application/json"), ("prefer", "respond-async")];
    let request = ReaderRequest { target: &target, headers, body: Some(&body) };
    match gateway.reader.send(&principal, session, request).await {
        Ok(response) if response.status < 400 => {}
        Ok(response) => not_resumed(&format!("status {}", response.status)),
        Err(error) => not_resumed(&error.to_string()),
    }
}

fn page(status: StatusCode, text: &str) -> Response {
    response::bytes(status, "text/plain; charset=utf-8", text.to_owned())
        .with("cache-control", "no-store")
        .with("referrer-policy", "no-referrer")
}
