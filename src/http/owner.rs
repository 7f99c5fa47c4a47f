//! The owner of the files and memory that a request is about.

use super::gateway::TenantCall;
use super::request::RequestExt;
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, ErrorCode, FieldError, Owner, Principal, Problem, UserId};

/// The user of a request that names none.
pub const DEFAULT_USER: &str = "default";

/// Returns the owner of the given user and agent, which were named in the query (`at` is `?`) or in the body
/// (`at` is `/`).
///
/// # Errors
/// As for [`user_of`], and `validation_failed` for an invalid agent.
pub fn owner(
    caller: &Principal,
    user: Option<String>,
    agent: Option<String>,
    at: &str,
) -> Result<Owner, Problem> {
    let user = user_of(caller, user.as_deref(), at)?;
    let agent = AgentId::parse(agent.as_deref().unwrap_or(DEFAULT_AGENT)).ok_or_else(|| {
        Problem::field(format!("{at}agent"), "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @")
    })?;
    Ok(Owner { tenant: caller.tenant.clone(), agent, user })
}

/// Checks that a request does not name another user than the one of its token or ticket. Ignoring the name
/// would, for example, erase the wrong user.
///
/// # Errors
/// `user_mismatch` at `{at}user`.
pub fn check_user(caller: &Principal, named: Option<&str>, at: &str) -> Result<(), Problem> {
    match (caller.user.as_deref(), named) {
        (Some(own), Some(named)) if own != named => {
            let detail = format!("the credential belongs to the user {own:?}; name that user or none");
            let errors = vec![FieldError { pointer: format!("{at}user"), detail: detail.clone() }];
            Err(Problem { errors, ..Problem::new(ErrorCode::UserMismatch, detail) })
        }
        _ => Ok(()),
    }
}

/// Returns the user of the caller's token or ticket, or else the user that the request names, or else
/// [`DEFAULT_USER`].
///
/// # Errors
/// As for [`check_user`], and `validation_failed` at `{at}user` for an invalid name.
pub fn user_of(caller: &Principal, named: Option<&str>, at: &str) -> Result<UserId, Problem> {
    check_user(caller, named, at)?;
    let user = caller.user.as_deref().or(named).unwrap_or(DEFAULT_USER);
    UserId::parse(user).ok_or_else(|| {
        Problem::field(format!("{at}user"), "expected 1 to 128 bytes without / \\ and control characters")
    })
}

/// Returns the owner that the body names, or else the query.
///
/// # Errors
/// As for [`owner()`].
pub fn of_body(call: &TenantCall<'_>, user: Option<String>, agent: Option<String>) -> Result<Owner, Problem> {
    let (user, agent) =
        (user.or_else(|| call.request.query("user")), agent.or_else(|| call.request.query("agent")));
    owner(call.caller, user, agent, "/")
}

/// Returns the owner that the query names.
///
/// # Errors
/// As for [`owner()`].
pub fn of_query(caller: &Principal, request: &impl RequestExt) -> Result<Owner, Problem> {
    owner(caller, request.query("user"), request.query("agent"), "?")
}
