//! What the user does in the chat, as requests.

use crate::{
    api::{Api, segment},
    error::Result,
    turn::abort,
    waits::{Resolution, Wait},
};
use serde_json::{Value, json};

/// A request that the user has made.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// Posts a message, which waits in the queue if a turn runs.
    Message(String),
    /// Aborts the turn, clears the queue and posts a message.
    Steer(String),
    /// Aborts the turn.
    Abort,
    /// Removes a message from the queue, by its turn.
    Drop(String),
    /// Switches the mode.
    Mode(String),
    /// Switches the model.
    Model(String),
    /// Compacts the conversation.
    Compact,
    /// Resolves a call that waits.
    Resolve(Box<Wait>, Resolution),
}

/// What a request has changed, if the events that say so come only after the message that is being written.
#[derive(Debug)]
pub(super) enum Change {
    /// A message was accepted: this is its turn.
    Accepted(String),
    /// The message of this turn left the queue.
    Dropped(String),
}

impl Request {
    /// Returns the text that the user wrote, as the user wrote it.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Message(text) | Self::Resolve(_, Resolution::Decline(Some(text))) => Some(text.clone()),
            Self::Steer(text) => Some(format!("/steer {text}")),
            Self::Resolve(_, Resolution::Answer(answer)) => answer.as_str().map(str::to_owned),
            _ => None,
        }
    }

    /// Sends the request. Most of what it changes arrives as events.
    pub(super) async fn send(&self, api: &Api, session: &str) -> Result<Option<Change>> {
        let path = format!("/v1/sessions/{}", segment(session));
        let post = |route: &str| api.post(&format!("{path}/{route}")).header("prefer", "respond-async");
        match self {
            Self::Message(text) => {
                let accepted: Value = post("messages").body_json(&json!({ "content": text })).json().await?;
                return Ok(accepted["turn_id"].as_str().map(|turn| Change::Accepted(turn.to_owned())));
            }
            Self::Steer(text) => drop(post("steer").body_json(&json!({ "content": text })).send().await?),
            Self::Abort => abort(api, session).await?,
            Self::Drop(turn) => {
                api.delete(&format!("{path}/queue/{}", segment(turn))).send().await?;
                return Ok(Some(Change::Dropped(turn.clone())));
            }
            Self::Mode(mode) => drop(api.patch(&path).body_json(&json!({ "mode": mode })).send().await?),
            Self::Model(model) => drop(api.patch(&path).body_json(&json!({ "model": model })).send().await?),
            Self::Compact => drop(post("compact").send().await?),
            Self::Resolve(wait, resolution) => drop(wait.resolve(api, resolution).await?),
        }
        Ok(None)
    }
}
