//! The inbox: what waits in all sessions of a caller, as a list and as a feed of changes. A client that runs tools claims calls
//! here; decisions and answers are routes of the session.

use super::body;
use super::face::{Face, Target};
use super::faces::sse;
use super::gateway::TenantCall;
use super::owner::session_id;
use super::page;
use super::pattern::Params;
use super::request::{Request, RequestExt};
use super::response::{self, Response};
use super::route::Split;
use super::session::call::Call;
use super::session::feed;
use super::stream_caller::StreamCaller;
use crate::ports::{Inbox, InboxError};
use crate::session::hub::Interrupted;
use crate::types::{
    AgentId, CallId, InboxChange, InboxChanges, InboxFilter, InboxKind, InboxPosition, Problem, SessionId,
    ToolProgress, json,
};
use bytes::Bytes;
use futures::{
    StreamExt,
    future::ready,
    stream::{self, unfold},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};

/// The most looks of a feed at the inbox, after which it ends and the client comes back. The platform permits a request 1,000
/// calls.
const LOOKS: u32 = 500;
/// How long a look waits for a change. Then the client receives a comment, so that the connection stays open.
const PATIENCE: Duration = Duration::from_secs(15);
/// Keeps the connection open while nothing changes.
const PING: Bytes = Bytes::from_static(b": ping\n\n");
/// How long a claim lasts if the body does not say.
const DEFAULT_LEASE_S: u64 = 60;
/// The longest lease.
const MAX_LEASE_S: u64 = 3_600;
/// Longest name of a runner, in characters.
const MAX_RUNNER: usize = 128;
/// Largest output and message of a report, in bytes.
const MAX_REPORT: usize = 16 << 10;

/// `GET /v1/pending`, in the order of the last change. A token lists the calls of its own user only.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (limit, after) = (page::limit(call.request)?, page::cursor::<u64>(call.request)?.unwrap_or_default());
    let filter = filter(call)?;
    let found = call.gateway.inbox.list(&call.caller.tenant, &filter, after, limit + 1).await?;
    page::respond(found, limit, |(number, _)| *number, |(_, call)| json!(call))
}

/// `GET /v1/pending/events`: the changes after `last-event-id`. Without it, or if it is too old, the feed begins with
/// `pending.reset` and all calls that wait.
pub(super) async fn events(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let last =
        call.request.header("last-event-id").map(str::to_owned).or_else(|| call.request.query("after"));
    let position = last.and_then(|id| id.parse().ok()).map_or(InboxPosition::Start, InboxPosition::After);
    let feed = Feed {
        inbox: Rc::clone(&call.gateway.inbox),
        filter: filter(call)?,
        position,
        patience: Duration::ZERO,
        left: LOOKS,
        caller: StreamCaller::new(call.caller, call.gateway.credentials(), &call.gateway.clock),
    };
    let first = stream::once(ready(Ok(feed::PREAMBLE)));
    Ok(feed::response(first.chain(unfold(feed, Feed::next)).boxed_local(), "text/event-stream"))
}

/// Returns which calls a request selects.
fn filter(call: &TenantCall<'_>) -> Result<InboxFilter, Problem> {
    let query = |name| call.request.query(name).filter(|text| !text.is_empty());
    let kind = query("kind").map(|name| {
        let kind: Option<InboxKind> = json::from_value(Value::String(name)).ok();
        kind.ok_or_else(|| Problem::field("?kind", "not a kind of call that waits"))
    });
    Ok(InboxFilter {
        user: call.listed_user(),
        agent: query("agent").map(AgentId::from),
        session: query("session").map(SessionId::from),
        kind: kind.transpose()?,
        call: None,
    })
}

/// An open feed.
struct Feed {
    inbox: Rc<dyn Inbox>,
    filter: InboxFilter,
    position: InboxPosition,
    /// How long the next look waits.
    patience: Duration,
    /// Number of looks that follow.
    left: u32,
    caller: StreamCaller,
}

