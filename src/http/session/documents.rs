//! First responses of a session's routes, stored as documents of the session.

use super::call::Call;
use crate::http::idempotency::{RequestKey, ResponseStore};
use crate::http::request::RequestExt;
use crate::ports::directory::Claim;
use crate::session::Session;
use crate::session::idempotency::{self, FirstResponse, ResponseDocument, StoredResponse};
use crate::types::Problem;
use async_trait::async_trait;
use http::StatusCode;

/// Stores responses in the session of a call.
pub struct DocumentStore<'a> {
    /// The call.
    pub call: &'a Call<'a>,
    /// Whether the responses of the route are the session. They are built again and not stored.
    pub shows_session: bool,
}

#[async_trait(?Send)]
impl ResponseStore for DocumentStore<'_> {
    async fn claim(&self, key: &RequestKey) -> Result<Claim, Problem> {
        let call = self.call;
        // Only in the caller's own session: responses stored in another user's session are as private as that
        // session.
        let Some(session) = call.find(call.request.query("user").as_deref())? else {
            return Ok(Claim::Fresh);
        };
        match find(call, session, key)? {
            None => Ok(Claim::Fresh),
            Some(first) if first.body_hash != key.body_hash => Ok(Claim::Reused),
            Some(FirstResponse { response: StoredResponse::Json(status, body), .. }) => {
                let body = if body.is_empty() { session_json(session)? } else { body };
                Ok(Claim::Done(status, body))
            }
            Some(FirstResponse { response: StoredResponse::Turn(_), .. }) => {
                Err(Problem::internal("the response of a turn is stored under another route"))
            }
        }
    }

    /// Looks the session up again: the work may have created or erased it.
    async fn settle(&self, key: &RequestKey, response: Option<(StatusCode, &str)>) -> Result<(), Problem> {
        let call = self.call;
        let (Some((status, body)), Some(session)) = (response, call.host.open()?) else { return Ok(()) };
        let body = if self.shows_session { "" } else { body };
        let response = document(call, key, StoredResponse::Json(status.as_u16(), body.to_owned()))?;
        session.commit(call.host.now(), |draft| draft.store_response(response))?;
        Ok(())
    }
}

/// Builds the body of a response that shows a session.
fn session_json(session: &Session) -> Result<String, Problem> {
    serde_json::to_string(&session.view()?).map_err(|error| Problem::internal(error.to_string()))
}

/// Finds the first response to a request with this key.
pub fn find(call: &Call<'_>, session: &Session, key: &RequestKey) -> Result<Option<FirstResponse>, Problem> {
    Ok(idempotency::find(session, &key.scope, &key.key, call.host.now())?)
}

/// Builds the document that stores the first response.
pub fn document(
    call: &Call<'_>,
    key: &RequestKey,
    response: StoredResponse,
) -> Result<ResponseDocument, Problem> {
    let first = FirstResponse { body_hash: key.body_hash.clone(), at: call.host.now(), response };
    Ok(ResponseDocument::new(call.host.store().as_ref(), &key.scope, &key.key, &first)?)
}
