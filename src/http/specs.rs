//! The specs of a user with an agent: files `specs/NAME.md` of the workspace.

use super::gateway::TenantCall;
use super::response::{self, Response};
use super::spec_name::{bad_name, named, path};
use super::{body, owner, page, workspace};
use crate::agent::spec_writer::{SpecWriter, Written};
use crate::ports::filesystem::{Entry, FileError, Precondition};
use crate::types::{
    Admission, Admitted, CallUsage, Day, ErrorCode, NanoUsd, Owner, PathPrefix, Problem, Report, SessionId,
    SlotUse, SpecName, Standing, Timestamp, UsageKey, UsageRow, UsageTotals, spec,
};
use crate::workspace::Layer;
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest request for a spec, in characters.
const MAX_PROMPT: usize = 20_000;

/// What a spec is to be written about.
#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewSpec")]
pub(in crate::http) struct NewSpec {
    /// The name of the spec.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    name: String,
    /// What the spec is about, for the model that writes it.
    #[schemars(length(min = 1, max = 20_000))]
    prompt: String,
    /// Whether to replace a spec of this name.
    #[serde(default)]
    overwrite: bool,
    /// The agent whose model writes the spec, and in whose workspace it is stored.
    agent: Option<String>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
}

/// `GET /v1/specs`: by name.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let limit = page::limit(call.request)?;
    let mut after: Option<String> = page::cursor(call.request)?;
    let files = call.gateway.workspace(&owner::of_query(call.caller, call.request)?).await?;
    let folder = PathPrefix::parse(spec::FOLDER).map_err(|error| Problem::internal(error.to_string()))?;
    let mut specs = Vec::new();
    loop {
        let found = files.list(&folder, after.as_deref(), limit + 1).await?;
        let is_last = found.len() <= limit;
        after = found.last().map(|(entry, _)| entry.path.to_string());
        specs.extend(found.into_iter().filter_map(|(entry, layer)| {
            SpecName::of_path(entry.path.as_str()).map(|name| (name, entry, layer))
        }));
        if is_last || specs.len() > limit {
            break;
        }
    }
    page::respond(
        specs,
        limit,
        |(_, entry, _)| entry.path.clone(),
        |(name, entry, layer)| view(name, entry, *layer),
    )
}

/// `PUT /v1/specs/{spec}`. A spec with problems is stored.
pub(super) async fn write(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let text = call.request.body().bytes();
    if text.len() > spec::MAX_BYTES {
        let detail = format!("a spec has at most {} bytes", spec::MAX_BYTES);
        return Err(Problem::new(ErrorCode::PayloadTooLarge, detail));
    }
    if str::from_utf8(&text).is_err() {
        return Err(Problem::field("", "expected UTF-8 text"));
    }
    workspace::write(call).await
}

/// `POST /v1/specs/{spec}/validate`: the text in the body, or else the stored spec.
pub(super) async fn validate(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (name, mut text) = (named(call)?, call.request.body().bytes());
    if text.is_empty() {
        let files = call.gateway.workspace(&owner::of_query(call.caller, call.request)?).await?;
        text = files.read(&path(&name)?).await?.0.bytes;
    }
    let problems = spec::problems(&name, &text);
    response::json(StatusCode::OK, &json!({ "ok": problems.is_empty(), "problems": problems }))
}

/// `POST /v1/specs/generate`: writes a spec with the agent's model.
pub(super) async fn generate(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let NewSpec { name, prompt, overwrite, agent, user } = body::json(call.request)?;
    let name = SpecName::parse(&name).ok_or_else(|| bad_name("/name"))?;
    if prompt.trim().is_empty() || prompt.chars().count() > MAX_PROMPT {
        return Err(Problem::field("/prompt", format!("expected 1 to {MAX_PROMPT} characters")));
    }
    let (owner, path) = (owner::of_body(call, user, agent).await?, path(&name)?);
    let files = call.gateway.workspace(&owner).await?;
    let exists = files.find(&path).await?.is_some();
    if exists && !overwrite {
        return Err(already_exists(&name));
    }
    let text = generated(call, &owner, prompt).await?;
    let problems = spec::problems(&name, text.as_bytes());
    let condition = if overwrite { Precondition::Any } else { Precondition::CreateOnly };
    files.write(&path, Bytes::from(text.clone()), &condition).await.map_err(|error| match error {
        FileError::Conflict => already_exists(&name),
        error => error.into(),
    })?;
    let status = if exists { StatusCode::OK } else { StatusCode::CREATED };
    response::json(
        status,
        &json!({
            "name": name.as_str(), "path": path, "content": text, "ok": problems.is_empty(), "problems": problems,
        }),
    )
}

