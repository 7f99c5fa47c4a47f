//! A remote agent as the model of a subagent's session.

use super::connection::{Connection, DELAY, Failed, MAX_DELAY, Results, TIMEOUT, longer};
use super::ports::RemotePorts;
use super::task::{State, Task};
use crate::ports::{Model, Unfinished, outbound::Endpoint, within};
use crate::types::{
    FinishReason, Invalid, Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse,
    Part, RemoteAgent, Role, Usage,
};
use futures::{
    FutureExt,
    future::LocalBoxFuture,
    stream::{self, LocalBoxStream, StreamExt},
};
use serde_json::{Value, json};
use std::{mem, rc::Rc, time::Duration};

/// How long a stream may be silent before its task is asked for.
const SILENCE: Duration = Duration::from_mins(2);
/// The key of what a reply keeps of the remote conversation.
const KEPT: &str = "remote_agent";

/// A remote agent. Its responses are the texts of its tasks.
///
/// The time of a task is limited by the deadline of its turn. When the connection is lost, the state of the task is asked
/// for until the task has ended. When the response is no longer wanted, the task is canceled as soon as its id is known.
/// After a restart of this server, the message is sent again with the same id and the same `Idempotency-Key`; a remote
/// agent that heeds neither does the task twice.
pub struct RemoteModel {
    url: String,
    endpoint: Rc<Result<Endpoint, Invalid>>,
    ports: Rc<RemotePorts>,
}

impl RemoteModel {
    /// Creates the model.
    pub fn new(agent: &RemoteAgent, ports: Rc<RemotePorts>) -> Self {
        let endpoint = Rc::new(Endpoint::parse(&agent.url, &agent.headers));
        Self { url: agent.url.clone(), endpoint, ports }
    }
}

impl Model for RemoteModel {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let (Some(tenant), false) = (request.tenant.clone(), request.tools_off) else {
            // Summaries and reviews of a turn.
            let error = ModelError::new(ModelErrorKind::Invalid, "a remote agent only does tasks");
            return stream::iter([Err(error)]).boxed_local();
        };
        let (endpoint, ports) = (Rc::clone(&self.endpoint), Rc::clone(&self.ports));
        let connection = Rc::new(Connection { endpoint, ports, tenant });
        let message = message(&request, &self.url);
        let phase = Phase::Start { method: STREAMED, delay: DELAY };
        let work = Work { connection, url: self.url.clone(), message, task: Task::default(), phase };
        stream::unfold(work, |mut work| async {
            let event = work.next().await?;
            if event.is_err() {
                work.phase = Phase::Failed;
            }
            Some((event, work))
        })
        .boxed_local()
    }
}

/// Returns the newest messages of the user as one message, which continues the conversation with the agent at this URL.
fn message(request: &ModelRequest, url: &str) -> Value {
    let messages = &request.messages;
    let last = messages.last();
    let is_new = |message: &&Rc<Message>| {
        message.role == Role::User && last.is_some_and(|last| last.turn == message.turn)
    };
    let texts: Vec<_> = messages.iter().filter(is_new).map(|message| message.prompt_text()).collect();
    let mut message = json!({
        "messageId": last.map(|last| &last.id), "role": "ROLE_USER",
        "parts": [{"text": texts.join("\n\n"), "mediaType": "text/plain"}],
    });
    let kept = |message: &Rc<Message>| {
        let kept = message.parts.iter().find_map(|part| match part {
            Part::Reasoning { provider, .. } => provider.as_ref()?.get(KEPT),
            _ => None,
        });
        kept.filter(|kept| kept["url"] == url).cloned()
    };
    let mut earlier = messages.iter().rev().skip_while(is_new);
    // Only the reply right before can be a question: a later task without a reply has ended it.
    let newest = earlier.next().and_then(kept);
    if let Some(task) = newest.as_ref().and_then(|kept| kept.get("taskId")) {
        message["taskId"] = task.clone();
    }
    let context = newest.or_else(|| earlier.find_map(kept));
    if let Some(context) = context.as_ref().and_then(|kept| kept.get("contextId")) {
        message["contextId"] = context.clone();
    }
    message
}

/// The methods that send a message: with a stream of events, and with the result at the end.
const STREAMED: &str = "SendStreamingMessage";
const WHOLE: &str = "SendMessage";

/// The work of a remote agent on one message.
struct Work {
    connection: Rc<Connection>,
    url: String,
    message: Value,
    task: Task,
    phase: Phase,
}

