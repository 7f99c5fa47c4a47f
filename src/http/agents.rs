//! The agents of a tenant: definitions in versions, of which one is active.

use super::etag::{matches, quoted};
use super::gateway::TenantCall;
use super::owner::ID_FORM;
use super::request::{Request, RequestExt};
use super::response::{self, Response, ResponseExt};
use super::{audit, body, page};
use crate::standard::definition::{Definition, MAX_BYTES};
use crate::types::{
    AgentEntry, AgentId, AgentSummary, AgentVersion, Approver, AuditAction, ErrorCode, Problem, Scope,
    StoredVersion,
};
use http::StatusCode;
use serde_json::{Map, Value, json};

/// Maximum number of agents of a tenant that are not deleted.
const MAX_AGENTS: usize = 100;
/// Maximum size of the stored versions of a tenant's agents that are not deleted, in bytes (64 MiB).
const MAX_STORED: u64 = 64 << 20;

/// What users of an agent may know of its modes, to switch between them.
const PUBLIC_OF_MODE: [&str; 5] = ["id", "name", "description", "default", "transitions_to"];

/// `GET /v1/agents`, in the order of their ids.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let agents = &call.gateway.agents;
    let stored = agents.store().summaries(&call.caller.tenant).await?;
    let is_stored = |agent: &AgentId| stored.iter().any(|own| own.entry.id == *agent);
    let own = agents.of_deployment().filter(|agent| !is_stored(agent));
    let own = own.map(|id| json!({ "id": id, "version": AgentVersion::FIRST, "name": id }));
    let stored = stored.iter().filter(|own| own.entry.deleted_at.is_none()).map(|own| {
        let AgentSummary { entry: AgentEntry { id, active, .. }, name, description, .. } = own;
        let mut view = json!({ "id": id, "version": active, "name": name.as_deref().unwrap_or(id) });
        if let Some(description) = description {
            view["description"] = json!(description);
        }
        view
    });
    let mut all: Vec<Value> = own.chain(stored).collect();
    all.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
    response::json(StatusCode::OK, &page::Page { data: all, next_cursor: None })
}

/// `GET /v1/agents/{id}`: the active version, or the one in `?version=`.
pub(super) async fn show(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let agent = agent_id(call)?;
    let asked = match call.request.query("version") {
        Some(text) => Some(version(&text, "?version")?),
        None => None,
    };
    let entry = find(call, &agent).await?;
    let of_deployment = call.gateway.agents.is_of_deployment(&agent);
    let wanted = match (asked, &entry) {
        (Some(version), _) => version,
        (None, Some(AgentEntry { deleted_at: Some(_), .. })) => return Err(gone(&agent)),
        (None, Some(entry)) => entry.active,
        (None, None) => AgentVersion::FIRST,
    };
    let stored = match of_deployment && wanted.is_first() {
        true => None,
        false => {
            let found = call.gateway.agents.store().version(&call.caller.tenant, &agent, wanted).await?;
            Some(found.ok_or_else(|| unknown(&agent, entry.is_some()))?)
        }
    };
    shown(StatusCode::OK, call, &agent, stored.as_ref())
}

/// `GET /v1/agents/{id}/versions`, newest first, without their definitions.
pub(super) async fn versions(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let agent = agent_id(call)?;
    let limit = page::limit(call.request)?;
    let before: Option<AgentVersion> = page::cursor(call.request)?;
    let entry = find(call, &agent).await?;
    let of_deployment = call.gateway.agents.is_of_deployment(&agent);
    if entry.is_none() && !of_deployment {
        return Err(unknown(&agent, false));
    }
    let active = entry.map_or(AgentVersion::FIRST, |entry| entry.active);
    let store = call.gateway.agents.store();
    let mut found: Vec<(AgentVersion, Value)> = Vec::new();
    for stored in store.versions(&call.caller.tenant, &agent, before, limit + 1).await? {
        let StoredVersion { version, created_at, created_by, .. } = stored;
        if of_deployment && version.is_first() {
            // The tenant's, from before the deployment had this agent.
            continue;
        }
        let is_active = version == active;
        let view = json!({ "version": version, "active": is_active, "created_at": created_at, "created_by": created_by });
        found.push((version, view));
    }
    if of_deployment && found.len() <= limit && before.is_none_or(|before| before > AgentVersion::FIRST) {
        let first = AgentVersion::FIRST;
        found.push((first, json!({ "version": first, "active": first == active, "deployment": true })));
    }
    page::respond(found, limit, |(version, _)| *version, |(_, view)| view.clone())
}

