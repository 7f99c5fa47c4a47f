//! Webhooks: URLs that are notified when a turn starts, waits, continues or ends.

use crate::types::{EventKind, Record, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a webhook of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Sequence number of the last record that the receiver has acknowledged.
    #[serde(default)]
    pub acknowledged: u64,
    /// The failures since the receiver's last acknowledgement, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Failures>,
}

/// Maximum number of webhooks of a session.
pub const MAX_WEBHOOKS: usize = 100;

/// Requests of a webhook that have failed, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Their number.
    pub count: u32,
    /// When the first one failed.
    pub since: Timestamp,
    /// When the next request may be sent.
    pub retry_at: Timestamp,
}

impl Webhook {
    /// Creates a webhook that has not been notified.
    pub fn new(key: WebhookKey, url: String, headers: Vec<(String, String)>) -> Self {
        Self { key, url, headers, due: 0, acknowledged: 0, failures: None }
    }

    /// Returns when it must be notified: time 0 for at once, `None` for not before the next record. The end of the turn is
    /// computed from the state, because a version without webhooks may have ended it.
    pub fn due_at(&self, has_ended: bool) -> Option<Timestamp> {
        let is_due = self.due > self.acknowledged || has_ended;
        is_due.then(|| self.failures.map_or(Timestamp(0), |failures| failures.retry_at))
    }

    /// Returns whether it has the same receiver as `other`.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.key, &self.url, &self.headers) == (&other.key, &other.url, &other.headers)
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
