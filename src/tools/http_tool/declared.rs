//! The declaration of an HTTP tool, and its checks.

#[cfg(test)]
mod tests;

use super::body::BodyTemplate;
use crate::agent::{object_schema, toolkit::is_tool_name};
use crate::ports::outbound::{Budget, PLAIN, Template, Unfilled, UrlTemplate, Values};
use crate::ports::{AllowedHosts, HttpRequest};
use crate::types::{Category, Effect, FieldError, Invalid, ToolSpec, header, json::escaped};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time that a call takes at most, unless the declaration sets it, in seconds.
const DEFAULT_TIMEOUT_S: u32 = 30;
/// Maximum time of a call, in seconds.
const MAX_TIMEOUT_S: u32 = 300;
/// Maximum size of a body with its arguments, in bytes.
const MAX_BODY: usize = 1 << 20;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 4_000;

/// A tool that sends an HTTP request.
///
/// Texts in `url`, `headers` and `body` may contain `{{ARGUMENT}}` and `${secret:NAME}`. The host of the URL is fixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HttpTool")]
pub struct Declared {
    /// The tool's name.
    pub name: String,
    /// Description for the model, in one or two sentences.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments; no arguments if absent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The method; GET if absent.
    #[serde(default)]
    pub method: Method,
    /// The absolute https URL. A pair of the query whose argument is missing is left out.
    pub url: String,
    /// Headers. A header whose argument is missing is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The JSON body. A string that is one `{{ARGUMENT}}` becomes the argument itself; a member whose argument is missing is
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The effect; `network_read` for GET and HEAD, and otherwise the strictest one, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The category for permission rules.
    #[serde(default)]
    pub category: Category,
    /// Whether a request may be sent again after a failure; true for GET and HEAD, and otherwise false, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// The seconds that a call takes at most: 30 if absent, at most 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// JSON Pointer to the part of a JSON response that is the result; the whole response if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(rename = "HttpMethod")]
#[allow(missing_docs, reason = "the names of HTTP")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// An HTTP tool whose declaration is valid.
#[derive(Clone)]
pub struct Checked {
    pub(super) spec: ToolSpec,
    pub(super) timeout: Duration,
    pub(super) result: Option<String>,
    /// The names of the secrets of the request.
    pub(super) secrets: BTreeSet<String>,
    method: Method,
    url: UrlTemplate,
    /// A URL of a call.
    sample: String,
    headers: Vec<(String, Template)>,
    body: Option<BodyTemplate>,
}

impl Checked {
    /// Checks a declaration.
    ///
    /// # Errors
    /// All faults, with pointers into the declaration.
    pub fn new(declared: Declared) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, detail: &str| {
            faults.push(FieldError { pointer: pointer.to_owned(), detail: detail.to_owned() });
        };
        if !is_tool_name(&declared.name) {
            fault("/name", "expected 1 to 64 of A-Z a-z 0-9 _ -");
        }
        if declared.description.chars().count() > MAX_DESCRIPTION {
            fault("/description", &format!("longer than {MAX_DESCRIPTION} characters"));
        }
        let timeout_s = declared.timeout_s.unwrap_or(DEFAULT_TIMEOUT_S);
        if !(1..=MAX_TIMEOUT_S).contains(&timeout_s) {
            fault("/timeout_s", &format!("expected 1 to {MAX_TIMEOUT_S}"));
        }
        if declared.result.as_deref().is_some_and(|at| !at.is_empty() && !at.starts_with('/')) {
            fault("/result", "expected a JSON Pointer such as /data/items");
        }
        if declared.body.is_some() && declared.method.is_read() {
            fault("/body", &format!("a {} request has no body", declared.method.name()));
        }
        let parameters = object_schema::complete(declared.parameters).unwrap_or_else(|error| {
            faults.push(error.below("/parameters"));
            Value::Null
        });
        if let Some(name) = object_schema::bad_name(&parameters) {
            let detail =
                format!("the name of an argument has 1 to {} of A-Z a-z 0-9 _ - .", object_schema::MAX_NAME);
            faults.push(FieldError { pointer: format!("/parameters/properties/{}", escaped(name)), detail });
        }
        let headers = checked_headers(&declared.headers, &mut faults);
        let body = declared.body.as_ref().map(|body| BodyTemplate::parse(body, "/body", &mut faults));
        let url = UrlTemplate::parse(&declared.url).and_then(|url| {
            let sample = url.sample()?;
            Ok((url, sample))
        });
        let url =
            url.map_err(|invalid| faults.push(FieldError { pointer: "/url".into(), detail: invalid.0 })).ok();
        let mut templates: Vec<(String, &Template)> = Vec::new();
        templates.extend(url.iter().flat_map(|(url, _)| url.templates()).map(|own| ("/url".into(), own)));
        templates.extend(headers.iter().map(|(name, own)| (format!("/headers/{}", escaped(name)), own)));
        if let Some(body) = &body {
            body.templates("/body", &mut templates);
        }
        let known = |name: &str| parameters["properties"].get(name).is_some();
        for (pointer, template) in &templates {
            for name in template.args().filter(|name| !parameters.is_null() && !known(name)) {
                let detail = format!("the `parameters` have no property {name:?}");
                faults.push(FieldError { pointer: pointer.clone(), detail });
            }
        }
        let secrets =
            templates.iter().flat_map(|(_, template)| template.secrets()).map(str::to_owned).collect();
        let Some((url, sample)) = url.filter(|_| faults.is_empty()) else { return Err(faults) };
        let is_read = declared.method.is_read();
        let effect = declared.effect.unwrap_or(if is_read { Effect::NetworkRead } else { Effect::default() });
        let idempotent = declared.idempotent.unwrap_or(is_read);
        let spec = ToolSpec {
            name: declared.name,
            description: declared.description,
            parameters: parameters.into(),
            effect,
            idempotent,
            retry_on_timeout: idempotent,
            // What a server returns changes; a second equal change is most likely a mistake.
            varies: effect.is_read(),
            category: declared.category,
            control: false,
            suspends: None,
            client_may_repeat: false,
        };
        let (method, result) = (declared.method, declared.result);
        let timeout = Duration::from_secs(timeout_s.into());
        Ok(Self { spec, timeout, result, secrets, method, url, sample, headers, body })
    }

    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the host of the requests.
    pub(super) fn host(&self) -> String {
        self.url.host()
    }

