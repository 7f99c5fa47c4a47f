//! Notifies webhooks until their receivers have confirmed. A receiver is told the newest state of the turn, so states that
//! follow each other quickly may be told as one.

use super::SessionHost;
use crate::ports::within;
use crate::session::Session;
use crate::types::{
    BoxError, ErrorCode, EventKind, Invalid, Problem,
    session::{Webhook, WebhookKey},
};
use async_trait::async_trait;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of webhooks of a session.
pub const MAX_WEBHOOKS: usize = 100;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
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

    /// Tells the receiver the state of the turn.
    ///
    /// # Errors
    /// Why the receiver has not confirmed. It is tried again.
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

    /// Adds a webhook, or replaces the one with its key.
    ///
    /// # Errors
    /// `validation_failed` if the session has too many, or a failed store.
    pub fn put_webhook(self: &Rc<Self>, session: &Session, webhook: Webhook) -> Result<(), Problem> {
        check_number(session)?;
        session.commit(self.now(), |draft| draft.put_webhook(webhook))?;
        Ok(())
    }

    /// Removes a webhook.
    ///
    /// # Errors
    /// When the store fails.
    pub fn remove_webhook(self: &Rc<Self>, session: &Session, key: &WebhookKey) -> Result<(), Problem> {
        session.commit(self.now(), |draft| draft.remove_webhook(key))?;
        Ok(())
    }

    /// Notifies a webhook.
    pub(super) async fn notify_webhook(&self, session: &Session, key: &WebhookKey) -> Result<(), BoxError> {
        let found = session.state().webhooks.iter().find(|webhook| webhook.key == *key).cloned();
        let Some(webhook) = found else { return Ok(()) };
        let sender = self.ports.webhooks.as_ref().ok_or(NO_SENDER)?;
        let sent = within(self.ports.clock.as_ref(), TIMEOUT, sender.send(session, &webhook));
        let Err(error) = sent.await.unwrap_or_else(|unfinished| Err(unfinished.into())) else {
            session.commit(self.now(), |draft| draft.confirm_webhook(key, webhook.due))?;
            return Ok(());
        };
        let now = self.now();
        match webhook.failing_since {
            None => session.commit(now, |draft| draft.webhook_fails(key, now))?,
            Some(since) if now.since(since) >= GIVE_UP => session.commit(now, |draft| {
                draft.remove_webhook(key);
                let reason = format!("the receiver has failed for a day: {error}");
                draft.record(None, EventKind::SubStepFailed { step: "webhook".to_owned(), reason });
            })?,
            Some(_) => {}
        }
        Err(error)
    }
}

/// Checks that a session can have one more webhook.
///
/// # Errors
/// `validation_failed`.
pub(super) fn check_number(session: &Session) -> Result<(), Problem> {
    match session.state().webhooks.len() < MAX_WEBHOOKS {
        true => Ok(()),
        false => {
            let detail =
                format!("the session has {MAX_WEBHOOKS} webhooks; remove one, or wait for the end of a turn");
            Err(Problem::new(ErrorCode::ValidationFailed, detail))
        }
    }
}
