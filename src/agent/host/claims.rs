//! Claims: a client that runs tools, a *runner*, takes a call of an external tool, so that no other runs it too.

use super::{
    SessionHost,
    resolved::{ResolvedCalls, Settled},
    suspensions::{check_runner, over},
};
use crate::session::{
    Session,
    suspensions::{Row, row},
};
use crate::types::{
    CallId, CallProgress, Claim, Delta, ErrorCode, EventKind, Pending, Problem, Resolution, Suspension,
    ToolProgress, Wait,
};
use serde_json::Value;
use std::{rc::Rc, time::Duration};

/// The outcome of a call whose runner has not answered in time.
const LOST: &str = "the client that ran the tool did not answer in time";

impl SessionHost {
    /// Lets a runner work on a call for as long as the lease lasts, or renews its claim. Returns the call.
    ///
    /// # Errors
    /// `claimed` while another runner works on it, `not_waiting` if it does not wait for a client, `not_found` for an unknown
    /// call.
    pub fn claim(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &CallId,
        runner: &str,
        lease: Duration,
    ) -> Result<Pending, Problem> {
        // A claim that has ended must neither refuse nor be renewed.
        self.expire(session)?;
        let mut suspension = self.suspension(session, Row::Answer, call_id)?;
        if !matches!(suspension.wait, Wait::External(_)) {
            let detail = "only a call of an external tool can be claimed";
            return Err(Problem::new(ErrorCode::NotWaiting, detail));
        }
        if !session.is_open(&suspension) {
            return Err(over());
        }
        let now = self.now();
        check_runner(&suspension, Some(runner), now)?;
        // A claim is only ever extended.
        let held = suspension.claim.as_ref().map_or(now, |claim| claim.until);
        let until = (now + lease).max(held).min(suspension.expires_at);
        suspension.claim = Some(Claim { runner: runner.to_owned(), until });
        self.store_claim(session, &suspension)?;
        Ok(suspension.pending())
    }

    /// Shows clients how far the runner is that works on a call. Nothing is stored.
    ///
    /// # Errors
    /// `claimed` if another runner works on it, `not_waiting` if none does, `not_found` for an unknown call.
    pub fn show_progress(
        &self,
        session: &Session,
        call_id: &CallId,
        runner: &str,
        progress: ToolProgress,
    ) -> Result<(), Problem> {
        let suspension = self.suspension(session, Row::Answer, call_id)?;
        if !session.is_open(&suspension) {
            return Err(over());
        }
        let now = self.now();
        check_runner(&suspension, Some(runner), now)?;
        if suspension.claim.as_ref().is_none_or(|claim| claim.until <= now) {
            return Err(Problem::new(
                ErrorCode::NotWaiting,
                "no runner has claimed the call, or its claim has ended",
            ));
        }
        session.show(
            &suspension.turn,
            &Delta::ToolProgress(CallProgress { call_id: call_id.clone(), progress }),
        );
        Ok(())
    }

    /// Ends the claims whose lease is over. The inbox offers the call again if its tool may run twice; otherwise its outcome is
    /// `unknown`.
    pub(super) fn end_claims(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        let now = self.now();
        let has_ended = |own: &Suspension| own.claim.as_ref().is_some_and(|claim| claim.until <= now);
        let (again, lost): (Vec<_>, Vec<_>) = session
            .suspensions()?
            .into_iter()
            .filter(has_ended)
            .partition(|own| self.may_repeat(session, own));
        for suspension in again {
            self.store_claim(session, &Suspension { claim: None, ..suspension })?;
        }
        if !lost.is_empty() {
            let settled = lost.into_iter().map(unknown).collect();
            self.settle(session, ResolvedCalls::new(settled, "expired"))?;
        }
        Ok(())
    }

    fn may_repeat(&self, session: &Session, suspension: &Suspension) -> bool {
        let (state, agent) = (session.state(), self.agent());
        let spec = agent.spec(state.client_tools(), &suspension.name);
        spec.is_some_and(|spec| spec.client_may_repeat)
    }

    fn store_claim(&self, session: &Session, suspension: &Suspension) -> Result<(), Problem> {
        let (key, json) = row(suspension)?;
        session.commit(self.now(), |draft| {
            draft.put(key, json);
            draft.list_in_inbox();
        })?;
        Ok(())
    }
}

fn unknown(suspension: Suspension) -> Settled {
    let (call_id, name) = (suspension.call_id.clone(), suspension.name.clone());
    let record = EventKind::AnswerGiven { call_id, name, answer: Value::Null, by: None, request_id: None };
    let resolution = Resolution::Unknown { reason: LOST.to_owned() };
    Settled::new(suspension.resolved(resolution), record)
}
