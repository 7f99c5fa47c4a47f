//! The session's account with its tenant's ledger: admission of turns, reports of usage, and the slot of a running
//! session.
//!
//! All of it follows from stored state. The log says what was used, [`Account::reported`] up to where the ledger has
//! counted it, and [`Account::slot_until`] whether the session holds a slot; the kernel repeats the report until both are
//! right. Only a turn that is about to start or to continue is not stored yet. If its process is evicted before that is
//! stored, the slot ends with the lease of the admission.

use super::{SessionHost, children::MESSAGE_TIMEOUT, directory_down, queue::queued_budgets};
use crate::ports::{LedgerError, StoreError, within};
use crate::session::{
    Session, audit,
    kernel::{LedgerDues, holds_slot},
    usage::{self, LogUsage},
};
use crate::types::{
    Admission, Admitted, Budget, BudgetPatch, NanoUsd, Problem, Reached, Receipt, Report, RequestBlock,
    SessionId, SlotUse, Standing, TenantId, TimedLimit, Timestamp, TurnState, session::Account,
};
use std::{cell::Cell, rc::Rc, time::Duration};

/// The delays after which an admission is tried again while no slot is free: the turn that held one may just have ended,
/// and its report may be on its way.
const SLOT_RETRIES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(600)];

/// The delay after which decisions are added to the audit trail again if that failed.
const AUDIT_RETRY: Duration = Duration::from_mins(1);

/// How long an admission may take. The caller waits for it.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// What a host remembers about its messages to the ledger.
#[derive(Default)]
pub(super) struct LedgerState {
    /// The new turns that are being admitted, or admitted and about to be stored.
    starting: Cell<u32>,
    /// The same of decisions and answers with which the waiting turn continues.
    continuing: Cell<u32>,
    /// The sum of what all of them may still cost.
    hold: Cell<NanoUsd>,
    /// When the last message was sent.
    sent_at: Cell<Timestamp>,
    /// When decisions may be added to the audit trail again.
    audit_after: Cell<Timestamp>,
    /// The limit at which the ledger has last refused a request, and the end of its minute.
    requests_refused: Cell<(u32, Timestamp)>,
}

impl LedgerState {
    /// Returns the number of turns that are about to start or to continue.
    fn count(&self, continues: bool) -> &Cell<u32> {
        if continues { &self.continuing } else { &self.starting }
    }

    fn is_asking(&self) -> bool {
        self.starting.get() > 0 || self.continuing.get() > 0
    }
}

/// The permission to store one more turn, or that the waiting turn continues. The session counts it as open until this is
/// dropped.
pub struct Admittance {
    host: Rc<SessionHost>,
    continues: bool,
    /// What the turn may still cost.
    hold: NanoUsd,
    /// Until when the session holds a slot; `None` if it needs none.
    pub slot_until: Option<Timestamp>,
}

impl Drop for Admittance {
    fn drop(&mut self) {
        let ledger = &self.host.ledger;
        let count = ledger.count(self.continues);
        count.set(count.get().saturating_sub(1));
        ledger.hold.set(ledger.hold.get().minus(self.hold));
        // Reports have waited for this.
        self.host.run_due();
    }
}

impl SessionHost {
    /// Returns whether a turn of this session has to be admitted. Otherwise it starts without a call of the ledger.
    pub fn needs_admission(&self) -> bool {
        !self.tenant_limits().quota().is_empty()
    }

    /// Counts a request of a tenant that the gateway does not see. Like the gateway, it lets the request pass if the ledger
    /// cannot be reached.
    ///
    /// # Errors
    /// `rate_limited` if the tenant has reached its limit of requests, or a failed store.
    pub async fn count_request(self: &Rc<Self>, tenant: &TenantId) -> Result<(), Problem> {
        self.open()?;
        let Some(limit) = self.tenant_limits().requests_per_min else { return Ok(()) };
        let (refused_limit, ends_at) = self.ledger.requests_refused.get();
        if refused_limit != limit || ends_at <= self.now() {
            let taken = self.ports.ledger.take_requests(tenant, 1, limit);
            match within(self.ports.clock.as_ref(), ADMISSION_TIMEOUT, taken).await {
                // Remembered, so that a client that repeats its command does not keep the ledger busy.
                Ok(Ok(RequestBlock { granted: 0, ends_at })) => {
                    self.ledger.requests_refused.set((limit, ends_at))
                }
                Ok(Ok(_) | Err(_)) | Err(_) => return Ok(()),
            }
        }
        let (_, resets_at) = self.ledger.requests_refused.get();
        let reached = Reached { limit: TimedLimit::RequestsPerMin, resets_at, held: false };
        Err(Problem::over_limit(reached, self.now()))
    }

