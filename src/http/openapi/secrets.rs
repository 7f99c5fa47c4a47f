//! Secrets of a tenant.

use super::operation::Operation;
use crate::http::page::Page;
use crate::http::secrets::NewSecret;
use crate::types::ErrorCode::{NotConfigured, NotFound, QuotaExceeded};
use crate::types::SecretEntry;
use http::Method;
use schemars::JsonSchema;
use serde_json::json;

/// A new secret.
#[allow(dead_code, reason = "describes the form")]
#[derive(JsonSchema)]
struct SecretName {
    name: String,
}

pub(super) fn operations() -> Vec<Operation> {
    let one = "/v1/secrets/{name}";
    vec![
        Operation::get(
            "/v1/secrets",
            "listSecrets",
            "Lists the secrets of the tenant, without their values.",
        )
        .returns::<Page<SecretEntry>>(200, "All secrets, by name."),
        Operation::new(
            Method::PUT,
            one,
            "putSecret",
            "Stores a secret, which definitions of agents can use.",
        )
        .text(
            "A definition names it as `${secret:NAME}`. The value is encrypted, and no response returns it.",
        )
        .body::<NewSecret>(json!({ "value": "a-token" }))
        .returns::<SecretName>(201, "The secret is new.")
        .returns_nothing(204, "The value is replaced.")
        .fails(&[QuotaExceeded, NotConfigured]),
        Operation::delete(one, "deleteSecret", "Deletes a secret.")
            .returns_nothing(204, "It is deleted. Requests that are sent a minute later do not contain it.")
            .fails(&[NotFound]),
    ]
}
