//! `GET /mcp`: the rest of a response to a legacy client whose connection was lost.

use super::ask::Format;
use super::event_id::EventId;
use super::handshake::{HEADER as SESSION_HEADER, Handshake};
use super::version::MODERN;
use super::writer::CallFormat;
use super::{calls, message};
use crate::http::cors;
use crate::http::gateway::TenantCall;
use crate::http::request::RequestExt;
use crate::http::response::Response;
use crate::http::route::Split;
use crate::http::session::call::Call;
use crate::http::session::subscription::TurnSubscription;
use crate::types::{ErrorCode, Problem, Scope};
use std::rc::Rc;

/// Forwards a client to the session of the last event that it has received.
///
/// # Errors
/// `method_not_allowed` without such an event: the server sends nothing outside of responses.
pub async fn at_gateway(call: &TenantCall<'_>) -> Result<Split, Problem> {
    cors::check_origin(&call.gateway.config.origins, call.request)?;
    let is_modern = call.request.header(message::VERSION_HEADER) == Some(MODERN);
    if is_modern || call.request.header("last-event-id").is_none() {
        let problem =
            Problem::new(ErrorCode::MethodNotAllowed, "there is no stream without `last-event-id`; use POST");
        return Err(Problem { allow: Some("POST".to_owned()), ..problem });
    }
    Ok(Split::ForwardTo(EventId::of(call.request)?.session))
}

/// Responds with the rest of the response, in the session.
pub async fn in_session(call: &Call<'_>) -> Result<Response, Problem> {
    let EventId { turn, request, progress_token, position, .. } = EventId::of(call.request)?;
    let session = call.session()?;
    session.turn(&turn)?.ok_or_else(|| Problem::not_found("turn"))?;
    let handshake = call.request.header(SESSION_HEADER).and_then(Handshake::parse);
    let format = CallFormat {
        label: handshake.as_ref().map(|handshake| calls::name(handshake, &request)),
        id: request,
        is_modern: false,
        progress_token,
        elicits: handshake.is_some_and(|handshake| handshake.elicits),
        may_approve: call.principal.scopes.allow(Scope::Approve),
        streams: true,
        session: call.session_id.clone(),
        after: Some(position),
    };
    // Waits that are over need no form any more.
    let waits = session.waits(&turn)?.saturating_sub(u32::from(session.is_waiting(&turn)));
    let format = Rc::new(Format::new(call, format));
    TurnSubscription::replay(call, session, &turn, format, waits)?.respond(session).await
}
