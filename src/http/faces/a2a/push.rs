//! Push notifications: webhooks to which the status of a task is sent.

use super::super::task_id::TaskId;
use super::rpc::Fault;
use super::task::Task;
use crate::agent::SessionHost;
use crate::agent::host::webhooks::WebhookSender;
use crate::http::session::call::Call;
use crate::http::session::message::NewWebhook;
use crate::ports::{AllowedHosts, Http, HttpRequest};
use crate::session::Session;
use crate::types::{
    BoxError, Invalid, Problem,
    session::{Webhook, WebhookKey},
};
use async_trait::async_trait;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// The id of a configuration without one.
const DEFAULT_ID: &str = "default";
/// Maximum length of an id, a URL and a header, in bytes.
const MAX_LENGTH: usize = 2_000;

/// A configuration, as a client sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushConfig {
    #[serde(default)]
    id: String,
    #[serde(default)]
    pub task_id: String,
    url: String,
    #[serde(default)]
    token: String,
    authentication: Option<Authentication>,
}

#[derive(Deserialize)]
struct Authentication {
    scheme: String,
    #[serde(default)]
    credentials: String,
}

/// The parameters of a request about one configuration, or about those of a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneConfig {
    pub task_id: String,
    #[serde(default)]
    id: String,
}

impl PushConfig {
    /// Checks the configuration, which is at `at` in the request.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn checked(self, host: &SessionHost, at: &str) -> Result<NewWebhook, Problem> {
        let fault = |field: &str, invalid: Invalid| Problem::field(format!("{at}{field}"), invalid.0);
        let short = |field: &str, text: String| match text.len() <= MAX_LENGTH {
            true => Ok(text),
            false => Err(fault(field, format!("longer than {MAX_LENGTH} bytes").into())),
        };
        let id = Some(self.id).filter(|id| !id.is_empty()).unwrap_or_else(|| DEFAULT_ID.to_owned());
        let url = host.check_receiver(&short("/url", self.url)?).map_err(|invalid| fault("/url", invalid))?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let mut add = |name: &str, field: &str, value: String| match HeaderValue::from_str(&value) {
            Ok(_) => {
                headers.push((name.to_owned(), short(field, value)?));
                Ok(())
            }
            Err(_) => Err(fault(field, "cannot be the value of a header".into())),
        };
        if !self.token.is_empty() {
            add("x-a2a-notification-token", "/token", self.token)?;
        }
        if let Some(Authentication { scheme, credentials }) = self.authentication
            && !credentials.is_empty()
        {
            add("authorization", "/authentication", format!("{scheme} {credentials}"))?;
        }
        Ok(NewWebhook { id: short("/id", id)?, url, headers })
    }
}

impl OneConfig {
    /// Returns the name of the configuration. An empty id means the default one.
    pub fn key(&self, task: &TaskId) -> WebhookKey {
        let id = if self.id.is_empty() { DEFAULT_ID } else { &self.id };
        WebhookKey { turn: task.turn.clone(), id: id.to_owned() }
    }
}

/// Creates or replaces a configuration.
pub(super) fn create(call: &Call<'_>, task: &TaskId, config: PushConfig) -> Result<Value, Problem> {
    let webhook = config.checked(call.host, "/params")?.of(task.turn.clone());
    let shown = view(task, &webhook);
    call.host.put_webhook(call.session()?, webhook)?;
    Ok(shown)
}

/// Returns a configuration.
pub(super) fn find(session: &Session, task: &TaskId, key: &WebhookKey) -> Result<Value, Problem> {
    let webhooks = &session.state().webhooks;
    let found = webhooks.iter().find(|webhook| webhook.key == *key);
    found.map(|webhook| view(task, webhook)).ok_or_else(|| Problem::not_found("configuration"))
}

/// Returns the configurations of a task.
pub(super) fn list(session: &Session, task: &TaskId) -> Value {
    let webhooks = &session.state().webhooks;
    let own = webhooks.iter().filter(|webhook| webhook.key.turn == task.turn);
    let own: Vec<_> = own.map(|webhook| view(task, webhook)).collect();
    json!({"configs": own, "nextPageToken": ""})
}

/// Removes a configuration, if there is one.
pub(super) fn delete(call: &Call<'_>, session: &Session, key: &WebhookKey) -> Result<Value, Problem> {
    call.host.remove_webhook(session, key)?;
    Ok(Value::Null)
}

/// Returns a configuration as clients read it: without its secrets.
fn view(task: &TaskId, webhook: &Webhook) -> Value {
    json!({"id": webhook.key.id, "taskId": task.to_string(), "url": webhook.url})
}

/// Sends the status of tasks to their webhooks.
pub struct PushSender {
    /// Sends requests.
    pub http: Rc<dyn Http>,
    /// Where they may be sent to.
    pub allowed: AllowedHosts,
}

#[async_trait(?Send)]
impl WebhookSender for PushSender {
    fn check(&self, url: &str) -> Result<String, Invalid> {
        self.allowed.receiver(url)
    }

    async fn send(&self, session: &Session, webhook: &Webhook) -> Result<(), BoxError> {
        let id = TaskId { turn: webhook.key.turn.clone(), session: session.state().meta.id.clone() };
        let status = Task::read(session, &id)?.status();
        let update =
            json!({"statusUpdate": {"taskId": id.to_string(), "contextId": id.session, "status": status}});
        // Checked again, because the operator may have changed the list.
        let url = self.check(&webhook.url)?;
        let (headers, body) = (webhook.headers.clone(), Some(update.to_string().into()));
        let request = HttpRequest { method: "POST", url, headers, body, ..HttpRequest::default() };
        let response = self.http.send(request).await?;
        match response.status {
            200..=299 => Ok(()),
            status => Err(format!("the receiver responded with {status}").into()),
        }
    }
}

/// Returns the fault of a request for push notifications that the operator has not enabled.
pub(super) fn not_enabled(id: &Value) -> Fault {
    Fault::new(
        id,
        -32003,
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "the operator allows no receivers of push notifications; subscribe to the task",
    )
}
