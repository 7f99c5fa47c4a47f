//! Tickets: credentials that browsers put into the URL, because `EventSource` and `WebSocket` cannot send
//! headers. A ticket is signed, short-lived, and opens the streams of one session.

use super::crypto::{Cipher, derive, hmac, sha256_hex, verify_hmac};
use super::gateway::{Gateway, TenantCall};
use super::owner::check_user;
use super::request::RequestExt;
use super::response::{self, Response};
use super::{body, scopes};
use crate::types::{
    ErrorCode, Principal, Problem, Scope, Scopes, SessionId, TenantPolicy, Timestamp, UserId, json,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// How long a ticket opens streams. An open stream stays open.
const TTL: Duration = Duration::from_mins(5);
/// Random bytes of the key that signs tickets.
const KEY_BYTES: usize = 32;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewTicket {
    /// The session whose streams the ticket opens.
    session: String,
    /// The user, if you authenticate with a key.
    #[serde(default)]
    user: Option<String>,
    /// The scopes of the ticket; `read` if absent.
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
}

#[derive(Serialize, Deserialize)]
struct Ticket {
    holder: Principal,
    expires_at: Timestamp,
}

/// `POST /v1/tickets`. The default scope is `read`. The session itself checks on use whether it exists and belongs
/// to the holder.
pub(super) async fn create(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let new: NewTicket = body::json(call.request)?;
    let session =
        SessionId::parse(&new.session).ok_or_else(|| Problem::field("/session", "not a session id"))?;
    check_user(call.caller, new.user.as_deref(), "/")?;
    let named = new.user.or_else(|| call.request.query("user"));
    let user = call.caller.user.as_deref().or(named.as_deref());
    let user = user.map(|user| UserId::parse(user).ok_or_else(|| Problem::field("/user", "not a user name")));
    let user = user.transpose()?;
    let scopes = match new.scopes {
        Some(named) => narrowed(named, &call.caller.scopes)?,
        None => Scopes(vec![Scope::Read]),
    };
    let key = signing_key(call.gateway).await?;
    // The holder can read the ticket, and need not be the client that creates it, so the address stays out.
    let (policy, address) = (TenantPolicy::default(), None);
    let holder = Principal { user, scopes, session: Some(session), policy, address, ..call.caller.clone() };
    let expires_at = call.gateway.clock.now() + TTL;
    let text = response::to_json(&Ticket { holder, expires_at })?;
    let [text, tag] =
        [text.as_slice(), &hmac(key.as_bytes(), &text)].map(|part| URL_SAFE_NO_PAD.encode(part));
    let ticket = json!({ "ticket": format!("{text}.{tag}"), "expires_at": expires_at });
    response::json(StatusCode::CREATED, &ticket)
}

/// Returns the scopes of a ticket. A ticket is in a URL, which leaks more easily than a header, so it never has
/// the scope `admin`.
fn narrowed(named: Vec<Scope>, own: &Scopes) -> Result<Scopes, Problem> {
    for (index, scope) in named.iter().enumerate() {
        let refused = |detail: String| Err(Problem::field(format!("/scopes/{index}"), detail));
        if *scope == Scope::Admin {
            return refused("a ticket cannot have this scope".into());
        }
        if !own.allow(*scope) {
            return refused(format!("your key or token lacks the scope {}", scope.name()));
        }
    }
    scopes::checked(named, "/scopes")
}

/// Returns the holder of a ticket; `None` when the signature is wrong or the ticket has expired.
///
/// # Errors
/// `not_configured` without a valid operator's key; `unavailable` when the key of tickets cannot be read.
pub(super) async fn open_ticket(gateway: &Gateway, ticket: &str) -> Result<Option<Principal>, Problem> {
    let Some([text, tag]) = parts(ticket) else { return Ok(None) };
    if !verify_hmac(signing_key(gateway).await?.as_bytes(), &text, &tag) {
        return Ok(None);
    }
    let ticket: Option<Ticket> = json::from_slice(&text).ok();
    let now = gateway.clock.now();
    Ok(ticket.filter(|ticket| ticket.expires_at > now).map(|ticket| ticket.holder))
}

/// Returns the text of a ticket and its signature.
fn parts(ticket: &str) -> Option<[Vec<u8>; 2]> {
    let (text, tag) = ticket.split_once('.')?;
    Some([URL_SAFE_NO_PAD.decode(text).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?])
}

/// Returns the key that signs tickets. It is random, because the holder of a ticket could guess a key that is
/// derived from the operator's key. The directory stores it encrypted, for all isolates.
async fn signing_key(gateway: &Gateway) -> Result<Rc<str>, Problem> {
    if let Some(key) = gateway.cache.ticket_key.get() {
        return Ok(Rc::clone(key));
    }
    let missing = || Problem::new(ErrorCode::NotConfigured, "tickets need an ADMIN_KEY");
    let admin_key = gateway.admin_key()?.ok_or_else(missing)?;
    let cipher = Cipher::new(admin_key);
    // The name depends on the operator's key: a new operator's key cannot decrypt the old key of tickets.
    let name = format!("tickets {}", sha256_hex(&derive(admin_key, "ticket key")));
    let mut bytes = [0; KEY_BYTES];
    gateway.entropy.fill(&mut bytes);
    let new = cipher
        .encrypt(&*gateway.entropy, &name, &URL_SAFE_NO_PAD.encode(bytes))
        .ok_or_else(|| Problem::internal("the key of tickets could not be encrypted"))?;
    let stored = gateway.directory.secret(&name, &new).await?;
    let key = cipher.decrypt(&name, &stored);
    let key = key.ok_or_else(|| Problem::internal("the key of tickets cannot be decrypted"))?;
    Ok(Rc::clone(gateway.cache.ticket_key.get_or_init(|| key.into())))
}
