//! Subagents that this session has sent out: each does its errand in a session of its own, under this one's rules,
//! while the call waits as for a person. Nothing here runs meanwhile, and nothing needs to live on: what waits has
//! its row, the other session its log, and whatever one tells the other can be told again.

use super::{
    RETRY_MS, SessionHost, Snapshot,
    parked::{Change, Resolved},
};
use crate::fault::{self, Fault};
use crate::ports::{StoreError, session_store::Select, within};
use crate::session::{Draft, Session, decode, encode, parked};
use crate::turn::policy;
use crate::types::{
    Budget, Errand, EventKind, Grants, Parent, Parked, Pending, PendingKind, Problem, Record, Report,
    Resolution, SessionMeta, Timestamp, TurnOptions, TurnStatus, Usage, id, json::from_value,
};
use futures::future::join_all;
use serde_json::json;
use std::{cell::Cell, rc::Rc, slice};

/// From so many failures on it is not waited longer between two attempts.
const MAX_FAILURES: u32 = 8;
/// For so long one that has not got its errand is sent out again, in milliseconds.
const GIVE_UP_MS: u64 = 300_000;
/// Longest that a word to another session takes, in milliseconds.
pub(super) const TELL_MS: u64 = 60_000;
/// How long an abort waits for what subagents have to say, in milliseconds.
const RECALL_MS: u64 = 700;
/// How often a subagent is called back that does not answer.
const MAX_RECALLS: u32 = 5;

/// What this machine knows of a subagent that is sent out.
#[derive(Default)]
pub(super) struct SentOut {
    /// The rules that it was to be told last.
    tried: String,
    is_being_told: bool,
    failures: u32,
    /// It is not told the same again before.
    not_before: Timestamp,
}

impl SessionHost {
    /// Sees to it that the subagents that calls wait for are at work, and know by which rules. Each machine tells
    /// everybody once, so that whoever had lost something has it again.
    pub fn send_out(self: &Rc<Self>, session: &Rc<Session>) {
        // What cannot be read now, a wake-up reads.
        let Ok(errands) = waiting(session) else { return self.wake_soon() };
        self.sent_out.borrow_mut().retain(|sent, _| errands.iter().any(|(_, own)| own.session == *sent));
        if errands.is_empty() || self.erasing.get() || self.recalling.get() {
            return;
        }
        let rules = {
            let state = session.state();
            policy::args_hash(&json!([state.meta.permissions, state.meta.mode, state.tenant_rules]))
        };
        for (row, errand) in &errands {
            let (now, knows) = (self.now(), row.told.as_ref() == Some(&rules));
            {
                let mut sent_out = self.sent_out.borrow_mut();
                let is_met = sent_out.contains_key(&errand.session);
                let known = sent_out.entry(errand.session.clone()).or_default();
                if !knows {
                    // If this machine goes away meanwhile, the next one tells it.
                    self.wake_soon();
                }
                let rests = known.tried == rules && known.not_before > now;
                if known.is_being_told || rests || (knows && is_met) {
                    continue;
                }
                known.tried.clone_from(&rules);
                known.is_being_told = true;
            }
            let (host, session, rules) = (Rc::clone(self), Rc::clone(session), rules.clone());
            let (row, errand, sent_out) = (row.clone(), errand.clone(), errands.len() as u64);
            self.spawn(async move {
                let told = host.tell_subagent(&session, &row, &errand, sent_out).await;
                host.told_subagent(&session, &row.pending, &errand, rules, told);
            });
        }
    }

    /// Tells a subagent its errand and the rules. A log goes along only before it has its errand. Returns whether it
    /// is there.
    async fn tell_subagent(
        &self,
        session: &Session,
        row: &Parked,
        errand: &Errand,
        sent_out: u64,
    ) -> Result<bool, String> {
        let tenant = session.state().meta.tenant.clone();
        let snapshot = self.snapshot(session, row, errand, sent_out).map_err(|error| error.to_string())?;
        let made = self.ports.peers.import(&tenant, &errand.session, snapshot);
        let made = within(self.ports.clock.as_ref(), TELL_MS, made).await;
        made.unwrap_or_else(|unfinished| Err(unfinished.to_string())).map(|made| !made.is_empty())
    }

