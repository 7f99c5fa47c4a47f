//! Where the runner's calls come from.

use crate::{
    api::{Api, segment},
    error::{Error, Result},
    stream::{Follow, Step},
    waits::Wait,
    wire::{Event, Session},
};

/// A source of calls that wait for an answer.
pub trait Source {
    /// Waits until the calls that wait may have changed, and returns all of them. The first call returns at once. A call
    /// that is dropped loses no change.
    ///
    /// # Errors
    /// What the server refuses.
    async fn next(&mut self) -> Result<Vec<Wait>>;
}

/// The calls of one session and its subagents.
pub struct SessionCalls {
    api: Api,
    session: String,
    events: Option<Follow>,
    /// Whether the calls must be read again.
    is_stale: bool,
    on_lost: fn(&Error),
}

impl SessionCalls {
    /// Follows a session. `on_lost` gets each error after which the connection is made again.
    pub fn new(api: &Api, session: &str, on_lost: fn(&Error)) -> Self {
        Self { api: api.clone(), session: session.to_owned(), events: None, is_stale: true, on_lost }
    }

    /// Reads the session, from which on events are followed.
    async fn read(&mut self) -> Result<Vec<Wait>> {
        let session: Session =
            self.api.get(&format!("/v1/sessions/{}", segment(&self.session))).json().await?;
        if self.events.is_none() {
            self.events = Some(Follow::new(&self.api, &self.session, session.last_seq.to_string()));
        }
        self.is_stale = false;
        Ok(Wait::all(&self.session, &session.pending))
    }
}

impl Source for SessionCalls {
    async fn next(&mut self) -> Result<Vec<Wait>> {
        loop {
            match &mut self.events {
                Some(events) if !self.is_stale => match events.next().await? {
                    Step::Event(event) => self.is_stale = may_change_calls(&event.event),
                    Step::Lost(error) => (self.on_lost)(&error),
                    Step::Connected => self.is_stale = true,
                    Step::Idle => {}
                },
                _ => match self.read().await {
                    Err(error) if error.is_transient() && self.events.is_some() => (self.on_lost)(&error),
                    result => return result,
                },
            }
        }
    }
}

fn may_change_calls(event: &Event) -> bool {
    matches!(
        event,
        Event::TurnWaiting { .. }
            | Event::TurnCompleted { .. }
            | Event::TurnFailed { .. }
            | Event::TurnCanceled { .. }
            | Event::ToolSuspended { .. }
            | Event::ToolCompleted(_)
            | Event::ApprovalDecided { .. }
            | Event::AnswerGiven { .. }
    )
}
