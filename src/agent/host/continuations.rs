//! Continues turns whose suspended calls are resolved, with a slot of the tenant if it has limits.
//!
//! A turn that waits for people holds no slot. Before a decision or an answer is stored that lets the turn continue, the
//! session asks the ledger for a slot, so that the limits stay exact: the caller who is refused repeats the request. A
//! subagent runs in the slot of its parent, so its session asks the parent, which asks the ledger if it holds no slot.

use super::{
    Admittance, SessionHost,
    account::{ceiling, still_open},
    children::MESSAGE_TIMEOUT,
    resolved::{ResolvedCalls, TurnEffect},
};
use crate::ports::{PeerError, StoreError, within};
use crate::session::{
    Session,
    kernel::{Input, works},
};
use crate::types::{
    Acknowledgement, BackgroundTask, CallId, ChildStatus, ErrorCode, NanoUsd, Problem, SessionId, Suspension,
    TenantId, Timestamp,
};
use std::rc::Rc;

/// What a turn or a task that waits needs to continue.
#[derive(Clone, Copy)]
struct Need {
    /// What it may still cost.
    hold: NanoUsd,
    /// Whether the session already holds this amount, because the turn or task works.
    is_held: bool,
}

/// Returns what the waiting turn needs.
fn turn_need(session: &Session) -> Result<Need, StoreError> {
    let state = session.state();
    let Some(turn) = &state.activity.turn else { return Ok(Need { hold: NanoUsd(0), is_held: true }) };
    Ok(Need { hold: still_open(session, turn, state.account.reported)?, is_held: turn.works() })
}

impl SessionHost {
    /// Asks for the slot that the turn needs to continue once these calls are resolved; `None` if it needs none.
    ///
    /// # Errors
    /// As for [`SessionHost::admit`].
    pub async fn admit_continuation(
        self: &Rc<Self>,
        session: &Rc<Session>,
        resolved: &ResolvedCalls,
    ) -> Result<Option<Admittance>, Problem> {
        let continues = session.suspensions()?.iter().all(|own| resolved.include(own));
        let need = turn_need(session)?;
        if !continues || !self.lacks_slot(session, need) {
            return Ok(None);
        }
        if session.state().child.is_some() {
            return self.ask_parent(session).await.map(|()| None);
        }
        self.admit_waiting(session, need).await.map(Some)
    }

    /// Stores calls as resolved, with the slot that [`SessionHost::admit_continuation`] has returned.
    ///
    /// # Errors
    /// When the store fails.
    pub fn resolve(
        self: &Rc<Self>,
        session: &Rc<Session>,
        resolved: ResolvedCalls,
        admittance: Option<&Admittance>,
    ) -> Result<TurnEffect, Problem> {
        let slot_until = admittance.and_then(|admittance| admittance.slot_until);
        self.settle(session, ResolvedCalls { slot_until, ..resolved })
    }

    /// Returns whether the ledger must be asked before a turn or a task with this need continues. A session in which a turn or
    /// a task works holds a slot.
    fn lacks_slot(&self, session: &Session, need: Need) -> bool {
        let quota = self.limits_of(session).quota();
        let lacks_money = quota.cost_usd_per_day.is_some() && !need.is_held;
        quota.needs_slots() && (!works(&session.state()) || lacks_money)
    }

    async fn admit_waiting(
        self: &Rc<Self>,
        session: &Rc<Session>,
        need: Need,
    ) -> Result<Admittance, Problem> {
        let (tenant, id) = owner(session);
        self.ask_ledger(&tenant, &id, Some(session), need.hold, true).await
    }

