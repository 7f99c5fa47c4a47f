//! A tool of a server.

use super::call::Call;
use super::connection::{Connection, Outgoing};
use super::content::store;
use super::headers::{Mirrored, mirrored, of_arguments};
use super::{outcome, progress::Progress, server::tool_prefix};
use crate::agent::{DynTool, ToolContext, object_schema};
use crate::turn::schema;
use crate::types::{Category, Effect, Invalid, ToolOutcome, ToolSpec, json::too_deep};
use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::{Map, Value};
use std::rc::Rc;

/// Maximum length of a tool's name, in bytes; all providers accept it.
const MAX_NAME: usize = 64;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 2_000;
/// Maximum size of a schema, in bytes of JSON.
const MAX_SCHEMA: usize = 32 << 10;

/// A tool of a server.
pub struct McpTool {
    spec: ToolSpec,
    /// The server's own name.
    name: String,
    /// Whether arguments can be checked here. The server checks them in any case.
    is_checked: bool,
    mirrored: Vec<Mirrored>,
    connection: Rc<Connection>,
}

impl McpTool {
    /// Reads a tool as a server lists it.
    ///
    /// # Errors
    /// Why the agent cannot have it, without text of the server.
    pub(super) fn new(connection: Rc<Connection>, listed: &Value) -> Result<Self, &'static str> {
        let name = listed.get("name").and_then(Value::as_str).unwrap_or_default();
        let parameters = parameters(listed.get("inputSchema"))?;
        let mirrored = mirrored(&parameters).ok_or("its schema names headers in an invalid way")?;
        let (effect, idempotent) = match connection.server().trusted {
            true => effect(listed.get("annotations")),
            false => (Effect::Destructive, false),
        };
        let spec = ToolSpec {
            name: tool_name(connection.name(), name)?,
            description: description(connection.name(), listed),
            effect,
            idempotent,
            retry_on_timeout: idempotent,
            varies: false,
            category: Category::Mcp,
            control: false,
            suspends: None,
            client_may_repeat: false,
            parameters: parameters.into(),
        };
        let is_checked = schema::check(&spec.parameters).is_ok();
        Ok(Self { spec, name: name.to_owned(), is_checked, mirrored, connection })
    }

    /// Returns the server's own name of a tool in a list.
    pub(super) fn name_of(listed: &Value) -> &str {
        listed.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the size of what the model reads about the tool, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.spec.description.len() + self.spec.parameters.to_string().len()
    }

    /// Returns whether calls of both run in the same way.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.spec == other.spec
    }
}

impl DynTool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        if !args.is_object() {
            return Err("the arguments must be an object".into());
        }
        if self.is_checked {
            object_schema::check(&self.spec.parameters, args)?;
        }
        // Reads of a server may run concurrently, unless one could get the question of another.
        let has_session = self.connection.has_session();
        Ok(has_session.then(|| tool_prefix(self.connection.name())).into_iter().collect())
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        async move {
            let Value::Object(args) = args else {
                return ToolOutcome::failure("the arguments must be an object");
            };
            let connection = self.connection.as_ref();
            if !connection.serves(&cx.user) {
                return ToolOutcome::failure("the MCP server is connected for another user");
            }
            let progress = match Progress::continued(connection, &cx).await {
                Ok(progress) => progress,
                Err(outcome) => return outcome,
            };
            let headers = of_arguments(&self.mirrored, &args);
            let create = |id| Outgoing::call(&cx.session, id, &self.name, args.clone(), headers.clone());
            let call = Call { connection, cx: &cx, is_idempotent: self.spec.idempotent };
            match call.result(progress, create).await {
                Ok(result) => outcome::of_result(&result, async |file| store(&cx, file).await).await,
                Err(none) => none.outcome(connection.name()),
            }
        }
        .boxed_local()
    }

    fn check_answer(&self, _args: &Value, shown: &Value, answer: &Value) -> Result<(), Invalid> {
        Progress::check_answer(shown, answer)
    }
}

/// Returns the name of a server's tool for the model.
fn tool_name(server: &str, tool: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let own: String = tool.chars().take(MAX_NAME).map(|c| if fits(c) { c } else { '_' }).collect();
    if !own.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Err("its name has no letter or digit");
    }
    let name = format!("{}{own}", tool_prefix(server));
    if name.len() > MAX_NAME || tool.chars().nth(MAX_NAME).is_some() {
        return Err("its name is too long");
    }
    Ok(name)
}

/// Returns the description for the model, which says whose text it is.
fn description(server: &str, listed: &Value) -> String {
    let own = listed.get("description").and_then(Value::as_str).unwrap_or_default();
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let mut text: String = own.chars().filter(is_shown).take(MAX_DESCRIPTION).collect();
    if own.chars().nth(MAX_DESCRIPTION).is_some() {
        text.push('…');
    }
    format!("A tool of the MCP server {server:?}, which describes it as follows: {text}")
}

/// Returns the schema of the arguments in the form that providers require.
fn parameters(schema: Option<&Value>) -> Result<Value, &'static str> {
    let mut schema = match schema {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(schema)) => schema.clone(),
        Some(_) => return Err("its schema is not an object"),
    };
    schema.entry("type").or_insert_with(|| "object".into());
    schema.entry("properties").or_insert_with(|| Map::new().into());
    if schema.get("type").is_none_or(|kind| kind != "object") {
        return Err("its schema is not one of an object");
    }
    let schema = Value::Object(schema);
    if too_deep(&schema) || schema.to_string().len() > MAX_SCHEMA {
        return Err("its schema is too large");
    }
    // A malformed schema would make the provider refuse each request of the agent.
    schema::check_form(&schema).map_err(|_| "its schema is malformed")?;
    if object_schema::bad_name(&schema).is_some() {
        return Err("its schema has an argument whose name providers refuse");
    }
    Ok(schema)
}

/// Returns the effect that a server declares for a tool, and whether a call may be repeated. What is absent is the strictest.
fn effect(annotations: Option<&Value>) -> (Effect, bool) {
    let hint = |name: &str| annotations.and_then(|hints| hints.get(name)).and_then(Value::as_bool);
    if hint("readOnlyHint") == Some(true) {
        return (Effect::NetworkRead, true);
    }
    let effect = if hint("destructiveHint") == Some(false) { Effect::Network } else { Effect::Destructive };
    (effect, hint("idempotentHint") == Some(true))
}
