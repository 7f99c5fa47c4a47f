//! Deletes a session without reading it, so that an unreadable session can be deleted.

use super::call::{SessionRequest, may_see};
use crate::agent::SessionHost;
use crate::http::owner;
use crate::http::request::RequestExt;
use crate::http::response::{self, Response};
use crate::ports::SessionStore;
use crate::session::{self, owes_status};
use crate::types::{ErrorCode, Problem};
use http::StatusCode;
use std::rc::Rc;

/// `DELETE /v1/sessions/{id}`.
pub async fn delete(host: &Rc<SessionHost>, asked: &SessionRequest) -> Result<Response, Problem> {
    let store = host.store().as_ref();
    if let Err(problem) = check_owner(store, asked) {
        return delete_imported(host, asked, problem).await;
    }
    session::check_schema(store)?;
    if owes_status(store) {
        let detail = "the parent session waits for this subagent: abort it first";
        return Err(Problem::new(ErrorCode::SubagentSession, detail));
    }
    host.erase(&asked.principal.tenant, &asked.session).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// Checks that the stored session is the caller's.
///
/// # Errors
/// `not_found` for a missing session and for a session of another user.
fn check_owner(store: &dyn SessionStore, asked: &SessionRequest) -> Result<(), Problem> {
    let user = asked.request.query("user");
    match session::owner(store)? {
        Some(owner) if may_see(&asked.principal, user.as_deref(), &owner.tenant, &owner.user) => Ok(()),
        _ => Err(Problem::not_found("session")),
    }
}

/// Deletes imported turns of a session that never ran on this server. Returns `missing` if there are none.
async fn delete_imported(
    host: &Rc<SessionHost>,
    asked: &SessionRequest,
    missing: Problem,
) -> Result<Response, Problem> {
    let owner = owner::of_query(&asked.principal, &asked.request)?;
    let mut any = false;
    for follow_up in host.agent().follow_ups() {
        let erased = follow_up.erase(&owner, &asked.session).await;
        any |= erased.map_err(|cause| {
            Problem::unavailable("the memory of the session could not be deleted; try again", cause)
        })?;
    }
    if any { Ok(response::empty(StatusCode::NO_CONTENT)) } else { Err(missing) }
}