/// Asks the model of an agent for a spec. The call counts as a turn of the tenant.
async fn generated(call: &TenantCall<'_>, owner: &Owner, prompt: String) -> Result<String, Problem> {
    let limits = call.caller.policy.limits.clone().or(&call.gateway.config.limits);
    let agent = call.gateway.agents.active_agent(&owner.tenant, &owner.agent).await?;
    let writer = SpecWriter::new(agent, &limits)
        .map_err(|error| Problem::new(ErrorCode::NotConfigured, error.message))?;
    let slot = Slot::take(call, owner, NanoUsd::of_usd(writer.ceiling())).await?;
    let Written { text, calls } = writer.write(&owner.tenant, prompt).await;
    slot.report(call, owner, calls).await;
    let failed = |cause: String| Problem::unavailable("the model wrote no spec; try again", cause);
    let text = text.map_err(failed)?;
    match text.trim().is_empty() {
        true => Err(failed("the response has no text".to_owned())),
        false => Ok(format!("{text}\n")),
    }
}

/// A slot in the tenant's ledger, taken under an id of its own as a session takes one for a turn. It ends with the report, or
/// after the lease of an admission; a call that takes longer is counted, but another turn may run at the same time.
struct Slot {
    id: SessionId,
    taken_at: Timestamp,
}

impl Slot {
    /// Asks the ledger for one more turn, which costs at most `hold`.
    async fn take(call: &TenantCall<'_>, owner: &Owner, hold: NanoUsd) -> Result<Self, Problem> {
        let (gateway, quota) = (call.gateway, call.gateway.quota(call.caller));
        let slot = Self { id: gateway.make_id(), taken_at: gateway.clock.now() };
        let hold = quota.cost_usd_per_day.map_or(NanoUsd(0), |_| hold);
        let admission = Admission {
            session: slot.id.clone(),
            created_at: Timestamp(0),
            standing: Standing { sent_at: slot.taken_at, slot: Some(SlotUse::Starting), open_turns: 1, hold },
            started: Vec::new(),
            hold,
            continues: false,
            quota,
        };
        match gateway.ledger.admit(&owner.tenant, &admission).await? {
            Admitted::Until(_) => Ok(slot),
            Admitted::Refused(reached) => Err(Problem::over_limit(reached, gateway.clock.now())),
        }
    }

    /// Counts what the calls consumed, and gives the slot back. If the ledger fails, the usage is logged, and lost.
    async fn report(self, call: &TenantCall<'_>, owner: &Owner, calls: Vec<CallUsage>) {
        let now = call.gateway.clock.now();
        let Owner { tenant, agent, user } = owner;
        let row = |call: CallUsage| {
            let (agent, user) = (agent.clone(), user.clone());
            let key = UsageKey { day: Day::of(now), agent, model: call.model, user };
            let cost = NanoUsd::of_usd(call.cost_usd.unwrap_or_default());
            UsageRow { key, totals: UsageTotals { tokens: call.usage, cost, ..UsageTotals::default() } }
        };
        let report = Report {
            session: self.id,
            created_at: self.taken_at,
            from: 0,
            to: 1,
            rows: calls.into_iter().map(row).collect(),
            started: BTreeMap::from([(Day::of(self.taken_at), 1)]),
            standing: Standing { sent_at: now, slot: None, open_turns: 0, hold: NanoUsd(0) },
            is_last: true,
        };
        if let Err(error) = call.gateway.ledger.report(tenant, &report).await {
            call.gateway.log.error(&json!({
                "event": "usage.not_counted", "tenant": tenant, "agent": agent, "user": user,
                "cause": error.to_string(), "rows": report.rows,
            }));
        }
    }
}

fn already_exists(name: &SpecName) -> Problem {
    let detail =
        format!("there is a spec {:?}; set `overwrite` to replace it, or choose another name", name.as_str());
    Problem::new(ErrorCode::AlreadyExists, detail)
}

fn view(name: &SpecName, entry: &Entry, layer: Layer) -> Value {
    let mut view = workspace::view(entry, layer);
    view["name"] = name.as_str().into();
    view
}
