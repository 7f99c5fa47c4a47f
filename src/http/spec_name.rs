//! The names of specs in requests.

use super::gateway::TenantCall;
use crate::types::{ErrorCode, FilePath, Problem, SpecName, spec};

/// Returns the name of the spec in the path of a request.
pub(super) fn named(call: &TenantCall<'_>) -> Result<SpecName, Problem> {
    SpecName::parse(call.params.get("spec")).ok_or_else(|| bad_name("spec"))
}

/// Returns the problem of a malformed name.
pub(super) fn bad_name(pointer: &str) -> Problem {
    let problem = Problem::field(pointer, spec::NAME_FORM);
    Problem { code: ErrorCode::InvalidRequest, ..problem }
}

/// Returns the path of a spec.
pub(super) fn path(name: &SpecName) -> Result<FilePath, Problem> {
    name.path().map_err(|error| Problem::internal(error.to_string()))
}
