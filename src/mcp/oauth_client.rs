//! A client of OAuth as a definition of an agent names it.

use crate::ports::outbound::Template;
use crate::types::FieldError;
use serde::{Deserialize, Serialize};
use url::Url;

/// A client that the operator has registered with the authorization server of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuthClient {
    /// Its id.
    pub id: String,
    /// The authorization server, as its metadata names it. The client is used with no other one.
    pub issuer: String,
    /// The name of the tenant's secret with the secret of the client, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl OAuthClient {
    /// Returns the faults of the client.
    pub(super) fn faults(&self) -> Vec<FieldError> {
        let fault = |at: &str, detail: &str| FieldError { pointer: at.into(), detail: detail.into() };
        let mut faults = Vec::new();
        if self.id.is_empty() || self.id.len() > 1_024 {
            faults.push(fault("/oauth_client/id", "expected 1 to 1024 bytes"));
        }
        if self.issuer.len() > 2_048 || !Url::parse(&self.issuer).is_ok_and(|url| url.has_host()) {
            faults.push(fault("/oauth_client/issuer", "expected a URL"));
        }
        let is_name = |name: &String| Template::parse(&format!("${{secret:{name}}}")).is_ok();
        if self.secret.as_ref().is_some_and(|name| !is_name(name)) {
            faults.push(fault("/oauth_client/secret", "expected the name of a secret"));
        }
        faults
    }
}
