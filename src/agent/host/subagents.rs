//! Subagents that this session has sent out: each does its errand in a session of its own, under this one's rules,
//! while the call waits as for a person. Nothing here runs meanwhile, and nothing needs to live on: what waits has
//! its row, the other session its log, and whatever one tells the other can be told again.

use super::{
    RETRY_MS, SessionHost, Snapshot, broken,
    parked::{Change, Resolved},
};
use crate::fault::{self, Fault};
use crate::ports::{StoreError, session_store::Select, within};
use crate::session::{Session, decode, encode, parked};
use crate::types::{
    Budget, Errand, EventKind, Parent, Parked, Pending, PendingKind, Problem, Record, Report, Resolution,
    SessionMeta, Timestamp, TurnOptions, TurnStatus, Usage, id, json::from_value,
};
use futures::future::join_all;
use serde_json::json;
use std::rc::Rc;

/// Failures to send one out before its call fails.
const MAX_FAILURES: u32 = 8;
/// How long an abort waits for what subagents have to say, in milliseconds.
const RECALL_MS: u64 = 700;

/// What is known of a subagent that is sent out.
#[derive(Default)]
pub(super) struct SentOut {
    /// The rules that it was told.
    rules: String,
    is_being_told: bool,
    failures: u32,
    /// It is not tried again before, whoever looks.
    not_before: Timestamp,
}

impl SessionHost {
    /// Sees to it that the subagents that calls wait for are at work, and know by which rules.
    pub fn send_out(self: &Rc<Self>, session: &Rc<Session>) {
        // What cannot be read now, a wake-up reads.
        let errands = waiting(session).unwrap_or_default();
        self.sent_out
            .borrow_mut()
            .retain(|call_id, _| errands.iter().any(|(own, _)| own.call_id == *call_id));
        let rules = {
            let state = session.state();
            json!([state.meta.permissions, state.meta.mode, state.tenant_rules]).to_string()
        };
        for (pending, errand) in &errands {
            {
                let mut sent_out = self.sent_out.borrow_mut();
                let known = sent_out.entry(pending.call_id.clone()).or_default();
                if known.is_being_told || known.rules == rules {
                    continue;
                }
                if self.now() < known.not_before {
                    self.wake_after(known.not_before.since(self.now()));
                    continue;
                }
                known.is_being_told = true;
            }
            // If this does not live to its end, a wake-up goes on.
            self.wake_soon();
            let snapshot = self.snapshot(session, pending, errand, errands.len() as u64);
            let (host, session, rules) = (Rc::clone(self), Rc::clone(session), rules.clone());
            let (call_id, to) = (pending.call_id.clone(), errand.session.clone());
            self.spawn(async move {
                let tenant = session.state().meta.tenant.clone();
                let told = match snapshot {
                    Ok(snapshot) => host.ports.peers.import(&tenant, &to, snapshot).await.map(drop),
                    Err(error) => Err(error.to_string()),
                };
                let row = session.parked(PendingKind::Subagent, &call_id).ok().flatten();
                let waits = |row: &Parked| row.resolved.is_none() && session.is_at_hand(&row.pending.turn);
                if told.is_ok() && row.is_some_and(|row| !waits(&row)) {
                    // It was called back before it was there.
                    let _ = host.ports.peers.recall(&tenant, &to).await;
                }
                host.told_subagent(&session, &call_id, rules, told);
            });
        }
    }

    /// Notes whether a subagent knows its errand and its rules. They may have changed meanwhile.
    fn told_subagent(
        self: &Rc<Self>,
        session: &Rc<Session>,
        call_id: &str,
        rules: String,
        told: Result<(), String>,
    ) {
        let failures = {
            let mut sent_out = self.sent_out.borrow_mut();
            let Some(known) = sent_out.get_mut(call_id) else { return };
            known.is_being_told = false;
            match &told {
                Ok(()) => *known = SentOut { rules, ..SentOut::default() },
                Err(_) => {
                    known.failures += 1;
                    known.not_before = self.now().plus(RETRY_MS << known.failures.min(MAX_FAILURES));
                }
            }
            known.failures
        };
        match told {
            Ok(()) => self.send_out(session),
            Err(_) if failures < MAX_FAILURES => self.send_out(session),
            Err(why) => {
                let reason = format!("the subagent could not be sent out: {why}");
                let row = session.parked(PendingKind::Subagent, call_id).ok().flatten();
                let open = row.filter(|row| row.resolved.is_none());
                // What cannot be stored now is tried again with the errand.
                let failed =
                    open.map(|row| self.end_errand(session, row, Resolution::Failed { reason }, None));
                if failed.is_some_and(|failed| failed.is_err()) {
                    self.wake_after(RETRY_MS);
                }
            }
        }
    }