    /// Checks that the operator allows the host.
    ///
    /// # Errors
    /// Why requests to it are refused.
    pub fn check_host(&self, allow: &AllowedHosts) -> Result<(), Invalid> {
        allow.receiver(&self.sample).map(drop)
    }

    /// Builds the request of a call.
    ///
    /// # Errors
    /// An argument that is missing or cannot be used, a host that is not allowed, or a request that is too large.
    pub(super) fn request(&self, values: &Values<'_>, allow: &AllowedHosts) -> Result<HttpRequest, Invalid> {
        let url = allow.receiver(&self.url.fill(values)?)?;
        let (mut headers, budget) = (Vec::new(), Budget::new(header::MAX_BYTES));
        for (name, template) in &self.headers {
            let text = match template.fill(values, PLAIN, &budget) {
                Ok(text) => text,
                Err(Unfilled::Missing(_)) => continue,
                Err(Unfilled::TooLarge) => return Err(too_large("headers", header::MAX_BYTES)),
            };
            if !header::is_value(&text) {
                let why = header::VALUE_RULE;
                return Err(Invalid(format!(
                    "the request cannot be sent: the value of its header `{name}` {why}"
                )));
            }
            headers.push((name.clone(), text));
        }
        let mut default = |name: &str, value: &str| {
            if !headers.iter().any(|(own, _)| own == name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        };
        default("accept", "application/json, text/*;q=0.9");
        let body = self.body.as_ref().map(|body| body.fill(values, &Budget::new(MAX_BODY))).transpose();
        let body = body.map_err(|_too_large| too_large("body", MAX_BODY))?.flatten();
        let body = body.map(|body| body.to_string());
        if body.as_ref().is_some_and(|body| body.len() > MAX_BODY) {
            return Err(too_large("body", MAX_BODY));
        }
        if body.is_some() {
            default("content-type", "application/json");
        }
        if header::too_large(&headers) {
            return Err(too_large("headers", header::MAX_BYTES));
        }
        let body = body.map(Into::into);
        Ok(HttpRequest { method: self.method.name(), url, headers, body, ..HttpRequest::default() })
    }
}

fn too_large(what: &str, most: usize) -> Invalid {
    Invalid(format!("the request cannot be sent: its {what} would have more than {most} bytes"))
}

/// Returns the headers with their names in lower case.
fn checked_headers(
    headers: &BTreeMap<String, String>,
    faults: &mut Vec<FieldError>,
) -> Vec<(String, Template)> {
    let mut checked: Vec<(String, Template)> = Vec::new();
    for (name, text) in headers {
        let lower = name.to_ascii_lowercase();
        let parsed = match Template::parse(text) {
            _ if !header::is_token(name) => Err("is not the name of a header".to_owned()),
            _ if header::is_of_connection(&lower) => Err("the connection sets this header".to_owned()),
            _ if checked.iter().any(|(own, _)| *own == lower) => Err("occurs twice".to_owned()),
            Ok(template) if !header::is_value(&template.text()) => {
                Err(format!("the value {}", header::VALUE_RULE))
            }
            Ok(template) => Ok(template),
            Err(invalid) => Err(invalid.0),
        };
        match parsed {
            Ok(template) => checked.push((lower, template)),
            Err(detail) => faults.push(FieldError { pointer: format!("/headers/{}", escaped(name)), detail }),
        }
    }
    checked
}
