//! The client of an authorization server: from the definition, by its metadata, or registered (RFC 7591).

use super::discovery::Issuer;
use super::vault::{self, key};
use super::{Answer, CALLBACK, CLIENT_METADATA, Ports, Subject, post, send, text};
use crate::mcp::{error::McpError, server::McpServer};
use crate::ports::{
    HttpRequest,
    consents::{ConsentKey, ConsentKind},
    secrets,
};
use crate::types::{TenantId, Timestamp, json::from_value};
use base64::{Engine, engine::general_purpose::STANDARD};
use form_urlencoded::{Serializer, byte_serialize};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a registered client is used. An authorization server that has dropped it says so to the user only.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Method {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

/// A client of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Client {
    pub id: String,
    secret: Option<String>,
    method: Method,
}

/// Where tokens are issued, to which client, and for what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    /// The authorization server.
    pub issuer: String,
    pub token_endpoint: String,
    pub client: Client,
    /// The identifier of the server.
    pub resource: String,
    /// The scopes that were requested or granted.
    pub scope: Option<String>,
}

/// A client that has registered itself.
#[derive(Debug, Serialize, Deserialize)]
struct Registered {
    client: Client,
    /// Until when it is used for requests for consent.
    until: Timestamp,
}

impl Client {
    /// Returns the request to a token endpoint.
    fn request(&self, endpoint: &str, params: &[(&str, &str)]) -> HttpRequest {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(params);
        if self.method != Method::ClientSecretBasic {
            form.append_pair("client_id", &self.id);
        }
        if let (Method::ClientSecretPost, Some(secret)) = (self.method, &self.secret) {
            form.append_pair("client_secret", secret);
        }
        let mut request = post(endpoint, "application/x-www-form-urlencoded", form.finish());
        if let (Method::ClientSecretBasic, Some(secret)) = (self.method, &self.secret) {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = STANDARD.encode(format!("{}:{}", encoded(&self.id), encoded(secret)));
            request.headers.push(("authorization".into(), format!("Basic {pair}")));
        }
        request
    }
}

/// Returns the metadata of the client of a deployment.
pub(in crate::mcp) fn metadata(public_url: &str) -> Value {
    json!({
        "client_id": format!("{public_url}{CLIENT_METADATA}"),
        "client_name": "edge-harness",
        "client_uri": public_url,
        "redirect_uris": [format!("{public_url}{CALLBACK}")],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    })
}

/// Returns the client for an authorization server.
pub(super) async fn of(
    ports: &Ports,
    subject: &Subject,
    server: &McpServer,
    issuer: &Issuer,
    public_url: &str,
) -> Result<Client, McpError> {
    if let Some(own) = &server.oauth_client {
        if own.issuer != issuer.issuer {
            let why = "it names an authorization server that is not the `issuer` of `oauth_client`";
            return Err(McpError::Consent(why.into()));
        }
        let Some(name) = &own.secret else {
            return Ok(Client { id: own.id.clone(), secret: None, method: Method::None });
        };
        let mut found = secrets::read(ports.secrets.as_ref(), &subject.tenant, [name.as_str()]).await?;
        let method = method(issuer, &[Method::ClientSecretBasic, Method::ClientSecretPost])?;
        return Ok(Client { id: own.id.clone(), secret: found.remove(name), method });
    }
    let metadata = metadata(public_url);
    if issuer.takes_client_metadata && public_url.starts_with("https:") {
        let id = text(&metadata, "client_id").unwrap_or_default();
        return Ok(Client { id, secret: None, method: Method::None });
    }
    let key = row(&subject.tenant, &issuer.issuer, public_url);
    let now = ports.clock.now();
    if let Some((Registered { client, until }, _)) = vault::get(ports, &key).await?
        && until > now
    {
        return Ok(client);
    }
    let Some(endpoint) = &issuer.registration_endpoint else {
        let why =
            "its authorization server registers no clients: set `oauth_client` in the agent's definition";
        return Err(McpError::Consent(why.into()));
    };
    let registered = register(ports, issuer, endpoint, metadata).await?;
    vault::put(ports, &key, &registered, None).await?;
    Ok(registered.client)
}

/// Returns the key of a registered client.
fn row(tenant: &TenantId, issuer: &str, public_url: &str) -> ConsentKey {
    key(tenant, None, ConsentKind::Client, &format!("{issuer} {public_url}"))
}

/// Sends a request to a token endpoint. A registered client that the authorization server does not know any more is
/// registered anew for the next request for consent.
pub(super) async fn ask(
    ports: &Ports,
    tenant: &TenantId,
    Grant { issuer, token_endpoint, client, .. }: &Grant,
    params: &[(&str, &str)],
) -> Result<Answer, McpError> {
    let answer = send(ports, client.request(token_endpoint, params)).await?;
    if answer.body.get("error").is_some_and(|error| error == "invalid_client")
        && let Some(public_url) = &ports.public_url
    {
        let key = row(tenant, issuer, public_url);
        if let Some((registered, version)) = vault::get::<Registered>(ports, &key).await?
            && registered.client == *client
        {
            ports.consents.delete(&key, version).await?;
        }
    }
    Ok(answer)
}

async fn register(
    ports: &Ports,
    issuer: &Issuer,
    endpoint: &str,
    mut metadata: Value,
) -> Result<Registered, McpError> {
    let preferred = method(issuer, &[Method::None, Method::ClientSecretBasic, Method::ClientSecretPost])?;
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("client_id");
        metadata.insert("token_endpoint_auth_method".into(), json!(preferred));
        metadata.insert("application_type".into(), "web".into());
    }
    let answer = send(ports, post(endpoint, "application/json", metadata.to_string())).await?;
    let refused = || {
        McpError::Consent(format!(
            "its authorization server refused to register a client with status {}",
            answer.status
        ))
    };
    if !matches!(answer.status, 200 | 201) {
        return Err(refused());
    }
    let id = text(&answer.body, "client_id").ok_or_else(refused)?;
    let secret = text(&answer.body, "client_secret");
    let chosen =
        answer.body.get("token_endpoint_auth_method").and_then(|method| from_value(method.clone()).ok());
    let method = chosen.unwrap_or(preferred);
    let now = ports.clock.now();
    // 0 means that it does not expire.
    let secret_end =
        answer.body.get("client_secret_expires_at").and_then(Value::as_u64).filter(|end| *end > 0);
    let secret_end = secret_end.map(|seconds| Timestamp(seconds.saturating_mul(1_000)));
    let until = secret_end.into_iter().chain([now + MAX_AGE]).min().unwrap_or(now);
    Ok(Registered { client: Client { id, secret, method }, until })
}

/// Returns the first of these methods that an authorization server supports.
fn method(issuer: &Issuer, wanted: &[Method]) -> Result<Method, McpError> {
    let name = |method: &Method| json!(method).as_str().unwrap_or_default().to_owned();
    let supported = |method: &&Method| match &issuer.auth_methods {
        Some(methods) => methods.contains(&name(method)),
        // The default of RFC 8414. Those without a list mostly accept public clients, too.
        None => true,
    };
    let why = "its authorization server supports no known way to authenticate a client";
    wanted.iter().find(supported).copied().ok_or_else(|| McpError::Consent(why.into()))
}
