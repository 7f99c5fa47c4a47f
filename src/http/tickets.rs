//! Tickets: what a browser's `EventSource` or `WebSocket` puts into the URL, since it cannot send
//! headers. Signed, short-lived, good for one session's streams.

use super::front::Front;
use super::seal::{derive, hmac, hmac_is};
use super::{ApiRequest, ApiResponse, body};
use crate::http::failure::Failure;
use crate::types::{ErrorCode, Principal, Problem, Rules, Scope, Timestamp, id};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How long a ticket opens a stream; a stream that is open stays open.
const KEPT_MS: u64 = 5 * 60_000;

#[derive(Deserialize)]
struct Ask {
    session: String,
    #[serde(default)]
    user: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Ticket {
    holder: Principal,
    expires_at: Timestamp,
}

impl Front {
    /// `POST /v1/tickets`. Whether the session is there and the caller's is for the session to say.
    pub(super) fn create_ticket(
        &self,
        request: &ApiRequest,
        caller: &Principal,
    ) -> Result<ApiResponse, Failure> {
        let ask: Ask = body::json(request)?;
        if !id::is_valid(&ask.session) {
            return Err(Problem::field("/session", "not a session id").into());
        }
        let user = caller.user.clone().or(ask.user).or_else(|| request.query("user"));
        if user.as_deref().is_some_and(|user| !id::is_user(user)) {
            return Err(Problem::field("/user", "cannot be a user's name").into());
        }
        let key = self.ticket_key().ok_or_else(|| {
            Problem::new(ErrorCode::NotConfigured, "tickets need an ADMIN_KEY, which signs them")
        })?;
        let session = Some(ask.session);
        let mut holder = Principal { user, session, rules: Rules::default(), ..caller.clone() };
        holder.scopes.0.retain(|scope| *scope != Scope::Admin);
        let expires_at = self.clock.now().plus(KEPT_MS);
        let text = serde_json::to_vec(&Ticket { holder, expires_at })
            .map_err(|error| Problem::internal(error.to_string()))?;
        let [text, tag] = [text.as_slice(), &hmac(&key, &text)].map(|part| URL_SAFE_NO_PAD.encode(part));
        Ok(ApiResponse::json(201, &json!({ "ticket": format!("{text}.{tag}"), "expires_at": expires_at }))?)
    }

    /// The holder of a ticket; `None` when it is not ours or has expired.
    pub(super) fn open_ticket(&self, ticket: &str) -> Option<Principal> {
        let (text, tag) = ticket.split_once('.')?;
        let text = URL_SAFE_NO_PAD.decode(text).ok()?;
        if !hmac_is(&self.ticket_key()?, &text, &URL_SAFE_NO_PAD.decode(tag).ok()?) {
            return None;
        }
        let ticket: Ticket = crate::types::json::read(&text).ok()?;
        (ticket.expires_at > self.clock.now()).then_some(ticket.holder)
    }

    fn ticket_key(&self) -> Option<[u8; 32]> {
        Some(derive(self.config.admin_key.as_deref()?, "ticket"))
    }
}
