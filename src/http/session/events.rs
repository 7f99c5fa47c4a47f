//! The session's event log over HTTP.

use super::{Handler, SessionRequest, feed};
use crate::http::{ApiRequest, ApiResponse};
use crate::session::hub::Interest;
use crate::types::{Cursor, Problem};

impl Handler {
    /// `GET …/events`: SSE by default, stored records as NDJSON on demand.
    pub(super) fn events(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let cursor = cursor(&call.request)?;
        let accept = call.request.header("accept").unwrap_or_default();
        if accept.contains("application/x-ndjson") {
            return feed::ndjson(&self.host, &session, cursor, limit(&call.request)?);
        }
        let until_idle = match call.request.query("until").as_deref() {
            None | Some("") => false,
            Some("idle") => true,
            Some(_) => return Err(Problem::field("?until", "expected `idle`")),
        };
        feed::sse(&self.host, &session, cursor, Interest { turn: None, until_idle })
    }
}

/// Where the reader stands. The header is what a browser sends by itself when it comes back, so it
/// wins over the query it was first given; an id that is not ours counts as the start.
pub(super) fn cursor(request: &ApiRequest) -> Result<Cursor, Problem> {
    if let Some(id) = request.header("last-event-id") {
        return Ok(Cursor::parse(id).unwrap_or_default());
    }
    match request.query("after") {
        None => Ok(Cursor::default()),
        Some(text) => Cursor::parse(&text)
            .ok_or_else(|| Problem::field("?after", "expected an event id such as `12` or `12.340`")),
    }
}

fn limit(request: &ApiRequest) -> Result<Option<usize>, Problem> {
    match request.query("limit").map(|text| text.parse()) {
        None => Ok(None),
        Some(Ok(limit)) if limit > 0 => Ok(Some(limit)),
        Some(_) => Err(Problem::field("?limit", "expected a number above 0")),
    }
}
