//! What an authorization server sends back with the browser of the user, and how the user confirms it.
//!
//! An attacker could send the URL of a request to another person, whose consent must not connect the attacker's session. So
//! the code of the authorization server is stored, and the browser shows a confirmation code. The authorization server's
//! code is exchanged when the suspended call gets the confirmation code as its answer.

use super::client;
use super::confirmation;
use super::pending::{Parked, Request, hash};
use super::token::{Token, issued};
use super::vault::{self, key};
use super::{Ports, Subject};
use crate::mcp::error::McpError;
use crate::ports::consents::ConsentKind;
use crate::types::{ConsentPage, ConsentReply, TenantId, Timestamp};
use std::time::Duration;

/// How long the user can enter the confirmation code. Codes of authorization servers are valid for at most 10 minutes, too.
const TTL: Duration = Duration::from_mins(10);

/// Parks what the authorization server has sent back. Returns what the browser shows; `None` if there is no such request, or
/// if it has expired or was used before.
///
/// # Errors
/// The store fails.
pub(in crate::mcp) async fn park(
    ports: &Ports,
    reply: &ConsentReply,
) -> Result<Option<ConsentPage>, McpError> {
    let now = ports.clock.now();
    let Some((key, sealed)) = ports.consents.request(&hash(&reply.state), now).await? else {
        return Ok(None);
    };
    let Some(request) = vault::open::<Request>(ports, &key, &sealed.value) else { return Ok(None) };
    let Some(user) = key.user.clone().filter(|_| request.parked.is_none()) else { return Ok(None) };
    let is_other = reply.iss.as_ref().is_some_and(|iss| *iss != request.grant.issuer);
    let refusal = match &reply.code {
        _ if is_other => "another authorization server has sent the user back",
        _ if request.must_name_itself && reply.iss.is_none() => {
            "the authorization server that has sent the user back does not name itself"
        }
        None => "the user has not given consent",
        Some(code) => {
            let confirmation = confirmation::random(ports);
            let page = ConsentPage::Confirm {
                code: confirmation::shown(&confirmation),
                user,
                server: request.server.clone(),
            };
            let parked = Parked { code: code.clone(), confirmation, until: now + TTL };
            let request = Request { parked: Some(parked), ..request };
            return Ok(vault::replace(ports, &key, &request, sealed.version).await?.then_some(page));
        }
    };
    ports.consents.delete(&key, sealed.version).await?;
    Ok(Some(ConsentPage::Refused(McpError::Consent(refusal.into()).to_string())))
}

/// Exchanges a parked code for a token. Returns whether the confirmation code fits; one that does not ends the request.
///
/// # Errors
/// The authorization server refuses the code. After a [transient](McpError::is_transient) error, the user can confirm again.
pub(in crate::mcp) async fn confirm(
    ports: &Ports,
    subject: &Subject,
    name: &str,
    confirmation: &str,
) -> Result<bool, McpError> {
    let key_of = |kind, name: &str| key(&subject.tenant, Some(&subject.user), kind, name);
    let key = key_of(ConsentKind::Request, name);
    let Some((request, version)) = vault::get::<Request>(ports, &key).await? else { return Ok(false) };
    let now = ports.clock.now();
    // The server of this name may be another one by now, which must not get the token.
    let is_same = request.server == subject.resource;
    let fits =
        |parked: &&Parked| parked.until > now && parked.confirmation == confirmation::entered(confirmation);
    let Some(parked) = request.parked.as_ref().filter(|_| is_same).filter(fits) else {
        ports.consents.delete(&key, version).await?;
        return Ok(false);
    };
    match exchange(ports, &subject.tenant, &request, &parked.code, now).await {
        Ok(token) => {
            let of_token = key_of(ConsentKind::Token, &subject.resource);
            vault::redeem(ports, (&key, version), &of_token, &token).await
        }
        Err(error) => {
            if !error.is_transient() {
                ports.consents.delete(&key, version).await?;
            }
            Err(error)
        }
    }
}

async fn exchange(
    ports: &Ports,
    tenant: &TenantId,
    request: &Request,
    code: &str,
    now: Timestamp,
) -> Result<Token, McpError> {
    let params = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &request.redirect_uri),
        ("code_verifier", &request.verifier),
        ("resource", &request.grant.resource),
    ];
    let answer = client::ask(ports, tenant, &request.grant, &params).await?;
    issued(&answer, &request.grant, None, now)
}
