//! The routes of runs that the gateway handles: the list, the export, and the specs of new runs.

use super::export::SessionExport;
use super::gateway::{Gateway, TenantCall};
use super::request::{MAX_BODY, Request, RequestExt};
use super::response::{self, Response};
use super::session::runs::NewRun;
use super::{body, owner, page, read_session, spec_name};
use crate::ports::{
    FileError,
    directory::{SessionEntry, SessionKinds},
};
use crate::runs::{About, RunView};
use crate::types::{Owner, Principal, Problem, SessionId, SpecName, Timestamp, json, spec};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The path of the collection.
pub const PATH: &str = "/v1/runs";
/// Most runs of a page: each is read from its session.
const MAX_PAGE: usize = 50;
/// Longest goal in a list, in characters.
const MAX_GOAL: usize = 1_000;
/// How many runs are read at a time.
const AT_ONCE: usize = 6;

/// `GET /v1/runs`, newest first. A page of one status can have fewer runs than others. A run that cannot be read does not fail
/// the page.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let limit = page::limit(call.request)?.min(MAX_PAGE);
    let before: Option<(Timestamp, SessionId)> = page::cursor(call.request)?;
    let status = call.request.query("status");
    let states = ["queued", "running", "waiting", "succeeded", "failed", "canceled", "unknown"];
    if status.as_deref().is_some_and(|status| !states.contains(&status)) {
        return Err(Problem::field("?status", format!("expected one of {}", states.join(", "))));
    }
    let (user, agent) = (call.listed_user(), call.request.query("agent").map(Into::into));
    let before = before.as_ref().map(|(at, id)| (*at, id));
    let directory = &call.gateway.directory;
    let tenant = &call.caller.tenant;
    let (user, agent) = (user.as_ref(), agent.as_ref());
    let mut found = directory.sessions(SessionKinds::Runs, tenant, user, agent, before, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let next_cursor = last.map(|last| page::encode(&(last.created_at, &last.id))).transpose()?;
    let reads = found.into_iter().map(|entry| async move {
        let read = read_session::json(call, PATH, &entry.id).await;
        let read = read.and_then(|json| json.as_deref().map(parsed).transpose());
        let mut run: Value = match read {
            // The list may still have a run that was erased.
            Ok(run) => run?,
            Err(problem) => {
                call.gateway.log.error(&json!({
                    "event": "run.unreadable", "tenant": tenant, "session": entry.id, "cause": problem.to_string(),
                }));
                unknown(entry)
            }
        };
        if let Some(goal) = run["goal"].as_str() {
            run["goal"] = goal.chars().take(MAX_GOAL).collect::<String>().into();
        }
        Some(run)
    });
    let runs: Vec<Option<Value>> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    let data = runs
        .into_iter()
        .flatten()
        .filter(|run| status.as_deref().is_none_or(|status| run["status"] == status))
        .collect();
    response::json(StatusCode::OK, &page::Page::<Value> { data, next_cursor })
}

/// `GET /v1/runs/{id}/export`.
pub(super) async fn export(call: &TenantCall<'_>) -> Result<Response, Problem> {
    #[derive(Deserialize)]
    struct Read {
        agent: String,
        user: String,
        steps: Vec<Step>,
        report: Option<String>,
    }
    #[derive(Deserialize)]
    struct Step {
        files: Vec<String>,
    }
    let id = SessionId::parse(call.params.get("id")).filter(SessionId::is_run);
    let id = id.ok_or_else(|| Problem::not_found("run"))?;
    let json = read_session::json(call, PATH, &id).await?.ok_or_else(|| Problem::not_found("run"))?;
    let read: Read = parsed(&json)?;
    let tenant = call.caller.tenant.clone();
    let owner = Owner { tenant, agent: read.agent.into(), user: read.user.into() };
    let paths = read.steps.into_iter().flat_map(|step| step.files).chain(read.report).collect();
    let files = (call.gateway.workspace(&owner).await?, paths);
    Ok(SessionExport::new(call, id, ("run.json", json), Some(files)).respond())
}

/// Parses the response of a session.
fn parsed<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    json::from_slice(json).map_err(|error| Problem::internal(error.to_string()))
}

/// Returns what the list has of a run that cannot be read.
fn unknown(entry: SessionEntry) -> Value {
    let about = About {
        agent: Some(entry.agent),
        user: Some(entry.user),
        title: entry.title,
        times: (entry.created_at, entry.updated_at),
        ..About::default()
    };
    json!(RunView::unknown(entry.id, about))
}

/// Adds the text of the spec that the body names. The object of the run has no access to the workspace.
///
/// # Errors
/// `validation_failed` at `/spec` if there is no such spec, or it is too large.
pub async fn add_spec(gateway: &Gateway, caller: &Principal, request: &mut Request) -> Result<(), Problem> {
    let new: NewRun = body::json(request)?;
    let mut whole: Value = body::json(request)?;
    whole["spec_text"] = match &new.spec {
        Some(name) => {
            let user = owner::user_of(caller, new.user.or_else(|| request.query("user")).as_deref(), "/")?;
            let agent = owner::agent_of(new.agent.or_else(|| request.query("agent")).as_deref(), "/")?;
            let of = Owner { tenant: caller.tenant.clone(), agent, user };
            json!(text_of_spec(gateway, &of, name).await?)
        }
        None => Value::Null,
    };
    let bytes = response::to_json(&whole)?;
    if bytes.len() > MAX_BODY {
        return Err(Problem::field("/spec", "the spec is too large"));
    }
    *request.body_mut() = Bytes::from(bytes).into();
    Ok(())
}

/// Reads a spec from the user's workspace.
async fn text_of_spec(gateway: &Gateway, of: &Owner, name: &str) -> Result<String, Problem> {
    let parsed = SpecName::parse(name).ok_or_else(|| Problem::field("/spec", spec::NAME_FORM))?;
    match gateway.workspace(of).await?.read(&spec_name::path(&parsed)?).await {
        Ok((file, _)) => String::from_utf8(file.bytes.to_vec())
            .map_err(|_| Problem::field("/spec", "the spec is not text in UTF-8")),
        Err(FileError::NotFound) => Err(Problem::field("/spec", format!("there is no spec {name:?}"))),
        Err(error) => Err(error.into()),
    }
}
