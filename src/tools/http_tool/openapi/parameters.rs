//! The arguments of an operation: its parameters, and its JSON body.

use super::super::declared::Method;
use super::schema::{Document, Fault, fault};
use crate::agent::object_schema;
use crate::ports::outbound::encoded;
use crate::types::{header, json::escaped};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Headers that are not parameters, as OpenAPI says.
const NO_PARAMETERS: &[&str] = &["accept", "content-type", "authorization"];
/// The name of the argument for a body that is not an object.
const BODY: &str = "body";

/// The arguments of an operation, and where they are sent.
pub(super) struct Arguments<'a> {
    document: &'a Document<'a>,
    /// The path of the operation, such as `/orders/{id}`.
    path_template: &'a str,
    /// The headers of all requests, which replace those of the operation.
    own_headers: &'a BTreeMap<String, String>,
    /// By place and name. Those of the operation replace those of its path.
    parameters: BTreeMap<(String, String), (&'a Value, String)>,
    /// The schema of each argument.
    pub(super) properties: Map<String, Value>,
    pub(super) required: BTreeSet<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Value>,
    /// The arguments of the path by the names of their parameters.
    path: BTreeMap<String, String>,
    /// The names of the parameters of the query, with their arguments.
    query: Vec<(String, String)>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(
        document: &'a Document<'a>,
        path_template: &'a str,
        own_headers: &'a BTreeMap<String, String>,
    ) -> Self {
        Self {
            document,
            path_template,
            own_headers,
            parameters: BTreeMap::new(),
            properties: Map::new(),
            required: BTreeSet::new(),
            headers: BTreeMap::new(),
            body: None,
            path: BTreeMap::new(),
            query: Vec::new(),
        }
    }

    /// Reads a list of parameters.
    pub(super) fn read(&mut self, list: Option<&'a Value>, at: &str) -> Result<(), Fault> {
        for (index, parameter) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let (parameter, at) = self.document.resolve(parameter, &format!("{at}/{index}"))?;
            let (Some(place), Some(name)) = (parameter["in"].as_str(), parameter["name"].as_str()) else {
                return Err(fault(&at, "expected a parameter with `in` and `name`"));
            };
            self.parameters.insert((place.to_owned(), name.to_owned()), (parameter, at));
        }
        Ok(())
    }

    /// Adds the parameters that were read.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        for ((place, name), (parameter, at)) in std::mem::take(&mut self.parameters) {
            let is_required = place == "path" || parameter["required"] == true;
            let ignored = match &*place {
                "path" if !self.path_template.contains(&format!("{{{name}}}")) => {
                    return Err(fault(&at, format!("the path {:?} has no {{{name}}}", self.path_template)));
                }
                "path" | "query" => false,
                "header" if !header::is_token(&name) => return Err(fault(&at, "not the name of a header")),
                "header" if self.has_header(&name) => true,
                "header" if header::is_of_connection(&name.to_ascii_lowercase()) && is_required => {
                    return Err(fault(&at, "the connection sets this header"));
                }
                "header" => {
                    let name = name.to_ascii_lowercase();
                    NO_PARAMETERS.contains(&&*name) || header::is_of_connection(&name)
                }
                _ if is_required => {
                    return Err(fault(&at, format!("a required {place} parameter is not supported")));
                }
                _ => true,
            };
            if ignored {
                continue;
            }
            let Some(schema) = parameter.get("schema") else {
                return Err(fault(&at, "a parameter without a `schema` is not supported"));
            };
            let mut schema = self.document.schema(schema, &format!("{at}/schema"))?;
            check_style(&place, parameter, &schema, &at)?;
            if let (Some(text), Some(own)) = (parameter["description"].as_str(), schema.as_object_mut()) {
                own.insert("description".into(), text.into());
            }
            let arg = self.add(&name, schema, is_required, &at)?;
            match &*place {
                "path" => drop(self.path.insert(name, arg)),
                "query" => self.query.push((name, arg)),
                _ => drop(self.headers.insert(name, format!("{{{{{arg}}}}}"))),
            }
        }
        Ok(())
    }

    /// Returns whether the requests have a header in any case.
    fn has_header(&self, name: &str) -> bool {
        self.own_headers.keys().chain(self.headers.keys()).any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Reads the body: its properties become arguments; of another form, the body itself becomes one.
    pub(super) fn read_body(&mut self, body: &'a Value, at: &str, method: Method) -> Result<(), Fault> {
        let (body, at) = self.document.resolve(body, at)?;
        if method.is_read() {
            return Err(fault(&at, format!("a {} request has no body", method.name())));
        }
        let contents = body["content"].as_object().into_iter().flatten();
        let ranked = contents.filter_map(|(name, content)| Some((json_rank(name)?, name, content)));
        let Some((rank, media_type, content)) = ranked.min_by_key(|(rank, ..)| *rank) else {
            return Err(fault(&format!("{at}/content"), "only JSON bodies are supported"));
        };
        let at = format!("{at}/content/{}/schema", escaped(media_type));
        let empty = &Value::Bool(true);
        let schema = self.document.schema(content.get("schema").unwrap_or(empty), &at)?;
        if rank == JsonRank::Special && !self.has_header("content-type") {
            self.headers.insert("content-type".into(), media_type.clone());
        }
        let is_required = body["required"] == true;
        let Some((properties, required)) = members(&schema) else {
            let arg = self.add(BODY, schema, is_required, &at)?;
            self.body = Some(Value::String(format!("{{{{{arg}}}}}")));
            return Ok(());
        };
        let mut template = Map::new();
        for (name, property) in properties {
            let is_required = is_required && required.contains(&name);
            let arg = match self.path.get(&name) {
                // An argument of the path may also be a member of the body.
                Some(arg) => arg.clone(),
                None => self.add(&name, property, is_required, &at)?,
            };
            template.insert(name, Value::String(format!("{{{{{arg}}}}}")));
        }
        self.body = Some(Value::Object(template));
        Ok(())
    }

    /// Adds an argument, and returns its name.
    fn add(&mut self, name: &str, schema: Value, is_required: bool, at: &str) -> Result<String, Fault> {
        // Providers refuse other characters in the names of properties.
        let plain = |c: char| if object_schema::is_in_name(c) { c } else { '_' };
        let arg: String = name.chars().map(plain).take(object_schema::MAX_NAME).collect();
        if arg.is_empty() {
            return Err(fault(at, "the name is empty"));
        }
        if self.properties.insert(arg.clone(), schema).is_some() {
            return Err(fault(at, format!("the operation has two arguments with the name {arg:?}")));
        }
        if is_required {
            self.required.insert(arg.clone());
        }
        Ok(arg)
    }

    /// Returns the path and the query, with placeholders. `at` is the pointer to the path.
    pub(super) fn url(&self, at: &str) -> Result<String, Fault> {
        let path = self.path_template;
        // Otherwise the path would become a part of the host, or the arguments a part of something else.
        if !path.starts_with('/') || path.contains(['?', '#', '\\']) {
            return Err(fault(
                at,
                "expected a path that begins with a slash, without `?`, `#` and backslash",
            ));
        }
        let mut url = String::new();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((arg, after)) =
                after.split_once('}').and_then(|(name, after)| Some((self.path.get(name)?, after)))
            else {
                return Err(fault(at, format!("a parameter of the path {path:?} is not declared")));
            };
            url.push_str(&format!("{before}{{{{{arg}}}}}"));
            rest = after;
        }
        url.push_str(rest);
        for (index, (name, arg)) in self.query.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            url.push_str(&format!("{separator}{}={{{{{arg}}}}}", encoded(name)));
        }
        Ok(url)
    }
}

