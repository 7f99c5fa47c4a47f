//! Metadata of the protected resource (RFC 9728), with which a client of MCP finds the identity provider of a tenant.
//!
//! A request without a credential does not say which tenant it is for. So the URL of the server may name it, as in
//! `/mcp?tenant=acme`. Without a name, the only tenant of the deployment is meant.

use super::gateway::{Gateway, GatewayCall};
use super::request::{Request, RequestExt};
use super::response::{self, Response, ResponseExt};
use crate::types::{ErrorCode, Problem, TenantId};
use http::StatusCode;
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// The path of the metadata; the path of the resource follows.
const METADATA: &str = "/.well-known/oauth-protected-resource";
/// How long an issuer is cached.
const ISSUER_TTL: Duration = Duration::from_mins(1);

/// `GET /.well-known/oauth-protected-resource` and `…/mcp`.
pub(super) async fn metadata(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let request = call.request;
    let resource = request.uri().path().strip_prefix(METADATA).unwrap_or_default();
    let mut metadata = json!({
        "resource": format!("{}{resource}{}", request.origin(), tenant_query(request)),
        "resource_name": "edge-harness",
        "scopes_supported": ["read", "chat", "approve"],
        "bearer_methods_supported": ["header"],
    });
    if let Some(issuer) = issuer(call.gateway, request).await? {
        metadata["authorization_servers"] = json!([issuer]);
    }
    Ok(response::json(StatusCode::OK, &metadata)?.with("cache-control", "public, max-age=60"))
}

/// Returns the header `www-authenticate` of a refused request, which names the metadata.
pub(super) fn challenge(request: &Request) -> String {
    let at = format!("{}{METADATA}{}{}", request.origin(), request.uri().path(), tenant_query(request));
    format!("Bearer realm=\"edge-harness\", resource_metadata=\"{at}\", scope=\"chat\"")
}

fn tenant(request: &Request) -> Option<TenantId> {
    request.query("tenant").as_deref().and_then(TenantId::parse)
}

fn tenant_query(request: &Request) -> String {
    // The characters of an id need no encoding.
    tenant(request).map(|tenant| format!("?tenant={tenant}")).unwrap_or_default()
}

/// Returns the issuer of the tenant that the URL names, or of the only tenant. Only an address can be one of a provider
/// that a client finds.
async fn issuer(gateway: &Gateway, request: &Request) -> Result<Option<Rc<str>>, Problem> {
    let (tenant, now) = (tenant(request), gateway.clock.now());
    let name = tenant.as_deref().unwrap_or_default().to_owned();
    if let Some(issuer) = gateway.cache.issuers.get(&name, now) {
        return Ok(issuer);
    }
    let found = async {
        let found = match &tenant {
            Some(tenant) => gateway.directory.tenant(tenant).await?,
            None => {
                let mut some = gateway.directory.tenants(None, 2).await?;
                some.pop().filter(|_| some.is_empty())
            }
        };
        // Guessed names count like guessed credentials.
        found.ok_or_else(|| Problem::new(ErrorCode::Unauthenticated, "no such tenant"))
    };
    let issuer = match gateway.cache.failures.limited(request, now, found).await {
        Ok(tenant) => tenant.jwt.map(|jwt| jwt.issuer).filter(|issuer| issuer.starts_with("http")),
        Err(problem) if problem.code == ErrorCode::Unauthenticated => None,
        Err(problem) => return Err(problem),
    };
    let issuer: Option<Rc<str>> = issuer.map(Into::into);
    gateway.cache.issuers.put(name, issuer.clone(), now + ISSUER_TTL, now);
    Ok(issuer)
}
