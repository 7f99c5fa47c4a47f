//! HTTP tools from an OpenAPI document: one for each chosen operation.

mod parameters;
mod schema;

use super::declared::{Declared, Method};
use crate::types::{Category, FieldError, json::escaped};
use parameters::Arguments;
use schema::{Document, Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 1_000;
/// Maximum length of a tool's name.
const MAX_NAME: usize = 64;
const METHODS: [(&str, Method); 6] = [
    ("get", Method::Get),
    ("head", Method::Head),
    ("post", Method::Post),
    ("put", Method::Put),
    ("patch", Method::Patch),
    ("delete", Method::Delete),
];

/// Operations of an OpenAPI 3 document that become HTTP tools.
///
/// The parameters of the path, the query and the headers become arguments, and so do the properties of a JSON body. What
/// cannot become a tool is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OpenApiTools")]
pub struct OpenApi {
    /// The document.
    pub document: Map<String, Value>,
    /// The `operationId` of each operation that becomes a tool.
    pub operations: Vec<String>,
    /// The start of all URLs; the first of the document's `servers` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Headers of all requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl OpenApi {
    /// Returns the tools, in the order of `operations`.
    ///
    /// # Errors
    /// All faults, with pointers into this value.
    pub fn tools(&self) -> Result<Vec<Declared>, Vec<FieldError>> {
        let (mut tools, mut faults) = (Vec::new(), Vec::new());
        let base = self.check_version().and_then(|()| self.base());
        let base = base.map_err(|fault| faults.push(fault)).unwrap_or_default();
        for (index, id) in self.operations.iter().enumerate() {
            let Some((path, method, shared, operation)) = self.find(id) else {
                let detail = format!("the document has no operation {id:?}");
                faults.push(FieldError { pointer: format!("/operations/{index}"), detail });
                continue;
            };
            let at = format!("/document/paths/{}", escaped(path));
            match self.tool(id, &at, (path, method), shared, operation) {
                Ok(tool) => tools.push(Declared { url: format!("{base}{}", tool.url), ..tool }),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(tools) } else { Err(faults) }
    }

    fn check_version(&self) -> Result<(), Fault> {
        let version = self.document.get("openapi").and_then(Value::as_str);
        let is_known = version.is_some_and(|version| version.starts_with("3."));
        is_known
            .then_some(())
            .ok_or_else(|| schema::fault("/document/openapi", "expected a document of OpenAPI 3"))
    }

    /// Returns the start of all URLs.
    fn base(&self) -> Result<String, Fault> {
        let (pointer, base) = match &self.base_url {
            Some(base) => ("/base_url", base.as_str()),
            None => {
                let servers = self.document.get("servers");
                (
                    "/document/servers/0/url",
                    servers.and_then(|all| all[0]["url"].as_str()).unwrap_or_default(),
                )
            }
        };
        let fault = |detail: &str| FieldError { pointer: pointer.to_owned(), detail: detail.to_owned() };
        match () {
            () if !base.starts_with("https://") && !base.starts_with("http://") => {
                Err(fault("expected an absolute https URL; set `base_url`"))
            }
            () if base.contains(['?', '#']) || (self.base_url.is_none() && base.contains('{')) => {
                Err(fault("has variables, a query or a fragment; set `base_url`"))
            }
            () => Ok(base.trim_end_matches('/').to_owned()),
        }
    }

    /// Finds an operation: its path, its method, the object with what its path shares, and the operation.
    fn find(&self, id: &str) -> Option<(&str, (&'static str, Method), &Value, &Value)> {
        let paths = self.document.get("paths")?.as_object()?;
        paths.iter().find_map(|(path, item)| {
            METHODS.into_iter().find_map(|(name, method)| {
                let operation = item.get(name).filter(|operation| operation["operationId"] == id)?;
                Some((path.as_str(), (name, method), item, operation))
            })
        })
    }

    /// Returns the tool of an operation. Its URL starts with the path. `at` is the pointer to what its path shares.
    fn tool(
        &self,
        id: &str,
        at: &str,
        (path, (method_name, method)): (&str, (&'static str, Method)),
        shared: &Value,
        operation: &Value,
    ) -> Result<Declared, Fault> {
        let own = format!("{at}/{method_name}");
        for (place, value) in [(at, shared), (&*own, operation)] {
            if value.get("servers").is_some() && self.base_url.is_none() {
                return Err(schema::fault(&format!("{place}/servers"), "not supported here; set `base_url`"));
            }
        }
        let document = Document::new(&self.document);
        let mut arguments = Arguments::new(&document, path, &self.headers);
        arguments.read(shared.get("parameters"), &format!("{at}/parameters"))?;
        arguments.read(operation.get("parameters"), &format!("{own}/parameters"))?;
        arguments.finish()?;
        if let Some(body) = operation.get("requestBody") {
            arguments.read_body(body, &format!("{own}/requestBody"), method)?;
        }
        let url = arguments.url(at)?;
        let Arguments { properties, required, headers, body, .. } = arguments;
        let mut parameters = Map::new();
        parameters.insert("type".into(), "object".into());
        parameters.insert("properties".into(), Value::Object(properties));
        parameters.insert("required".into(), required.into_iter().map(Value::from).collect());
        parameters.insert("additionalProperties".into(), false.into());
        Ok(Declared {
            name: tool_name(id),
            description: description(operation, method_name, path),
            parameters,
            method,
            url,
            headers: self.headers.clone().into_iter().chain(headers).collect(),
            body,
            effect: None,
            category: Category::default(),
            idempotent: None,
            timeout_s: None,
            result: None,
        })
    }
}

/// Returns the id of an operation with the characters that a tool's name may have.
fn tool_name(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    id.chars().map(plain).take(MAX_NAME).collect()
}

fn description(operation: &Value, method: &str, path: &str) -> String {
    let texts = ["summary", "description"].into_iter().filter_map(|name| operation[name].as_str());
    let texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
    match texts.is_empty() {
        true => format!("{} {path}", method.to_uppercase()),
        false => texts.join("\n").chars().take(MAX_DESCRIPTION).collect(),
    }
}

#[cfg(test)]
mod tests;
