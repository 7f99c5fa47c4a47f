//! Tickets: credentials that browsers put into the URL, because `EventSource` and `WebSocket` cannot send
//! headers. A ticket is signed, short-lived, and opens the streams of one session.

use super::body;
use super::crypto::{derive, hmac, verify_hmac};
use super::gateway::{Gateway, TenantCall};
use super::owner::check_user;
use super::request::RequestExt;
use super::response::{self, Response};
use crate::types::{ErrorCode, Principal, Problem, Rules, Scope, SessionId, Timestamp, UserId};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// How long a ticket opens streams. An open stream stays open.
const TTL: Duration = Duration::from_mins(5);

#[derive(Deserialize)]
struct NewTicket {
    session: String,
    #[serde(default)]
    user: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Ticket {
    holder: Principal,
    expires_at: Timestamp,
}

/// `POST /v1/tickets`. The session itself checks on use whether it exists and belongs to the holder.
pub(super) async fn create(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let new: NewTicket = body::json(call.request)?;
    let session =
        SessionId::parse(&new.session).ok_or_else(|| Problem::field("/session", "not a session id"))?;
    check_user(call.caller, new.user.as_deref(), "/")?;
    let named = new.user.or_else(|| call.request.query("user"));
    let user = call.caller.user.as_deref().or(named.as_deref());
    let user = user.map(|user| UserId::parse(user).ok_or_else(|| Problem::field("/user", "not a user name")));
    let user = user.transpose()?;
    let key = signing_key(call.gateway).ok_or_else(|| {
        Problem::new(ErrorCode::NotConfigured, "tickets need an ADMIN_KEY, which signs them")
    })?;
    let mut holder =
        Principal { user, session: Some(session), rules: Rules::default(), ..call.caller.clone() };
    holder.scopes.0.retain(|scope| *scope != Scope::Admin);
    let expires_at = call.gateway.clock.now() + TTL;
    let text = response::to_json(&Ticket { holder, expires_at })?;
    let [text, tag] = [text.as_slice(), &hmac(&key, &text)].map(|part| URL_SAFE_NO_PAD.encode(part));
    let ticket = json!({ "ticket": format!("{text}.{tag}"), "expires_at": expires_at });
    response::json(StatusCode::CREATED, &ticket)
}

/// Returns the holder of a ticket; `None` when the signature is wrong or the ticket has expired.
pub(super) fn open_ticket(gateway: &Gateway, ticket: &str) -> Option<Principal> {
    let (text, tag) = ticket.split_once('.')?;
    let text = URL_SAFE_NO_PAD.decode(text).ok()?;
    if !verify_hmac(&signing_key(gateway)?, &text, &URL_SAFE_NO_PAD.decode(tag).ok()?) {
        return None;
    }
    let ticket: Ticket = serde_json::from_slice(&text).ok()?;
    (ticket.expires_at > gateway.clock.now()).then_some(ticket.holder)
}

fn signing_key(gateway: &Gateway) -> Option<[u8; 32]> {
    Some(derive(gateway.config.admin_key.as_deref()?, "ticket"))
}
