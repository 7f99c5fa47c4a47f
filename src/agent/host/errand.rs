//! The errand of a subagent, in its own session: taken up, done under the rules of the session that sent it out, and
//! reported there until that is heard.

use super::{OnBusy, Post, RETRY_MS, SessionHost, Snapshot, WATCHDOG_MS, subagents::TELL_MS};
use crate::agent::finalizer::Ending;
use crate::fault::{self, Fault};
use crate::ports::{StoreError, within};
use crate::session::{Session, encode};
use crate::types::{
    BudgetPatch, ErrorCode, Part, Problem, Report, StopReason, TurnOptions, TurnStatus, Usage,
};
use std::rc::Rc;

/// Longest wait before what is owed is told again, in milliseconds.
const MAX_WAIT_MS: u64 = 600_000;

/// How far the session that waits knows how the errand stands.
#[derive(Default)]
pub(super) struct Reporting {
    /// What it was told last.
    told: Option<Report>,
    is_being_told: bool,
    failures: u32,
}

impl SessionHost {
    /// Puts a subagent's session under the rules of the session that sent it out, as they are now. What somebody has
    /// granted here stays granted.
    pub(super) fn follow_rules(&self, session: &Rc<Session>, snapshot: Snapshot) -> Result<(), Problem> {
        let Snapshot { meta, tenant_rules, .. } = snapshot;
        let mut state = session.state().clone();
        if state.meta.parent != meta.parent {
            return Err(Problem::new(ErrorCode::AlreadyExists, "another session has the subagent's place"));
        }
        // What was on its way for long may be older than what is known.
        if meta.updated_at >= state.ruled_at {
            state.meta.permissions = meta.permissions;
            state.meta.permissions.grant(&state.granted);
            state.meta.mode = meta.mode;
            state.sent_rules = tenant_rules;
        }
        if state.reported {
            // Whoever sends it again waits for it.
            self.reporting.borrow_mut().told = None;
            state.reported = false;
        }
        if state == *session.state() {
            return Ok(());
        }
        state.ruled_at = state.ruled_at.max(meta.updated_at);
        session.commit(self.now(), |draft| draft.state = state).map_err(Problem::from)
    }

    /// Begins with the errand, if it was not begun before.
    pub(super) fn take_up(
        self: &Rc<Self>,
        session: &Rc<Session>,
        task: String,
        options: TurnOptions,
    ) -> Result<(), Problem> {
        let Some(parent) = session.state().meta.parent.clone() else { return Ok(()) };
        let is_begun = session.is_at_hand(&parent.errand) || session.turn_ended(&parent.errand)?.is_some();
        if is_begun && !fault::active(Fault::RepeatErrand) {
            self.report(session);
            return Ok(());
        }
        let post = Post {
            turn: parent.errand,
            parts: vec![Part::text(task)],
            budget: BudgetPatch::default(),
            options,
            on_busy: OnBusy::Queue,
            document: None,
        };
        self.post(session, post).map(drop)
    }

    /// Ends the errand, and says how far it had come. `None` when there is none here.
    ///
    /// # Errors
    /// When a store breaks.
    pub fn recalled(self: &Rc<Self>) -> Result<Option<String>, Problem> {
        let Some(session) = self.open()? else { return Ok(None) };
        if session.state().meta.parent.is_none() {
            return Ok(None);
        }
        // This is the report: nobody waits for another one.
        self.call_off(&session)?;
        let standing = self.standing(&session)?;
        standing.map(|report| encode(&report).map_err(Problem::from)).transpose()
    }

    /// Ends an errand for which nobody waits any more.
    fn call_off(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), Problem> {
        if fault::active(Fault::ForgetRecall) {
            return session.commit(self.now(), |draft| draft.state.reported = true).map_err(Problem::from);
        }
        let ending = Ending { canceled_by_parent: true, ..Ending::new(StopReason::Canceled) };
        if !self.end_with(session, ending)? && !session.state().reported {
            session.commit(self.now(), |draft| draft.state.reported = true)?;
        }
        self.after_turn(session);
        Ok(())
    }

    /// Tells the session that waits how the errand stands, if it does not know.
    pub(super) fn report(self: &Rc<Self>, session: &Rc<Session>) {
        self.report_if(session, |told, report| {
            // That it is at work goes without saying, until something else may have been said.
            let goes_without = report.status == TurnStatus::Running && told.is_none();
            let epoch = session.state().turn.as_ref().map_or(1, |turn| turn.epoch);
            !(goes_without && epoch == 1) && told != Some(report)
        });
    }

    /// Reports in any case: whoever does not wait any more says so.
    pub(super) fn check_in(self: &Rc<Self>, session: &Rc<Session>) {
        self.report_if(session, |_, _| true);
    }

