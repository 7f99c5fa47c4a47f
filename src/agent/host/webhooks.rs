//! Notifies webhooks until their receivers have acknowledged. A notification has the newest state of the turn, so states
//! that follow each other quickly may be sent as one.

use super::SessionHost;
use crate::ports::{StoreError, within};
use crate::session::{
    Session,
    kernel::{Input, MAX_RETRY, backoff},
};
use crate::types::{
    BoxError, ErrorCode, EventKind, Invalid, Problem,
    session::{Failures, MAX_WEBHOOKS, Webhook, WebhookKey},
};
use async_trait::async_trait;
use std::rc::Rc;
use std::time::Duration;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A receiver that has failed for so long is not notified any more.
const GIVE_UP: Duration = Duration::from_hours(24);

const NO_SENDER: &str = "this platform sends no notifications";

/// Sends notifications.
#[async_trait(?Send)]
pub trait WebhookSender {
    /// Checks the URL of a receiver. Returns it in its normal form.
    ///
    /// # Errors
    /// Why nothing may be sent to it.
    fn check(&self, url: &str) -> Result<String, Invalid>;

    /// Sends the state of the turn to the receiver.
    ///
    /// # Errors
    /// Why the receiver has not acknowledged it. It is sent again.
    async fn send(&self, session: &Session, webhook: &Webhook) -> Result<(), BoxError>;
}

impl SessionHost {
    /// Checks the URL of a receiver. Returns it in its normal form.
    ///
    /// # Errors
    /// Why nothing may be sent to it.
    pub fn check_receiver(&self, url: &str) -> Result<String, Invalid> {
        let sender = self.ports.webhooks.as_ref().ok_or_else(|| Invalid(NO_SENDER.to_owned()))?;
        sender.check(url)
    }

    /// Adds a webhook of a turn that has been accepted, or replaces the one with its key. The current state is sent at once.
    ///
    /// # Errors
    /// `validation_failed` if the session has too many, or a failed store.
    pub fn put_webhook(self: &Rc<Self>, session: &Session, mut webhook: Webhook) -> Result<(), Problem> {
        check_room(session, &webhook.key)?;
        webhook.due = session.last_seq();
        session.commit(self.now(), |draft| draft.put_webhook(webhook))?;
        self.handle(Input::Changed);
        Ok(())
    }

    /// Removes a webhook.
    ///
    /// # Errors
    /// When the store fails.
    pub fn remove_webhook(&self, session: &Session, key: &WebhookKey) -> Result<(), Problem> {
        session.commit(self.now(), |draft| draft.remove_webhook(key))?;
        Ok(())
    }

    /// Notifies the webhook that has been due for the longest time. One at a time, because the platform lets few requests of
    /// an object wait for a response, and the model's is one of them.
    pub(super) async fn notify_webhook(&self, session: &Session) -> Result<(), StoreError> {
        let next = {
            let state = session.state();
            let next = state.next_webhook();
            next.map(|(_, webhook)| (webhook.clone(), state.has_ended(&webhook.key.turn)))
        };
        let Some((webhook, had_ended)) = next else { return Ok(()) };
        let sent = match &self.ports.webhooks {
            Some(sender) => {
                let sent = within(self.ports.clock.as_ref(), TIMEOUT, sender.send(session, &webhook)).await;
                sent.unwrap_or_else(|unfinished| Err(unfinished.into()))
            }
            None => Err(NO_SENDER.into()),
        };
        let now = self.now();
        session.commit(now, |draft| {
            let Err(error) = sent else { return draft.acknowledge_webhook(&webhook, had_ended) };
            let (count, since) = webhook.failures.map_or((1, now), |known| (known.count + 1, known.since));
            if now.since(since) < GIVE_UP {
                let retry_at = now + backoff(count, MAX_RETRY);
                return draft.webhook_fails(&webhook, Failures { count, since, retry_at });
            }
            draft.remove_webhook(&webhook.key);
            let reason = format!("the receiver has failed for a day: {error}");
            draft.record(None, EventKind::SubStepFailed { step: "webhook".to_owned(), reason });
        })
    }
}

/// Checks that a session has room for a webhook, which may replace another.
///
/// # Errors
/// `validation_failed`.
pub(super) fn check_room(session: &Session, key: &WebhookKey) -> Result<(), Problem> {
    let state = session.state();
    let has_room = state.webhooks.len() < MAX_WEBHOOKS
        || state.webhooks.iter().any(|webhook| webhook.key == *key || state.can_spare(webhook));
    match has_room {
        true => Ok(()),
        false => {
            let detail = format!(
                "the session has {MAX_WEBHOOKS} webhooks; remove one, or wait until a turn has ended"
            );
            Err(Problem::new(ErrorCode::ValidationFailed, detail))
        }
    }
}