    /// Notes whether a subagent knows its errand and its rules. They may have changed meanwhile.
    fn told_subagent(
        self: &Rc<Self>,
        session: &Rc<Session>,
        pending: &Pending,
        errand: &Errand,
        rules: String,
        told: Result<bool, String>,
    ) {
        if session.is_retired() {
            // Who was made for a session that is gone goes, too, when it reports.
            return;
        }
        let now = self.now();
        let failures = self.sent_out.borrow_mut().get_mut(&errand.session).map(|known| {
            known.is_being_told = false;
            known.failures = if told.is_ok() { 0 } else { (known.failures + 1).min(MAX_FAILURES) };
            known.not_before = now.plus(RETRY_MS << known.failures);
            known.failures
        });
        let Some(failures) = failures else {
            // Nobody waits for it any more. It may have been called back before it was there.
            return self.recall_later(session, slice::from_ref(pending));
        };
        let row = session.parked(PendingKind::Subagent, &pending.call_id).ok().flatten();
        let Some(row) = row.filter(|row| row.resolved.is_none()) else { return };
        let done = match told {
            Ok(true) => self.note_told(session, row, rules),
            Ok(false) => self.fail_errand(session, row, "its session is gone"),
            // Whoever is at work stays there, however long it is out of reach.
            Err(why) if row.told.is_none() && now.since(pending.asked_at) > GIVE_UP_MS => {
                self.recall_later(session, slice::from_ref(pending));
                self.fail_errand(session, row, &format!("it could not be sent out: {why}"))
            }
            Err(_) => {
                self.wake_after(RETRY_MS << failures);
                Ok(())
            }
        };
        if done.is_err() {
            self.wake_after(RETRY_MS);
        }
    }

    /// Stores that a subagent has its errand and knows these rules.
    fn note_told(self: &Rc<Self>, session: &Rc<Session>, row: Parked, rules: String) -> Result<(), Problem> {
        if row.told.as_ref() != Some(&rules) {
            let (key, json) = parked::row(&Parked { told: Some(rules), ..row })?;
            session.commit(self.now(), |draft| draft.put(key, json))?;
        }
        self.send_out(session);
        Ok(())
    }

    fn fail_errand(self: &Rc<Self>, session: &Rc<Session>, row: Parked, why: &str) -> Result<(), Problem> {
        let failed = Resolution::Failed { reason: format!("the subagent failed: {why}") };
        self.end_errand(session, row, failed, None).map(drop)
    }

