//! Events of the server, across as many connections as it takes.

use crate::{
    api::{Api, lost, segment},
    backoff::back_off,
    error::{Error, Result},
    wire::{InboxEvent, Received},
};
use eventsource_stream::Eventsource as _;
use futures::{Stream, StreamExt as _};
use std::{pin::Pin, time::Duration};

/// Silence after which a connection counts as lost. The server sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// A stream of events: how far it has been read, and whether it ends.
pub struct Follow<T = Received> {
    api: Api,
    path: String,
    query: Vec<(&'static str, String)>,
    /// The id of the last event.
    after: Option<String>,
    ends: bool,
    /// Reads an event from its name and data.
    parse: fn(&str, &str) -> Option<T>,
    connection: Option<Connection>,
    failures: u32,
}

/// What the stream yields.
#[derive(Debug)]
pub enum Step<T = Received> {
    /// The next event.
    Event(Box<T>),
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
        let path = format!("/v1/sessions/{}/events", segment(session));
        let after = Some(after.into());
        Self { after, ..Self::at(api, path, Vec::new(), |_, data| Received::parse(data)) }
    }

    /// Follows the session of a run after an event id, until no turn of it runs or waits.
    pub fn run(api: &Api, run: &str, after: impl Into<String>) -> Self {
        let path = format!("/v1/runs/{}/events", segment(run));
        let after = Some(after.into());
        Self { after, ..Self::at(api, path, Vec::new(), |_, data| Received::parse(data)) }.until_idle()
    }

    /// Ends the stream as soon as the session has no turn that runs or waits.
    #[must_use]
    pub fn until_idle(mut self) -> Self {
        self.query.push(("until", "idle".into()));
        Self { ends: true, ..self }
    }
}

impl Follow<InboxEvent> {
    /// Follows the calls that wait, those that `filter` selects.
    pub fn inbox(api: &Api, filter: Vec<(&'static str, String)>) -> Self {
        Self::at(api, "/v1/pending/events".into(), filter, InboxEvent::parse)
    }
}

impl<T> Follow<T> {
    fn at(
        api: &Api,
        path: String,
        query: Vec<(&'static str, String)>,
        parse: fn(&str, &str) -> Option<T>,
    ) -> Self {
        Self { api: api.clone(), path, query, after: None, ends: false, parse, connection: None, failures: 0 }
    }

    /// Returns the next step. A call that is dropped loses no event.
    ///
    /// # Errors
    /// A refusal that repeating the request does not change.
    pub async fn next(&mut self) -> Result<Step<T>> {
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
                        self.after = Some(event.id);
                    }
                    if let Some(event) = (self.parse)(&event.event, &event.data) {
                        return Ok(Step::Event(Box::new(event)));
                    }
                }
                Some(Err(error)) => return self.lost(error).await,
                None if self.ends => return Ok(Step::Idle),
                None => {
                    let host = self.api.url().host_str().unwrap_or_default().to_owned();
                    let cause = "the server closed the stream".into();
                    return self.lost(Error::Connection { host, cause }).await;
                }
            }
        }
    }

    /// Reports a lost connection at once, and waits before later ones.
    async fn lost(&mut self, error: Error) -> Result<Step<T>> {
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
        let query: Vec<_> = self.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let request = self.api.get(&self.path).queries(&query).header("accept", "text/event-stream");
        let response = request.maybe("after", self.after.as_deref()).once().await?;
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