/// Checks that a parameter is written in the default way of its place.
fn check_style(place: &str, parameter: &Value, schema: &Value, at: &str) -> Result<(), Fault> {
    let default = if place == "query" { "form" } else { "simple" };
    let has_default_style = parameter["style"].as_str().is_none_or(|style| style == default);
    let fits = match place {
        "query" => !may_be(schema, "object") && (!may_be(schema, "array") || parameter["explode"] != false),
        _ => !may_be(schema, "object") && !may_be(schema, "array"),
    };
    match has_default_style && fits {
        true => Ok(()),
        false => Err(fault(at, format!("a {place} parameter of this type and style is not supported"))),
    }
}

/// Returns whether a schema names a type, alone or among others.
fn may_be(schema: &Value, kind: &str) -> bool {
    let is_named = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|own| own == kind),
        own => own == kind,
    };
    let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array());
    is_named || parts.flatten().any(|part| may_be(part, kind))
}

/// What makes a media type one of JSON. Variants are in the order in which types are preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JsonRank {
    Plain,
    /// A range such as `*/*`.
    Range,
    /// A type such as `application/merge-patch+json`, which the request has to name.
    Special,
}

/// Returns the rank of a media type; `None` if it is not one of JSON.
fn json_rank(media_type: &str) -> Option<JsonRank> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    // The type becomes the text of a header, in which braces could be a placeholder.
    let is_plain = header::is_value(media_type) && !media_type.contains(['{', '}']);
    match (kind, subtype) {
        ("application", "json") => Some(JsonRank::Plain),
        ("*" | "application", "*") | ("application", "*+json") => Some(JsonRank::Range),
        _ => (is_plain && subtype.ends_with("+json")).then_some(JsonRank::Special),
    }
}

/// Returns the properties of an object schema, with those of `allOf`, and the names of the required ones.
fn members(schema: &Value) -> Option<(Map<String, Value>, BTreeSet<String>)> {
    let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut required: BTreeSet<String> = names.map(str::to_owned).collect();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let (more, names) = members(part)?;
        properties.extend(more);
        required.extend(names);
    }
    let is_choice = ["anyOf", "oneOf", "not"].iter().any(|name| schema.get(name).is_some());
    (!properties.is_empty() && !is_choice).then_some((properties, required))
}
