//! The calls of legacy clients, by the ids of their requests: a client cancels a call by this id alone. The turn of the
//! call has a name that is derived from the id, and the directory records the session of a call that runs outside of
//! its client's own session.

use super::handshake::Handshake;
use super::message::{Asked, Era};
use crate::http::crypto::sha256_hex;
use crate::http::gateway::TenantCall;
use crate::types::{Problem, SessionId};
use serde_json::{Value, json};

/// Names a request among those of all clients. A hash, because the state of a turn must stay small.
pub(super) fn name(handshake: &Handshake, id: &Value) -> String {
    sha256_hex(json!([handshake.to_string(), id]).to_string().as_bytes())
}

/// Returns the key of a call in the directory. It includes the user, so that no user replaces the record of another.
fn key(call: &TenantCall<'_>, handshake: &Handshake, id: &Value) -> String {
    json!([call.listed_user(), name(handshake, id)]).to_string()
}

/// Records in which session a call runs, unless that is its client's own. If this fails, the call runs, but cannot be
/// canceled.
pub(super) async fn record(call: &TenantCall<'_>, asked: &Asked, session: Option<&SessionId>) {
    let Era::Legacy { handshake: Some(handshake) } = &asked.era else { return };
    let Some(session) = session.filter(|session| *session != handshake.session()) else { return };
    let (gateway, tenant) = (call.gateway, &call.caller.tenant);
    let key = key(call, handshake, &asked.id);
    let recorded = gateway.directory.put_call(tenant, &key, session, gateway.clock.now()).await;
    if let Err(error) = recorded {
        gateway.log.error(&json!({
            "event": "mcp.call_not_recorded", "request_id": call.request_id, "cause": error.to_string(),
        }));
    }
}

/// Returns the session in which a call runs: the recorded one, or else its client's own.
///
/// # Errors
/// A failed directory.
pub(super) async fn session(
    call: &TenantCall<'_>,
    handshake: &Handshake,
    id: &Value,
) -> Result<SessionId, Problem> {
    let key = key(call, handshake, id);
    let recorded = call.gateway.directory.session_of_call(&call.caller.tenant, &key).await?;
    Ok(recorded.unwrap_or_else(|| handshake.session().clone()))
}
