//! Requests that the gateway forwards to the object of a session.

use super::body;
use super::face::Target;
use super::forwarded::ForwardedMessage;
use super::gateway::Gateway;
use super::idempotency::{self, IdempotencyClaim};
use super::owner::{check_agent, session_id};
use super::pattern::Params;
use super::request::Request;
use super::runs;
use crate::types::{GeneratedId, Principal, Problem, RequestId, SessionId, TenantId};
use http::{HeaderMap, Uri, header, uri::PathAndQuery};
use serde::Deserialize;
use serde_json::json;

/// A request on its way to the object of a session.
pub struct Forward {
    /// The tenant: first part of the object's name.
    pub tenant: TenantId,
    /// The session: second part of the object's name.
    pub session: SessionId,
    /// The authenticated caller.
    pub principal: Principal,
    /// The id of the request.
    pub request_id: RequestId,
    /// The request without credentials. It includes the body if the gateway has read it.
    pub request: Request,
    /// Whether the client's URL has a ticket, which the URL of `request` lacks.
    pub had_ticket: bool,
    /// Whether the gateway has read the body; otherwise the body has to be passed on as a stream.
    pub body_read: bool,
    /// To be dropped when the object has responded; `None` if the request does not count.
    pub message: Option<ForwardedMessage>,
    /// To be settled with [`idempotency::settle`] after the object has responded.
    pub claim: Option<IdempotencyClaim>,
    /// Headers to set on the object's response.
    pub response_headers: HeaderMap,
}

/// Forwards a request to the object of an existing session.
///
/// # Errors
/// An internal error when the target of the request is not valid without its ticket.
pub fn to_session(
    principal: Principal,
    session: SessionId,
    request_id: &RequestId,
    mut request: Request,
) -> Result<Box<Forward>, Problem> {
    request.headers_mut().remove(header::AUTHORIZATION);
    let uri = without_ticket(request.uri())?;
    let had_ticket = uri != *request.uri();
    *request.uri_mut() = uri;
    Ok(Box::new(Forward {
        tenant: principal.tenant.clone(),
        session,
        principal,
        request_id: request_id.clone(),
        request,
        had_ticket,
        body_read: false,
        message: None,
        claim: None,
        response_headers: HeaderMap::new(),
    }))
}

/// Forwards a request that creates a session, with its body, to the object of the new session.
///
/// # Errors
/// `validation_failed` for an invalid id, `unknown_agent`, `idempotency_key_reused` for a key that was used with another body.
pub async fn to_new_session(
    gateway: &Gateway,
    params: &Params,
    principal: Principal,
    request_id: &RequestId,
    mut request: Request,
) -> Result<Box<Forward>, Problem> {
    let owner = json!([principal.tenant, principal.user]);
    let is_run = params.pattern() == runs::PATH;
    let session = new_session_id(gateway, &request, &principal, is_run).await?;
    let claim = idempotency::claim(gateway, &request, params, &principal.tenant, &owner).await?;
    if is_run {
        runs::add_spec(gateway, &principal, &mut request).await?;
    }
    let forward = to_session(principal, session, request_id, request)?;
    Ok(Box::new(Forward { body_read: true, claim, ..*forward }))
}

/// Returns the session of a request in another protocol: the one that `target` names; or one derived from tenant, user, route
/// and Idempotency-Key; or a new one.
///
/// # Errors
/// An invalid Idempotency-Key.
pub fn target_session(
    gateway: &Gateway,
    request: &Request,
    params: &Params,
    principal: &Principal,
    target: &Target,
) -> Result<SessionId, Problem> {
    match (&target.session, idempotency::key(request)?) {
        (Some(session), _) => Ok(session.clone()),
        (None, Some(key)) => {
            let user = principal.user.as_deref().or(target.user.as_deref());
            let name = json!([params.pattern(), principal.tenant, user, key]).to_string();
            Ok(SessionId::derive(&name))
        }
        (None, None) => Ok(gateway.make_id()),
    }
}

/// Returns the id of a new session: the id in the body; or one derived from tenant, user and
/// Idempotency-Key, so that a repeated request reaches the object that stored the first response; or a new
/// id.
async fn new_session_id(
    gateway: &Gateway,
    request: &Request,
    principal: &Principal,
    is_run: bool,
) -> Result<SessionId, Problem> {
    #[derive(Deserialize)]
    struct Chosen {
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        agent: Option<String>,
    }
    let chosen: Chosen = body::json_or_empty(request)?;
    check_agent(gateway, &principal.tenant, chosen.agent.as_deref(), "/").await?;
    let key = idempotency::key(request)?;
    if is_run {
        let name = key.map(|key| json!(["run", principal.tenant, principal.user, key]).to_string());
        return Ok(name.map_or_else(|| gateway.make_id(), |name| SessionId::derive(&name)).into_run());
    }
    match (chosen.id, key) {
        (Some(id), _) => match session_id(&id, "/id")? {
            run if run.is_run() => {
                Err(Problem::field("/id", "this is the form of the ids of runs; choose another one"))
            }
            session => Ok(session),
        },
        (None, Some(key)) => {
            let name = json!(["session", principal.tenant, principal.user, key]).to_string();
            Ok(SessionId::derive(&name))
        }
        (None, None) => Ok(gateway.make_id()),
    }
}

/// Removes the ticket from a query, percent-encoded or not: credentials do not leave the gateway.
fn without_ticket(uri: &Uri) -> Result<Uri, Problem> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let is_ticket = |pair: &&str| form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name == "ticket");
    let kept: Vec<_> = query.split('&').filter(|pair| !is_ticket(pair)).collect();
    let target = match kept.as_slice() {
        [] => uri.path().to_owned(),
        kept => format!("{}?{}", uri.path(), kept.join("&")),
    };
    let target: PathAndQuery = target.try_into().map_err(|error| Problem::internal(format!("{error}")))?;
    Ok(target.into())
}
