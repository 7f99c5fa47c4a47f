//! The owner of the files and memory that a request is about.

use super::gateway::{Gateway, TenantCall};
use super::request::RequestExt;
use crate::standard::{DEFAULT_AGENT, DEFAULT_USER};
use crate::types::{AgentId, ErrorCode, FieldError, Owner, Principal, Problem, SessionId, TenantId, UserId};

/// What an id consists of, for the errors about malformed ones.
pub const ID_FORM: &str = "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @";

/// Returns the owner of the given user and agent, which were named in the query (`at` is `?`) or in the body
/// (`at` is `/`).
///
/// # Errors
/// As for [`user_of`] and [`check_agent`].
pub async fn owner(
    call: &TenantCall<'_>,
    user: Option<String>,
    agent: Option<String>,
    at: &str,
) -> Result<Owner, Problem> {
    let user = user_of(call.caller, user.as_deref(), at)?;
    check_agent(call.gateway, &call.caller.tenant, agent.as_deref(), at).await?;
    let agent = agent_of(agent.as_deref(), at)?;
    Ok(Owner { tenant: call.caller.tenant.clone(), agent, user })
}

/// Returns the agent that a request names, or else `default`. The gateway has checked that it exists.
///
/// # Errors
/// `validation_failed` at `{at}agent` for an invalid id.
pub fn agent_of(named: Option<&str>, at: &str) -> Result<AgentId, Problem> {
    AgentId::parse(named.unwrap_or(DEFAULT_AGENT))
        .ok_or_else(|| Problem::field(format!("{at}agent"), ID_FORM))
}

/// Reads the id of a session that a client has chosen.
///
/// # Errors
/// `validation_failed` at `pointer` for an invalid id.
pub fn session_id(id: &str, pointer: &str) -> Result<SessionId, Problem> {
    SessionId::parse(id).ok_or_else(|| Problem::field(pointer, ID_FORM))
}

/// Checks that the agent that a request names exists, before anything is stored for it.
///
/// # Errors
/// `unknown_agent` at `{at}agent`, a failed store, and as for [`agent_of`].
pub async fn check_agent(
    gateway: &Gateway,
    tenant: &TenantId,
    named: Option<&str>,
    at: &str,
) -> Result<(), Problem> {
    let agent = agent_of(named, at)?;
    match gateway.agents.check(tenant, &agent).await {
        // What belongs to a deleted agent can still be read.
        Err(problem) if problem.code == ErrorCode::AgentGone => Ok(()),
        Err(problem) if problem.code == ErrorCode::UnknownAgent => {
            let errors = vec![FieldError { pointer: format!("{at}agent"), detail: problem.detail.clone() }];
            Err(Problem { errors, ..problem })
        }
        checked => checked,
    }
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
    parse_user(caller.user.as_deref().or(named).unwrap_or(DEFAULT_USER), at)
}

/// Reads the name of a user.
///
/// # Errors
/// `validation_failed` at `{at}user`.
pub fn parse_user(name: &str, at: &str) -> Result<UserId, Problem> {
    let expected = "expected 1 to 128 bytes without / \\ and control characters";
    UserId::parse(name).ok_or_else(|| Problem::field(format!("{at}user"), expected))
}

/// Returns the owner that the body names, or else the query.
///
/// # Errors
/// As for [`owner()`].
pub async fn of_body(
    call: &TenantCall<'_>,
    user: Option<String>,
    agent: Option<String>,
) -> Result<Owner, Problem> {
    let (user, agent) =
        (user.or_else(|| call.request.query("user")), agent.or_else(|| call.request.query("agent")));
    owner(call, user, agent, "/").await
}

/// Returns the owner that the query names. Its agent exists, because [`dispatch`](super::dispatch) has checked it.
///
/// # Errors
/// As for [`user_of`] and [`agent_of`].
pub fn of_query(caller: &Principal, request: &impl RequestExt) -> Result<Owner, Problem> {
    let user = user_of(caller, request.query("user").as_deref(), "?")?;
    let agent = agent_of(request.query("agent").as_deref(), "?")?;
    Ok(Owner { tenant: caller.tenant.clone(), agent, user })
}
