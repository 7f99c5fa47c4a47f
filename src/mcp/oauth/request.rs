//! Requests for consent: the URL that the user opens.

use super::client::{self, Grant};
use super::pending::{Request, hash};
use super::token::{Token, Tokens};
use super::vault::{self, key};
use super::{CALLBACK, Challenge, Ports, Subject, discovery};
use crate::mcp::{elicitation::page, error::McpError, server::McpServer};
use crate::ports::consents::ConsentKind;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use url::Url;

/// How long the user can use the URL. A call that still waits gets another one if it is answered.
const TTL: Duration = Duration::from_hours(24);
/// Maximum length of the URL, in bytes.
const MAX_URL: usize = 8_192;
/// The scope for a token that can be refreshed.
const OFFLINE: &str = "offline_access";

/// A request that was made.
#[derive(Debug)]
pub(in crate::mcp) struct Asked {
    /// The name of the request in the store.
    pub request: String,
    /// The URL that the user opens.
    pub url: String,
}

/// Makes a request for consent.
///
/// # Errors
/// The metadata of the server or of its authorization server does not allow it.
pub(in crate::mcp) async fn begin(
    ports: &Rc<Ports>,
    subject: &Subject,
    server: &McpServer,
    challenge: &Challenge,
) -> Result<Asked, McpError> {
    let Some(public_url) = &ports.public_url else {
        let why =
            "the operator has not set PUBLIC_URL, to which the authorization server sends the user back";
        return Err(McpError::Consent(why.into()));
    };
    let resource = discovery::resource(ports, &subject.resource, challenge).await?;
    let issuer = discovery::issuer(ports, &resource).await?;
    let client = client::of(ports, subject, server, &issuer, public_url).await?;
    let before =
        Tokens::new(ports, subject).stored().await?.filter(|token| token.grant.issuer == issuer.issuer);
    let scope = scope(challenge, resource.scopes.as_deref(), before.as_ref(), &issuer.scopes)?;
    let (state, verifier) = (random(ports), random(ports));
    let redirect_uri = format!("{public_url}{CALLBACK}");
    let endpoint = page(&issuer.authorization_endpoint, &ports.hosts);
    let url = endpoint.and_then(|endpoint| Url::parse(&endpoint).ok());
    let mut url =
        url.ok_or_else(|| McpError::Consent("its page for consent has a URL that is refused".into()))?;
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", &redirect_uri)
        .append_pair("state", &state)
        .append_pair("code_challenge", &hash(&verifier))
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &resource.id);
    if let Some(scope) = &scope {
        url.query_pairs_mut().append_pair("scope", scope);
    }
    if url.as_str().len() > MAX_URL {
        return Err(McpError::Consent("its page for consent has a URL that is too long".into()));
    }
    let grant = Grant {
        issuer: issuer.issuer,
        token_endpoint: issuer.token_endpoint,
        client,
        resource: resource.id,
        scope,
    };
    let (must_name_itself, server) = (issuer.must_name_itself, subject.resource.clone());
    let request = Request { verifier, redirect_uri, must_name_itself, server, grant, parked: None };
    let key = key(&subject.tenant, Some(&subject.user), ConsentKind::Request, &hash(&state));
    vault::put(ports, &key, &request, Some(ports.clock.now() + TTL)).await?;
    Ok(Asked { request: key.name, url: url.into() })
}

/// Returns the scopes to request: those that the server asks for, besides those that the user has granted before.
fn scope(
    challenge: &Challenge,
    supported: Option<&[String]>,
    before: Option<&Token>,
    of_issuer: &[String],
) -> Result<Option<String>, McpError> {
    let wanted = challenge.scope.clone().or_else(|| supported.map(|all| all.join(" ")));
    let Some(wanted) = wanted.filter(|scope| !scope.trim().is_empty()) else { return Ok(None) };
    let mut scopes: BTreeSet<&str> = wanted.split_whitespace().collect();
    let granted = before.and_then(|token| token.grant.scope.as_deref()).unwrap_or_default();
    let granted: BTreeSet<&str> = granted.split_whitespace().collect();
    if challenge.lacks_scope && scopes.is_subset(&granted) {
        return Err(McpError::Consent("it asks for scopes again that the user has granted".into()));
    }
    scopes.extend(granted);
    if of_issuer.iter().any(|scope| scope == OFFLINE) {
        scopes.insert(OFFLINE);
    }
    Ok(Some(scopes.into_iter().collect::<Vec<_>>().join(" ")))
}

/// Returns 256 random bits as text.
fn random(ports: &Ports) -> String {
    let mut bytes = [0; 32];
    ports.entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}
