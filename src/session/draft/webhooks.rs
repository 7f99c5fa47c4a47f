//! Changes of webhooks.

use super::Draft;
use crate::types::{
    Record,
    session::{Failures, MAX_WEBHOOKS, Webhook, WebhookKey},
};
use std::rc::Rc;

impl Draft {
    /// Adds a webhook, or replaces the one with its key. If there are too many, it takes the place of the oldest one that
    /// the session can spare.
    pub(crate) fn put_webhook(&mut self, webhook: Webhook) {
        self.remove_webhook(&webhook.key);
        let state = self.state.clone();
        let webhooks = self.webhooks();
        let oldest = webhooks.iter().position(|own| state.can_spare(own));
        if let (Some(oldest), true) = (oldest, webhooks.len() >= MAX_WEBHOOKS) {
            webhooks.remove(oldest);
        }
        webhooks.push(webhook);
    }

    /// Removes a webhook.
    pub(crate) fn remove_webhook(&mut self, key: &WebhookKey) {
        self.webhooks().retain(|webhook| webhook.key != *key);
    }

    /// Stores that the receiver has acknowledged what this webhook was due for. Nothing is left to send if the turn had ended
    /// before the request. A webhook that was replaced since then stays as it is.
    pub(crate) fn acknowledge_webhook(&mut self, sent: &Webhook, had_ended: bool) {
        self.webhooks().retain_mut(|webhook| {
            if !webhook.is_like(sent) {
                return true;
            }
            (webhook.acknowledged, webhook.failures) = (sent.due, None);
            webhook.due > webhook.acknowledged || !had_ended
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Owner, SessionMeta, SessionState, Timestamp};
    use pretty_assertions::assert_eq;

    #[test]
    fn a_webhook_stays_until_its_receiver_has_acknowledged_the_end() {
        let owner = Owner { tenant: "t".into(), user: "u".into(), agent: "a".into() };
        let state = SessionState::new(SessionMeta::new("s".into(), owner, Timestamp(0)));
        let mut draft = Draft::new(state);
        let key = WebhookKey { turn: "trn_1".into(), id: "w".into() };
        let sent = Webhook { due: 7, ..Webhook::new(key, "https://example.com/".into(), Vec::new()) };
        draft.put_webhook(sent.clone());
        // The turn ended while the request was sent that it runs.
        draft.acknowledge_webhook(&sent, false);
        assert_eq!(draft.state().next_webhook().map(|(at, _)| at), Some(Timestamp(0)));
        draft.acknowledge_webhook(&sent, true);
        assert_eq!(draft.state().webhooks.len(), 0);
    }
}
