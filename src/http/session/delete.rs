//! Deletes a session without reading it, so that an unreadable session can be deleted.

use super::call::{SessionRequest, may_see};
use crate::agent::SessionHost;
use crate::http::owner;
use crate::http::request::RequestExt;
use crate::http::response::{self, Response};
use crate::session::{self, owes_status};
use crate::types::{ErrorCode, Owner, Problem};
use http::StatusCode;
use std::rc::Rc;

/// `DELETE /v1/sessions/{id}`.
pub async fn delete(host: &Rc<SessionHost>, asked: &SessionRequest) -> Result<Response, Problem> {
    owner::check_user(&asked.principal, asked.request.query("user").as_deref(), "/")?;
    let store = host.store().as_ref();
    match session::owner(store)? {
        None => return delete_imported(host, asked).await,
        Some(owner) if is_visible(&owner, asked) => {}
        Some(_) => return Err(Problem::not_found("session")),
    }
    session::check_schema(store)?;
    if owes_status(store) {
        let detail = "the parent session waits for this subagent: abort it first";
        return Err(Problem::new(ErrorCode::SubagentSession, detail));
    }
    host.erase(&asked.principal.tenant, &asked.session).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

fn is_visible(owner: &Owner, asked: &SessionRequest) -> bool {
    may_see(&asked.principal, asked.request.query("user").as_deref(), &owner.tenant, &owner.user)
}

/// Deletes imported turns of a session that never ran on this server.
///
/// # Errors
/// `not_found` if there are none.
async fn delete_imported(host: &Rc<SessionHost>, asked: &SessionRequest) -> Result<Response, Problem> {
    let workspace = owner::of_query(&asked.principal, &asked.request)?.into();
    let mut any = false;
    for follow_up in host.agent().follow_ups() {
        let erased = follow_up.erase(&workspace, &asked.session).await;
        any |= erased.map_err(|cause| {
            Problem::unavailable("the memory of the session could not be deleted; try again", cause)
        })?;
    }
    if any { Ok(response::empty(StatusCode::NO_CONTENT)) } else { Err(Problem::not_found("session")) }
}
