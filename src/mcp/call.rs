//! A request to a server during a call of the agent: it ends with the call, and the user answers what the server asks.

use super::connection::{Connection, Outgoing};
use super::error::McpError;
use super::{outcome, progress::Progress};
use crate::agent::ToolContext;
use crate::ports::within;
use crate::types::{Timestamp, ToolOutcome, Wait};
use futures::{
    future::{Either, select},
    pin_mut,
};
use serde_json::{Value, json};
use std::{cell::Cell, time::Duration};

/// Time between two reports of a call's progress. Those in between are dropped.
const PROGRESS_PACE: Duration = Duration::from_millis(200);
/// How long a legacy server is given to accept that a call was canceled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The call of the agent that makes requests to a server.
pub(super) struct Call<'a> {
    pub connection: &'a Connection,
    pub cx: &'a ToolContext,
    /// Whether a request may be sent twice.
    pub is_idempotent: bool,
}

/// Why a request has no result.
pub(super) enum NoResult {
    /// The call waits, or cannot ask the user what the server asks.
    Ended(ToolOutcome),
    /// The server has failed, or refused the request.
    Failed {
        error: McpError,
        /// Whether the request has had no effect, or may have it twice.
        may_be_repeated: bool,
    },
}

impl NoResult {
    /// Returns the outcome of the call.
    pub fn outcome(self, server: &str) -> ToolOutcome {
        match self {
            Self::Ended(outcome) => outcome,
            Self::Failed { error, may_be_repeated } => outcome::of_error(server, may_be_repeated, &error),
        }
    }
}

impl<'a> Call<'a> {
    /// Sends a request, which `create` creates with the given id, and returns its result. A server that asks the user gets the
    /// request again with the answer.
    ///
    /// # Errors
    /// There is no result, or not yet.
    pub async fn result(
        &self,
        mut progress: Progress,
        create: impl Fn(u64) -> Outgoing<'a>,
    ) -> Result<Value, NoResult> {
        let Self { connection, cx, is_idempotent } = *self;
        let (server, hosts) = (connection.name(), connection.hosts());
        let shown_at = Cell::new(Timestamp(0));
        let show = |progress| {
            let now = cx.clock.now();
            if now.since(shown_at.get()) >= PROGRESS_PACE {
                shown_at.set(now);
                cx.report(progress);
            }
        };
        while progress.question().is_none() {
            let id = connection.new_id(progress.id);
            let asked = Cell::new(0);
            let respond = |request: &Value| {
                let earlier = asked.replace(asked.get() + 1);
                progress.response(earlier, server, request, hosts)
            };
            let mut outgoing = create(id);
            // A request without a name is for a list, during which no server asks.
            if outgoing.name.is_some() {
                outgoing.on_progress = Some(&show);
                outgoing.on_question = Some(&respond);
            }
            progress.add_to(&mut outgoing.params);
            match self.send(&outgoing).await {
                Ok(result) if outcome::asks(&result) => match progress.next(id, server, &result, hosts) {
                    Ok(next) => progress = next,
                    Err(why) => return Err(NoResult::Ended(outcome::unasked(server, &why, &result))),
                },
                Ok(result) => return Ok(result),
                Err(McpError::Asks(request)) => {
                    let earlier = asked.get().saturating_sub(1);
                    match progress.next_of_legacy(id, earlier, server, &request, hosts) {
                        Ok(next) => progress = next,
                        Err(why) => {
                            let result = json!({"inputRequests": {"": request}});
                            return Err(NoResult::Ended(outcome::unasked(server, &why, &result)));
                        }
                    }
                }
                Err(error) => {
                    if let Some(challenge) = connection.needs_consent(&error) {
                        let waits = progress.wait_for_consent(connection, challenge, cx).await;
                        return Err(NoResult::Ended(waits));
                    }
                    let may_be_repeated = is_idempotent || !outgoing.is_sent.get();
                    return Err(NoResult::Failed { error, may_be_repeated });
                }
            }
        }
        let question = progress.question().cloned().unwrap_or_default();
        Err(NoResult::Ended(cx.wait(Wait::Question(question), progress.to_json())))
    }

    /// Sends a request. One that is no longer awaited is canceled.
    async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Value, McpError> {
        let Self { connection, cx, .. } = *self;
        let limit = connection.server().timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
        let left = cx.deadline.since(cx.clock.now());
        // Dropping the request closes its stream, by which a modern server sees that it is canceled.
        let work = connection.ask(outgoing);
        let limited = async {
            match limit.filter(|limit| *limit < left) {
                Some(limit) => match within(cx.clock.as_ref(), limit, work).await {
                    Ok(result) => result,
                    Err(_unfinished) => Err(McpError::Slow(limit)),
                },
                None => work.await,
            }
        };
        let result = {
            let over = cx.cancel.canceled();
            pin_mut!(limited, over);
            match select(limited, over).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => Err(McpError::Slow(left)),
            }
        };
        if matches!(result, Err(McpError::Slow(_))) && outgoing.is_sent.get() {
            let canceled = connection.cancel(&cx.session, outgoing.id);
            let _ = within(cx.clock.as_ref(), CANCEL_TIMEOUT, canceled).await;
        }
        result
    }
}
