//! The OpenAPI document of the server, from the route table, the types of bodies, and a description of each route. A test
//! writes it to `docs/openapi.json`, which the server embeds; the server itself never runs this code.

mod admin;
mod agents;
mod events;
mod operation;
mod pending;
mod problems;
mod protocols;
mod runs;
mod schemas;
mod secrets;
mod sessions;
mod shapes;
mod specs;
mod tenant;

use self::operation::{Content, Success, id, user};
pub(super) use self::operation::{ErrorForm, JSON, Operation};
pub(super) use self::protocols::{POSTS, socket};
use self::schemas::{Components, Schemas};
pub(super) use self::shapes::{Aborted, Foreign};
use super::route::{Handler, Route};
use super::routes;
use crate::types::Scope;
use http::Method;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Routes and descriptions that do not belong together.
#[derive(Debug, Error)]
#[error(
    "routes without a description in src/http/openapi: {missing:?}; descriptions without a route: {surplus:?}"
)]
pub struct Incomplete {
    /// The routes without a description.
    pub missing: Vec<String>,
    /// The descriptions without a route.
    pub surplus: Vec<String>,
}

/// What the document says about all routes.
const ABOUT: &str = "An agent server: sessions that remember, stream and survive. Errors are problems (RFC 9457) with a \
    stable `code`. Every response has the header `x-request-id`. A POST with an `Idempotency-Key` may be repeated for 24 \
    hours: the same key and body return the first response, with the header `idempotent-replayed: true`. Unknown fields \
    are ignored. Later versions may add fields, events and codes.";

/// A group of routes, and what it is about.
type Group = (&'static str, &'static str, Vec<Operation>);

fn groups() -> Vec<Group> {
    let protocols = "The protocols of other clients, on the same sessions. docs/clients.md describes them.";
    vec![
        ("Sessions", "Sessions, their turns, files and events.", sessions::operations()),
        ("Runs", "Jobs of steps: planned, approved, verified, and reported.", runs::operations()),
        ("Inbox", "The calls of all sessions that wait for a person or a client.", pending::operations()),
        ("Agents", "Definitions of agents, in versions.", agents::operations()),
        ("Secrets", "Secrets of the tenant, which definitions of agents use.", secrets::operations()),
        ("Workspace files", "The files of a user with an agent.", tenant::files()),
        ("Skills", "How to do tasks, for the agent.", tenant::skills()),
        ("Specs", "What runs have to achieve.", specs::operations()),
        ("Memory", "What is known about a user.", tenant::memory()),
        ("Tenant", "Usage, exports and models of the caller's tenant.", {
            let mut all = tenant::usage();
            all.extend(tenant::models());
            all
        }),
        ("Other protocols", protocols, protocols::operations()),
        ("Administration", "Tenants and keys, for the operator.", admin::operations()),
        ("Deployment", "The deployment itself. Needs no credentials.", tenant::general()),
    ]
}

