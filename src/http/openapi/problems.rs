//! The responses of requests that fail.

use super::operation::{ErrorForm, JSON, Operation};
use super::schemas::{Schemas, reference};
use super::shapes::{JsonRpcError, OpenAiError, Problem};
use super::takes_idempotency_key;
use crate::http::request::has_body;
use crate::http::route::{Handler, Route};
use crate::types::ErrorCode::{self, *};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Adds the schemas of errors.
pub(super) fn add_schemas(schemas: &mut Schemas) {
    schemas.written::<Problem>();
    schemas.written::<OpenAiError>();
    schemas.written::<JsonRpcError>();
}

/// The codes of each status that are the same for most routes.
const COMMON: &[(&str, &[ErrorCode])] = &[
    ("BadRequest", &[MalformedJson, InvalidRequest]),
    ("Unauthorized", &[Unauthenticated]),
    ("Forbidden", &[MissingScope]),
    ("NotFound", &[ErrorCode::NotFound, UnknownAgent]),
    ("PayloadTooLarge", &[PayloadTooLarge]),
    ("UnsupportedMediaType", &[UnsupportedMediaType]),
    ("UnprocessableContent", &[ValidationFailed, UserMismatch, IdempotencyKeyReused]),
    ("TooManyRequests", &[RateLimited, QuotaExceeded, QueueFull]),
    ("InternalError", &[Internal]),
    ("NotConfigured", &[NotConfigured]),
    ("Unavailable", &[Unavailable, NewerSession]),
];

/// Returns the components of responses that several routes have.
pub(super) fn responses() -> Map<String, Value> {
    COMMON.iter().map(|(name, codes)| ((*name).to_owned(), response(codes, ErrorForm::Problem))).collect()
}

/// Returns the responses of a route that fails, by status.
pub(super) fn of_route(route: &Route, operation: &Operation) -> Map<String, Value> {
    let mut by_status = BTreeMap::<u16, Vec<ErrorCode>>::new();
    for code in codes(route, operation) {
        let codes = by_status.entry(status(code, operation)).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    let responses = by_status.into_iter().map(|(status, codes)| {
        let shared = COMMON.iter().find(|(_, shared)| codes.iter().all(|code| shared.contains(code)));
        let response = match shared {
            Some((name, _)) if operation.error_form == ErrorForm::Problem => {
                json!({ "$ref": format!("#/components/responses/{name}") })
            }
            _ => response(&codes, operation.error_form),
        };
        (status.to_string(), response)
    });
    responses.collect()
}

/// Returns the status of a code.
fn status(code: ErrorCode, operation: &Operation) -> u16 {
    match code.status() {
        422 if operation.error_form == ErrorForm::OpenAi => 400,
        status => status,
    }
}

/// Returns the codes of a route: those of its kind, and those of its description.
fn codes(route: &Route, operation: &Operation) -> Vec<ErrorCode> {
    let mut codes = Vec::new();
    match &route.handler {
        Handler::Public(_) => {}
        Handler::Socket(_) => {
            codes.extend([InvalidRequest, ForbiddenOrigin, Unauthenticated, MissingScope, UserMismatch]);
            codes.extend([UnknownAgent, RateLimited, Internal, Unavailable]);
        }
        Handler::Operator(_) => {
            codes.extend([Unauthenticated, MissingScope, RateLimited, NotConfigured, Internal, Unavailable]);
        }
        Handler::Tenant(..) => codes.extend(OF_TENANT),
        Handler::Session(..)
        | Handler::NewSession(..)
        | Handler::Face(..)
        | Handler::Split(..)
        | Handler::Unread(..) => {
            codes.extend(OF_TENANT);
            codes.push(NewerSession);
        }
    }
    if operation.path.contains('{') {
        codes.push(ErrorCode::NotFound);
    }
    if !operation.parameters.is_empty() {
        codes.push(ValidationFailed);
    }
    if has_body(&route.method) {
        codes.extend([PayloadTooLarge, Unavailable]);
    }
    if operation.bodies.iter().any(|body| body.media_type == JSON) {
        codes.extend([MalformedJson, UnsupportedMediaType, ValidationFailed]);
    }
    if takes_idempotency_key(route) {
        codes.extend([InvalidRequest, IdempotencyInProgress, IdempotencyKeyReused]);
        if route.once {
            codes.push(NotConfigured);
        }
    }
    codes.extend(&operation.errors);
    codes
}

/// The codes of every route that needs a credential of a tenant.
const OF_TENANT: [ErrorCode; 9] = [
    Unauthenticated,
    MissingScope,
    ErrorCode::NotFound,
    UnknownAgent,
    ValidationFailed,
    UserMismatch,
    RateLimited,
    Internal,
    Unavailable,
];

fn response(codes: &[ErrorCode], form: ErrorForm) -> Value {
    let (media_type, schema) = match form {
        ErrorForm::Problem => ("application/problem+json", "Problem"),
        ErrorForm::OpenAi => (JSON, "OpenAiError"),
        ErrorForm::JsonRpc => (JSON, "JsonRpcError"),
    };
    let content = json!({ media_type: { "schema": reference(schema) } });
    with_headers(codes, json!({ "description": text(codes), "content": content }))
}

/// Names the codes with their titles.
fn text(codes: &[ErrorCode]) -> String {
    let codes: Vec<_> = codes.iter().map(|code| format!("`{}`: {}.", code.as_str(), code.title())).collect();
    codes.join(" ")
}

fn with_headers(codes: &[ErrorCode], mut response: Value) -> Value {
    let header = |text: &str| json!({ "description": text, "schema": { "type": "string" } });
    match codes.first().map(|code| code.status()) {
        Some(401) => response["headers"]["WWW-Authenticate"] = header("The scheme `Bearer`."),
        Some(429 | 503) => {
            response["headers"]["Retry-After"] = header("Seconds after which the request may succeed.");
        }
        _ => {}
    }
    response
}
