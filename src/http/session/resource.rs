//! The session as a resource: make, change, erase, read.

use super::{
    Handler, MAX_OBJECT_BYTES, SessionRequest, not_of_a_subagent, permissions::patched, shown,
    turns::not_negative,
};
use crate::http::{ApiRequest, ApiResponse, body, owner, page};
use crate::session::{Session, SwitchError, owes_status};
use crate::types::{BudgetPatch, ErrorCode, EventKind, Mode, Problem, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The longest title, in characters.
const MAX_TITLE: usize = 200;

#[derive(Deserialize)]
struct CreateBody {
    agent: Option<String>,
    user: Option<String>,
    title: Option<String>,
    mode: Option<String>,
    model: Option<String>,
    metadata: Option<Map<String, Value>>,
    budget: Option<BudgetPatch>,
    permissions: Option<Value>,
}

/// Fields that are absent stay; `null` empties those that may be empty.
#[derive(Deserialize)]
struct UpdateBody {
    #[serde(default, deserialize_with = "present")]
    title: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    mode: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    model: Option<Option<String>>,
    metadata: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "present")]
    permissions: Option<Option<Value>>,
    state: Option<Map<String, Value>>,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(d).map(Some)
}

impl Handler {
    pub(super) async fn create(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let body: CreateBody = body::json_or_empty(&call.request)?;
        let named = named_user(&call.request, body.user);
        if let Some(session) = self.find(call, named.as_deref())? {
            return shown(200, &session);
        }
        if body.agent.as_deref().is_some_and(|agent| agent != crate::standard::DEFAULT_AGENT) {
            return Err(Problem::field("/agent", "no such agent; there is `default`"));
        }
        let mut meta = self.new_meta(call, named)?;
        meta.title = checked_title(body.title)?;
        if let Some(mode) = &body.mode {
            meta.begin_in(self.host.agent().modes().find(mode).map_err(refused)?);
        }
        if let Some(model) = self.checked_model(body.model)? {
            meta.model = Some(model);
        }
        meta.title_pinned = meta.title.is_some();
        meta.metadata = checked_object("/metadata", body.metadata.unwrap_or_default())?;
        let budget = body.budget.unwrap_or_default();
        not_negative(&budget)?;
        meta.budget = meta.budget.patched(&budget);
        self.is_priced(meta.budget.max_cost_usd, meta.model.as_deref(), "/budget/max_cost_usd")?;
        meta.permissions = patched(&meta.permissions, body.permissions.unwrap_or_default())?;
        let session = self.host.create(meta)?;
        // A new session is in the list when its creation is answered, unless the list cannot be reached.
        self.host.listed().await;
        let location = format!("/v1/sessions/{}", call.session);
        Ok(shown(201, &session)?.with("location", &location))
    }

    pub(super) async fn update(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let body: UpdateBody = body::json(&call.request)?;
        if body.mode.is_some() || body.permissions.is_some() {
            not_of_a_subagent(&session)?;
        }
        let title = body.title.map(checked_title).transpose()?;
        let mode = body.mode.map(|mode| self.next_mode(&session, mode)).transpose()?.flatten();
        let model = body.model.map(|model| self.checked_model(model)).transpose()?;
        if let Some(model) = &model {
            let bound = session.state().meta.budget.max_cost_usd;
            self.is_priced(bound, model.as_deref(), "/model")?;
        }
        let metadata = body.metadata.map(|object| checked_object("/metadata", object)).transpose()?;
        let old = session.state().meta.state.clone();
        let state = body.state.map(|change| self.host.agent().state().merge(&old, change)).transpose();
        let state = state.map_err(Problem::fields)?;
        let permissions = body.permissions.map(|patch| {
            let now = &session.state().meta.permissions;
            patched(now, patch.unwrap_or_default())
        });
        let permissions = permissions.transpose()?;
        let relist = title.is_some();
        session
            .commit_from_outside(self.host.now(), |draft| {
                let mut changed = Map::new();
                let meta = &mut draft.state.meta;
                // A title that somebody has set stays, until it is taken away.
                let pinned = title.as_ref().map(Option::is_some);
                set(&mut meta.title_pinned, pinned, |new| {
                    drop(changed.insert("title_pinned".into(), json!(new)))
                });
                set(&mut meta.title, title, |title| drop(changed.insert("title".into(), json!(title))));
                set(&mut meta.metadata, metadata, |new| drop(changed.insert("metadata".into(), json!(new))));
                set(&mut meta.permissions, permissions, |new| {
                    drop(changed.insert("permissions".into(), json!(new)))
                });
                if !changed.is_empty() {
                    draft.record(None, EventKind::SessionUpdated { changed: Value::Object(changed) });
                }
                if let Some(mode) = mode {
                    if let Some(model) = &model {
                        // As if the mode remembered it: the model changes once.
                        draft.state.mode_models.insert(mode.id.clone(), model.clone());
                    }
                    draft.switch_mode(self.host.agent().modes(), None, mode);
                }
                if relist {
                    draft.state.listed_at = Timestamp(0);
                }
                let meta = &mut draft.state.meta;
                let (mut other_model, previous) = (None, meta.model.clone());
                set(&mut meta.model, model, |model| {
                    other_model = Some(EventKind::ModelChanged { model: model.clone(), previous });
                });
                let changed_keys = state.map(|merged| {
                    meta.state = merged.state;
                    merged.changed_keys
                });
                other_model.into_iter().for_each(|event| draft.record(None, event));
                if let Some(changed_keys) = changed_keys.filter(|keys| !keys.is_empty()) {
                    draft.record(None, EventKind::StateChanged { changed_keys });
                }
            })
            .map_err(Problem::from)?;
        if relist {
            self.host.listed().await;
        }
        shown(200, &session)
    }

