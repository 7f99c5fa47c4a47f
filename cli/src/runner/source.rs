//! Where the runner's calls come from.

use crate::{
    api::{Api, segment},
    backoff::insist,
    error::{Error, Result},
    stream::{Follow, Step},
    waits::Wait,
    wire::{Event, InboxCall, InboxEvent, Session},
};
use futures::FutureExt as _;
use serde::Deserialize as _;

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
                _ => {
                    let on_lost = self.on_lost;
                    return insist(async || self.read().await, on_lost).await;
                }
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

/// The calls of all sessions of an agent, from the inbox.
pub struct AgentCalls {
    api: Api,
    filter: [(&'static str, String); 2],
    events: Follow<InboxEvent>,
    /// Whether the calls must be read again.
    is_stale: bool,
    on_lost: fn(&Error),
}

impl AgentCalls {
    /// Follows an agent. `on_lost` gets each error after which the connection is made again.
    pub fn new(api: &Api, agent: &str, on_lost: fn(&Error)) -> Self {
        let filter = [("agent", agent.to_owned()), ("kind", "external".to_owned())];
        let events = Follow::inbox(api, filter.to_vec());
        Self { api: api.clone(), filter, events, is_stale: true, on_lost }
    }

    async fn read(&mut self) -> Result<Vec<Wait>> {
        let filter = self.filter.each_ref().map(|(name, value)| (*name, value.as_str()));
        let listed = self.api.list("/v1/pending", &filter, usize::MAX).await?;
        self.is_stale = false;
        let calls = listed.iter().filter_map(|call| InboxCall::deserialize(call).ok());
        Ok(calls.map(|InboxCall { session, call, .. }| Wait { session, call }).collect())
    }

    fn take(&mut self, step: Step<InboxEvent>) {
        match step {
            Step::Event(_) => self.is_stale = true,
            Step::Lost(error) => (self.on_lost)(&error),
            // The stream goes on where it ended.
            Step::Connected | Step::Idle => {}
        }
    }
}

impl Source for AgentCalls {
    async fn next(&mut self) -> Result<Vec<Wait>> {
        loop {
            if !self.is_stale {
                let step = self.events.next().await?;
                self.take(step);
            }
            // What came at the same time needs no look of its own.
            while self.is_stale
                && let Some(step) = self.events.next().now_or_never()
            {
                self.take(step?);
            }
            if self.is_stale {
                let on_lost = self.on_lost;
                return insist(async || self.read().await, on_lost).await;
            }
        }
    }
}
