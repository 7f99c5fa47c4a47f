//! Changes of webhooks.

use super::Draft;
use crate::types::{
    Record, Timestamp,
    session::{Webhook, WebhookKey},
};
use std::rc::Rc;

impl Draft {
    /// Adds a webhook, or replaces the one with its key. What the turn does from now on is notified.
    pub(crate) fn put_webhook(&mut self, webhook: Webhook) {
        self.remove_webhook(&webhook.key);
        self.webhooks().push(webhook);
    }

    /// Removes a webhook.
    pub(crate) fn remove_webhook(&mut self, key: &WebhookKey) {
        self.webhooks().retain(|webhook| webhook.key != *key);
    }

    /// Stores that a receiver has confirmed the records up to `seq`. After the end of the turn nothing is left to notify.
    pub(crate) fn confirm_webhook(&mut self, key: &WebhookKey, seq: u64) {
        if let Some(webhook) = self.webhooks().iter_mut().find(|webhook| webhook.key == *key) {
            webhook.confirmed = seq;
            webhook.failing_since = None;
        }
        self.webhooks().retain(|webhook| !webhook.ended || webhook.is_due());
    }

    /// Stores since when requests to a receiver have failed.
    pub(crate) fn webhook_fails(&mut self, key: &WebhookKey, since: Timestamp) {
        if let Some(webhook) = self.webhooks().iter_mut().find(|webhook| webhook.key == *key) {
            webhook.failing_since = Some(since);
        }
    }

    /// Makes webhooks due for the records that concern them.
    pub(in crate::session) fn notify_webhooks(&mut self, records: &[Record]) {
        if self.state.webhooks.is_empty() {
            return;
        }
        for webhook in self.webhooks() {
            for record in records.iter().filter(|record| webhook.concerns(record)).collect::<Vec<_>>() {
                webhook.due = record.seq;
                webhook.ended |= record.kind.turn_end().is_some();
            }
        }
    }

    fn webhooks(&mut self) -> &mut Vec<Webhook> {
        Rc::make_mut(&mut self.state.webhooks)
    }
}
