//! Requests to a remote agent, in JSON-RPC, and its responses.

use super::ports::RemotePorts;
use super::task::{Update, WireTask};
use crate::ports::{
    HttpError, HttpRequest, HttpResponse,
    json_messages::{JsonMessages, JsonMessagesError},
    outbound::{Endpoint, EndpointError, Redaction},
    within,
};
use crate::types::{Invalid, ModelError, ModelErrorKind, TenantId, header, json};
use bytes::Bytes;
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum time for a request about a task.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Time before a request is repeated for the first time. It doubles each time.
pub(super) const DELAY: Duration = Duration::from_secs(1);
/// Maximum time between two such requests.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);
/// How often the cancellation of a task is tried.
const CANCEL_ATTEMPTS: u32 = 10;
/// Most characters of an agent's error.
const MAX_CAUSE: usize = 500;
/// The code of an agent that cannot stream, and of one that expects no answer to a task.
const UNSUPPORTED: i64 = -32004;

/// The address of a remote agent, for one tenant.
pub(super) struct Connection {
    pub endpoint: Rc<Result<Endpoint, Invalid>>,
    pub ports: Rc<RemotePorts>,
    pub tenant: TenantId,
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection was lost, perhaps after the request.
    Lost,
    /// The agent does not support the method, or the task does not wait for an answer.
    Unsupported,
    /// An earlier request with the same key is being worked on.
    Busy(Option<Duration>),
    Model(ModelError),
}

impl Failed {
    /// Returns whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Lost | Self::Busy(_) => true,
            Self::Unsupported => false,
            Self::Model(error) => error.kind.is_retryable(),
        }
    }
}

impl From<Failed> for ModelError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Lost => {
                let what = "the connection to the remote agent was lost; it may work on the task";
                // The agent may not notice that it gets the same message again.
                Self { should_retry: Some(false), ..Self::new(ModelErrorKind::Network, what) }
            }
            Failed::Busy(_) => {
                Self::new(ModelErrorKind::Unavailable, "the remote agent still works on the task")
            }
            Failed::Unsupported => Self::new(ModelErrorKind::Invalid, "the remote agent cannot do tasks"),
            Failed::Model(error) => error,
        }
    }
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<HttpError> for Failed {
    /// The text of the platform may contain the URL, which may contain a secret.
    fn from(_: HttpError) -> Self {
        Self::Lost
    }
}

impl From<JsonMessagesError> for Failed {
    fn from(error: JsonMessagesError) -> Self {
        match error {
            JsonMessagesError::Lost(error) => error.into(),
            JsonMessagesError::TooLarge => {
                ModelError::new(ModelErrorKind::Invalid, "the response of the remote agent is too large")
                    .into()
            }
            JsonMessagesError::NotJson => malformed(),
        }
    }
}

fn malformed() -> Failed {
    ModelError::new(
        ModelErrorKind::Invalid,
        "the response of the remote agent is not of the protocol A2A 1.0",
    )
    .into()
}

fn refused(why: impl ToString) -> Failed {
    let what = format!("the remote agent cannot be asked: {}", why.to_string());
    ModelError::new(ModelErrorKind::Invalid, what).into()
}

impl From<EndpointError> for Failed {
    fn from(error: EndpointError) -> Self {
        refused(error)
    }
}

impl Connection {
    /// Prepares a request, without sending anything. A repetition has the same `key`.
    pub async fn prepare(&self, method: &str, params: &Value, key: Option<&str>) -> Result<Prepared, Failed> {
        let endpoint = self.endpoint.as_ref().as_ref().map_err(refused)?;
        let target = endpoint.target(&*self.ports.secrets, &self.tenant, &self.ports.hosts).await?;
        let own = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("a2a-version", "1.0"),
        ];
        let own = own.into_iter().chain(key.map(|key| ("idempotency-key", key)));
        let mut headers: Vec<_> = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        headers.extend(target.headers);
        if header::too_large(&headers) {
            return Err(refused(header::too_large_text()));
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = Some(Bytes::from(body.to_string()));
        let request =
            HttpRequest { method: "POST", url: target.url, headers, body, ..HttpRequest::default() };
        Ok(Prepared { request, redaction: target.redaction })
    }

