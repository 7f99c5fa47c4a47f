//! Whose files and memory a request is about.

use super::ApiRequest;
use crate::standard::DEFAULT_AGENT;
use crate::types::{Owner, Principal, Problem, id};

/// The user whom a key that names none speaks for.
const DEFAULT_USER: &str = "default";

/// The user and the agent that a caller names, in the query (`at` is `?`) or in the body (`/`). A token's own
/// user stands above the one that is named.
///
/// # Errors
/// When a name is none.
pub fn owner(
    caller: &Principal,
    user: Option<String>,
    agent: Option<String>,
    at: &str,
) -> Result<Owner, Problem> {
    let user = caller.user.clone().or(user).unwrap_or_else(|| DEFAULT_USER.to_owned());
    let agent = agent.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    if !id::is_user(&user) {
        let detail = "expected 1 to 128 bytes without / \\ and control characters";
        return Err(Problem::field(format!("{at}user"), detail));
    }
    if !id::is_valid(&agent) {
        return Err(Problem::field(format!("{at}agent"), "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @"));
    }
    Ok(Owner { tenant: caller.tenant.clone(), agent, user })
}

/// The owner that the body names, or else the query.
///
/// # Errors
/// When a name is none.
pub fn of_body(
    request: &ApiRequest,
    caller: &Principal,
    user: Option<String>,
    agent: Option<String>,
) -> Result<Owner, Problem> {
    let (user, agent) = (user.or_else(|| request.query("user")), agent.or_else(|| request.query("agent")));
    owner(caller, user, agent, "/")
}

/// The owner that the query names.
///
/// # Errors
/// When a name is none.
pub fn of_query(request: &ApiRequest, caller: &Principal) -> Result<Owner, Problem> {
    owner(caller, request.query("user"), request.query("agent"), "?")
}
