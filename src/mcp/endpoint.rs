//! Where the requests to a server go: the URL and the headers of its definition, and the tenant's secrets in them.

use super::error::McpError;
use crate::ports::outbound::{Budget, PLAIN, Redaction, Template, Unfilled, UrlTemplate, Values};
use crate::ports::{AllowedHosts, Secrets, secrets};
use crate::types::{Invalid, TenantId, header};
use serde_json::Map;
use std::collections::BTreeMap;

/// The endpoint of a server.
pub(super) struct Endpoint {
    url: UrlTemplate,
    headers: Vec<(String, Template)>,
}

/// An endpoint with the secrets of its URL and headers.
pub(super) struct Target {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// The token of the user.
    pub token: Option<String>,
    secrets: BTreeMap<String, String>,
    /// Removes the secrets from what the server returns.
    pub redaction: Redaction,
}

impl Endpoint {
    /// Reads the address and the headers of a definition.
    ///
    /// # Errors
    /// A URL or the value of a header that is malformed.
    pub fn parse(address: &str, headers: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        let header = |(name, value): (&String, &String)| Ok((name.to_ascii_lowercase(), header(value)?));
        let headers = headers.iter().map(header).collect::<Result<_, Invalid>>()?;
        Ok(Self { url: url(address)?, headers })
    }

    /// Reads the secrets and inserts them.
    ///
    /// # Errors
    /// A secret that cannot be read or sent, or a host that is not allowed.
    pub async fn target(
        &self,
        secrets: &dyn Secrets,
        tenant: &TenantId,
        hosts: &AllowedHosts,
    ) -> Result<Target, McpError> {
        let templates = self.url.templates().chain(self.headers.iter().map(|(_, template)| template));
        let secrets = secrets::read(secrets, tenant, templates.flat_map(Template::secrets)).await?;
        let values = Values { args: &Map::new(), secrets: &secrets };
        let url = self.url.fill(&values).and_then(|url| hosts.receiver(&url));
        let url = url.map_err(|why| Invalid(format!("its URL is refused: {}", why.0)))?;
        let budget = Budget::new(header::MAX_BYTES);
        let mut headers = Vec::new();
        for (name, template) in &self.headers {
            let text = template.fill(&values, PLAIN, &budget).map_err(|unfilled| match unfilled {
                Unfilled::TooLarge => Invalid(header::too_large_text()),
                // The definition has no arguments.
                Unfilled::Missing(name) => Invalid(format!("there is no argument `{name}`")),
            })?;
            if !header::is_value(&text) {
                return Err(
                    Invalid(format!("the value of its header `{name}` {}", header::VALUE_RULE)).into()
                );
            }
            headers.push((name.clone(), text));
        }
        Ok(Target { url, headers, token: None, redaction: Redaction::new(&secrets), secrets })
    }
}

impl Target {
    /// Adds the token of the user.
    pub fn set_token(&mut self, token: String) {
        self.secrets.insert("token of the user".into(), token.clone());
        self.redaction = Redaction::new(&self.secrets);
        self.token = Some(token);
    }
}

/// Reads a URL in which secrets can stand after the host.
///
/// # Errors
/// Why it is malformed.
pub(super) fn url(text: &str) -> Result<UrlTemplate, Invalid> {
    let url = UrlTemplate::parse(text)?;
    url.templates().try_for_each(without_args)?;
    Ok(url)
}

/// Reads the value of a header, in which secrets can stand.
///
/// # Errors
/// Why it is malformed.
pub(super) fn header(text: &str) -> Result<Template, Invalid> {
    let template = Template::parse(text)?;
    without_args(&template)?;
    match header::is_value(&template.text()) {
        true => Ok(template),
        false => Err(Invalid(format!("the value {}", header::VALUE_RULE))),
    }
}

fn without_args(template: &Template) -> Result<(), Invalid> {
    match template.args().next() {
        Some(name) => {
            Err(Invalid(format!("{{{{{name}}}}} is not possible here: only secrets can stand here")))
        }
        None => Ok(()),
    }
}