    /// What a subagent is made from: this session's rules and mode, its errand, and its share of what the turn may
    /// still use; the whole log, where it begins as a copy.
    fn snapshot(
        &self,
        session: &Session,
        pending: &Pending,
        errand: &Errand,
        sent_out: u64,
    ) -> Result<String, StoreError> {
        let records: Vec<Record> = match errand.forked {
            true => session.records(Select { limit: usize::MAX, ..Select::default() })?,
            false => Vec::new(),
        };
        let state = session.state();
        let Some(turn) = &state.turn else { return Err(StoreError("the turn is over".into())) };
        let mut kinds = self.agent.settings.subagents.iter().flatten();
        let kind = kinds.find(|kind| !errand.forked && kind.id == errand.agent).cloned().unwrap_or_default();
        // A copy has the tools of the original, so that the prompt begins alike. What is not for it, it is told.
        let tools = match errand.forked {
            true => turn.options.tools.clone(),
            false => Some(self.agent.tools_of_subagents(&state, kind.tools.as_deref())),
        };
        let budget = Budget {
            max_steps: kind.max_steps.unwrap_or(turn.budget.max_steps),
            max_tokens: turn
                .budget
                .max_tokens
                .map(|max| max.saturating_sub(turn.usage.total_tokens) / sent_out),
            max_cost_usd: turn
                .budget
                .max_cost_usd
                .map(|max| (max - turn.cost_usd.unwrap_or(0.0)).max(0.0) / sent_out as f64),
            ..turn.budget
        };
        let now = self.now();
        let meta = SessionMeta {
            id: errand.session.clone(),
            title: None,
            title_pinned: false,
            model: kind.model.or_else(|| state.meta.model.clone()),
            metadata: Default::default(),
            budget,
            usage: Usage::default(),
            cost_usd: None,
            turns: 0,
            parent: Some(Parent {
                session: state.meta.id.clone(),
                turn: turn.id.clone(),
                call_id: pending.call_id.clone(),
                agent: errand.agent.clone(),
                forked: errand.forked,
                errand: errand.session.replacen(id::SESSION, id::TURN, 1),
            }),
            created_at: now,
            updated_at: now,
            permissions: match fault::active(Fault::FreeSubagents) {
                true => Default::default(),
                false => state.meta.permissions.clone(),
            },
            ..state.meta.clone()
        };
        let options =
            TurnOptions { tools, think: turn.options.think, show_citations: false, output_schema: None };
        encode(&Snapshot {
            meta,
            forked_from: errand.forked.then(|| state.meta.id.clone()),
            tenant_rules: state.tenant_rules.clone(),
            records,
            task: Some((errand.task.clone(), options)),
        })
    }

    /// Hears how an errand stands. Returns whether anybody waits for it still; `None` when there is no session here.
    ///
    /// # Errors
    /// When it cannot be read or stored: it is to be told again then.
    pub fn hear(self: &Rc<Self>, report: &str) -> Result<Option<bool>, Problem> {
        let report: Report = decode(report).map_err(broken)?;
        let Some(session) = self.open().map_err(broken)? else { return Ok(None) };
        let row = session.parked(PendingKind::Subagent, &report.call_id).map_err(broken)?;
        let is_its = |row: &Parked| {
            let errand = Errand::of(&row.pending).is_some_and(|errand| errand.session == report.session);
            errand && row.resolved.is_none() && session.is_at_hand(&row.pending.turn)
        };
        let Some(row) = row.filter(is_its) else { return Ok(Some(false)) };
        if report.is_last() {
            let answered = Resolution::Answered { answer: json!(report) };
            self.end_errand(&session, row, answered, Some(report))?;
        } else {
            self.note_pending(&session, row, &report.pending)?;
        }
        Ok(Some(true))
    }