impl Feed {
    /// Returns the next part of the stream; `None` after its end.
    async fn next(mut self) -> Option<(Result<Bytes, Interrupted>, Self)> {
        self.left = self.left.checked_sub(1)?;
        match self.caller.may_read().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(interrupted) => {
                self.left = 0;
                return Some((Err(interrupted), self));
            }
        }
        let part = self.look().await.map_err(|_| Interrupted);
        if part.is_err() {
            self.left = 0;
        }
        Some((part, self))
    }

    /// Reads the next changes.
    async fn look(&mut self) -> Result<Bytes, InboxError> {
        let changes = self.inbox.changes(self.caller.tenant(), &self.filter, self.position, self.patience);
        let InboxChanges { reset, changes, next, more } = changes.await?;
        self.position = next;
        self.patience = if more { Duration::ZERO } else { PATIENCE };
        let mut out = Vec::new();
        if reset {
            sse::write_id(&0, &mut out);
            sse::write_named("pending.reset", &json!({}), &mut out);
        }
        for (number, change) in changes {
            sse::write_id(&number, &mut out);
            match change {
                InboxChange::Added(call) => sse::write_named("pending.added", &call, &mut out),
                InboxChange::Removed(call) => sse::write_named("pending.removed", &call, &mut out),
            }
        }
        Ok(if out.is_empty() { PING } else { out.into() })
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewClaim")]
pub(in crate::http) struct NewClaim {
    /// A name of the client that runs the tool. Only this name can answer the call while the claim lasts, or renew it.
    #[schemars(length(min = 1, max = 128))]
    runner: String,
    /// How many seconds the claim lasts: 1 to 3,600; 60 if absent.
    #[schemars(range(min = 1, max = 3600))]
    lease_s: Option<u64>,
}

/// Claims go to the session of the call.
pub static FACE: Face = Face { target: named_session, problem: response::problem };

fn named_session(request: &Request, _: &Params) -> Result<Target, Problem> {
    let session = request.query("session").map(|id| session_id(&id, "?session")).transpose()?;
    Ok(Target { session, controls: true, ..Target::default() })
}

/// Finds the session of the call to claim, unless the query names it.
///
/// # Errors
/// `not_found` if the caller's inbox does not have the call, `validation_failed` if several sessions have a call with this id.
pub(super) async fn at_gateway(call: &TenantCall<'_>) -> Result<Split, Problem> {
    if call.request.query("session").is_some() {
        return Ok(Split::Forward);
    }
    let filter = InboxFilter { call: Some(call.params.id("call_id")), ..filter(call)? };
    let found = call.gateway.inbox.list(&call.caller.tenant, &filter, 0, 2).await?;
    match found.as_slice() {
        [] => Err(Problem::not_found("call that waits")),
        [(_, one)] => Ok(Split::ForwardTo(one.session.clone())),
        _ => Err(Problem::field("?session", "several sessions have a call with this id: name the session")),
    }
}

/// `POST /v1/pending/{call_id}/claim`, in the object of the session. Responds with the whole call.
pub(super) async fn claim(call: &Call<'_>) -> Result<Response, Problem> {
    let NewClaim { runner, lease_s } = body::json(call.request)?;
    check_runner(&runner)?;
    let lease_s = lease_s.unwrap_or(DEFAULT_LEASE_S);
    if !(1..=MAX_LEASE_S).contains(&lease_s) {
        return Err(Problem::field("/lease_s", format!("expected a number from 1 to {MAX_LEASE_S}")));
    }
    let session = call.session()?;
    let call_id: CallId = call.params.id("call_id");
    let claimed = call.host.claim(session, &call_id, &runner, Duration::from_secs(lease_s))?;
    response::json(StatusCode::OK, &claimed)
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "RunnerReport")]
pub(in crate::http) struct RunnerReport {
    /// The name with which you have claimed the call.
    #[schemars(length(min = 1, max = 128))]
    runner: String,
    #[serde(flatten)]
    progress: ToolProgress,
}

/// `POST /v1/pending/{call_id}/progress`, in the object of the session.
pub(super) async fn report(call: &Call<'_>) -> Result<Response, Problem> {
    let RunnerReport { runner, progress } = body::json(call.request)?;
    check_runner(&runner)?;
    for (field, text) in [("/output", Some(&progress.output)), ("/message", progress.message.as_ref())] {
        if text.is_some_and(|text| text.len() > MAX_REPORT) {
            return Err(Problem::field(field, format!("expected at most {MAX_REPORT} bytes")));
        }
    }
    call.host.show_progress(call.session()?, &call.params.id("call_id"), &runner, progress)?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// Checks the name of a runner.
pub(in crate::http) fn check_runner(runner: &str) -> Result<(), Problem> {
    if runner.trim().is_empty() || runner.chars().count() > MAX_RUNNER {
        return Err(Problem::field("/runner", format!("expected 1 to {MAX_RUNNER} characters")));
    }
    Ok(())
}
