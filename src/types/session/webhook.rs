//! Webhooks: URLs that are notified when a turn starts, waits, continues or ends.

use crate::types::{EventKind, Record, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a webhook of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WebhookKey {
    /// The turn that it concerns.
    pub turn: TurnId,
    /// The id that the client chose, unique for the turn.
    pub id: String,
}

/// A URL that is notified of a turn until the turn has ended.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its name.
    #[serde(flatten)]
    pub key: WebhookKey,
    /// The absolute URL.
    pub url: String,
    /// The headers of each request, which may contain secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Sequence number of the last record that it is notified of.
    #[serde(default)]
    pub due: u64,
    /// Sequence number of the last record that the receiver has confirmed.
    #[serde(default)]
    pub confirmed: u64,
    /// Whether the turn has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Since when requests have failed, if the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
}

impl Webhook {
    /// Creates a webhook that has not been notified.
    pub fn new(key: WebhookKey, url: String, headers: Vec<(String, String)>) -> Self {
        Self { key, url, headers, due: 0, confirmed: 0, ended: false, failing_since: None }
    }

    /// Returns whether it must be notified.
    pub fn is_due(&self) -> bool {
        self.due > self.confirmed
    }

    /// Returns whether it is notified of this record.
    pub(crate) fn concerns(&self, record: &Record) -> bool {
        let changes = matches!(
            record.kind,
            EventKind::TurnStarted { .. } | EventKind::TurnWaiting { .. } | EventKind::TurnResumed { .. }
        );
        record.turn.as_ref() == Some(&self.key.turn) && (changes || record.kind.turn_end().is_some())
    }
}

/// Without the headers.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("key", &self.key).field("url", &self.url).finish_non_exhaustive()
    }
}
