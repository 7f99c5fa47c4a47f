//! The event log of a session.

use super::{call::Call, children, feed};
use crate::http::request::{Request, RequestExt};
use crate::http::response::Response;
use crate::session::hub::Interest;
use crate::types::{Cursor, Problem, TurnId};

/// `GET /v1/sessions/{id}/events`: a stream of SSE, or the stored records as NDJSON if the client accepts it.
pub async fn events(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    let cursor = cursor(call.request)?;
    let accept = call.request.header("accept").unwrap_or_default();
    if accept.contains("application/x-ndjson") {
        return feed::ndjson(call, session, cursor, limit(call.request)?);
    }
    let until_idle = match call.request.query("until").as_deref() {
        None | Some("") => false,
        Some("idle") => true,
        Some(_) => return Err(Problem::field("?until", "expected `idle`")),
    };
    let turn = call.request.query("turn").filter(|turn| !turn.is_empty()).map(TurnId::from);
    let has_children = children::are_wanted(call.request)?;
    let mut stream = feed::sse(call, session, cursor, Interest { turn: turn.clone(), until_idle })?;
    if has_children {
        stream = children::with_events(call, session, turn, stream);
    }
    Ok(feed::response(stream, "text/event-stream"))
}

/// Returns the cursor of a reader. `last-event-id` takes precedence over `?after=`, because browsers send it
/// when they reconnect with the URL of the first request. An invalid `last-event-id` counts as the start.
pub(super) fn cursor(request: &Request) -> Result<Cursor, Problem> {
    if let Some(id) = request.header("last-event-id") {
        return Ok(Cursor::parse(id).unwrap_or_default());
    }
    match request.query("after") {
        None => Ok(Cursor::default()),
        Some(text) => Cursor::parse(&text)
            .ok_or_else(|| Problem::field("?after", "expected an event id such as `12` or `12.340`")),
    }
}

fn limit(request: &Request) -> Result<Option<usize>, Problem> {
    match request.query("limit").map(|text| text.parse()) {
        None => Ok(None),
        Some(Ok(limit)) if limit > 0 => Ok(Some(limit)),
        Some(_) => Err(Problem::field("?limit", "expected a number above 0")),
    }
}
