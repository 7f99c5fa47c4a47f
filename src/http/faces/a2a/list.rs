//! Lists of tasks: those of a context, and those of all contexts of a caller.

use super::super::task_id::TaskId;
use super::rpc::{Asked, INVALID_PARAMS, TASK_NOT_FOUND, VERSION};
use super::task::Task;
use crate::http::gateway::TenantCall;
use crate::http::session::call::Call;
use crate::ports::directory::SessionKinds;
use crate::ports::{ReaderRequest, session_store::Select};
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, Cursor, ErrorCode, Problem, SessionId, Timestamp, json};
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

/// Default and maximum number of the turns that a page covers.
const PAGE: (usize, usize) = (50, 100);
/// A page ends with the task that exceeds this size, in bytes (4 MiB).
const PAGE_BYTES: usize = 4 << 20;
/// Most contexts that a page covers. Each is a request to an object.
const MAX_CONTEXTS: usize = 20;

/// The parameters of a request for a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListParams {
    #[serde(default)]
    pub context_id: String,
    #[serde(default)]
    status: String,
    page_size: Option<usize>,
    #[serde(default)]
    page_token: String,
    history_length: Option<usize>,
    #[serde(default)]
    status_timestamp_after: String,
    #[serde(default)]
    include_artifacts: bool,
}

impl ListParams {
    fn size(&self) -> Result<usize, Problem> {
        match self.page_size.unwrap_or(PAGE.0) {
            size if (1..=PAGE.1).contains(&size) => Ok(size),
            _ => Err(Problem::field("/params/pageSize", format!("expected 1 to {}", PAGE.1))),
        }
    }

    fn since(&self) -> Result<Timestamp, Problem> {
        match self.status_timestamp_after.as_str() {
            "" => Ok(Timestamp(0)),
            text => Timestamp::parse(text)
                .ok_or_else(|| Problem::field("/params/statusTimestampAfter", "expected a time (RFC 3339)")),
        }
    }
}

fn malformed_token() -> Problem {
    Problem::field("/params/pageToken", "not a token of this list")
}

/// Returns a page of the tasks of a context, newest first. A page covers a number of turns, of which the filters may leave
/// fewer tasks. A context that does not exist has none.
pub(super) fn of_context(call: &Call<'_>, params: &ListParams) -> Result<Value, Problem> {
    let (size, since) = (params.size()?, params.since()?);
    let before = match params.page_token.as_str() {
        "" => None,
        token => Some(token.parse().map_err(|_| malformed_token())?),
    };
    let session = match call.session() {
        Err(problem) if problem.code == ErrorCode::NotFound => {
            return Ok(json!({"tasks": [], "nextPageToken": "", "pageSize": size, "totalSize": 0}));
        }
        found => found?,
    };
    let started = Select { before, kinds: &["turn.started"], newest_first: true, ..Select::default() };
    let (mut tasks, mut next) = (Vec::new(), String::new());
    let (mut turns, mut bytes, mut last) = (0, 0, 0);
    for record in session.records(started) {
        let record = record?;
        let Some(turn) = record.turn else { continue };
        if turns == size || bytes > PAGE_BYTES {
            next = u64::to_string(&last);
            break;
        }
        (turns, last) = (turns + 1, record.seq);
        let id = TaskId { turn, session: call.session_id.clone() };
        let task = Task::read_after(session, &id, Cursor::after(record.seq - 1))?;
        let is_asked = ["", "TASK_STATE_UNSPECIFIED", task.state.name()].contains(&params.status.as_str());
        if is_asked && task.at >= since {
            let view = task.view(params.history_length, params.include_artifacts);
            bytes += view.to_string().len();
            tasks.push(view);
        }
    }
    let total = session.state().activity.totals.turns;
    Ok(json!({"tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": total}))
}

/// Where a page of all contexts starts.
struct Place {
    /// The context, and when it was created.
    created_at: Timestamp,
    session: SessionId,
    /// The token of the page within this context; if empty, the page starts with the next context.
    token: String,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (created_at, token, session) = (parts.next()?, parts.next()?, parts.next()?);
        let (created_at, session) = (Timestamp(created_at.parse().ok()?), SessionId::parse(session)?);
        Some(Self { created_at, session, token: token.to_owned() })
    }

    fn text(&self) -> String {
        format!("{}/{}/{}", self.created_at.0, self.token, self.session)
    }
}