    pub(super) async fn delete(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        // Without reading it: what cannot be read any more must be possible to erase.
        let store = match self.owned(call) {
            Ok(store) => store,
            Err(problem) => return self.delete_imported(call, problem).await,
        };
        if owes_status(store.as_ref()) {
            let detail = "the session that sent the subagent out waits for it: abort it first";
            return Err(Problem::new(ErrorCode::SubagentSession, detail));
        }
        self.host.erase(&call.principal.tenant, &call.session).await?;
        Ok(ApiResponse::empty(204))
    }

    /// Removes what is remembered of a session of the caller's that never was here; its turns were imported.
    async fn delete_imported(&self, call: &SessionRequest, missing: Problem) -> Result<ApiResponse, Problem> {
        let owner = owner::of_query(&call.request, &call.principal)?;
        let mut any = false;
        for follow_up in self.host.agent().follow_ups() {
            let erased = follow_up.erase(&owner, &call.session).await;
            any |= erased.map_err(|cause| {
                Problem::unavailable(
                    "what is remembered of the session cannot be removed now; try again",
                    cause,
                )
            })?;
        }
        if any { Ok(ApiResponse::empty(204)) } else { Err(missing) }
    }

    pub(super) fn list_messages(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let limit = page::limit(&call.request)?;
        let after: Option<u64> = page::cursor(&call.request)?;
        let (messages, next) = session.page(after.unwrap_or(0), limit)?;
        let next = next.map(|next| page::encode(&next)).transpose()?;
        ApiResponse::json(200, &page::Page { data: messages, next_cursor: next })
    }

    pub(super) fn show_turn(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        match session.turn(&call.item)? {
            Some(turn) => ApiResponse::json(200, &turn),
            None => Err(Problem::not_found("turn")),
        }
    }

    /// The mode that a session goes over to: this one, or where sessions start.
    fn next_mode(&self, session: &Session, to: Option<String>) -> Result<Option<&Mode>, Problem> {
        let modes = self.host.agent().modes();
        let Some(to) = to.or_else(|| modes.first().map(|mode| mode.id.clone())) else { return Ok(None) };
        let stored = session.state().meta.mode.clone();
        modes.transition(stored.as_deref(), &to).map(Some).map_err(refused)
    }

    fn checked_model(&self, model: Option<String>) -> Result<Option<String>, Problem> {
        if let Some(id) = &model {
            self.host
                .agent()
                .models()
                .resolve(id)
                .map_err(|error| Problem::field("/model", error.message))?;
        }
        Ok(model)
    }
}

fn refused(error: SwitchError) -> Problem {
    match error {
        SwitchError::Unknown { .. } => Problem::field("/mode", error.to_string()),
        SwitchError::NotAllowed { .. } => Problem::new(ErrorCode::TransitionNotAllowed, error.to_string()),
    }
}

/// Sets a field that changes, and says so.
fn set<T: PartialEq>(field: &mut T, new: Option<T>, changed: impl FnOnce(&T)) {
    if let Some(new) = new.filter(|new| new != field) {
        changed(&new);
        *field = new;
    }
}

fn checked_title(title: Option<String>) -> Result<Option<String>, Problem> {
    match title {
        Some(title) if title.chars().count() > MAX_TITLE => {
            Err(Problem::field("/title", format!("longer than {MAX_TITLE} characters")))
        }
        title => Ok(title),
    }
}

fn checked_object(pointer: &str, object: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let bytes = serde_json::to_vec(&object).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_OBJECT_BYTES {
        return Err(Problem::field(pointer, format!("larger than {MAX_OBJECT_BYTES} bytes of JSON")));
    }
    Ok(object)
}

/// What the request's body names as the user, if anything.
pub(super) fn named_user(request: &ApiRequest, body: Option<String>) -> Option<String> {
    body.or_else(|| request.query("user"))
}
