//! The skills of a user with an agent, and the promotion of drafts.

use super::etag::{matches, quoted};
use super::gateway::TenantCall;
use super::request::RequestExt;
use super::response::{self, Response, ResponseExt};
use super::{audit, body, owner, page};
use crate::ports::FileError;
use crate::types::{AuditAction, ErrorCode, FieldError, Owner, Problem, Scope};
use crate::workspace::{
    Layer,
    glance::View,
    skills::{PromoteError, Skill, SkillState, SkillUse, resolve},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Where a draft goes.
#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "SkillPromotion")]
pub(in crate::http) struct Promotion {
    /// The layer, by default that of the user. `shared` needs the scope `admin`.
    #[serde(default)]
    layer: Layer,
}

/// `GET /v1/skills`: by name, each name's draft after its skill.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let owner = owner::of_query(call.caller, call.request)?;
    let limit = page::limit(call.request)?;
    let after: Option<(String, bool, String)> = page::cursor(call.request)?;
    let (files, settings) = call.gateway.files_of(&owner).await?;
    let (mut entries, mut read) = (Vec::new(), View::default());
    if settings.enabled {
        read = files.skills(&owner.clone().into()).await?;
        let found = resolve(&read, |name| settings.admits(name));
        entries.extend(found.into_iter().map(|skill| (skill.clone(), false)));
        let drafts = files.open(&owner.tenant, &owner.agent, &owner.user, None).drafts().await?;
        entries.extend(drafts.into_iter().map(|draft| (draft, true)));
    }
    // A malformed skill of a user may stand beside a shared one of the same name.
    let key = |(skill, draft): &(Skill, bool)| (skill.name.clone(), *draft, json!(skill.layer).to_string());
    entries.sort_by_key(key);
    entries.retain(|entry| after.as_ref().is_none_or(|after| key(entry) > *after));
    entries.truncate(limit + 1);
    let now = call.gateway.clock.now();
    page::respond(entries, limit, key, |(skill, draft)| {
        let state = (!draft && skill.description.is_ok()).then(|| read.state_of(skill, now));
        view(skill, *draft, state, read.usage_of(skill).filter(|_| !draft))
    })
}

/// `POST /v1/skills/{name}/promote`.
pub(super) async fn promote(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let owner = owner::of_query(call.caller, call.request)?;
    let Promotion { layer } = body::json_or_empty(call.request)?;
    if layer == Layer::Shared && !call.caller.scopes.allow(Scope::Admin) {
        let detail = "promoting a skill for all users of an agent needs the scope admin";
        return Err(Problem::new(ErrorCode::MissingScope, detail));
    }
    let (gateway, name) = (call.gateway, call.params.get("name"));
    let (files, settings) = gateway.files_of(&owner).await?;
    if !settings.enabled {
        return Err(Problem::new(ErrorCode::NotConfigured, "skills are turned off; see the setting SKILLS"));
    }
    let Owner { tenant, agent, user } = owner;
    let files = files.open(&tenant, &agent, &user, None);
    let draft = files.draft(name).await.map_err(|error| match error {
        FileError::NotFound => Problem::not_found("draft of a skill"),
        error => error.into(),
    })?;
    if call.request.header("if-match").is_some_and(|tags| !matches(tags, &draft.version)) {
        let detail = "the draft has changed since it was reviewed; read it again";
        return Err(Problem::new(ErrorCode::PreconditionFailed, detail));
    }
    let details = json!({ "agent": agent, "user": user, "layer": layer, "version": draft.version });
    let details = details.as_object().cloned().unwrap_or_else(Map::new);
    let promotion = files.review(draft, layer, &gateway.clock).await?;
    // Before the change, so that no promotion is without its row.
    audit::record(call, &tenant, AuditAction::SkillPromoted, name, details).await?;
    let skill = files.promote(promotion, gateway.clock.now()).await?;
    Ok(response::json(StatusCode::OK, &view(&skill, false, Some(SkillState::Active), None))?
        .with("etag", &quoted(&skill.version)))
}

impl From<PromoteError> for Problem {
    fn from(error: PromoteError) -> Self {
        match error {
            PromoteError::Refused(findings) => {
                let error = |finding: &dyn ToString| FieldError {
                    pointer: String::new(),
                    detail: finding.to_string(),
                };
                Self::fields(findings.iter().map(|finding| error(finding)).collect())
            }
            PromoteError::Scan(error) => Self::field("", error.to_string()),
            PromoteError::File(error) => error.into(),
        }
    }
}

/// Returns the entry of a skill or a draft. Drafts and malformed skills have no state.
fn view(skill: &Skill, draft: bool, state: Option<SkillState>, usage: Option<&SkillUse>) -> Value {
    let Skill { name, layer, version, description, .. } = skill;
    let mut view = json!({ "name": name, "layer": layer, "version": quoted(version), "draft": draft });
    if let Some(state) = state {
        view["state"] = json!(state);
    }
    if let Some(SkillUse { uses, last_used, .. }) = usage {
        view["uses"] = (*uses).into();
        last_used.iter().for_each(|at| view["last_used"] = json!(at));
    }
    match description {
        Ok(description) => view["description"] = (**description).into(),
        Err(error) => view["error"] = error.to_string().into(),
    }
    view
}
