//! Changes a session.

use super::call::Call;
use super::checks;
use super::permissions::patched;
use super::resource::shown;
use crate::agent::{HarnessAgent, OnBusy, SessionHost, state::Merged};
use crate::http::response::Response;
use crate::http::{
    body,
    patch::{merge, present},
};
use crate::session::{Modes, Session, SessionChange};
use crate::types::{AgentRef, AgentVersion, ErrorCode, Mode, Problem, Scope};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::rc::Rc;

/// Absent fields stay as they are; `null` clears those that may be empty.
#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct SessionPatch {
    /// The title; `null` to take it from the first message.
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(max = 200))]
    title: Option<Option<String>>,
    /// The mode; `null` for the one that sessions start in.
    #[serde(default, deserialize_with = "present")]
    mode: Option<Option<String>>,
    /// The version of the agent: a number, which needs the scope `admin`, or `latest` for that of new sessions. Only while
    /// no turn is running.
    agent_version: Option<VersionChoice>,
    /// The model, as `provider/model`; `null` for the default one.
    #[serde(default, deserialize_with = "present")]
    model: Option<Option<String>>,
    /// A merge patch of the caller's data.
    metadata: Option<Map<String, Value>>,
    /// A merge patch of the permission rules and grants.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Map<String, Value>>")]
    permissions: Option<Option<Value>>,
    /// A merge patch of the data that the caller shares with tools.
    state: Option<Map<String, Value>>,
}

/// A version of an agent, as a client names it.
#[derive(Clone, Copy, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "expected a number or \"latest\"")]
#[schemars(inline)]
enum VersionChoice {
    /// The number of a version.
    Number(AgentVersion),
    /// The version of new sessions.
    Latest(Latest),
}

#[derive(Clone, Copy, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Latest {
    Latest,
}

/// `PATCH /v1/sessions/{id}`. All changes are checked first and committed together.
pub async fn update(call: &Call<'_>) -> Result<Response, Problem> {
    let host = call.host;
    let body: SessionPatch = body::json(call.request)?;
    let session = call.session()?;
    if body.mode.is_some() || body.permissions.is_some() || body.agent_version.is_some() {
        checks::not_a_subagent(session)?;
    }
    let moved = match body.agent_version {
        Some(choice) => {
            if matches!(choice, VersionChoice::Number(_)) && !call.principal.scopes.allow(Scope::Admin) {
                // An older version may have more tools, or rules that the operator has corrected since.
                let detail = "choosing a version needs the scope admin; \"latest\" needs chat";
                return Err(Problem::new(ErrorCode::MissingScope, detail));
            }
            host.check_busy(session, OnBusy::Reject)?;
            Some(find_version(host, session, choice).await?)
        }
        None => None,
    };
    // The session may have changed in the meantime.
    let call = &call.again().await?;
    let session = call.session()?;
    if moved.is_some() {
        host.check_busy(session, OnBusy::Reject)?;
    }
    let title = body.title.map(checks::title).transpose()?;
    let agent = moved.as_ref().map_or_else(|| host.agent(), |(_, agent)| Rc::clone(agent));
    let modes = agent.modes();
    let mode = body.mode.map(|mode| next_mode(modes, session, mode)).transpose()?.flatten();
    let model = body.model.map(|model| checks::model(host, model)).transpose()?;
    if let Some(model) = &model {
        let limit = session.state().meta.budget.max_cost_usd;
        checks::priced(host, limit, model.as_deref(), "/model")?;
    }
    let metadata = body.metadata.map(|patch| {
        let mut merged = Value::Object(session.state().meta.metadata.clone());
        merge(&mut merged, Value::Object(patch));
        checks::object("/metadata", merged.as_object().cloned().unwrap_or_default())
    });
    let metadata = metadata.transpose()?;
    let old = session.state().meta.state.clone();
    let state = body.state.map(|change| agent.state().merge(&old, change)).transpose();
    let state = state.map_err(Problem::fields)?;
    let permissions = body.permissions.map(|patch| {
        let now = &session.state().meta.permissions;
        patched(now, patch.unwrap_or_default())
    });
    let permissions = permissions.transpose()?;
    let relist = title.is_some();
    let version = moved.as_ref().map(|(version, _)| *version);
    let change = SessionChange { title, metadata, permissions };
    session.commit_from_outside(host.now(), |draft| {
        draft.update(change);
        if let Some(version) = version {
            draft.set_agent_version(version);
        }
        if let Some(mode) = mode {
            if let Some(model) = &model {
                // Stored as the mode's model first, so that the model changes once.
                draft.remember_model(&mode.id, model.clone());
            }
            draft.switch_mode(modes, None, mode);
        }
        if let Some(model) = model {
            draft.set_model(model);
        }
        if let Some(Merged { state, changed_keys }) = state {
            draft.set_state(None, state, changed_keys);
        }
    })?;
    if let Some((version, agent)) = moved {
        let meta = Rc::clone(&session.state().meta);
        let of = AgentRef { id: meta.agent.clone(), version };
        host.use_version(&meta.tenant, &meta.user, of, agent);
    }
    if relist {
        host.await_list_update().await;
    }
    shown(StatusCode::OK, session)
}

/// Returns the version of the session's agent that a client names.
async fn find_version(
    host: &SessionHost,
    session: &Session,
    choice: VersionChoice,
) -> Result<(AgentVersion, Rc<HarnessAgent>), Problem> {
    let (tenant, user, agent) = {
        let meta = &session.state().meta;
        (meta.tenant.clone(), meta.user.clone(), meta.agent.clone())
    };
    let version = match choice {
        VersionChoice::Number(version) => Some(version),
        VersionChoice::Latest(_) => None,
    };
    host.find_version(&tenant, &user, &agent, version).await
}

/// Returns the mode to switch to: the given one, or the first one, in which sessions start.
fn next_mode<'a>(
    modes: &'a Modes,
    session: &Session,
    to: Option<String>,
) -> Result<Option<&'a Mode>, Problem> {
    let Some(to) = to.or_else(|| modes.first().map(|mode| mode.id.clone())) else { return Ok(None) };
    let stored = session.state().meta.mode.clone();
    Ok(Some(modes.transition(stored.as_deref(), &to)?))
}