/// `PUT /v1/agents/{id}`: stores a version and makes it the active one. The definition of the active version changes
/// nothing.
pub(super) async fn put(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant, agent) = (call.gateway, &call.caller.tenant, agent_id(call)?);
    if call.request.body().bytes().len() > MAX_BYTES {
        let detail = format!("a definition has at most {MAX_BYTES} bytes (1 MiB)");
        return Err(Problem::new(ErrorCode::PayloadTooLarge, detail));
    }
    let definition = Definition::parse(body::json(call.request)?).map_err(Problem::fields)?;
    let faults = gateway.agents.faults(&definition, &call.caller.policy.limits)?;
    if !faults.is_empty() {
        return Err(Problem::fields(faults));
    }
    let json = definition.to_json()?;
    let all = gateway.agents.store().summaries(tenant).await?;
    let read = all.iter().map(|own| &own.entry).find(|entry| entry.id == agent);
    let living = read.filter(|entry| entry.deleted_at.is_none());
    let of_deployment = gateway.agents.is_of_deployment(&agent);
    let is_new = living.is_none() && !of_deployment;
    let active = living.map_or(AgentVersion::FIRST, |entry| entry.active);
    check_preconditions(call.request, (!is_new).then_some(active))?;
    if let Some(entry) = living
        && let Some(stored) = gateway.agents.store().version(tenant, &agent, entry.active).await?
        && stored.definition == json
    {
        return shown(StatusCode::OK, call, &agent, Some(&stored));
    }
    let is_living = |own: &&AgentSummary| own.entry.deleted_at.is_none();
    if living.is_none() && all.iter().filter(is_living).count() >= MAX_AGENTS {
        let detail = format!("the tenant has {MAX_AGENTS} agents, which is the maximum; delete one first");
        return Err(Problem::new(ErrorCode::QuotaExceeded, detail));
    }
    let counted = all.iter().filter(|own| is_living(own) || own.entry.id == agent);
    let bytes: u64 = counted.map(|own| own.bytes).sum();
    if bytes + call.request.body().bytes().len() as u64 > MAX_STORED {
        let detail = format!(
            "with this version, those of the tenant's agents would have more than {MAX_STORED} bytes (64 MiB)"
        );
        return Err(Problem::new(ErrorCode::QuotaExceeded, format!("{detail}; delete an agent first")));
    }
    let newest = match read {
        Some(entry) => entry.newest.next(),
        // The first version of an agent of the deployment has its settings.
        None if of_deployment => AgentVersion::FIRST.next(),
        None => AgentVersion::FIRST,
    };
    let created_by = Approver { user: call.caller.user.clone(), key: call.caller.key.clone() };
    let created_at = gateway.clock.now();
    let new = StoredVersion { version: newest, definition: json, created_at, created_by };
    let details = Map::from_iter([("version".to_owned(), json!(newest))]);
    let audit = audit::entry(call, tenant, AuditAction::AgentUpdated, &agent, details);
    if !gateway.agents.store().put(&agent, &new, read, &audit).await? {
        return Err(changed());
    }
    gateway.agents.forget(tenant);
    shown(if is_new { StatusCode::CREATED } else { StatusCode::OK }, call, &agent, Some(&new))
}

/// `POST /v1/agents/{id}/versions/{version}/activate`: new sessions get this version.
pub(super) async fn activate(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant, agent) = (call.gateway, &call.caller.tenant, agent_id(call)?);
    let version = version(call.params.get("version"), "/version")?;
    let of_deployment = gateway.agents.is_of_deployment(&agent);
    let entry = match find(call, &agent).await? {
        Some(AgentEntry { deleted_at: Some(_), .. }) => return Err(gone(&agent)),
        Some(entry) => entry,
        // Only the deployment's version exists, and it is active.
        None if of_deployment && version.is_first() => return shown(StatusCode::OK, call, &agent, None),
        None => return Err(unknown(&agent, of_deployment)),
    };
    let stored = gateway.agents.store().version(tenant, &agent, version).await?;
    if stored.is_none() && !(of_deployment && version.is_first()) {
        return Err(unknown(&agent, true));
    }
    if entry.active != version {
        let details = Map::from_iter([("version".to_owned(), json!(version))]);
        let audit = audit::entry(call, tenant, AuditAction::AgentActivated, &agent, details);
        if !gateway.agents.store().activate(&entry, version, &audit).await? {
            return Err(changed());
        }
        gateway.agents.forget(tenant);
    }
    shown(StatusCode::OK, call, &agent, stored.as_ref())
}

