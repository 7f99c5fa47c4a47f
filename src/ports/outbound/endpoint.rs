//! Where the requests to a server go: the URL and the headers of its definition, and the tenant's secrets in them.

use super::{Budget, PLAIN, Redaction, Template, Unfilled, UrlTemplate, Values};
use crate::ports::{
    AllowedHosts, Secrets,
    secrets::{self, SecretError},
};
use crate::types::{FieldError, Invalid, TenantId, header, json::escaped};
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Maximum number of headers of a server.
const MAX_HEADERS: usize = 32;
/// Maximum size of a URL or of the value of a header, in bytes.
const MAX_TEXT: usize = 4_096;
/// Headers that every client sets itself.
const OWN_HEADERS: [&str; 2] = ["accept", "content-type"];

/// The reason why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The URL or a header is invalid, or the host is not allowed.
    #[error(transparent)]
    Refused(#[from] Invalid),
}

/// The endpoint of a server.
pub struct Endpoint {
    url: UrlTemplate,
    headers: Vec<(String, Template)>,
}

/// An endpoint with the secrets of its URL and headers.
pub struct Target {
    /// The URL.
    pub url: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The token of the user, if the server needs one.
    pub token: Option<String>,
    secrets: BTreeMap<String, String>,
    /// Removes the secrets from what the server returns.
    pub redaction: Redaction,
}

impl Endpoint {
    /// Returns the faults of the address and the headers of a definition, which may name only these hosts. `is_of_protocol`
    /// tells which headers, in lower case, the client sets besides those of all clients.
    pub fn faults(
        address: &str,
        headers: &BTreeMap<String, String>,
        is_of_protocol: impl Fn(&str) -> bool,
        hosts: &AllowedHosts,
    ) -> Vec<FieldError> {
        let fault = |pointer: &str, detail: String| FieldError { pointer: pointer.to_owned(), detail };
        let too_long = || format!("longer than {MAX_TEXT} bytes");
        let mut faults = Vec::new();
        let receiver = || hosts.receiver(&Self::url(address)?.sample()?);
        if address.len() > MAX_TEXT {
            faults.push(fault("/url", too_long()));
        } else if let Err(why) = receiver() {
            faults.push(fault("/url", why.0));
        }
        if headers.len() > MAX_HEADERS {
            faults.push(fault("/headers", format!("expected at most {MAX_HEADERS} headers")));
        }
        let mut names = BTreeSet::new();
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            let is_own =
                header::is_of_connection(&lower) || OWN_HEADERS.contains(&&*lower) || is_of_protocol(&lower);
            let why = if !header::is_token(name) {
                Some("not the name of a header".to_owned())
            } else if !names.insert(lower) {
                Some("the header occurs twice".to_owned())
            } else if is_own {
                Some("the client sets this header".to_owned())
            } else if value.len() > MAX_TEXT {
                Some(too_long())
            } else {
                Self::header(value).err().map(|why| why.0)
            };
            faults.extend(why.map(|why| fault(&format!("/headers/{}", escaped(name)), why)));
        }
        faults
    }

    /// Reads a URL in which secrets can stand after the host.
    ///
    /// # Errors
    /// Why it is malformed.
    pub fn url(text: &str) -> Result<UrlTemplate, Invalid> {
        let url = UrlTemplate::parse(text)?;
        url.templates().try_for_each(without_args)?;
        Ok(url)
    }

    /// Reads the value of a header, in which secrets can stand.
    fn header(text: &str) -> Result<Template, Invalid> {
        let template = Template::parse(text)?;
        without_args(&template)?;
        match header::is_value(&template.text()) {
            true => Ok(template),
            false => Err(Invalid(format!("the value {}", header::VALUE_RULE))),
        }
    }

    /// Reads the address and the headers of a definition.
    ///
    /// # Errors
    /// A URL or the value of a header that is malformed.
    pub fn parse(address: &str, headers: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        let read = |(name, value): (&String, &String)| Ok((name.to_ascii_lowercase(), Self::header(value)?));
        let headers = headers.iter().map(read).collect::<Result<_, Invalid>>()?;
        Ok(Self { url: Self::url(address)?, headers })
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
    ) -> Result<Target, EndpointError> {
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

fn without_args(template: &Template) -> Result<(), Invalid> {
    match template.args().next() {
        Some(name) => {
            Err(Invalid(format!("{{{{{name}}}}} is not possible here: only secrets can stand here")))
        }
        None => Ok(()),
    }
}
