//! The memory of a user with an agent: search, daily logs, consolidation, erasure. [`import`] adds to it.

pub(super) mod import;

use super::body;
use super::gateway::TenantCall;
use super::owner::{self, owner};
use super::request::RequestExt;
use super::response::{self, Response, ResponseExt};
use super::users;
use crate::memory::{
    consolidation::{Consolidated, quota_of},
    daily,
    search::Hit,
};
use crate::ports::memory::{CollectionKind, Entry, Source};
use crate::types::{ErrorCode, Owner, Problem, SessionId};
use crate::workspace::layout::{DAILY, MEMORY};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest query, in characters.
const MAX_QUERY: usize = 8_000;
/// Hits of a search without a limit.
const HITS: usize = 10;
const MAX_HITS: usize = 200;

/// A search: the text, whose memory, and what of it.
#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "MemorySearch")]
pub(in crate::http) struct Search {
    /// The text to search for.
    #[schemars(length(max = 8000))]
    pub q: String,
    /// The user, if you authenticate with a key.
    pub user: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// Maximum number of hits. There are never more than 50.
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<usize>,
    /// `facts`, or `sessions` for the turns of conversations.
    pub scope: Option<String>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "MemoryOwner")]
pub(in crate::http) struct Space {
    /// The user, if you authenticate with a key.
    user: Option<String>,
    /// The agent.
    agent: Option<String>,
}

/// `GET` and `POST /v1/memory/search`.
pub(super) async fn search(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (search, at) = match *call.request.method() {
        Method::POST => (body::json(call.request)?, "/"),
        _ => (search_in_query(call.request)?, "?"),
    };
    let hits = find(call, search, at).await?;
    response::json(StatusCode::OK, &json!({ "hits": hits }))
}

/// Searches the memory of a user with an agent. `at` is where the search comes from: `/` is a body and `?` the query.
///
/// # Errors
/// An invalid search, or a failed index.
pub(super) async fn find(call: &TenantCall<'_>, search: Search, at: &str) -> Result<Vec<Value>, Problem> {
    let owner = owner(call, search.user, search.agent, at).await?;
    let kind = match search.scope.as_deref() {
        None | Some("facts") => CollectionKind::Facts,
        Some("sessions") => CollectionKind::Turns,
        Some(_) => return Err(Problem::field(format!("{at}scope"), "expected `facts` or `sessions`")),
    };
    let limit = search.limit.unwrap_or(HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        return Err(Problem::field(format!("{at}limit"), format!("expected 1 to {MAX_HITS}")));
    }
    if search.q.chars().count() > MAX_QUERY {
        return Err(Problem::field(format!("{at}q"), format!("expected at most {MAX_QUERY} characters")));
    }
    let hits = call.gateway.memories.search(&owner, kind, &search.q, limit).await?;
    Ok(hits.iter().map(view).collect())
}

fn search_in_query(request: &impl RequestExt) -> Result<Search, Problem> {
    let limit = request.query("limit").map(|limit| limit.parse());
    let limit =
        limit.transpose().map_err(|_| Problem::field("?limit", format!("expected 1 to {MAX_HITS}")))?;
    let q = request.query("q").ok_or_else(|| Problem::field("?q", "missing: the text to search for"))?;
    let (user, agent, scope) = (request.query("user"), request.query("agent"), request.query("scope"));
    Ok(Search { q, user, agent, limit, scope })
}

fn view(hit: &Hit) -> Value {
    let mut view = view_of(&hit.entry);
    view["score"] = hit.score.into();
    view
}

/// Returns an entry as clients see it.
pub(super) fn view_of(entry: &Entry) -> Value {
    let mut view = json!({ "id": entry.key, "source": entry.source, "ts": entry.at, "text": entry.text });
    let path = match entry.source {
        Source::Log => Some(format!("{DAILY}{}.md", entry.at.date())),
        Source::Memory => Some(MEMORY.to_owned()),
        Source::Session => None,
    };
    for (name, value) in [
        ("path", path),
        ("session", entry.session.as_ref().map(SessionId::to_string)),
        ("speaker", entry.speaker.clone()),
    ] {
        if let Some(value) = value {
            view[name] = value.into();
        }
    }
    view
}

/// `GET /v1/memory/log/{date}`: the facts of one day, as Markdown.
pub(super) async fn log(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let date = call.params.get("date");
    let owner = owner::of_query(call.caller, call.request)?;
    if !daily::is_day(date) {
        return Err(Problem::field("date", "expected a day as YYYY-MM-DD"));
    }
    let day = call.gateway.memories.day(&owner, date).await?;
    let day = day.ok_or_else(|| Problem::not_found("log of that day"))?;
    Ok(response::bytes(StatusCode::OK, "text/markdown; charset=utf-8", day)
        .with("x-content-type-options", "nosniff"))
}

/// `POST /v1/memory/consolidate`.
pub(super) async fn consolidate(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let space: Space = body::json_or_empty(call.request)?;
    let owner = owner::of_body(call, space.user, space.agent).await?;
    match call.gateway.memories.consolidate(&owner).await {
        Ok(Consolidated::Done(facts)) => response::json(StatusCode::OK, &json!({ "facts": facts })),
        Ok(Consolidated::Busy) => Err(Problem::new(
            ErrorCode::MemoryBusy,
            "this memory is being consolidated or erased; try again later",
        )),
        Err(cause) => {
            if let Some(quota) = quota_of(&cause) {
                return Err(quota.into());
            }
            let detail = "the memory could not be consolidated; nothing is lost, try again";
            Err(Problem::unavailable(detail, cause))
        }
    }
}

/// `DELETE /v1/memory`: erases a user with all agents.
pub(super) async fn erase_user(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let named = call.request.query("user");
    if call.caller.user.is_none() && named.is_none() {
        return Err(Problem::field("?user", "missing: the user to erase"));
    }
    let Owner { tenant, user, .. } = owner(call, named, None, "?").await?;
    users::erase(call.gateway, call, &tenant, &user).await
}