/// A page of a context, as its object responds.
#[derive(Deserialize)]
struct ContextPage {
    result: Option<ContextResult>,
    error: Option<ContextError>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ContextResult {
    tasks: Vec<Value>,
    next_page_token: String,
}

#[derive(Deserialize)]
struct ContextError {
    code: i32,
    message: String,
}

/// Returns a page of the tasks of all contexts of the caller with an agent: the newest context first, and of each the
/// newest task first. A page covers a number of contexts, of which the filters may leave fewer tasks.
///
/// # Errors
/// Invalid parameters, or a session that cannot be reached.
pub(super) async fn of_caller(
    call: &TenantCall<'_>,
    asked: &Asked,
    params: &ListParams,
) -> Result<Value, Problem> {
    let size = params.size()?;
    params.since()?;
    let start = match params.page_token.as_str() {
        "" => None,
        token => Some(Place::parse(token).ok_or_else(malformed_token)?),
    };
    let user = call.listed_user();
    let agent = match call.params.get("agent") {
        "" => AgentId::from(DEFAULT_AGENT),
        agent => agent.into(),
    };
    let before = start.as_ref().map(|place| (place.created_at, &place.session));
    let listed = call
        .gateway
        .directory
        .sessions(
            SessionKinds::Conversations,
            &call.caller.tenant,
            user.as_ref(),
            Some(&agent),
            before,
            MAX_CONTEXTS + 1,
        )
        .await?;
    let listed = listed.into_iter().map(|entry| Place {
        created_at: entry.created_at,
        session: entry.id,
        token: String::new(),
    });
    let begun = start.filter(|place| !place.token.is_empty());
    let (mut tasks, mut bytes, mut next) = (Vec::new(), 0, String::new());
    let mut last: Option<Place> = None;
    for (index, mut place) in begun.into_iter().chain(listed).enumerate() {
        if let Some(last) =
            last.filter(|_| index == MAX_CONTEXTS || tasks.len() >= size || bytes > PAGE_BYTES)
        {
            next = last.text();
            break;
        }
        let request = asked.with_params(|params| {
            params["contextId"] = json!(place.session);
            params["pageSize"] = json!(size - tasks.len());
            params["pageToken"] = json!(place.token);
        });
        let (found, length) = page_of(call, &place.session, &request).await?;
        bytes += length;
        tasks.extend(found.tasks);
        place.token = found.next_page_token;
        if !place.token.is_empty() {
            next = place.text();
            break;
        }
        last = Some(place);
    }
    let total = tasks.len();
    Ok(json!({"tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": total}))
}

/// Asks a session for a page. Returns it with its length in bytes. A session that was erased has no tasks.
async fn page_of(
    call: &TenantCall<'_>,
    session: &SessionId,
    request: &Value,
) -> Result<(ContextResult, usize), Problem> {
    let body = request.to_string();
    let request = ReaderRequest {
        target: call.request.uri().path(),
        headers: &[("content-type", "application/json"), ("a2a-version", VERSION)],
        body: Some(&body),
    };
    let unavailable = |cause: String| Problem::unavailable("a context cannot be read now; try again", cause);
    let response = call.gateway.reader.send(call.caller, session, request).await;
    let response = response.map_err(|error| unavailable(error.to_string()))?;
    let bytes: Vec<_> = response.body.try_collect().await.map_err(|error| unavailable(error.to_string()))?;
    let bytes = bytes.concat();
    let page: ContextPage = json::from_slice(&bytes).map_err(|error| unavailable(error.to_string()))?;
    let found = match (page.result, page.error) {
        (Some(found), _) => found,
        // It was erased.
        (None, Some(error)) if error.code == TASK_NOT_FOUND => ContextResult::default(),
        (None, Some(error)) if error.code == INVALID_PARAMS => return Err(malformed_token()),
        (None, error) => return Err(unavailable(error.map_or_else(String::new, |error| error.message))),
    };
    Ok((found, bytes.len()))
}
