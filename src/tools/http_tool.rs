//! HTTP tools, which definitions of agents declare: each call sends one request to a fixed host.
//!
//! Secrets are read when a call starts, and are removed from everything that the call returns.

mod body;
mod declared;
mod openapi;
mod reply;

pub use declared::{Checked, Declared, Method};
pub use openapi::OpenApi;

use crate::agent::{DynTool, ToolContext, object_schema};
use crate::ports::{
    AllowedHosts, Http, HttpRequest, Secrets, Unfinished,
    outbound::{Redaction, Values},
    secrets::{self, SecretError},
    within,
};
use crate::types::{Invalid, ToolOutcome, ToolSpec};
use futures::{FutureExt, future::LocalBoxFuture};
use reply::Reply;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, rc::Rc, time::Duration};

/// Maximum number of times that a request is sent again.
const MAX_RETRIES: u32 = 2;
/// Time before the first repetition; it doubles each time.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Why a call has timed out.
const TIMEOUT: &str = "the server did not respond in time";

/// What HTTP tools need of a deployment.
#[derive(Clone)]
pub struct HttpToolPorts {
    /// Outbound HTTP.
    pub http: Rc<dyn Http>,
    /// The secrets of the tenants.
    pub secrets: Rc<dyn Secrets>,
    /// The hosts that the operator allows.
    pub allow: AllowedHosts,
}

/// A tool that sends an HTTP request.
pub struct HttpTool {
    tool: Checked,
    ports: HttpToolPorts,
}

/// Why a call has no result.
enum Failed {
    /// A failure that the model reads. The tool may be called again.
    Failure(String),
    /// A failure that no other arguments can fix.
    Permanent(String),
    /// The request was sent, and no response of the server has arrived.
    Lost(String),
    /// The server took too long.
    Timeout,
}

impl From<Invalid> for Failed {
    fn from(invalid: Invalid) -> Self {
        Self::Failure(invalid.0)
    }
}

impl HttpTool {
    /// Creates a tool.
    pub fn new(tool: Checked, ports: HttpToolPorts) -> Self {
        Self { tool, ports }
    }

    /// Reads the secrets of the request, by name.
    async fn secrets(&self, cx: &ToolContext) -> Result<BTreeMap<String, String>, Failed> {
        let names = self.tool.secrets.iter().map(String::as_str);
        secrets::read(&*self.ports.secrets, &cx.tenant, names).await.map_err(|error| match error {
            missing @ SecretError::Missing(_) => Failed::Permanent(missing.to_string()),
            failed @ SecretError::Store(_) => Failed::Failure(failed.to_string()),
        })
    }

    async fn run(
        &self,
        args: &Map<String, Value>,
        secrets: &BTreeMap<String, String>,
        redaction: &Redaction,
        cx: &ToolContext,
    ) -> Result<Value, Failed> {
        let request = self.tool.request(&Values { args, secrets }, &self.ports.allow)?;
        let limit = self.tool.timeout.min(cx.deadline.since(cx.clock.now()));
        let sent = within(&*cx.clock, limit, self.send(request, limit, cx));
        let sent = match self.tool.spec.effect.is_read() {
            true => cx.unless_canceled(sent).await.map_err(|error| Failed::Failure(error.to_string()))?,
            // A change that has begun is better finished than cut off.
            false => sent.await,
        };
        let reply = match sent {
            Ok(reply) => reply?,
            Err(Unfinished::TimedOut) => return Err(Failed::Timeout),
            Err(Unfinished::Panicked) => return Err(Failed::Failure(Unfinished::Panicked.to_string())),
        };
        if reply.is_of_proxy() && self.may_have_changed() {
            let status = reply.status;
            return Err(Failed::Lost(format!(
                "the server has not responded in time or was lost (status {status})"
            )));
        }
        let has_changed = reply.is_success() && !self.tool.spec.effect.is_read();
        let result = reply.result(self.tool.result.as_deref(), |text| redaction.text(text));
        result.map_err(|why| match has_changed {
            true => Failed::Failure(format!("the server accepted the request, but {why}")),
            false => Failed::Failure(why),
        })
    }

    /// Sends a request, and sends it again after a failure that may pass, if that is safe and fits into `limit`.
    async fn send(&self, request: HttpRequest, limit: Duration, cx: &ToolContext) -> Result<Reply, Failed> {
        let end = cx.clock.now() + limit;
        let mut retries = 0;
        loop {
            if !cx.gate.is_open() {
                return Err(Failed::Failure("this call is over".into()));
            }
            let reply = match self.ports.http.send(request.clone()).await {
                Ok(response) => Reply::read(response).await,
                Err(error) => Err(error),
            };
            let delay = match &reply {
                Ok(reply) if reply.status != 429 && reply.status < 500 => None,
                Ok(reply) => {
                    reply.retry_after_s.map(Duration::from_secs).or(Some(RETRY_DELAY * 2_u32.pow(retries)))
                }
                Err(_) => Some(RETRY_DELAY * 2_u32.pow(retries)),
            };
            match delay {
                Some(delay)
                    if self.tool.spec.idempotent && retries < MAX_RETRIES && cx.clock.now() + delay < end =>
                {
                    cx.clock.sleep(delay).await;
                    retries += 1;
                }
                _ => {
                    return reply.map_err(|error| Failed::Lost(format!("the connection failed: {error}")));
                }
            }
        }
    }

    /// Returns whether it matters that a request without a response may have taken effect.
    fn may_have_changed(&self) -> bool {
        !self.tool.spec.idempotent && !self.tool.spec.effect.is_read()
    }

    /// Converts the end of a call to its outcome, without secrets.
    fn outcome(&self, ended: Result<Value, Failed>, redaction: &Redaction) -> ToolOutcome {
        match ended {
            Ok(result) => ToolOutcome::Result { result: redaction.value(result) },
            Err(Failed::Failure(reason)) => ToolOutcome::failure(redaction.text(reason)),
            Err(Failed::Permanent(reason)) => {
                ToolOutcome::Failure { reason: redaction.text(reason), retryable: false }
            }
            Err(Failed::Lost(reason)) if self.may_have_changed() => unknown(&redaction.text(reason)),
            Err(Failed::Lost(reason)) => ToolOutcome::failure(redaction.text(reason)),
            Err(Failed::Timeout) if self.may_have_changed() => unknown(TIMEOUT),
            Err(Failed::Timeout) => ToolOutcome::Timeout {
                reason: TIMEOUT.to_owned(),
                retryable: self.tool.spec.retry_on_timeout,
            },
        }
    }
}

fn unknown(why: &str) -> ToolOutcome {
    let reason = format!("{why}; the request may have taken effect. Check before you try again.");
    ToolOutcome::Unknown { reason }
}

impl DynTool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec.clone()
    }

    /// Returns the host, so that calls to one server do not run concurrently.
    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        object_schema::check(&self.tool.spec.parameters, args)?;
        Ok(vec![self.tool.host()])
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        async move {
            let args = args.as_object().cloned().unwrap_or_default();
            match self.secrets(&cx).await {
                Ok(secrets) => {
                    let redaction = Redaction::new(&secrets);
                    let ended = self.run(&args, &secrets, &redaction, &cx).await;
                    self.outcome(ended, &redaction)
                }
                Err(failed) => self.outcome(Err(failed), &Redaction::default()),
            }
        }
        .boxed_local()
    }
}
