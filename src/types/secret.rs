//! Secrets of tenants.

use super::{FieldError, Timestamp};
use serde::{Deserialize, Serialize};

/// Maximum length of the name of a secret.
const MAX_NAME: usize = 64;

/// A secret of a tenant, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Secret")]
pub struct SecretEntry {
    /// The name.
    pub name: String,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When its value was last stored.
    pub updated_at: Timestamp,
}

/// Checks the name of a secret: 1–64 characters of `A–Z a–z 0–9 _`.
///
/// # Errors
/// The form of a name, with the pointer `/name`.
pub fn check_name(name: &str) -> Result<(), FieldError> {
    let is_valid = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let detail = || format!("the name of a secret has 1 to {MAX_NAME} of A-Z a-z 0-9 _");
    is_valid.then_some(()).ok_or_else(|| FieldError { pointer: "/name".into(), detail: detail() })
}
