//! Metadata of servers (RFC 9728) and of authorization servers (RFC 8414, OpenID Connect Discovery).

use super::{Challenge, Ports, list, read, text};
use crate::mcp::error::McpError;
use serde_json::{Value, json};
use url::Url;

/// The beginning of the paths of metadata.
const WELL_KNOWN: &str = "/.well-known";

/// What a server says about itself.
pub(super) struct Resource {
    /// The authorization server.
    pub issuer: String,
    /// The identifier of the server for which tokens are requested.
    pub id: String,
    /// The scopes that clients should request.
    pub scopes: Option<Vec<String>>,
}

/// What an authorization server says about itself.
pub(super) struct Issuer {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    /// Whether the URL of metadata can be the id of a client.
    pub takes_client_metadata: bool,
    /// How clients authenticate at the token endpoint.
    pub auth_methods: Option<Vec<String>>,
    /// Whether it must name itself when it sends the user back (RFC 9207): it says that it does, or its page and its token
    /// endpoint are on different origins. Otherwise the metadata of one server could name the page of another one, whose
    /// code the first would get.
    pub must_name_itself: bool,
    pub scopes: Vec<String>,
}

/// Reads the metadata of a server. One without metadata is its own authorization server, as in version 2025-03-26.
pub(super) async fn resource(
    ports: &Ports,
    server: &str,
    challenge: &Challenge,
) -> Result<Resource, McpError> {
    let own = parsed(server)?;
    let origin = own.origin().ascii_serialization();
    let path = own.path().trim_end_matches('/');
    let at = format!("{origin}{WELL_KNOWN}/oauth-protected-resource");
    let mut places = vec![format!("{at}{path}"), at];
    if let Some(named) = &challenge.metadata {
        places = vec![named.clone()];
    }
    places.dedup();
    for place in places {
        let Some(found) = read(ports, &place).await? else { continue };
        let id = text(&found, "resource")
            .ok_or_else(|| malformed("the metadata of the server has no resource"))?;
        if !covers(&id, &own) {
            return Err(malformed("the metadata of the server is about another one"));
        }
        let issuer = list(&found, "authorization_servers").and_then(|all| all.into_iter().next());
        let issuer =
            issuer.ok_or_else(|| malformed("the metadata of the server names no authorization server"))?;
        return Ok(Resource { issuer, id, scopes: list(&found, "scopes_supported") });
    }
    Ok(Resource { issuer: origin, id: server.to_owned(), scopes: None })
}

/// Returns whether metadata about `id` applies to a server: to itself, or to all below a path.
fn covers(id: &str, server: &Url) -> bool {
    let Ok(id) = Url::parse(id) else { return false };
    let path = id.path().trim_end_matches('/');
    let below = server.path().strip_prefix(path);
    id.origin() == server.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the metadata of an authorization server.
pub(super) async fn issuer(ports: &Ports, resource: &Resource) -> Result<Issuer, McpError> {
    let own = parsed(&resource.issuer)?;
    let origin = own.origin().ascii_serialization();
    let path = own.path().trim_end_matches('/');
    let mut places = vec![
        format!("{origin}{WELL_KNOWN}/oauth-authorization-server{path}"),
        format!("{origin}{WELL_KNOWN}/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}{WELL_KNOWN}/openid-configuration"));
    }
    for place in places {
        let Some(found) = read(ports, &place).await? else { continue };
        if text(&found, "issuer").is_none_or(|issuer| issuer != resource.issuer) {
            return Err(malformed("the metadata of the authorization server is about another one"));
        }
        return parse(resource.issuer.clone(), &found);
    }
    // The paths that version 2025-03-26 prescribes.
    let at = |path: &str| format!("{origin}{path}");
    let found = json!({
        "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"), "code_challenge_methods_supported": ["S256"],
    });
    parse(resource.issuer.clone(), &found)
}

fn parse(issuer: String, found: &Value) -> Result<Issuer, McpError> {
    let methods = list(found, "code_challenge_methods_supported").unwrap_or_default();
    if !methods.iter().any(|method| method == "S256") {
        return Err(malformed("the authorization server does not support PKCE with S256"));
    }
    let endpoint = |name: &str| {
        text(found, name)
            .ok_or_else(|| malformed("the metadata of the authorization server lacks an endpoint"))
    };
    let is = |name: &str| found.get(name) == Some(&Value::Bool(true));
    let authorization_endpoint = endpoint("authorization_endpoint")?;
    let token_endpoint = endpoint("token_endpoint")?;
    let has_one_origin = parsed(&authorization_endpoint)?.origin() == parsed(&token_endpoint)?.origin();
    Ok(Issuer {
        issuer,
        must_name_itself: !has_one_origin || is("authorization_response_iss_parameter_supported"),
        authorization_endpoint,
        token_endpoint,
        registration_endpoint: text(found, "registration_endpoint"),
        takes_client_metadata: is("client_id_metadata_document_supported"),
        auth_methods: list(found, "token_endpoint_auth_methods_supported"),
        scopes: list(found, "scopes_supported").unwrap_or_default(),
    })
}

fn parsed(url: &str) -> Result<Url, McpError> {
    Url::parse(url).map_err(|_| malformed("the authorization server has a malformed URL"))
}

fn malformed(why: &str) -> McpError {
    McpError::Consent(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_about_a_server_or_all_below_a_path() {
        let server = Url::parse("https://a.example.com/mcp/v1").expect("a URL");
        for id in [
            "https://a.example.com/mcp/v1",
            "https://a.example.com/mcp/",
            "https://a.example.com",
            "https://a.example.com:443/",
        ] {
            assert!(covers(id, &server), "{id}");
        }
        for id in [
            "https://b.example.com/mcp",
            "http://a.example.com/mcp",
            "https://a.example.com/mc",
            "https://a.example.com/other",
            "x",
        ] {
            assert!(!covers(id, &server), "{id}");
        }
    }
}
