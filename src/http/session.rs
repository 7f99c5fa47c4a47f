//! Handles requests in the object of one session, next to the session's state.

pub(super) mod artifacts;
pub mod call;
pub(super) mod checks;
mod children;
pub(super) mod decisions;
pub(super) mod delete;
mod documents;
pub(super) mod events;
pub(super) mod feed;
pub(super) mod fork;
pub(super) mod message;
mod permissions;
pub(super) mod resource;
pub(super) mod runs;
pub mod socket;
pub mod sockets;
pub(super) mod subscription;
pub(super) mod tasks;
pub(super) mod turns;
pub(super) mod update;

use self::call::{Call, SessionRequest};
use self::documents::DocumentStore;
use super::body;
use super::idempotency::{self, RequestKey};
use super::owner::agent_of;
use super::request::RequestExt;
use super::response::Response;
use super::route::{Handler, RouteMatch};
use super::routes;
use crate::agent::SessionHost;
use crate::standard::DEFAULT_USER;
use crate::types::{Owner, Problem, UserId};
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use std::rc::Rc;

/// How many times a request is prepared if other requests create or delete its session at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Handles a request that the gateway has forwarded.
///
/// # Errors
/// The problem to respond with.
pub async fn respond(host: &Rc<SessionHost>, asked: &SessionRequest) -> Result<Response, Problem> {
    let found = routes::find(asked.request.method(), asked.request.uri().path())?;
    host.await_erasure().await?;
    let handler = match &found.route.handler {
        Handler::Session(_, handler)
        | Handler::NewSession(_, handler)
        | Handler::Face(_, _, handler)
        | Handler::Split(_, _, _, handler) => handler,
        Handler::Unread(_, handler) => return handler(host, asked).await,
        Handler::Public(_) | Handler::Operator(_) | Handler::Tenant(..) | Handler::Socket(_) => {
            return Err(Problem::internal("the session's object received a route of the gateway"));
        }
    };
    let key = match *asked.request.method() {
        Method::POST => RequestKey::of(&asked.request, &found.params, &Value::Null)?,
        _ => None,
    };
    let call = enter(host, asked, &found, key).await?;
    if !call.is_readable() {
        // Nothing of the session may change. The handler checks its owner first, so that only the owner learns
        // that it exists.
        return handler(&call).await;
    }
    // Each request carries the tenant's current policy.
    host.apply_tenant_policy(&asked.principal.tenant, &asked.principal.policy)?;
    match &call.key {
        Some(key) if found.route.once => {
            let shows_session = matches!(found.route.handler, Handler::NewSession(..));
            idempotency::once(&DocumentStore { call: &call, shows_session }, key, handler(&call)).await
        }
        _ => handler(&call).await,
    }
}

/// Looks up the session. Its agent is loaded, or the agent of the session that the request creates.
async fn enter<'a>(
    host: &'a Rc<SessionHost>,
    asked: &'a SessionRequest,
    found: &RouteMatch,
    key: Option<RequestKey>,
) -> Result<Call<'a>, Problem> {
    if *asked.request.method() == Method::POST {
        host.read_deletion().await;
    }
    let mut may_create = false;
    for _ in 0..MAX_ATTEMPTS {
        host.load_agent().await?;
        let is_missing = || Ok::<_, Problem>(found.route.creates_session && !host.store().exists()?);
        let mut own = None;
        if is_missing()? {
            let (tenant, limits) = (&asked.principal.tenant, &asked.principal.policy.limits);
            let owner = new_owner(found, asked)?;
            // Before the agent is loaded, so that no other request loads another one during this await.
            if !may_create {
                host.check_new_session(tenant, limits).await?;
                may_create = true;
            }
            host.load_new_agent(tenant, &owner.user, &owner.agent).await?;
            own = Some(owner);
        }
        // During the awaits, another request may have created the session, or moved it to another version.
        host.load_agent().await?;
        let call = Call::enter(host, asked, found.params.clone(), key.clone()).await?;
        // Another request may also have erased the session, or loaded the agent of another user for a new one.
        if !is_missing()? || own.is_some_and(|owner| host.loaded_version(&owner).is_ok()) {
            return Ok(call);
        }
    }
    Err(Problem::unavailable("other requests create or delete this session; try again", "too many attempts"))
}

/// Returns the owner of the session that a request creates.
fn new_owner(found: &RouteMatch, asked: &SessionRequest) -> Result<Owner, Problem> {
    #[derive(Deserialize, Default)]
    struct Named {
        user: Option<String>,
        agent: Option<String>,
    }
    let request = &asked.request;
    let named = match &found.route.handler {
        // The handler writes errors in the form of its protocol.
        Handler::Face(_, face, _) | Handler::Split(_, face, ..) => {
            let target = (face.target)(request, &found.params).ok();
            target.map(|target| Named { user: target.user, agent: target.agent }).unwrap_or_default()
        }
        Handler::NewSession(..) => body::json_or_empty(request)?,
        // The agent of a message is in the query only.
        _ => Named { agent: None, ..body::json_or_empty(request).unwrap_or_default() },
    };
    // The handler refuses another user than that of the credential.
    let user = named.user.or_else(|| request.query("user"));
    let user = asked.principal.user.clone().or_else(|| user.and_then(|user| UserId::parse(&user)));
    let agent = agent_of(named.agent.or_else(|| request.query("agent")).as_deref(), "/")?;
    let tenant = asked.principal.tenant.clone();
    Ok(Owner { tenant, agent, user: user.unwrap_or_else(|| DEFAULT_USER.into()) })
}
