//! The background tasks of a session.

use super::call::Call;
use crate::http::{
    page,
    response::{self, Response},
};
use crate::types::{Problem, TurnId};
use http::StatusCode;

/// `GET /v1/sessions/{id}/tasks`, without the replies.
pub async fn list(call: &Call<'_>) -> Result<Response, Problem> {
    let data = call.session()?.background_tasks()?;
    response::json(StatusCode::OK, &page::Page { data, next_cursor: None })
}

/// `GET /v1/sessions/{id}/tasks/{task}`.
pub async fn show(call: &Call<'_>) -> Result<Response, Problem> {
    let task = call.session()?.background_task(&task_id(call))?;
    response::json(StatusCode::OK, &task.ok_or_else(|| Problem::not_found("background task"))?)
}

/// `POST /v1/sessions/{id}/tasks/{task}/cancel`. A task that has ended stays as it is.
pub async fn cancel(call: &Call<'_>) -> Result<Response, Problem> {
    call.host.cancel_background_task(call.session()?, &task_id(call))?;
    show(call).await
}

fn task_id(call: &Call<'_>) -> TurnId {
    call.params.id("task")
}