    /// Stores what came of an errand; when nothing else waits the turn goes on.
    fn end_errand(
        self: &Rc<Self>,
        session: &Rc<Session>,
        row: Parked,
        resolution: Resolution,
        report: Option<Report>,
    ) -> Result<Change, Problem> {
        let status = report.as_ref().map_or(TurnStatus::Failed, |report| report.status);
        let told = over(&row.pending, status, report.as_ref());
        let charge = report.map(|report| (report.usage, report.cost_usd));
        let parked = Parked { resolved: Some(resolution), ..row };
        self.resolve(session, vec![Resolved { parked, told, charge }], None, "subagent")
    }

    /// Notes which calls of a subagent wait for a person. Where there are any the turn waits for that person, too.
    fn note_pending(&self, session: &Rc<Session>, row: Parked, theirs: &[Pending]) -> Result<(), Problem> {
        let mut row = row;
        let before = row.pending.payload.clone();
        if let Some(payload) = row.pending.payload.as_object_mut() {
            payload.remove("pending");
            if !theirs.is_empty() {
                payload.insert("pending".into(), json!(theirs));
            }
        }
        if row.pending.payload == before {
            return Ok(());
        }
        let mut all = session.pending().map_err(broken)?;
        for own in all.iter_mut().filter(|own| own.call_id == row.pending.call_id) {
            *own = row.pending.clone();
        }
        let (key, json) = parked::row(&row).map_err(broken)?;
        let note = |draft: &mut crate::session::Draft| {
            draft.put(key, json);
            if let Some(turn) = &mut draft.state.turn {
                turn.delegated = all.iter().all(Pending::is_delegated);
            }
            if !theirs.is_empty() {
                draft.record(Some(&row.pending.turn), EventKind::TurnWaiting { pending: all });
            }
        };
        session.commit(self.now(), note).map_err(broken)
    }

    /// Calls the subagents of the turn at hand back, and returns what they have to say for as long as an abort may
    /// wait for it.
    pub async fn recall(&self, session: &Session) -> Vec<Report> {
        let errands = waiting(session).unwrap_or_default();
        if !errands.is_empty() {
            // They have said their last word then. If the turn does not end, they are asked for it again.
            self.sent_out.borrow_mut().clear();
            self.wake_soon();
        }
        let recalls = errands.iter().map(|(_, errand)| async {
            let tenant = session.state().meta.tenant.clone();
            let recalled = self.ports.peers.recall(&tenant, &errand.session);
            let report = within(self.ports.clock.as_ref(), RECALL_MS, recalled).await.ok()?.ok()?;
            decode::<Report>(&report).ok()
        });
        join_all(recalls).await.into_iter().flatten().collect()
    }

    /// Calls back, in the background, those for which nobody waits any more. One that does not hear of it is told so
    /// when it reports.
    pub(super) fn recall_later(self: &Rc<Self>, session: &Session, of: &[Pending]) {
        let tenant = session.state().meta.tenant.clone();
        for errand in of.iter().filter_map(Errand::of) {
            let (host, tenant) = (Rc::clone(self), tenant.clone());
            self.spawn(async move {
                let _ = host.ports.peers.recall(&tenant, &errand.session).await;
            });
        }
    }
}

/// What subagents have said to calls of the step at hand that wait for other calls still, or were about to run.
pub(super) fn heard(session: &Session) -> Vec<Report> {
    let of = |(call_id, _): (String, _)| {
        let row = session.parked(PendingKind::Subagent, &call_id).ok()??;
        let is_its = Errand::of(&row.pending).is_some() && session.is_at_hand(&row.pending.turn);
        match row.resolved {
            Some(Resolution::Answered { answer }) if is_its => from_value(answer).ok(),
            _ => None,
        }
    };
    session.open_calls().into_iter().filter_map(of).collect()
}

/// The record of an errand's end.
pub(super) fn over(pending: &Pending, status: TurnStatus, report: Option<&Report>) -> EventKind {
    let Errand { session, agent, .. } = Errand::of(pending).unwrap_or_default();
    let (usage, cost_usd) = report.map_or_else(Default::default, |report| (report.usage, report.cost_usd));
    EventKind::SubagentCompleted { call_id: pending.call_id.clone(), session, agent, status, usage, cost_usd }
}

/// The calls that wait for subagents, and their errands.
fn waiting(session: &Session) -> Result<Vec<(Pending, Errand)>, StoreError> {
    let pending = session.pending()?.into_iter();
    Ok(pending.filter_map(|pending| Errand::of(&pending).map(|errand| (pending, errand))).collect())
}
