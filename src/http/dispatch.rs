//! Handles a request in the gateway, or forwards it to the object of a session.
//!
//! ```text
//! match dispatch::handle(&gateway, head, body).await {
//!     Handled::Response(response) => response,
//!     Handled::Forward(forward) => the object of (forward.tenant, forward.session)
//! }
//! ```

use super::face::{Target, WriteProblem};
use super::face_sockets::FaceSocket;
use super::forward::{self, Forward};
use super::forwarded::ForwardedMessage;
use super::gateway::{Gateway, GatewayCall, TenantCall};
use super::idempotency::{self, DirectoryStore, RequestKey};
use super::owner::{check_agent, check_user};
use super::request::{self, MAX_BODY, Request, RequestExt};
use super::response::{self, Body, Response, ResponseExt};
use super::route::{Handler, Responding, RouteMatch, Split};
use super::{auth, cors, oauth, over_limit, request_limit, routes};
use crate::types::{ErrorCode, Principal, Problem, RequestId, Scope, SessionId, TenantId};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

/// The outcome of a request in the gateway.
pub enum Handled {
    /// The response.
    Response(Response),
    /// The object of a session has to respond.
    Forward(Box<Forward>),
    /// The platform has to open a WebSocket of another protocol.
    Socket(FaceSocket),
}

/// Handles a request. The body of `request` is empty; `body` is polled only if the gateway needs it.
pub async fn handle(
    gateway: &Gateway,
    request: Request,
    body: impl Future<Output = Result<Bytes, Problem>>,
) -> Handled {
    let request_id = gateway.request_id(&request);
    let is_head = request.method() == Method::HEAD;
    let found = routes::find(request.method(), request.uri().path());
    let write_problem =
        found.as_ref().map_or(response::problem as WriteProblem, |found| found.route.write_problem);
    let provider = found.as_ref().is_ok_and(|found| found.route.names_provider);
    let challenge = provider.then(|| oauth::challenge(&request));
    let mut headers = cors::headers(&gateway.config.origins, &request);
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    let handled = match cors::is_preflight(&request) {
        true => cors::preflight(&gateway.config.origins, &request).map(Handled::Response),
        false => dispatch(gateway, &request_id, found, request, body).await,
    };
    let mut response = match handled {
        Ok(Handled::Forward(mut forward)) => {
            forward.response_headers = headers;
            return Handled::Forward(forward);
        }
        Ok(Handled::Socket(socket)) => return Handled::Socket(socket),
        Ok(Handled::Response(response)) => response,
        Err(problem) => {
            if problem.code.status() >= 500 {
                gateway.log.error(&json!({
                    "event": "request.failed", "request_id": request_id, "cause": problem.to_string(),
                }));
            }
            let response = write_problem(&problem, &request_id);
            match challenge.filter(|_| problem.code == ErrorCode::Unauthenticated) {
                Some(challenge) => response.with("www-authenticate", &challenge),
                None => response,
            }
        }
    };
    response.headers_mut().extend(headers);
    if is_head {
        *response.body_mut() = Body::Empty;
    }
    Handled::Response(response)
}

async fn dispatch(
    gateway: &Gateway,
    request_id: &RequestId,
    found: Result<RouteMatch, Problem>,
    mut request: Request,
    body: impl Future<Output = Result<Bytes, Problem>>,
) -> Result<Handled, Problem> {
    let found = found?;
    let params = &found.params;
    match &found.route.handler {
        Handler::Socket(format) => {
            request::require_upgrade(&request)?;
            cors::check_origin(&gateway.config.origins, &request)?;
            let anonymous = match format.reads_credentials() && request.header("authorization").is_none() {
                true => Some(gateway.anonymous.admit()?),
                false => {
                    let caller = auth::caller(gateway, &request).await?;
                    admit(gateway, &caller, &request).await?;
                    None
                }
            };
            Ok(Handled::Socket(FaceSocket { format: *format, anonymous }))
        }
        Handler::Public(handler) => {
            read(&mut request, body).await?;
            let call = GatewayCall { gateway, request_id, request: &request, params };
            Ok(Handled::Response(handler(&call).await?))
        }
        Handler::Operator(handler) => {
            auth::operator(gateway, &request).await?;
            read(&mut request, body).await?;
            let call = GatewayCall { gateway, request_id, request: &request, params };
            let work = handler(&call);
            once(gateway, request_id, &found, &request, (None, &json!("operator")), work).await
        }
        Handler::Tenant(scope, handler) => {
            let caller = &authenticated(gateway, &request, &found, *scope).await?;
            read(&mut request, body).await?;
            let call = TenantCall { gateway, request_id, request: &request, params, caller };
            let work = handler(&call);
            let of = (Some(&caller.tenant), &owner(caller, &request));
            once(gateway, request_id, &found, &request, of, work).await
        }
        Handler::Session(scope, _) | Handler::Unread(scope, _) => {
            let principal = authenticated(gateway, &request, &found, *scope).await?;
            let session = SessionId::parse(params.get("id")).ok_or_else(|| Problem::not_found("session"))?;
            let message = match found.route.starts_turn {
                true => admitted(gateway, &principal, &session, &request).await?,
                false => None,
            };
            // A body of known length is passed on as a stream. The length has to be checked before: an object
            // that refuses a body which is still arriving breaks the connection.
            let body_read = match request::length(&request) {
                Some(length) if length > MAX_BODY => return Err(request::too_large()),
                Some(_) => false,
                None => {
                    read(&mut request, body).await?;
                    request::has_body(request.method())
                }
            };
            let forward = forward::to_session(principal, session, request_id, request)?;
            Ok(Handled::Forward(Box::new(Forward { body_read, message, ..*forward })))
        }
        Handler::Face(scope, face, _) => {
            let principal = authenticated(gateway, &request, &found, *scope).await?;
            read(&mut request, body).await?;
            let target = (face.target)(&request, params)?;
            to_session_of(target, gateway, request_id, &found, principal, request).await
        }
        Handler::Split(scope, face, handler, _) => {
            let principal = authenticated(gateway, &request, &found, *scope).await?;
            read(&mut request, body).await?;
            let call = TenantCall { gateway, request_id, request: &request, params, caller: &principal };
            let target = match handler(&call).await? {
                Split::Response(response) => return Ok(Handled::Response(response)),
                Split::Forward => (face.target)(&request, params)?,
                Split::ForwardTo(session) => Target::controlling(session),
            };
            to_session_of(target, gateway, request_id, &found, principal, request).await
        }
        Handler::NewSession(scope, _) => {
            let principal = authenticated(gateway, &request, &found, *scope).await?;
            read(&mut request, body).await?;
            Ok(Handled::Forward(
                forward::to_new_session(gateway, params, principal, request_id, request).await?,
            ))
        }
    }
}

