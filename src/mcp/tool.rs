//! A tool of a server.

use super::connection::{Connection, Outgoing};
use super::error::McpError;
use super::headers::{Mirrored, mirrored, of_arguments};
use super::{outcome, progress::Progress, server::tool_prefix};
use crate::agent::{DynTool, ToolContext, object_schema};
use crate::ports::within;
use crate::turn::schema;
use crate::types::{Category, Effect, Invalid, Timestamp, ToolOutcome, ToolSpec, Wait, json::too_deep};
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, select},
    pin_mut,
};
use serde_json::{Map, Value, json};
use std::{cell::Cell, rc::Rc, time::Duration};

/// Maximum length of a tool's name, in bytes; all providers accept it.
const MAX_NAME: usize = 64;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 2_000;
/// Maximum size of a schema, in bytes of JSON.
const MAX_SCHEMA: usize = 32 << 10;
/// Time between two reports of a call's progress. Those in between are dropped.
const PROGRESS_PACE: Duration = Duration::from_millis(200);
/// How long a legacy server is given to accept that a call was canceled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

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
            parameters,
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

    /// Calls the tool. A call that is no longer awaited is canceled.
    async fn run(&self, outgoing: &Outgoing<'_>, cx: &ToolContext) -> Result<Value, McpError> {
        let connection = self.connection.as_ref();
        let id = outgoing.id;
        let limit = connection.server().timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
        let left = cx.deadline.since(cx.clock.now());
        // Dropping the request closes its stream, by which a modern server sees that it is canceled.
        let work = connection.ask(outgoing);
        let limited = async {
            match limit.filter(|limit| *limit < left) {
                Some(limit) => match within(cx.clock.as_ref(), limit, work).await {
                    Ok(result) => result,
                    Err(_unfinished) => Err(McpError::Slow(limit)),
                },
                None => work.await,
            }
        };
        let result = {
            let over = cx.cancel.canceled();
            pin_mut!(limited, over);
            match select(limited, over).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => Err(McpError::Slow(left)),
            }
        };
        if matches!(result, Err(McpError::Slow(_))) && outgoing.is_sent.get() {
            let _ = within(cx.clock.as_ref(), CANCEL_TIMEOUT, connection.cancel(&cx.session, id)).await;
        }
        result
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
            let mut progress = match Progress::continued(connection, &cx).await {
                Ok(progress) => progress,
                Err(outcome) => return outcome,
            };
            let headers = of_arguments(&self.mirrored, &args);
            let shown_at = Cell::new(Timestamp(0));
            let show = |progress| {
                let now = cx.clock.now();
                if now.since(shown_at.get()) >= PROGRESS_PACE {
                    shown_at.set(now);
                    cx.report(progress);
                }
            };
            while progress.question().is_none() {
                let (server, hosts) = (connection.name(), connection.hosts());
                let id = connection.new_id(progress.id);
                let (args, headers) = (args.clone(), headers.clone());
                let asked = Cell::new(0);
                let respond = |request: &Value| {
                    let earlier = asked.replace(asked.get() + 1);
                    progress.response(earlier, server, request, hosts)
                };
                let mut outgoing = Outgoing::call(&cx.session, id, &self.name, args, headers);
                outgoing.on_progress = Some(&show);
                outgoing.on_question = Some(&respond);
                progress.add_to(&mut outgoing.params);
                let returned = self.run(&outgoing, &cx).await;
                match returned {
                    Ok(result) if outcome::asks(&result) => match progress.next(id, server, &result, hosts) {
                        Ok(next) => progress = next,
                        Err(why) => return outcome::unasked(server, &why, &result),
                    },
                    Err(McpError::Asks(request)) => {
                        let earlier = asked.get().saturating_sub(1);
                        match progress.next_of_legacy(id, earlier, server, &request, hosts) {
                            Ok(next) => progress = next,
                            Err(why) => {
                                let result = json!({"inputRequests": {"": request}});
                                return outcome::unasked(server, &why, &result);
                            }
                        }
                    }
                    Ok(result) => {
                        let store = async |(bytes, mime_type, name)| {
                            cx.unless_canceled(cx.store_file(bytes, mime_type, name)).await?
                        };
                        return outcome::of_result(&result, store).await;
                    }
                    Err(error) => {
                        if let Some(challenge) = connection.needs_consent(&error) {
                            return progress.wait_for_consent(connection, challenge, &cx).await;
                        }
                        let may_be_repeated = self.spec.idempotent || !outgoing.is_sent.get();
                        return outcome::of_error(server, may_be_repeated, &error);
                    }
                }
            }
            let question = progress.question().cloned().unwrap_or_default();
            cx.wait(Wait::Question(question), progress.to_json())
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
