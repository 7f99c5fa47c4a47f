//! The errand of a subagent, in its own session: taken up, done under the rules of the session that sent it out, and
//! reported there until that is heard.

use super::{OnBusy, Post, RETRY_MS, SessionHost, Snapshot, broken};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::session::{Session, encode};
use crate::types::{
    BudgetPatch, ErrorCode, Part, Problem, Report, SessionPermissions, TurnOptions, TurnStatus, Usage,
};
use std::rc::Rc;

/// Longest wait after a report that was not heard, in milliseconds.
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
        let is_same = session.state().meta.parent == meta.parent;
        if !is_same {
            return Err(Problem::new(ErrorCode::AlreadyExists, "another session has the subagent's place"));
        }
        let mut permissions: SessionPermissions = meta.permissions;
        permissions.grants.join(&session.state().meta.permissions.grants);
        let follow = |draft: &mut crate::session::Draft| {
            draft.state.tenant_rules = tenant_rules;
            draft.state.meta.permissions = permissions;
            draft.state.meta.mode = meta.mode;
            // Whoever sends it again waits for it.
            draft.state.reported = false;
        };
        self.reporting.borrow_mut().told = None;
        // Not beside a message that is being streamed: rules hold at once.
        session.commit_from_outside(self.now(), follow).map_err(Problem::from)
    }

    /// Begins with the errand, if it was not begun before.
    pub(super) fn take_up(
        self: &Rc<Self>,
        session: &Rc<Session>,
        task: String,
        options: TurnOptions,
    ) -> Result<(), Problem> {
        let Some(parent) = session.state().meta.parent.clone() else { return Ok(()) };
        if session.turn(&parent.errand).map_err(broken)?.is_some() && !fault::active(Fault::RepeatErrand) {
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

    /// Ends the errand, and says how far it had come. `None` when this is no subagent's session.
    ///
    /// # Errors
    /// When a store breaks.
    pub fn recalled(self: &Rc<Self>) -> Result<Option<String>, Problem> {
        let Some(session) = self.open().map_err(broken)? else { return Ok(None) };
        if session.state().meta.parent.is_none() {
            return Ok(None);
        }
        // This is the report: nobody waits for another one.
        session.commit(self.now(), |draft| draft.state.reported = true).map_err(broken)?;
        if !fault::active(Fault::ForgetRecall) {
            self.abort(&session, Vec::new())?;
        }
        let standing = self.standing(&session).map_err(broken)?;
        standing.map(|report| encode(&report).map_err(broken)).transpose()
    }

    /// Tells the session that waits how the errand stands, if it does not know.
    pub(super) fn report(self: &Rc<Self>, session: &Rc<Session>) {
        if session.state().meta.parent.is_none() || session.state().reported {
            return;
        }
        // What cannot be read now, a wake-up reads.
        let Ok(Some(report)) = self.standing(session) else { return };
        {
            let mut reporting = self.reporting.borrow_mut();
            // That it is at work goes without saying, until something else was said.
            let goes_without = report.status == TurnStatus::Running && reporting.told.is_none();
            if reporting.is_being_told || goes_without || reporting.told.as_ref() == Some(&report) {
                return;
            }
            reporting.is_being_told = true;
        }
        // If this does not live to its end, a wake-up goes on.
        self.wake_soon();
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
            (meta.tenant.clone(), meta.parent.as_ref().map(|parent| parent.session.clone()))
        };
        let json = encode(report).map_err(|error| error.to_string())?;
        self.ports.peers.report(&tenant, &parent.unwrap_or_default(), json).await
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
            Ok(is_wanted) if report.is_last() || !is_wanted => {
                let reported = session.commit(self.now(), |draft| draft.state.reported = true);
                // Nobody waits for what it would still do.
                reported.map_err(broken).and_then(|()| self.abort(session, Vec::new()).map(drop))
            }
            Ok(_) => {
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
