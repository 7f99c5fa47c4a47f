//! The owner of the files and memory that a request is about.

use super::gateway::TenantCall;
use super::request::RequestExt;
use crate::standard::DEFAULT_AGENT;
use crate::types::{Owner, Principal, Problem, id};

/// The user of a request that names none.
pub const DEFAULT_USER: &str = "default";

/// Returns the owner of the given user and agent, which were named in the query (`at` is `?`) or in the body
/// (`at` is `/`). The user of a token or ticket takes precedence.
///
/// # Errors
/// `validation_failed` for an invalid name.
pub fn owner(
    caller: &Principal,
    user: Option<String>,
    agent: Option<String>,
    at: &str,
) -> Result<Owner, Problem> {
    let user = caller.user.clone().or(user).unwrap_or_else(|| DEFAULT_USER.to_owned());
    let agent = agent.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    check_user(&user, at)?;
    if !id::is_valid(&agent) {
        return Err(Problem::field(format!("{at}agent"), "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @"));
    }
    Ok(Owner { tenant: caller.tenant.clone(), agent, user })
}

/// Checks the name of a user.
///
/// # Errors
/// `validation_failed` at `{at}user`.
pub fn check_user(user: &str, at: &str) -> Result<(), Problem> {
    if id::is_user(user) {
        return Ok(());
    }
    Err(Problem::field(format!("{at}user"), "expected 1 to 128 bytes without / \\ and control characters"))
}

/// Returns the owner that the body names, or else the query.
///
/// # Errors
/// `validation_failed` for an invalid name.
pub fn of_body(call: &TenantCall<'_>, user: Option<String>, agent: Option<String>) -> Result<Owner, Problem> {
    let (user, agent) =
        (user.or_else(|| call.request.query("user")), agent.or_else(|| call.request.query("agent")));
    owner(call.caller, user, agent, "/")
}

/// Returns the owner that the query names.
///
/// # Errors
/// `validation_failed` for an invalid name.
pub fn of_query(caller: &Principal, request: &impl RequestExt) -> Result<Owner, Problem> {
    owner(caller, request.query("user"), request.query("agent"), "?")
}
