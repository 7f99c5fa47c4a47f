//! Keeps the session's entries in the tenant's inbox up to date.
//!
//! The session's state is the outbox: the kernel compares the calls that wait with those that the inbox has acknowledged, and
//! starts the job until they are the same. Before a notice with calls is sent, the state says that it may arrive: its response
//! may be lost, and the next notice must replace what it has listed.

use super::{SessionHost, children::MESSAGE_TIMEOUT};
use crate::ports::{InboxError, within};
use crate::runs::Purpose;
use crate::session::{self, Session};
use crate::types::{
    InboxCall, InboxKind, InboxMark, InboxNotice, ListedCall, Problem, SessionId, SessionState, Suspension,
    TenantId, Timestamp,
};
use std::{rc::Rc, time::Duration};

/// Returns the calls that the inbox must list; `None` if it has acknowledged the same.
pub(super) fn due(state: &SessionState, suspensions: &[Suspension]) -> Option<Vec<ListedCall>> {
    let mark = state.background.inbox.as_ref();
    let calls: Vec<_> = listed(state, suspensions).map(|call| call.listed_call()).collect();
    let is_current = mark.map_or(calls.is_empty(), |mark| !mark.uncertain && mark.calls == calls);
    (!is_current).then_some(calls)
}

/// Returns the calls that the inbox lists.
fn listed<'a>(state: &SessionState, suspensions: &'a [Suspension]) -> impl Iterator<Item = Listing<'a>> {
    let run = state.meta.id.as_run();
    suspensions.iter().filter_map(move |suspension| {
        let run = run.clone();
        let step = run.as_ref().and_then(|_| Purpose::of(&suspension.call_id)?.step());
        let kind = match InboxKind::of(suspension.wait.kind())? {
            InboxKind::Approval if step.is_some() => InboxKind::Step,
            kind => kind,
        };
        Some(Listing { suspension, kind, run, step })
    })
}

/// A call that the inbox lists.
struct Listing<'a> {
    suspension: &'a Suspension,
    kind: InboxKind,
    run: Option<SessionId>,
    step: Option<String>,
}

impl SessionHost {
    /// Sends the calls that wait to the inbox, and stores that it has them.
    pub(super) async fn notify_inbox(&self, session: &Session) -> Result<(), Problem> {
        // An erased session must not return to the inbox.
        if !self.serves(session) {
            return Ok(());
        }
        let suspensions = session.suspensions()?;
        let state = session.state().clone();
        let listed: Vec<_> = listed(&state, &suspensions).collect();
        let mark = state.background.inbox.clone().unwrap_or_default();
        if !listed.is_empty() && !mark.uncertain {
            session.commit(self.now(), |draft| draft.list_in_inbox())?;
        }
        let calls = listed.iter().map(Listing::listed_call).collect();
        let (id, tenant) = (state.meta.id.clone(), state.meta.tenant.clone());
        let entries = listed.into_iter().map(|call| call.entry(&state)).collect();
        let notice = |sent_at| InboxNotice { session: id, sent_at, calls: entries, erased: false };
        let sent_at = self.send_notice(&tenant, &mark, notice).await?;
        if self.serves(session) {
            let mark = InboxMark { sent_at, uncertain: false, calls };
            session.commit(self.now(), |draft| draft.set_inbox(mark))?;
        }
        Ok(())
    }

    /// Removes the entries of the session in the store, which is being erased.
    ///
    /// # Errors
    /// If the inbox fails. The erasure is then repeated.
    pub(super) async fn leave_inbox(&self, tenant: &TenantId, id: &SessionId) -> Result<(), Problem> {
        let owner = session::owner(self.ports.store.as_ref()).ok().flatten();
        if owner.is_none_or(|owner| owner.tenant != *tenant) {
            return Ok(());
        }
        let mark = match Session::open(Rc::clone(&self.ports.store), self.config.context, self.hub()) {
            Ok(Some(session)) => {
                let Some(mark) = session.state().background.inbox.clone() else {
                    // No call of the session has ever waited.
                    return Ok(());
                };
                // If the erasure fails later, the inbox must list the calls again.
                session.commit(self.now(), |draft| draft.list_in_inbox())?;
                mark
            }
            // A session that cannot be read may be in the inbox.
            _ => InboxMark::default(),
        };
        let notice = |sent_at| InboxNotice { session: id.clone(), sent_at, calls: Vec::new(), erased: true };
        self.send_notice(tenant, &mark, notice).await.map(drop)
    }

    /// Sends a notice that is later than all others of the session. Returns when it was sent.
    async fn send_notice(
        &self,
        tenant: &TenantId,
        mark: &InboxMark,
        notice: impl FnOnce(Timestamp) -> InboxNotice,
    ) -> Result<Timestamp, Problem> {
        let last = self.inbox_sent_at.get().max(mark.sent_at);
        let sent_at = self.now().max(last + Duration::from_millis(1));
        self.inbox_sent_at.set(sent_at);
        let notice = notice(sent_at);
        let sent = self.ports.inbox.notify(tenant, &notice);
        let sent = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, sent).await;
        let newest = sent.unwrap_or_else(|unfinished| Err(InboxError(unfinished.to_string())))?;
        if let Some(newest) = newest {
            // A former process of this session has sent a notice at the same time, or its clock was ahead.
            self.inbox_sent_at.set(newest);
            return Err(InboxError("the inbox has a later notice of the session".into()).into());
        }
        Ok(sent_at)
    }
}

impl Listing<'_> {
    fn listed_call(&self) -> ListedCall {
        let Suspension { call_id, args_hash, claim, .. } = self.suspension;
        ListedCall {
            call_id: call_id.clone(),
            kind: self.kind,
            args_hash: args_hash.clone(),
            claim: claim.clone(),
        }
    }

    fn entry(self, state: &SessionState) -> InboxCall {
        let mut entry = InboxCall {
            session: state.meta.id.clone(),
            run: self.run,
            step: self.step,
            title: state.meta.title.clone(),
            user: state.meta.user.clone(),
            agent: state.meta.agent.clone(),
            parent: state.meta.parent.as_ref().map(|parent| parent.session.clone()),
            truncated: false,
            call: self.suspension.pending().with_kind(self.kind),
        };
        entry.shorten();
        entry
    }
}
