//! The messages that an isolate has forwarded to sessions and that may wait for the start of a turn.
//!
//! Of a tenant with a limit of concurrent turns, this many sessions can run a turn, and any others wait in vain. Their
//! messages cost much more than a refusal: each starts the object of a session, which asks the ledger several times. So
//! that a flood of one tenant does not delay the requests of others, the gateway forwards messages only to that many
//! sessions and a few more at a time. It remembers no refusal: a message is refused only while others wait.

use super::retries::Retries;
use crate::types::{Reached, SessionId, TenantId, TimedLimit, Timestamp, quota::SLOT_RETRY};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The number of sessions that may wait, in addition to those that the limit admits.
const WAITING: usize = 8;
/// How long a message counts at most. After that the ledger has decided on it, or its client has disconnected, which the
/// gateway does not notice.
const DECIDED: Duration = Duration::from_secs(3);

/// The sessions with forwarded messages, by tenant.
#[derive(Default)]
pub struct ForwardedMessages(Rc<RefCell<BTreeMap<TenantId, Sessions>>>);

/// The sessions of a tenant.
struct Sessions {
    /// Until when the messages of a session count, and their number.
    open: BTreeMap<SessionId, (Timestamp, u32)>,
    retries: Retries,
}

/// A forwarded message. Dropping this means that its session has responded.
pub struct ForwardedMessage {
    all: Rc<RefCell<BTreeMap<TenantId, Sessions>>>,
    tenant: TenantId,
    session: SessionId,
}

impl ForwardedMessages {
    /// Adds a message to a session of a tenant that may run `limit` turns.
    ///
    /// # Errors
    /// Messages to too many other sessions are open.
    pub(super) fn add(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        limit: u32,
        now: Timestamp,
    ) -> Result<ForwardedMessage, Reached> {
        let mut all = self.0.borrow_mut();
        if !all.contains_key(tenant) {
            all.retain(|_, own| !own.is_over(now));
        }
        let own = all.entry(tenant.clone()).or_insert_with(Sessions::new);
        own.open.retain(|_, (until, _)| *until > now);
        let most = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(WAITING);
        if own.open.len() >= most && !own.open.contains_key(session) {
            // As if each turn took the time after which a retry may find a free slot.
            let resets_at = own.retries.next(now + SLOT_RETRY, SLOT_RETRY / limit.max(1));
            return Err(Reached { limit: TimedLimit::ConcurrentTurns, resets_at, held: true });
        }
        let (until, messages) = own.open.entry(session.clone()).or_default();
        (*until, *messages) = (now + DECIDED, *messages + 1);
        Ok(ForwardedMessage { all: Rc::clone(&self.0), tenant: tenant.clone(), session: session.clone() })
    }
}

impl Sessions {
    const fn new() -> Self {
        Self { open: BTreeMap::new(), retries: Retries::new() }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.retries.is_over(now) && self.open.values().all(|(until, _)| *until <= now)
    }
}

impl Drop for ForwardedMessage {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        let Some(own) = all.get_mut(&self.tenant) else { return };
        if let Some((_, messages)) = own.open.get_mut(&self.session) {
            *messages = messages.saturating_sub(1);
            if *messages == 0 {
                own.open.remove(&self.session);
            }
        }
    }
}