    /// Sends a request.
    pub async fn send(&self, prepared: Prepared) -> Result<Results, Failed> {
        let Prepared { request, redaction } = prepared;
        let response = self.ports.http.send(request).await?;
        match response.status {
            200..300 => Ok(Results { messages: JsonMessages::new(response, MAX_BYTES), redaction }),
            409 => Err(Failed::Busy(retry_after(&response))),
            _ => Err(refusal(&response).into()),
        }
    }

    /// Asks for a task.
    pub async fn task(&self, id: &str) -> Result<WireTask, Failed> {
        json::from_value(self.ask("GetTask", id).await?).map_err(|_| malformed())
    }

    /// Cancels a task. Whether the agent does so is its own decision. While the agent cannot be reached, repeats the request
    /// for some minutes.
    pub async fn cancel(&self, id: &str) {
        let mut delay = DELAY;
        for _ in 0..CANCEL_ATTEMPTS {
            match self.ask("CancelTask", id).await {
                Err(failed) if failed.may_pass() => self.ports.clock.sleep(delay).await,
                _ => return,
            }
            delay = longer(delay);
        }
    }

    /// Sends a request about a task. Returns its result.
    async fn ask(&self, method: &str, id: &str) -> Result<Value, Failed> {
        let asked = async {
            let request = self.prepare(method, &json!({ "id": id }), None).await?;
            let mut results = self.send(request).await?;
            results.next().await?.ok_or(Failed::Lost)
        };
        within(&*self.ports.clock, TIMEOUT, asked).await.unwrap_or(Err(Failed::Lost))
    }
}

/// Returns the time before the next repetition, after a repetition with this delay.
pub(super) fn longer(delay: Duration) -> Duration {
    (delay * 2).clamp(DELAY, MAX_DELAY)
}

fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let seconds = response.header("retry-after").and_then(|seconds| seconds.trim().parse().ok());
    seconds.map(Duration::from_secs)
}

/// Returns the error of a response with a status that is no success.
fn refusal(response: &HttpResponse) -> ModelError {
    let kind = match response.status {
        401 | 403 => ModelErrorKind::Auth,
        429 => ModelErrorKind::RateLimited,
        500.. => ModelErrorKind::Unavailable,
        _ => ModelErrorKind::Invalid,
    };
    let status = response.status;
    ModelError {
        status: Some(status),
        retry_after: retry_after(response),
        // After any other failure, the agent may have begun.
        should_retry: Some(matches!(status, 429 | 503)),
        ..ModelError::new(kind, format!("the remote agent answered with status {status}"))
    }
}

/// A request that was not sent yet.
pub(super) struct Prepared {
    request: HttpRequest,
    redaction: Redaction,
}

/// The results of a response: one, or those of a stream.
pub(super) struct Results {
    messages: JsonMessages,
    /// Removes secrets from what the agent returns.
    pub redaction: Redaction,
}

impl Results {
    /// Returns the next update; `None` at the end. Once the task is known, skips events that are none, such as those of an
    /// extension.
    pub async fn update(&mut self, is_known: bool) -> Result<Option<Update>, Failed> {
        loop {
            let Some(result) = self.next().await? else { return Ok(None) };
            match json::from_value(result) {
                Ok(update) => return Ok(Some(update)),
                Err(_) if is_known => {}
                Err(_) => return Err(malformed()),
            }
        }
    }

    async fn next(&mut self) -> Result<Option<Value>, Failed> {
        let Some(message) = self.messages.next().await? else { return Ok(None) };
        result_of(self.redaction.value(message)).map(Some)
    }
}

fn result_of(mut message: Value) -> Result<Value, Failed> {
    if let Some(error) = message.get("error") {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        if code == UNSUPPORTED {
            return Err(Failed::Unsupported);
        }
        let said = error.get("message").and_then(Value::as_str).unwrap_or_default();
        let cause: String = format!("{code}: {said}").chars().take(MAX_CAUSE).collect();
        let what = format!("the remote agent answered with the error {code}");
        return Err(
            ModelError { cause: Some(cause), ..ModelError::new(ModelErrorKind::Invalid, what) }.into()
        );
    }
    message.get_mut("result").map(Value::take).ok_or_else(malformed)
}