    /// Asks the parent whether this child may continue.
    async fn ask_parent(self: &Rc<Self>, session: &Session) -> Result<(), Problem> {
        let Some(parent) = session.state().meta.parent.clone() else { return Ok(()) };
        let (tenant, id) = owner(session);
        let running = ChildStatus::running(id, parent.call_id);
        let asked = ChildStatus { asks_to_continue: true, ..running.clone() };
        let asked = self.ports.peers.notify(&tenant, &parent.session, asked);
        let asked = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, asked).await;
        let asked = asked.unwrap_or_else(|unfinished| Err(PeerError(unfinished.to_string())));
        if !matches!(asked, Ok(Acknowledgement::Refused(_))) {
            // The parent may have stored that the child runs, even if its response is lost. If the child waits on after all,
            // it has to notify the parent.
            self.handle(Input::Acknowledged(running));
        }
        let unreachable = "the session of the parent cannot be reached; try again";
        match asked.map_err(|error| Problem::unavailable(unreachable, error))? {
            Acknowledgement::Refused(reached) => Err(Problem::over_limit(reached, self.now())),
            Acknowledgement::Recorded => Ok(()),
            // Nothing waits for the task. The child learns it with its next status.
            Acknowledgement::NotWanted | Acknowledgement::NoSession => Ok(()),
        }
    }

    /// Lets the child continue for which a call waits.
    pub(super) async fn let_child_continue(
        self: &Rc<Self>,
        session: &Rc<Session>,
        waiting: &Suspension,
    ) -> Result<Acknowledgement, Problem> {
        let store = |slot_until| {
            // The call may have been resolved during the await.
            let own =
                waiting.child().map(|own| session.child_suspension(&waiting.call_id, &own.task.session));
            let Some(own) = own.transpose()?.flatten() else { return Ok(false) };
            self.store_pending(session, own, Vec::new(), slot_until).map(|()| true)
        };
        self.let_continue(session, &waiting.call_id, turn_need(session)?, store).await
    }

    /// Lets the child continue that works on a background task.
    pub(super) async fn let_task_continue(
        self: &Rc<Self>,
        session: &Rc<Session>,
        task: &BackgroundTask,
    ) -> Result<Acknowledgement, Problem> {
        let store = |slot_until| {
            // The task may have ended during the await.
            if session.state().subagents.open_of(&task.key()).is_none() {
                return Ok(false);
            }
            let running = ChildStatus::running(task.session.clone(), task.call_id.clone());
            self.store_task_status(session, &task.id, running, slot_until).map(|()| true)
        };
        let need = Need { hold: ceiling(&task.budget), is_held: task.works() };
        self.let_continue(session, &task.call_id, need, store).await
    }

    /// Takes a slot for the child of a call, if this session holds none, and stores that the child no longer waits for a
    /// person. `store` gets the end of the slot, and returns `false` if nothing waits for the child any more. If the child
    /// does not continue, it sends its status again.
    async fn let_continue(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call: &CallId,
        need: Need,
        store: impl FnOnce(Option<Timestamp>) -> Result<bool, Problem>,
    ) -> Result<Acknowledgement, Problem> {
        let mut admittance = None;
        if self.lacks_slot(session, need) {
            self.asks.borrow_mut().insert(call.clone());
            let admitted = self.admit_waiting(session, need).await;
            // During the await, the child may have sent a status because it waits on.
            let is_newest = self.asks.borrow_mut().remove(call);
            match admitted {
                Err(Problem { reached: Some(reached), .. }) => {
                    return Ok(Acknowledgement::Refused(*reached));
                }
                admitted => admittance = Some(admitted?),
            }
            if !is_newest {
                self.settle_admittance(session, admittance, false);
                let detail = "the subagent has sent another status; try again";
                return Err(Problem::new(ErrorCode::Unavailable, detail));
            }
        }
        let stored = store(admittance.as_ref().and_then(|admittance| admittance.slot_until));
        self.settle_admittance(session, admittance, matches!(stored, Ok(true)));
        stored.map(|is_wanted| match is_wanted {
            true => Acknowledgement::Recorded,
            false => Acknowledgement::NotWanted,
        })
    }

    /// Gives back what was admitted for a turn of this session, unless it is used.
    pub fn settle_admittance(
        self: &Rc<Self>,
        session: &Session,
        admittance: Option<Admittance>,
        is_used: bool,
    ) {
        if let Some(admittance) = admittance.filter(|_| !is_used) {
            let (tenant, id) = owner(session);
            self.release(admittance, &tenant, &id);
        }
    }
}

pub(super) fn owner(session: &Session) -> (TenantId, SessionId) {
    let meta = &session.state().meta;
    (meta.tenant.clone(), meta.id.clone())
}