    /// Asks the ledger for one more turn of the session `id`, which may not be stored yet. `budget` has what the message
    /// changes in the budget of the turn.
    ///
    /// # Errors
    /// `rate_limited` or `quota_exceeded` if the tenant has reached a limit; `unavailable` if the ledger cannot be
    /// reached, because nothing else enforces the limits.
    pub async fn admit(
        self: &Rc<Self>,
        tenant: &TenantId,
        id: &SessionId,
        session: Option<&Rc<Session>>,
        budget: &BudgetPatch,
    ) -> Result<Admittance, Problem> {
        let own = session.map(|session| session.state().meta.budget).unwrap_or_default();
        let hold = ceiling(&self.tenant_limits().lower(own.patched(budget)));
        self.ask_ledger(tenant, id, session, hold, false).await
    }

    /// Asks the ledger for a turn that starts or continues, and may still cost `hold`.
    pub(super) async fn ask_ledger(
        self: &Rc<Self>,
        tenant: &TenantId,
        id: &SessionId,
        session: Option<&Rc<Session>>,
        hold: NanoUsd,
        continues: bool,
    ) -> Result<Admittance, Problem> {
        let quota = self.tenant_limits().quota();
        let hold = quota.cost_usd_per_day.map_or(NanoUsd(0), |_| hold);
        let count = self.ledger.count(continues);
        count.set(count.get() + 1);
        self.ledger.hold.set(self.ledger.hold.get().plus(hold));
        let mut admittance = Admittance { host: Rc::clone(self), continues, hold, slot_until: None };
        let mut retries = SLOT_RETRIES.into_iter();
        loop {
            let state = session.map(|session| session.state().clone());
            let started = match (session, &state) {
                (Some(session), Some(state)) => {
                    usage::turns_started(session.store(), state.account.reported)?
                }
                _ => Vec::new(),
            };
            let created_at = state.as_ref().map_or(Timestamp(0), |state| state.meta.created_at);
            let reported = state.as_ref().map_or(0, |state| state.account.reported);
            let standing = self.standing(session.map(Rc::as_ref), true, reported)?;
            let session = id.clone();
            let admission = Admission { session, created_at, standing, started, hold, continues, quota };
            let admitted = within(
                self.ports.clock.as_ref(),
                ADMISSION_TIMEOUT,
                self.ports.ledger.admit(tenant, &admission),
            )
            .await
            .unwrap_or_else(|unfinished| Err(LedgerError(unfinished.to_string())));
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(error) => {
                    // Only the response may be lost, and the slot taken.
                    self.release(admittance, tenant, id);
                    return Err(error.into());
                }
            };
            match (admitted, retries.next()) {
                (Admitted::Until(until), _) => {
                    admittance.slot_until = quota.needs_slots().then_some(until);
                    return Ok(admittance);
                }
                (Admitted::Refused(reached), Some(delay)) if reached.held => {
                    self.ports.clock.sleep(delay).await;
                }
                (Admitted::Refused(reached), _) => return Err(Problem::over_limit(reached, self.now())),
            }
        }
    }

    /// Gives back an admission whose turn could not be stored, or whose response was lost. If this fails, the slot ends with
    /// its lease.
    pub fn release(self: &Rc<Self>, admittance: Admittance, tenant: &TenantId, id: &SessionId) {
        let (host, tenant, id) = (Rc::clone(self), tenant.clone(), id.clone());
        self.spawn(async move {
            drop(admittance);
            let session = host.open().ok().flatten();
            let state = session.as_ref().map(|session| session.state().clone());
            let needs_slots = host.tenant_limits().quota().needs_slots();
            let account = state.as_ref().map(|state| *state.account).unwrap_or_default();
            let Ok(standing) = host.standing(session.as_deref(), needs_slots, account.reported) else {
                return;
            };
            let report = Report {
                session: id,
                created_at: state.as_ref().map_or(Timestamp(0), |state| state.meta.created_at),
                from: account.reported,
                to: account.reported,
                rows: Vec::new(),
                started: Default::default(),
                standing,
                is_last: false,
            };
            let _ = host.send_report(&tenant, &report).await;
        });
    }

    /// Returns what the session does, as of now. `reported` is up to which record the ledger has counted the session's log
    /// when it reads this.
    fn standing(
        &self,
        session: Option<&Session>,
        needs_slots: bool,
        reported: u64,
    ) -> Result<Standing, StoreError> {
        let hold = session.map_or(Ok(NanoUsd(0)), |session| self.hold(session, reported))?;
        let hold = self.ledger.hold.get().plus(hold);
        let state = session.map(|session| session.state());
        let starting = self.ledger.starting.get();
        let last = self.ledger.sent_at.get();
        let sent_at = self.now().max(last + Duration::from_millis(1));
        self.ledger.sent_at.set(sent_at);
        let queued = state.as_ref().map_or(0, |state| state.activity.queue.len());
        Ok(Standing {
            sent_at,
            slot: match state.is_some_and(|state| holds_slot(&state, needs_slots)) {
                true => Some(SlotUse::Running),
                false => (needs_slots && self.ledger.is_asking()).then_some(SlotUse::Starting),
            },
            open_turns: starting.saturating_add(u32::try_from(queued).unwrap_or(u32::MAX)),
            hold,
        })
    }

    /// Returns what the turn that runs and those that are queued may still cost.
    fn hold(&self, session: &Session, reported: u64) -> Result<NanoUsd, StoreError> {
        let limits = self.limits_of(session);
        if limits.cost_usd_per_day.is_none() {
            return Ok(NanoUsd(0));
        }
        let queued = queued_budgets(session)?.into_iter().map(|budget| ceiling(&limits.lower(budget)));
        let state = session.state();
        let running = state.activity.turn.as_ref().filter(|turn| turn.works());
        let running = running.map(|turn| still_open(session, turn, reported)).transpose()?;
        // The budget of the turn has no longer what was set aside for these.
        let in_background =
            state.subagents.open().filter(|task| task.works()).map(|task| ceiling(&task.budget));
        Ok(running.into_iter().chain(in_background).chain(queued).fold(NanoUsd(0), NanoUsd::plus))
    }

    /// Reports the usage since the last report and the session's standing, and stores what the ledger has confirmed.
    ///
    /// # Errors
    /// If the ledger or the store fails. The report is then repeated.
    pub(super) async fn report(&self, session: &Rc<Session>) -> Result<(), Problem> {
        if session.is_retired() {
            // An erasure sends the last report itself; a later one could take the slot again.
            return Err(Problem::internal("this copy of the session is retired"));
        }
        if self.ledger.is_asking() {
            // The job was started before a request asked the ledger. The report would take a slot that may be refused, or
            // release the one that is granted.
            return Err(Problem::internal("a turn is being admitted"));
        }
        let needs_slots = self.limits_of(session).quota().needs_slots();
        let takes_slot = holds_slot(&session.state(), needs_slots);
        if takes_slot && session.state().account.slot_until.is_none() {
            // Stored before the slot is taken: the receipt may be lost, and the session idle before the next report. Then
            // it still has to give the slot back.
            session.commit(self.now(), |draft| draft.hold_slot(Some(Account::UNCONFIRMED)))?;
        }
        let (tenant, before) = {
            let state = session.state();
            (state.meta.tenant.clone(), *state.account)
        };
        let report = self.next_report(session, before.reported, false)?;
        let Receipt { reported, slot_until } = self.send_report(&tenant, &report).await?;
        let unaudited = before.unaudited.unwrap_or(before.reported);
        let audited = self.audit(session, unaudited, reported).await;
        if audited.is_err() {
            // The receipt is stored all the same: limits must hold while the directory is down.
            self.ledger.audit_after.set(self.now() + AUDIT_RETRY);
        }
        let unaudited = audited.is_err().then_some(unaudited);
        session.commit(self.now(), |draft| {
            // A turn may have started since then, with a slot of its own.
            let now = draft.state().account.slot_until;
            let slot_until = if now == before.slot_until { slot_until } else { now };
            draft.set_account(Account { reported, slot_until, unaudited });
        })?;
        Ok(())
    }

    /// Sends the last report of the session in the store, which is being erased: the ledger then knows all its usage. The
    /// usage of a session whose stored state cannot be read is lost.
    ///
    /// # Errors
    /// If the ledger fails. The erasure is then repeated.
    pub(super) async fn report_last(&self, tenant: &TenantId) -> Result<(), Problem> {
        let opened = Session::open(Rc::clone(&self.ports.store), self.config.context, self.hub());
        let Some(session) = opened.ok().flatten().filter(|own| own.state().meta.tenant == *tenant) else {
            return Ok(());
        };
        let Account { mut reported, unaudited, .. } = *session.state().account;
        let mut unaudited = unaudited.unwrap_or(reported);
        loop {
            let report = self.next_report(&session, reported, true)?;
            let receipt = self.send_report(tenant, &report).await?;
            self.audit(&session, unaudited, receipt.reported).await?;
            unaudited = receipt.reported;
            if receipt.reported >= session.last_seq() || receipt.reported == reported {
                return Ok(());
            }
            reported = receipt.reported;
        }
    }

    /// Returns what the session owes to the ledger. While a turn is being admitted, nothing is due: a report would not
    /// know whether the turn starts.
    pub(super) fn ledger_dues(&self, session: &Session) -> LedgerDues {
        if self.ledger.is_asking() {
            return LedgerDues { is_starting: true, ..LedgerDues::default() };
        }
        let quota = self.limits_of(session).quota();
        LedgerDues {
            is_starting: false,
            unreported: session
                .unreported()
                .or_else(|| session.state().account.unaudited.map(|_| self.ledger.audit_after.get())),
            at_once: !quota.is_empty(),
            needs_slots: quota.needs_slots(),
        }
    }

    fn next_report(&self, session: &Session, from: u64, is_last: bool) -> Result<Report, Problem> {
        let state = session.state();
        let LogUsage { rows, started, to } = usage::of_log(
            session.store(),
            &state.meta.owner(),
            state.child.is_some(),
            from,
            session.last_seq(),
        )?;
        let needs_slots = self.limits_of(session).quota().needs_slots();
        Ok(Report {
            session: state.meta.id.clone(),
            created_at: state.meta.created_at,
            from,
            to,
            rows,
            started,
            standing: self.standing(Some(session), needs_slots, to)?,
            is_last,
        })
    }

    async fn send_report(&self, tenant: &TenantId, report: &Report) -> Result<Receipt, Problem> {
        let sent = self.ports.ledger.report(tenant, report);
        let sent = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, sent).await;
        Ok(sent.unwrap_or_else(|unfinished| Err(LedgerError(unfinished.to_string())))?)
    }

    /// Adds the decisions after the record `after`, up to `last`, to the audit trail.
    async fn audit(&self, session: &Session, after: u64, last: u64) -> Result<(), Problem> {
        if after >= last {
            return Ok(());
        }
        let decided = {
            let meta = &session.state().meta;
            audit::decisions(session.store(), &meta.tenant, &meta.id, after, last)?
        };
        if decided.is_empty() {
            return Ok(());
        }
        self.ports.directory.append_audit(&decided).await.map_err(directory_down)
    }
}

/// Returns what a turn may still cost: its ceiling without what the ledger has counted of it, up to the record `reported`.
pub(super) fn still_open(session: &Session, turn: &TurnState, reported: u64) -> Result<NanoUsd, StoreError> {
    let (ceiling, spent) = (ceiling(&turn.budget), NanoUsd::of_usd(turn.cost_usd.unwrap_or_default()));
    if ceiling.is_zero() || spent.is_zero() {
        return Ok(ceiling);
    }
    let unreported = usage::cost(session.store(), reported)?;
    Ok(ceiling.minus(spent.minus(unreported)))
}

/// Returns the cost ceiling of a turn; 0 if it has none, because nothing can be held for it then.
pub(super) fn ceiling(budget: &Budget) -> NanoUsd {
    budget.max_cost_usd.map(NanoUsd::of_usd).unwrap_or_default()
}
