//! The client of an authorization server: from the definition, by its metadata, or registered (RFC 7591).

use super::discovery::Issuer;
use super::vault::{self, key};
use super::{CALLBACK, CLIENT_METADATA, Ports, Subject, post, send, text};
use crate::mcp::{error::McpError, server::McpServer};
use crate::ports::{HttpRequest, consents::ConsentKind, secrets};
use base64::{Engine, engine::general_purpose::STANDARD};
use form_urlencoded::{Serializer, byte_serialize};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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

impl Client {
    /// Returns the request to a token endpoint.
    pub fn request(&self, endpoint: &str, params: &[(&str, &str)]) -> HttpRequest {
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
    let key = key(&subject.tenant, None, ConsentKind::Client, &format!("{} {public_url}", issuer.issuer));
    if let Some((client, _)) = vault::get(ports, &key).await? {
        return Ok(client);
    }
    let Some(endpoint) = &issuer.registration_endpoint else {
        let why =
            "its authorization server registers no clients: set `oauth_client` in the agent's definition";
        return Err(McpError::Consent(why.into()));
    };
    let client = register(ports, issuer, endpoint, metadata).await?;
    vault::put(ports, &key, &client, None).await?;
    Ok(client)
}

async fn register(
    ports: &Ports,
    issuer: &Issuer,
    endpoint: &str,
    mut metadata: Value,
) -> Result<Client, McpError> {
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
        answer.body.get("token_endpoint_auth_method").and_then(|method| Method::deserialize(method).ok());
    let method = chosen.unwrap_or(preferred);
    Ok(Client { id, secret, method })
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