/// Builds the document, as text: JSON with one line for each path and component.
///
/// # Errors
/// If a route has no description.
pub fn document() -> Result<String, Incomplete> {
    let mut schemas = Schemas::new();
    let groups = groups();
    let tags: Vec<_> =
        groups.iter().map(|(name, text, _)| json!({ "name": name, "description": text })).collect();
    let mut rest: Vec<&Route> = routes::all().collect();
    let (mut operations, mut surplus) = (Vec::new(), Vec::new());
    for (tag, _, described) in groups {
        for operation in described {
            let is_its =
                |route: &&Route| route.method == operation.method && path_of(route) == operation.path;
            match rest.iter().position(is_its) {
                Some(index) => operations.push((tag, rest.remove(index), operation)),
                None => surplus.push(format!("{} {}", operation.method, operation.path)),
            }
        }
    }
    if !(rest.is_empty() && surplus.is_empty()) {
        let missing = rest.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        return Err(Incomplete { missing, surplus });
    }
    let mut paths = Map::new();
    let built: Vec<_> = operations
        .into_iter()
        .map(|(tag, route, operation)| (route, build(&mut schemas, tag, route, operation)))
        .collect();
    problems::add_schemas(&mut schemas);
    let components = schemas.finish();
    for (route, mut operation) in built {
        use_inputs(&components, &mut operation);
        let path = paths.entry(path_of(route)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    let info = json!({
        "title": "edge-harness", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    Ok(format!(
        "{{\"openapi\":\"3.1.0\",\n\"info\":{info},\n\"servers\":[{{\"url\":\"/\"}}],\n\"tags\":{tags},\n\
         \"paths\":{paths},\n\"components\":{{\"securitySchemes\":{security},\n\"responses\":{responses},\n\
         \"schemas\":{schemas}}}}}\n",
        tags = lines(&tags),
        paths = members(&paths),
        security = security_schemes(),
        responses = members(&problems::responses()),
        schemas = members(&components.schemas),
    ))
}

/// Writes an array with a line for each item.
fn lines(items: &[Value]) -> String {
    let items: Vec<_> = items.iter().map(Value::to_string).collect();
    format!("[\n{}]", items.join(",\n"))
}

/// Writes an object with a line for each member.
fn members(object: &Map<String, Value>) -> String {
    let members: Vec<_> = object.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{\n{}}}", members.join(",\n"))
}

/// Returns the path of a route in the form of OpenAPI, which has no parameters that match several segments.
fn path_of(route: &Route) -> String {
    route.path.replace("*}", "}")
}

fn use_inputs(components: &Components, operation: &mut Value) {
    for part in ["parameters", "requestBody"] {
        if let Some(part) = operation.get_mut(part) {
            components.use_inputs(part);
        }
    }
}

fn security_schemes() -> Value {
    json!({
        "key": { "type": "http", "scheme": "bearer", "description": "A key of a tenant, or a token of its identity provider." },
        "operator": { "type": "http", "scheme": "bearer", "description": "The operator's `ADMIN_KEY`." },
        "ticket": { "type": "apiKey", "in": "query", "name": "ticket", "description": "A ticket for the streams of a session." },
    })
}

/// Returns the credentials that a route accepts.
fn security(route: &Route) -> Value {
    match &route.handler {
        Handler::Public(_) => json!([]),
        Handler::Socket(format) => match format.reads_credentials() {
            // The handshake may have none.
            true => json!([{ "key": [Scope::Chat.name()] }, {}]),
            false => json!([{ "key": [Scope::Chat.name()] }]),
        },
        Handler::Operator(_) => json!([{ "operator": [] }]),
        Handler::Tenant(scope, _)
        | Handler::Session(scope, _)
        | Handler::NewSession(scope, _)
        | Handler::Face(scope, ..)
        | Handler::Split(scope, ..)
        | Handler::Unread(scope, _) => {
            let mut accepted = vec![json!({ "key": [scope.name()] })];
            if route.accepts_ticket {
                accepted.push(json!({ "ticket": [scope.name()] }));
            }
            accepted.into()
        }
    }
}

fn build(schemas: &mut Schemas, tag: &str, route: &Route, operation: Operation) -> Value {
    let mut built = json!({
        "operationId": operation.id, "tags": [tag], "summary": operation.summary, "security": security(route),
    });
    if !operation.text.is_empty() {
        built["description"] = operation.text.as_str().into();
    }
    let parameters = parameters(route, &operation);
    if !parameters.is_empty() {
        built["parameters"] = parameters.into();
    }
    if !operation.bodies.is_empty() {
        let mut content = contents(schemas, &operation.bodies);
        if let Some(example) = &operation.example {
            content[JSON]["example"] = example.clone();
        }
        built["requestBody"] = json!({ "required": !operation.is_body_optional, "content": content });
    }
    let mut responses = problems::of_route(route, &operation);
    for success in &operation.responses {
        responses.insert(success.status.to_string(), response(schemas, success));
    }
    built["responses"] = Value::Object(responses);
    built
}

fn response(schemas: &mut Schemas, success: &Success) -> Value {
    let mut response = json!({ "description": success.text });
    if !success.contents.is_empty() {
        response["content"] = contents(schemas, &success.contents);
    }
    for (name, text) in &success.headers {
        response["headers"][*name] = json!({ "description": text, "schema": { "type": "string" } });
    }
    response
}

fn contents(schemas: &mut Schemas, contents: &[Content]) -> Value {
    let content = contents.iter().map(|content| {
        let mut value = json!({});
        if let Some(schema) = content.schema {
            value["schema"] = schema(schemas);
        }
        (content.media_type.to_owned(), value)
    });
    Value::Object(content.collect())
}

/// Returns the parameters of a route: those of its path, those of its kind, and those of its description.
fn parameters(route: &Route, operation: &Operation) -> Vec<Value> {
    let mut parameters: Vec<_> = operation
        .path
        .split(['{', '}'])
        .skip(1)
        .step_by(2)
        .map(|name| {
            let (text, schema) = path_parameter(name);
            json!({ "in": "path", "name": name, "required": true, "description": text, "schema": schema })
        })
        .collect();
    let own =
        |place: &str, name: &str| operation.parameters.iter().any(|p| p.place == place && p.name == name);
    if matches!(route.handler, Handler::Session(..) | Handler::Unread(..)) && !own("query", "user") {
        let about = "The user, if you authenticate with a key: a session of another user is not found.";
        parameters.push(json!({ "in": "query", "name": "user", "description": about, "schema": user() }));
    }
    if takes_idempotency_key(route) {
        let about = "Makes the request repeatable: 1 to 255 visible ASCII characters.";
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" });
        parameters.push(
            json!({ "in": "header", "name": "Idempotency-Key", "description": about, "schema": schema }),
        );
    }
    parameters.extend(operation.parameters.iter().map(|parameter| {
        let mut value = json!({
            "in": parameter.place, "name": parameter.name, "description": parameter.text, "schema": parameter.schema,
        });
        if parameter.is_required {
            value["required"] = true.into();
        }
        value
    }));
    parameters
}

/// Returns whether a repeated request with the same Idempotency-Key gets the first response.
fn takes_idempotency_key(route: &Route) -> bool {
    let stores_itself = matches!(route.handler, Handler::Session(..)) && route.path.ends_with("/steer");
    route.method == Method::POST && (route.once || route.starts_turn || stores_itself)
}

/// Returns the description and the schema of a parameter of a path.
fn path_parameter(name: &str) -> (&'static str, Value) {
    let text = json!({ "type": "string", "minLength": 1 });
    match name {
        "id" => ("The session.", id()),
        "tenant" => ("The tenant.", id()),
        "agent" => ("The agent.", id()),
        "turn" => ("The turn.", text),
        "task" => ("The background task.", text),
        "item" => ("The turn of the queued message.", text),
        "ref" => ("The artifact.", text),
        "call_id" => ("The call.", text),
        "response" => ("The response.", text),
        "key" => ("The id of the key.", text),
        "name" => ("The name of the skill.", json!({ "type": "string", "pattern": "^[a-z0-9-]{1,64}$" })),
        "spec" => ("The name of the spec.", json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" })),
        "user" => ("The user: 1 to 128 bytes without `/`, `\\` and control characters.", user()),
        "date" => ("The UTC day.", json!({ "type": "string", "format": "date" })),
        "model" => ("The agent or model. It may contain slashes.", text),
        _ => ("The path of the file, with slashes. At most 512 bytes.", text),
    }
}