    fn report_if(
        self: &Rc<Self>,
        session: &Rc<Session>,
        is_news: impl FnOnce(Option<&Report>, &Report) -> bool,
    ) {
        if self.erasing.get() || session.state().meta.parent.is_none() || session.state().reported {
            return;
        }
        let report = match self.standing(session) {
            Ok(Some(report)) => report,
            Ok(None) => return,
            // What cannot be read now, a wake-up reads.
            Err(_) => return self.wake_soon(),
        };
        {
            let mut reporting = self.reporting.borrow_mut();
            if !is_news(reporting.told.as_ref(), &report) {
                return;
            }
            if reporting.told.as_ref() != Some(&report) {
                // If this machine goes away meanwhile, the next one tells it. It does not know what was told before:
                // of what waits for days it tells less and less often.
                let since = session.state().turn.as_ref().and_then(|turn| turn.waiting_since);
                let owed_ms = self.now().since(since.unwrap_or(self.now()));
                self.wake_after(owed_ms.clamp(WATCHDOG_MS, MAX_WAIT_MS));
            }
            if reporting.is_being_told {
                return;
            }
            reporting.is_being_told = true;
        }
        let (host, session) = (Rc::clone(self), Rc::clone(session));
        self.spawn(async move {
            match host.tell(&session, &report).await.transpose() {
                Some(told) => host.told_parent(&session, report, told),
                None => host.left_behind(&session).await,
            }
        });
    }

    /// Erases this session: the one that sent it out is erased, and this one came too late to be erased with it.
    async fn left_behind(self: &Rc<Self>, session: &Session) {
        let (tenant, id) = {
            let meta = &session.state().meta;
            (meta.tenant.clone(), meta.id.clone())
        };
        // If something is left, a wake-up tells of it, and so comes here again.
        let _ = self.erase(&tenant, &id).await;
        self.reporting.take();
    }

    async fn tell(&self, session: &Session, report: &Report) -> Result<Option<bool>, String> {
        let (tenant, parent) = {
            let meta = &session.state().meta;
            (
                meta.tenant.clone(),
                meta.parent.as_ref().map(|parent| parent.session.clone()).unwrap_or_default(),
            )
        };
        let json = encode(report).map_err(|error| error.to_string())?;
        let told = self.ports.peers.report(&tenant, &parent, json);
        let told = within(self.ports.clock.as_ref(), TELL_MS, told).await;
        told.unwrap_or_else(|unfinished| Err(unfinished.to_string()))
    }

    /// Notes whether a report was heard. What has happened meanwhile is told next.
    fn told_parent(self: &Rc<Self>, session: &Rc<Session>, report: Report, told: Result<bool, String>) {
        let told = if fault::active(Fault::LoseReport) { told.or(Ok(true)) } else { told };
        let failures = {
            let mut reporting = self.reporting.borrow_mut();
            reporting.is_being_told = false;
            reporting.failures = if told.is_ok() { 0 } else { reporting.failures + 1 };
            if told.is_ok() {
                reporting.told = Some(report.clone());
            }
            reporting.failures
        };
        let done = match told {
            Ok(false) => self.call_off(session),
            Ok(true) if report.is_last() => {
                session.commit(self.now(), |draft| draft.state.reported = true).map_err(Problem::from)
            }
            Ok(true) => {
                self.report(session);
                Ok(())
            }
            Err(_) => {
                self.wake_after((RETRY_MS << failures.min(20)).min(MAX_WAIT_MS));
                Ok(())
            }
        };
        if done.is_err() {
            self.wake_after(RETRY_MS);
        }
    }

    /// How the errand stands; `None` before it was begun.
    fn standing(&self, session: &Session) -> Result<Option<Report>, StoreError> {
        let state = session.state();
        let Some(parent) = state.meta.parent.clone() else { return Ok(None) };
        let mut report = Report {
            session: state.meta.id.clone(),
            call_id: parent.call_id,
            status: TurnStatus::Running,
            text: String::new(),
            error: None,
            pending: Vec::new(),
            usage: Usage::default(),
            cost_usd: None,
        };
        if let Some(turn) = state.turn.as_ref().filter(|turn| turn.id == parent.errand) {
            if turn.waits_for_people() {
                report.status = TurnStatus::Waiting;
                report.pending = session.pending()?;
            }
            return Ok(Some(report));
        }
        let Some(end) = session.turn_ended(&parent.errand)? else { return Ok(None) };
        report.status = end.status;
        report.text = end.reply.map(|reply| reply.text).unwrap_or_default();
        report.error = end.error.map(|error| error.message);
        report.usage = end.usage;
        report.cost_usd = end.cost_usd;
        Ok(Some(report))
    }
}
