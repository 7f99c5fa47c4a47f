//! Handles requests in the object of one session, next to the session's state.

pub(super) mod artifacts;
pub mod call;
pub(super) mod checks;
pub(super) mod decisions;
pub(super) mod delete;
mod documents;
pub(super) mod events;
pub(super) mod feed;
pub(super) mod fork;
pub(super) mod message;
mod permissions;
pub(super) mod resource;
pub mod socket;
pub mod sockets;
pub(super) mod subscription;
pub(super) mod turns;
pub(super) mod update;

use self::call::{Call, SessionRequest};
use self::documents::DocumentStore;
use super::idempotency::{self, RequestKey};
use super::response::Response;
use super::route::Handler;
use super::routes;
use crate::agent::SessionHost;
use crate::types::Problem;
use http::Method;
use serde_json::Value;
use std::rc::Rc;

/// Handles a request that the gateway has forwarded.
///
/// # Errors
/// The problem to respond with.
pub async fn respond(host: &Rc<SessionHost>, asked: &SessionRequest) -> Result<Response, Problem> {
    let found = routes::find(asked.request.method(), asked.request.uri().path())?;
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
    // Before the lookup of the session, after which nothing may await.
    if found.route.creates_session && !host.store().exists()? {
        host.check_new_session(&asked.principal.tenant, &asked.principal.policy.limits).await?;
    }
    let call = Call::enter(host, asked, found.params, key)?;
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