    /// What a subagent is made from: this session's rules and mode, its errand, and its share of what the turn may
    /// still use; the whole log, where it begins as a copy.
    fn snapshot(
        &self,
        session: &Session,
        row: &Parked,
        errand: &Errand,
        sent_out: u64,
    ) -> Result<String, StoreError> {
        let records: Option<Vec<Record>> = match (row.told.is_some(), errand.forked) {
            (true, _) => None,
            (false, true) => Some(session.records(Select { limit: usize::MAX, ..Select::default() })?),
            (false, false) => Some(Vec::new()),
        };
        let state = session.state();
        // It may have ended since this was asked for.
        let own = state.turn.as_ref().filter(|turn| turn.id == row.pending.turn);
        let Some(turn) = own else { return Err(StoreError("the turn is over".into())) };
        let mut kinds = self.agent.settings.subagents.iter().flatten();
        let kind = kinds.find(|kind| !errand.forked && kind.id == errand.agent).cloned().unwrap_or_default();
        // A copy has the tools of the original, so that the prompt begins alike. What is not for it, it is told.
        let tools = match errand.forked {
            true => turn.options.tools.clone(),
            false => Some(self.agent.tools_of_subagents(&state, kind.tools.as_deref())),
        };
        let left = |max: f64| (max - turn.cost_usd.unwrap_or(0.0)).max(0.0) / sent_out as f64;
        let budget = Budget {
            max_steps: kind.max_steps.unwrap_or(turn.budget.max_steps),
            max_tokens: turn
                .budget
                .max_tokens
                .map(|max| max.saturating_sub(turn.usage.total_tokens) / sent_out),
            max_cost_usd: turn.budget.max_cost_usd.map(left),
            ..turn.budget
        };
        // A bound in money is none for a model without a price.
        let is_bounded =
            |model: &String| budget.max_cost_usd.is_none() || self.agent.models.price(model).is_some();
        let now = self.now();
        let meta = SessionMeta {
            id: errand.session.clone(),
            title: None,
            title_pinned: false,
            model: kind.model.filter(|model| is_bounded(model)).or_else(|| state.meta.model.clone()),
            metadata: Default::default(),
            budget,
            usage: Usage::default(),
            cost_usd: None,
            turns: 0,
            parent: Some(Parent {
                session: state.meta.id.clone(),
                turn: turn.id.clone(),
                call_id: row.pending.call_id.clone(),
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
        let report: Report = decode(report)?;
        let Some(session) = self.open()? else { return Ok(None) };
        let row = session.parked(PendingKind::Subagent, &report.call_id)?;
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
        let told = ended(&row.pending, status, report.as_ref());
        let charge = report.map(|report| (report.usage, report.cost_usd));
        let parked = Parked { resolved: Some(resolution), ..row };
        self.resolve(session, vec![Resolved { parked, told, charge }], Grants::default(), "subagent")
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
        let mut all = session.pending()?;
        for own in all.iter_mut().filter(|own| own.call_id == row.pending.call_id) {
            *own = row.pending.clone();
        }
        let (key, json) = parked::row(&row)?;
        let note = |draft: &mut Draft| {
            draft.put(key, json);
            let Some(turn) = &mut draft.state.turn else { return };
            turn.delegated = all.iter().all(Pending::is_delegated);
            if !turn.delegated {
                all.retain(|pending| !pending.is_delegated());
                draft.record(Some(&row.pending.turn), EventKind::TurnWaiting { pending: all });
            }
        };
        session.commit(self.now(), note).map_err(Problem::from)
    }

    /// Calls the subagents of the turn at hand back, and returns what they have to say for as long as an abort may
    /// wait for it.
    pub async fn recall(&self, session: &Session) -> Vec<Report> {
        let errands = waiting(session).unwrap_or_default();
        // If the turn goes on after all, they are sent out again, and report.
        if !errands.is_empty() {
            self.wake_soon();
        }
        self.sent_out.borrow_mut().retain(|sent, _| errands.iter().all(|(_, own)| own.session != *sent));
        let _recalling = Recalling::new(&self.recalling);
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
            self.sent_out.borrow_mut().remove(&errand.session);
            let (host, tenant) = (Rc::clone(self), tenant.clone());
            self.spawn(async move {
                for tries in 0..MAX_RECALLS {
                    if host.ports.peers.recall(&tenant, &errand.session).await.is_ok() {
                        break;
                    }
                    host.ports.clock.sleep(RETRY_MS << tries).await;
                }
            });
        }
    }
}

/// Says for as long as it lives that subagents are called back.
struct Recalling<'a>(&'a Cell<bool>);

impl<'a> Recalling<'a> {
    fn new(cell: &'a Cell<bool>) -> Self {
        cell.set(true);
        Self(cell)
    }
}

impl Drop for Recalling<'_> {
    fn drop(&mut self) {
        self.0.set(false);
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
pub(super) fn ended(pending: &Pending, status: TurnStatus, report: Option<&Report>) -> EventKind {
    let Errand { session, agent, .. } = Errand::of(pending).unwrap_or_default();
    let (usage, cost_usd) = report.map_or_else(Default::default, |report| (report.usage, report.cost_usd));
    EventKind::SubagentCompleted { call_id: pending.call_id.clone(), session, agent, status, usage, cost_usd }
}

/// The calls that wait for subagents, and their errands.
fn waiting(session: &Session) -> Result<Vec<(Parked, Errand)>, StoreError> {
    let mut rows = Vec::new();
    for pending in session.pending()? {
        let Some(errand) = Errand::of(&pending) else { continue };
        rows.extend(session.parked(pending.kind, &pending.call_id)?.map(|row| (row, errand)));
    }
    Ok(rows)
}