/// Forwards a request of another protocol to the object of its session.
async fn to_session_of(
    target: Target,
    gateway: &Gateway,
    request_id: &RequestId,
    found: &RouteMatch,
    principal: Principal,
    request: Request,
) -> Result<Handled, Problem> {
    check_user(&principal, target.user.as_deref(), "/")?;
    check_agent(gateway, &principal.tenant, target.agent.as_deref(), "/").await?;
    let session = forward::target_session(gateway, &request, &found.params, &principal, &target)?;
    let message = match found.route.starts_turn && !target.controls {
        true => admitted(gateway, &principal, &session, &request).await?,
        false => None,
    };
    let body_read = request::has_body(request.method());
    let forward = forward::to_session(principal, session, request_id, request)?;
    Ok(Handled::Forward(Box::new(Forward { body_read, message, ..*forward })))
}

/// Authenticates a caller of a tenant, and admits the request.
async fn authenticated(
    gateway: &Gateway,
    request: &Request,
    found: &RouteMatch,
    scope: Scope,
) -> Result<Principal, Problem> {
    let caller = auth::principal(gateway, request, found, scope).await?;
    admit(gateway, &caller, request).await?;
    Ok(caller)
}

/// Checks that a request names no other user and no unknown agent in the query, and counts it.
async fn admit(gateway: &Gateway, caller: &Principal, request: &Request) -> Result<(), Problem> {
    check_user(caller, request.query("user").as_deref(), "?")?;
    check_agent(gateway, &caller.tenant, request.query("agent").as_deref(), "?").await?;
    request_limit::count(gateway, caller).await
}

/// Refuses a message that the ledger would refuse, before it starts the object of its session. A message with an
/// Idempotency-Key always passes: its session may have stored the response.
async fn admitted(
    gateway: &Gateway,
    caller: &Principal,
    session: &SessionId,
    request: &Request,
) -> Result<Option<ForwardedMessage>, Problem> {
    if idempotency::key(request)?.is_some() {
        return Ok(None);
    }
    let (quota, now) = (gateway.quota(caller), gateway.clock.now());
    let admitted = match (gateway.refusals.find(&caller.tenant, quota, now), quota.concurrent_turns) {
        (Some(reached), _) => Err(reached),
        (None, Some(limit)) => gateway.messages.add(&caller.tenant, session, limit, now).map(Some),
        (None, None) => Ok(None),
    };
    match admitted {
        Ok(message) => Ok(message),
        Err(reached) => {
            // The response may be held for seconds.
            request.body().release();
            Err(over_limit::refuse(gateway, &caller.tenant, reached, reached.resets_at).await)
        }
    }
}

/// Reads the body of a request whose method has one.
async fn read(
    request: &mut Request,
    body: impl Future<Output = Result<Bytes, Problem>>,
) -> Result<(), Problem> {
    if request::has_body(request.method()) {
        let body = body.await?;
        if body.len() > MAX_BODY {
            return Err(request::too_large());
        }
        *request.body_mut() = body.into();
    }
    Ok(())
}

/// Runs a handler, at most once for each Idempotency-Key if its route says so. The key belongs to a tenant, or to the
/// operator, and to an owner.
async fn once(
    gateway: &Gateway,
    request_id: &RequestId,
    found: &RouteMatch,
    request: &Request,
    (tenant, owner): (Option<&TenantId>, &Value),
    work: Responding<'_>,
) -> Result<Handled, Problem> {
    let key = if found.route.once { RequestKey::of(request, &found.params, owner)? } else { None };
    let Some(key) = key else { return Ok(Handled::Response(work.await?)) };
    let response = match gateway.cipher()? {
        Some(cipher) => {
            idempotency::once(&DirectoryStore { gateway, cipher, tenant, request_id }, &key, work).await?
        }
        None => work.await?,
    };
    Ok(Handled::Response(response))
}

/// Returns the owner of a stored response: only the same credentials with the same user and agent receive it
/// again.
fn owner(caller: &Principal, request: &Request) -> Value {
    json!([caller.tenant, caller.user, request.query("user"), request.query("agent"), caller.scopes])
}
