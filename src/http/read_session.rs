//! Sessions and runs as the gateway reads them from their objects.

use super::gateway::TenantCall;
use super::request::RequestExt;
use crate::ports::{PeerError, ReaderRequest};
use crate::types::{Problem, SessionId};
use bytes::Bytes;
use futures::TryStreamExt;

/// Reads the JSON at the path `{collection}/{id}` from the object of a session; `None` if the caller has no such session.
///
/// # Errors
/// `unavailable` if the session cannot be read.
pub async fn json(call: &TenantCall<'_>, collection: &str, id: &SessionId) -> Result<Option<Bytes>, Problem> {
    let query = call.request.query("user");
    let query = query.map(|user| {
        format!("?{}", form_urlencoded::Serializer::new(String::new()).append_pair("user", &user).finish())
    });
    let target = format!("{collection}/{id}{}", query.unwrap_or_default());
    let request = ReaderRequest { target: &target, ..ReaderRequest::default() };
    let response = call.gateway.reader.send(call.caller, id, request).await.map_err(unreachable)?;
    match response.status {
        200 => {
            let read: Vec<_> = response.body.try_collect().await.map_err(unreachable)?;
            Ok(Some(read.concat().into()))
        }
        404 => Ok(None),
        status => {
            Err(Problem::unavailable("the session cannot be read; try again", format!("status {status}")))
        }
    }
}

fn unreachable(error: PeerError) -> Problem {
    Problem::unavailable("the session cannot be reached; try again", error.to_string())
}