enum Phase {
    Start {
        method: &'static str,
        delay: Duration,
    },
    Sending {
        method: &'static str,
        delay: Duration,
        sent: LocalBoxFuture<'static, Result<Results, Failed>>,
    },
    Reading(&'static str, Box<Results>),
    /// The stream has ended, and the task has not.
    Polling(Duration),
    /// The task has ended, or needs input.
    Ended,
    /// All text was passed on.
    Said,
    Done,
    Failed,
}

impl Work {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            let stepped = match &self.phase {
                Phase::Done | Phase::Failed => return None,
                Phase::Said => {
                    self.phase = Phase::Done;
                    return Some(Ok(ModelEvent::Done(self.response())));
                }
                Phase::Ended => {
                    self.phase = Phase::Said;
                    self.task.end()
                }
                _ => self.step().await.map_err(|failed| self.error(failed)),
            };
            match stepped {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return Some(Ok(ModelEvent::Text(text))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Makes the next request, or reads the next event. Returns the text that it adds.
    async fn step(&mut self) -> Result<String, Failed> {
        let clock = Rc::clone(&self.connection.ports.clock);
        let text = match &mut self.phase {
            Phase::Start { method, delay } => {
                let (method, delay) = (*method, *delay);
                // The id of the task is known early, so that it can be canceled.
                let configuration = json!({"returnImmediately": method == WHOLE});
                let params = json!({"message": self.message, "configuration": configuration});
                let key = self.message["messageId"].as_str();
                let prepared = self.connection.prepare(method, &params, key).await?;
                let connection = Rc::clone(&self.connection);
                let sent = async move { connection.send(prepared).await }.boxed_local();
                self.phase = Phase::Sending { method, delay, sent };
                return Ok(String::new());
            }
            Phase::Sending { method, delay, sent } => {
                let (method, delay) = (*method, *delay);
                match sent.await {
                    Ok(results) => {
                        self.task.redaction = results.redaction.clone();
                        self.phase = Phase::Reading(method, Box::new(results));
                    }
                    // The request before a restart is being worked on. Its result comes with the same key.
                    Err(Failed::Busy(retry_after)) => {
                        self.phase = Phase::Start { method, delay: longer(delay) };
                        clock.sleep(retry_after.unwrap_or(delay).clamp(DELAY, MAX_DELAY)).await;
                    }
                    Err(failed) => return Err(failed),
                }
                return Ok(String::new());
            }
            Phase::Reading(method, results) => {
                let method = *method;
                let read = match within(&*clock, SILENCE, results.update(self.task.id.is_some())).await {
                    Ok(read) => read,
                    // There is nothing to ask for yet.
                    Err(Unfinished::TimedOut) if self.task.id.is_none() => return Ok(String::new()),
                    Err(_) => Err(Failed::Lost),
                };
                match read {
                    Ok(Some(update)) if self.answered().is_some() && self.task.resume(&update) => {
                        return Ok(String::new());
                    }
                    Ok(Some(update)) => self.task.apply(update),
                    Err(Failed::Unsupported) if self.task.id.is_none() && method == STREAMED => {
                        self.phase = Phase::Start { method: WHOLE, delay: DELAY };
                        return Ok(String::new());
                    }
                    // The question was answered before. The task is what came of that.
                    Err(Failed::Unsupported) if self.task.id.is_none() && self.answered().is_some() => {
                        self.task.id = self.answered();
                        self.phase = Phase::Polling(Duration::ZERO);
                        return Ok(String::new());
                    }
                    Ok(None) | Err(Failed::Lost) if self.task.id.is_some() => {
                        self.phase = Phase::Polling(DELAY);
                        return Ok(String::new());
                    }
                    Ok(None) => return Err(Failed::Lost),
                    Err(failed) => return Err(failed),
                }
            }
            Phase::Polling(delay) => {
                clock.sleep(*delay).await;
                *delay = longer(*delay);
                match self.connection.task(self.task.id.as_deref().unwrap_or_default()).await {
                    Ok(task) => self.task.replace(task),
                    Err(failed) if failed.may_pass() => return Ok(String::new()),
                    Err(failed) => return Err(failed),
                }
            }
            Phase::Ended | Phase::Said | Phase::Done | Phase::Failed => return Ok(String::new()),
        };
        if self.task.state != State::Open {
            self.phase = Phase::Ended;
        }
        Ok(text)
    }

    /// Returns the task whose question the message answers.
    fn answered(&self) -> Option<String> {
        self.message.get("taskId").and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns the error of the response. A task that has begun is not begun again.
    fn error(&self, failed: Failed) -> ModelError {
        let error = ModelError::from(failed);
        match self.task.id {
            Some(_) => ModelError { should_retry: Some(false), ..error },
            None => error,
        }
    }

    /// Returns the whole response, with what continues the remote conversation.
    fn response(&self) -> ModelResponse {
        let mut kept = json!({ "url": self.url });
        if let Some(context) = &self.task.context {
            kept["contextId"] = json!(context);
        }
        // A message to a task that has ended is refused.
        if let (Some(id), State::Waiting) = (&self.task.id, self.task.state) {
            kept["taskId"] = json!(id);
        }
        let kept = Part::Reasoning { text: String::new(), provider: Some(json!({ KEPT: kept })) };
        let parts = vec![kept, Part::text(self.task.text.clone())];
        ModelResponse { parts, usage: Usage::default(), finish: FinishReason::Stop }
    }
}

impl Drop for Work {
    /// Cancels the task if its result is no longer wanted.
    fn drop(&mut self) {
        let phase = mem::replace(&mut self.phase, Phase::Done);
        let id = self.task.id.take();
        let was_sent = id.is_some() || matches!(phase, Phase::Sending { .. } | Phase::Reading(..));
        if self.task.state != State::Open || !was_sent {
            return;
        }
        let (id, connection) = (id.or_else(|| self.answered()), Rc::clone(&self.connection));
        (self.connection.ports.spawn)(Box::pin(async move {
            let id = match id {
                Some(id) => {
                    // Closes the connection.
                    drop(phase);
                    Some(id)
                }
                // The agent has the message, and works on a task that only it knows.
                None => within(&*connection.ports.clock, TIMEOUT, begun(phase)).await.ok().flatten(),
            };
            if let Some(id) = id {
                connection.cancel(&id).await;
            }
        }));
    }
}

/// Waits for the id of the task that a message has begun. Returns `None` if there is no such task, or if it has ended.
async fn begun(phase: Phase) -> Option<String> {
    let mut results = match phase {
        Phase::Sending { sent, .. } => sent.await.ok()?,
        Phase::Reading(_, results) => *results,
        _ => return None,
    };
    let mut task = Task::default();
    while task.id.is_none() {
        task.apply(results.update(false).await.ok()??);
    }
    task.id.filter(|_| task.state == State::Open)
}
