//! Where authorization servers send the browser of a user who was asked for consent at a server of MCP.

use super::gateway::GatewayCall;
use super::request::RequestExt;
use super::response::{self, Response, ResponseExt};
use crate::types::{ConsentPage, ConsentReply, ErrorCode, Problem};
use http::StatusCode;

/// Maximum length of a parameter, in bytes.
const MAX_PARAMETER: usize = 4_096;

/// `GET /client-metadata.json`: who the deployment is, for authorization servers.
pub(super) async fn client_metadata(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let metadata = call.gateway.agents.mcp().client_metadata();
    let metadata = metadata.ok_or_else(|| Problem::not_found("metadata of a client"))?;
    Ok(response::json(StatusCode::OK, &metadata)?.with("cache-control", "public, max-age=3600"))
}

/// `GET /v1/oauth/callback`: shows the code with which the user continues the call that waits for consent. The state in the URL
/// is the credential.
pub(super) async fn callback(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let parameter = |name: &str| call.request.query(name).filter(|value| value.len() <= MAX_PARAMETER);
    let reply = ConsentReply {
        state: parameter("state").unwrap_or_default(),
        code: parameter("code"),
        iss: parameter("iss"),
    };
    let gateway = call.gateway;
    let park = async {
        let page = gateway.agents.mcp().park_consent(&reply).await;
        let page =
            page.map_err(|error| Problem::unavailable("the consent cannot be stored; try again", error))?;
        let detail = "this link was used before, or has expired; ask the agent again";
        // Guessed states count like guessed credentials.
        page.ok_or_else(|| Problem::new(ErrorCode::Unauthenticated, detail))
    };
    match gateway.cache.failures.limited(call.request, gateway.clock.now(), park).await? {
        ConsentPage::Confirm { code, user, server } => {
            let user = &*user;
            let text = format!(
                "Your code is {code}\n\n\
                 Enter it in the conversation in which you were asked to connect, within 10 minutes. It connects your \
                 account at {server} with the user {user:?} of this service. If that is not you, close this page, and do \
                 not give the code to anyone.\n"
            );
            Ok(page(StatusCode::OK, text))
        }
        ConsentPage::Refused(why) => {
            Ok(page(StatusCode::BAD_REQUEST, format!("Not connected: the server {why}.\n")))
        }
    }
}

fn page(status: StatusCode, text: String) -> Response {
    response::bytes(status, "text/plain; charset=utf-8", text)
        .with("cache-control", "no-store")
        .with("referrer-policy", "no-referrer")
        .with("x-content-type-options", "nosniff")
}
