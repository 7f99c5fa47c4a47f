//! Changes of webhooks.

use super::Draft;
use crate::types::{
    Record,
    session::{Failures, MAX_WEBHOOKS, Webhook, WebhookKey},
};
use std::rc::Rc;

impl Draft {
    /// Adds a webhook, or replaces the one with its key. If there are too many, it takes the place of the oldest one that is
    /// expendable.
    pub(crate) fn put_webhook(&mut self, webhook: Webhook) {
        self.remove_webhook(&webhook.key);
        let state = self.state.clone();
        let webhooks = self.webhooks();
        let oldest = webhooks.iter().position(|own| own.is_expendable(&state));
        if let (Some(oldest), true) = (oldest, webhooks.len() >= MAX_WEBHOOKS) {
            webhooks.remove(oldest);
        }
        webhooks.push(webhook);
    }

    /// Removes a webhook.
    pub(crate) fn remove_webhook(&mut self, key: &WebhookKey) {
        self.webhooks().retain(|webhook| webhook.key != *key);
    }

    /// Stores that the receiver has confirmed what this webhook was due for. After the end of the turn nothing is left to
    /// notify. A webhook that was replaced meanwhile stays as it is.
    pub(crate) fn confirm_webhook(&mut self, sent: &Webhook) {
        let state = self.state.clone();
        self.webhooks().retain_mut(|webhook| {
            if !webhook.is_like(sent) {
                return true;
            }
            (webhook.confirmed, webhook.failures) = (sent.due, None);
            webhook.due > webhook.confirmed || !sent.has_ended(&state)
        });
    }

    /// Stores that requests of this webhook have failed.
    pub(crate) fn webhook_fails(&mut self, sent: &Webhook, failures: Failures) {
        if let Some(webhook) = self.webhooks().iter_mut().find(|webhook| webhook.is_like(sent)) {
            webhook.failures = Some(failures);
        }
    }

    /// Makes webhooks due for the records that concern them.
    pub(in crate::session) fn notify_webhooks(&mut self, records: &[Record]) {
        let last = |webhook: &Webhook| records.iter().rfind(|record| webhook.concerns(record));
        if self.state.webhooks.iter().all(|webhook| last(webhook).is_none()) {
            return;
        }
        for webhook in self.webhooks() {
            if let Some(record) = last(webhook) {
                webhook.due = record.seq;
            }
        }
    }

    fn webhooks(&mut self) -> &mut Vec<Webhook> {
        Rc::make_mut(&mut self.state.webhooks)
    }
}
