//! What the front lists for a tenant: its sessions, and the models.

use super::failure::Failure;
use super::front::Front;
use super::{ApiRequest, ApiResponse, page};
use crate::ports::directory::SessionEntry;
use crate::types::{Principal, Timestamp};
use serde_json::{Value, json};

impl Front {
    /// `GET /v1/sessions`: newest first. Whoever's credential names a user sees only that user's.
    pub(super) async fn list_sessions(
        &self,
        request: &ApiRequest,
        caller: &Principal,
    ) -> Result<ApiResponse, Failure> {
        let limit = page::limit(request)?;
        let before: Option<(Timestamp, String)> = page::cursor(request)?;
        let user = caller.user.clone().or_else(|| request.query("user"));
        let agent = request.query("agent");
        let before = before.as_ref().map(|(at, id)| (*at, id.as_str()));
        let found = self
            .directory
            .sessions(&caller.tenant, user.as_deref(), agent.as_deref(), before, limit + 1, false)
            .await?;
        Ok(page::answer(found, limit, |entry| (entry.created_at, entry.id.clone()), view)?)
    }

    /// `GET /v1/models`, in the shape that OpenAI's clients read.
    pub(super) fn list_models(&self) -> Result<ApiResponse, Failure> {
        let models: Vec<_> = self
            .config
            .models
            .iter()
            .map(|id| {
                let owner = id.split('/').next().unwrap_or_default();
                json!({ "id": id, "object": "model", "created": 0, "owned_by": owner })
            })
            .collect();
        Ok(ApiResponse::json(200, &json!({ "object": "list", "data": models, "next_cursor": null }))?)
    }
}

fn view(entry: &SessionEntry) -> Value {
    json!({
        "id": entry.id,
        "user": entry.user,
        "agent": entry.agent,
        "title": entry.title,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    })
}
