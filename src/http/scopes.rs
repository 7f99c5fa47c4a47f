//! Checks lists of scopes in bodies.

use crate::types::{Problem, Scope, Scopes};

/// Returns the set of these scopes.
///
/// # Errors
/// `validation_failed` for an empty list.
pub(super) fn checked(scopes: Vec<Scope>, pointer: &str) -> Result<Scopes, Problem> {
    if scopes.is_empty() {
        return Err(Problem::field(pointer, "expected at least one scope"));
    }
    Ok(Scopes::new(scopes))
}