/// `DELETE /v1/agents/{id}`. Its sessions can still be read.
pub(super) async fn delete(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant, agent) = (call.gateway, &call.caller.tenant, agent_id(call)?);
    if gateway.agents.is_of_deployment(&agent) {
        let detail = format!("the agent {:?} belongs to the deployment; activate version 1 instead", &*agent);
        return Err(Problem::new(ErrorCode::AgentRequired, detail));
    }
    let entry = match find(call, &agent).await? {
        None | Some(AgentEntry { deleted_at: Some(_), .. }) => return Err(unknown(&agent, false)),
        Some(entry) => entry,
    };
    check_preconditions(call.request, Some(entry.active))?;
    let audit = audit::entry(call, tenant, AuditAction::AgentDeleted, &agent, Map::new());
    if !gateway.agents.store().delete(&entry, gateway.clock.now(), &audit).await? {
        return Err(changed());
    }
    gateway.agents.forget(tenant);
    Ok(response::empty(StatusCode::NO_CONTENT))
}

fn agent_id(call: &TenantCall<'_>) -> Result<AgentId, Problem> {
    AgentId::parse(call.params.get("agent")).ok_or_else(|| Problem::field("/id", ID_FORM))
}

fn version(text: &str, pointer: &str) -> Result<AgentVersion, Problem> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number
        .map(AgentVersion)
        .ok_or_else(|| Problem::field(pointer, "expected the number of a version, from 1"))
}

/// Returns the stored entry of an agent, which may be deleted.
async fn find(call: &TenantCall<'_>, agent: &AgentId) -> Result<Option<AgentEntry>, Problem> {
    let entries = call.gateway.agents.store().list(&call.caller.tenant).await?;
    Ok(entries.into_iter().find(|entry| entry.id == *agent))
}

/// Checks `if-match` and `if-none-match` against the active version; `None` if there is no such agent.
fn check_preconditions(request: &Request, active: Option<AgentVersion>) -> Result<(), Problem> {
    let tag = active.map(|version| version.to_string());
    let is_met = |tags: &str| tag.as_deref().is_some_and(|tag| matches(tags, tag));
    let fits =
        request.header("if-match").is_none_or(is_met) && !request.header("if-none-match").is_some_and(is_met);
    match (fits, active) {
        (true, _) => Ok(()),
        (false, Some(active)) => {
            Err(Problem::new(ErrorCode::PreconditionFailed, format!("the active version is {active}")))
        }
        (false, None) => Err(Problem::new(ErrorCode::PreconditionFailed, "there is no such agent")),
    }
}

/// Builds the response with a version; `None` is that of the deployment's settings.
fn shown(
    status: StatusCode,
    call: &TenantCall<'_>,
    agent: &AgentId,
    stored: Option<&StoredVersion>,
) -> Result<Response, Problem> {
    let (version, mut view) = match stored {
        Some(StoredVersion { version, definition, created_at, created_by }) => {
            let mut view = definition.clone();
            view.insert("created_at".into(), json!(created_at));
            view.insert("created_by".into(), json!(created_by));
            (*version, view)
        }
        None => (AgentVersion::FIRST, call.gateway.agents.deployments_definition()?),
    };
    view.entry("name").or_insert_with(|| json!(agent));
    if !call.caller.scopes.allow(Scope::Admin) {
        // Instructions and rules are not for the users of an agent.
        view.retain(|field, _| ["name", "description", "created_at", "modes"].contains(&field.as_str()));
        let modes = view.get_mut("modes").and_then(Value::as_array_mut).into_iter().flatten();
        for mode in modes.filter_map(Value::as_object_mut) {
            mode.retain(|field, _| PUBLIC_OF_MODE.contains(&field.as_str()));
        }
    }
    view.insert("id".into(), json!(agent));
    view.insert("version".into(), json!(version));
    Ok(response::json(status, &view)?.with("etag", &quoted(&version.to_string())))
}

fn unknown(agent: &AgentId, exists: bool) -> Problem {
    match exists {
        true => Problem::not_found("version"),
        false => Problem::new(ErrorCode::UnknownAgent, format!("there is no agent {:?}", &**agent)),
    }
}

fn gone(agent: &AgentId) -> Problem {
    Problem::new(ErrorCode::AgentGone, format!("the agent {:?} was deleted", &**agent))
}

fn changed() -> Problem {
    Problem::unavailable("another request changed this agent; read it again", "its entry has changed")
}
