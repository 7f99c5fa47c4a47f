//! Starts or continues a turn, and follows it until it ends or waits.

use crate::{
    api::{Api, segment},
    error::{Error, Result},
    stream::{Follow, Step},
    waits::Wait,
    wire::{Event, Pending, Received, Session},
};
use serde_json::{Value, json};

/// Connections in a row that may fail, which takes a few minutes, before a command gives up. The turn goes on.
pub const MAX_FAILURES: u32 = 25;

/// How a turn ended, or what it waits for.
#[derive(Clone, Debug)]
pub struct TurnResult {
    /// The turn's status: `completed`, `failed`, `canceled` or `waiting`.
    pub status: String,
    /// The calls that wait.
    pub pending: Vec<Pending>,
    /// The result in the form of the response to a message.
    pub json: Value,
}

impl TurnResult {
    /// Returns an error unless the turn has a reply, so that the exit code says how it ended.
    ///
    /// # Errors
    /// `Waiting` and `NoReply`.
    pub fn check(&self) -> Result<()> {
        match self.status.as_str() {
            "completed" | "running" => Ok(()),
            "waiting" => Err(Error::Waiting),
            _ => Err(Error::NoReply),
        }
    }

    /// Returns the result that an event of the turn reports.
    pub fn of(received: &Received) -> Option<Self> {
        let json = &received.json;
        let pending = match &received.event {
            Event::TurnWaiting { pending } => pending.clone(),
            Event::TurnCompleted { .. } | Event::TurnFailed { .. } | Event::TurnCanceled { .. } => Vec::new(),
            _ => return None,
        };
        let status = json["status"].as_str().unwrap_or("waiting").to_owned();
        let mut result = json!({
            "turn_id": json["turn"], "status": status, "reply": json["reply"], "usage": json["usage"],
            "stop_reason": json["stop_reason"].as_str().unwrap_or("waiting"),
            "pending": if pending.is_empty() { json!([]) } else { json["pending"].clone() },
        });
        if let Some(error) = json.get("error").filter(|error| !error.is_null()) {
            result["error"] = error.clone();
        }
        Some(Self { status, pending, json: result })
    }
}

/// A turn that runs.
pub struct Turn {
    api: Api,
    session: String,
    id: String,
    events: Follow,
    /// Set if the response said all there is.
    result: Option<TurnResult>,
    /// Connections in a row that could not be made.
    failures: u32,
}

/// A step of a turn.
pub enum TurnStep {
    /// An event of the turn.
    Event(Box<Received>),
    /// The connection was lost, and will be made again.
    Lost(Error),
    /// The turn ended or waits.
    Done(TurnResult),
}

impl Turn {
    /// Posts a message, a decision or an answer: `route` is below the session, such as `messages`. The session may not
    /// exist yet. `query` has parameters such as the agent.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn post(
        api: &Api,
        session: &str,
        route: &str,
        query: &[(&str, &str)],
        body: &Value,
    ) -> Result<Self> {
        let path = format!("/v1/sessions/{}", segment(session));
        let before = match api.get(&path).json::<Session>().await {
            Ok(session) => session.last_seq,
            Err(error) if error.is_not_found() && route == "messages" => 0,
            Err(error) => return Err(error),
        };
        let post = api.post(&format!("{path}/{route}")).queries(query).body_json(body);
        let accepted: Value = post.header("prefer", "respond-async").json().await?;
        let id = accepted["turn_id"].as_str().unwrap_or_default().to_owned();
        let status = accepted["status"].as_str().unwrap_or_default().to_owned();
        let pending = serde_json::from_value(accepted["pending"].clone()).unwrap_or_default();
        // A turn that still waits, or has ended already, comes with the response.
        let result = (status != "running").then_some(TurnResult { status, pending, json: accepted });
        let events = Follow::new(api, session, before.to_string());
        Ok(Self { api: api.clone(), session: session.to_owned(), id, events, result, failures: 0 })
    }

    /// Returns the turn of a session that waits, to be followed from now on, with the calls that wait; `None` if no turn
    /// waits.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn waiting(api: &Api, session: &str) -> Result<Option<(Self, Vec<Wait>)>> {
        let state: Session = api.get(&format!("/v1/sessions/{}", segment(session))).json().await?;
        let Some(id) = state.current_turn.filter(|_| state.status == "waiting") else { return Ok(None) };
        let waits = Wait::all(session, &state.pending);
        let events = Follow::new(api, session, state.last_seq.to_string());
        Ok(Some((
            Self { api: api.clone(), session: session.to_owned(), id, events, result: None, failures: 0 },
            waits,
        )))
    }

    /// Returns the turn's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the next step. A call that is dropped loses no event.
    ///
    /// # Errors
    /// A refusal of the stream.
    pub async fn next(&mut self) -> Result<TurnStep> {
        if let Some(result) = self.result.take() {
            return Ok(TurnStep::Done(result));
        }
        loop {
            match self.events.next().await? {
                Step::Event(event) if event.turn.as_ref() == Some(&self.id) => {
                    self.failures = 0;
                    self.result = TurnResult::of(&event);
                    return Ok(TurnStep::Event(event));
                }
                Step::Event(_) => self.failures = 0,
                // Only an event shows that the connection works.
                Step::Connected => {}
                Step::Lost(error) if self.failures >= MAX_FAILURES => return Err(error),
                Step::Lost(error) => {
                    self.failures += 1;
                    return Ok(TurnStep::Lost(error));
                }
                Step::Idle => return Err(Error::Response("the stream ended before the turn".into())),
            }
        }
    }

    /// Aborts the turn. A message that is still in the queue leaves it, and the turn that runs goes on: `true`.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn abort(&self) -> Result<bool> {
        let queued = format!("/v1/sessions/{}/queue/{}", segment(&self.session), segment(&self.id));
        // A second attempt could not tell a message that the first one removed from a turn that has started.
        match self.api.delete(&queued).once().await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let session: Session =
            self.api.get(&format!("/v1/sessions/{}", segment(&self.session))).json().await?;
        // The turn may have ended by now, and another one may run.
        if session.current_turn.as_ref() == Some(&self.id) {
            abort(&self.api, &self.session).await?;
        }
        Ok(false)
    }
}

/// Aborts the turn of a session that runs or waits.
///
/// # Errors
/// What the server refuses.
pub async fn abort(api: &Api, session: &str) -> Result<()> {
    api.post(&format!("/v1/sessions/{}/abort", segment(session))).send().await.map(drop)
}
