//! The events of a session, across as many connections as it takes.

use crate::{
    api::{Api, lost, segment},
    backoff::back_off,
    error::{Error, Result},
    wire::Received,
};
use eventsource_stream::Eventsource as _;
use futures::{Stream, StreamExt as _};
use std::{pin::Pin, time::Duration};

/// Silence after which a connection counts as lost. The server sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// How far a session has been read, and whether the stream ends.
pub struct Follow {
    api: Api,
    session: String,
    after: String,
    until_idle: bool,
    connection: Option<Connection>,
    failures: u32,
}

/// What the stream yields.
#[derive(Debug)]
pub enum Step {
    /// The next event.
    Event(Box<Received>),
    /// The connection was lost. The next call makes another one.
    Lost(Error),
    /// The connection was made again.
    Connected,
    /// The session is idle, and the stream was to end then.
    Idle,
}

type Connection = Pin<Box<dyn Stream<Item = Result<eventsource_stream::Event>> + Send>>;

impl Follow {
    /// Follows a session after an event id; `0` is the start of its log.
    pub fn new(api: &Api, session: &str, after: impl Into<String>) -> Self {
        Self {
            api: api.clone(),
            session: session.to_owned(),
            after: after.into(),
            until_idle: false,
            connection: None,
            failures: 0,
        }
    }

    /// Ends the stream as soon as the session has no turn that runs or waits.
    #[must_use]
    pub fn until_idle(self) -> Self {
        Self { until_idle: true, ..self }
    }

    /// Returns the next step. A call that is dropped loses no event.
    ///
    /// # Errors
    /// A refusal that repeating the request does not change.
    pub async fn next(&mut self) -> Result<Step> {
        loop {
            let connection = match &mut self.connection {
                Some(connection) => connection,
                None => match self.connect().await {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        if self.failures > 0 {
                            return Ok(Step::Connected);
                        }
                        continue;
                    }
                    Err(error) => return self.lost(error).await,
                },
            };
            match connection.next().await {
                Some(Ok(event)) => {
                    self.failures = 0;
                    // The parser repeats the last id for an event without one.
                    if !event.id.is_empty() {
                        self.after.clone_from(&event.id);
                    }
                    if let Some(received) = Received::parse(&event.data) {
                        return Ok(Step::Event(Box::new(received)));
                    }
                }
                Some(Err(error)) => return self.lost(error).await,
                None if self.until_idle => return Ok(Step::Idle),
                None => {
                    let cause = "the server closed the stream".into();
                    return self.lost(Error::Connection { host: self.session.clone(), cause }).await;
                }
            }
        }
    }

    /// Reports a lost connection at once, and waits before later ones.
    async fn lost(&mut self, error: Error) -> Result<Step> {
        self.connection = None;
        let is_limited = matches!(&error, Error::Refused(problem) if problem.code == "rate_limited");
        if !error.is_transient() && !error.is_failure_of_server() && !is_limited {
            return Err(error);
        }
        self.failures += 1;
        if self.failures > 1 {
            back_off(self.failures - 1, &error).await;
        }
        Ok(Step::Lost(error))
    }

    async fn connect(&mut self) -> Result<Connection> {
        let path = format!("/v1/sessions/{}/events", segment(&self.session));
        let request = self.api.get(&path).query("after", &self.after).header("accept", "text/event-stream");
        let until = self.until_idle.then_some("idle");
        let response = request.maybe("until", until).once().await?;
        let url = self.api.url().clone();
        let bytes = response.bytes_stream();
        let guarded = futures::stream::unfold(Some(Box::pin(bytes)), move |bytes| {
            let url = url.clone();
            async move {
                let mut bytes = bytes?;
                match tokio::time::timeout(SILENCE, bytes.next()).await {
                    Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(bytes))),
                    Ok(Some(Err(error))) => Some((Err(lost(&url, &error)), None)),
                    Ok(None) => None,
                    Err(_) => {
                        let host = url.host_str().unwrap_or_default().to_owned();
                        Some((Err(Error::Connection { host, cause: "the stream is silent".into() }), None))
                    }
                }
            }
        });
        let events = guarded.eventsource().map(|event| {
            event.map_err(|error| match error {
                eventsource_stream::EventStreamError::Transport(error) => error,
                other => Error::Response(other.to_string()),
            })
        });
        Ok(Box::pin(events))
    }
}
