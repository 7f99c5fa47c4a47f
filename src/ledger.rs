//! The ledger of one tenant, without I/O besides its store: counts usage, and decides whether a turn may start.
//!
//! The ledger is one object per tenant, because only one place can count what all sessions and isolates of a tenant do.
//! A session asks it once before a turn starts or continues after a person has decided, and only if the tenant has limits. Usage arrives later, in reports: the
//! log of a session is their source, and the ledger stores up to which record it has counted each log. So it counts each
//! record once, however often a report is sent.
//!
//! A running session holds a *slot*. A slot ends when the session reports that it no longer runs, or with its lease,
//! which a running session renews. A lost session therefore blocks no other for longer than a lease.
//!
//! A slot also holds money, as a payment card does: what the session's turns may still cost, which is the sum of their cost
//! ceilings without the usage that the session has reported. As long as each turn has a ceiling, the tenant's limit is
//! exceeded by one turn at most.

mod documents;
mod key;
#[cfg(test)]
mod tests;

use crate::ports::{SessionStore, StoreError, session_store::Batch};
use crate::types::{
    Admission, Admitted, Day, NanoUsd, Reached, Receipt, Report, RequestBlock, SessionId, SlotUse, Standing,
    TimedLimit, Timestamp, UsageKey, UsagePage, UsageRow, UsageTotals, quota::SLOT_RETRY,
};
use documents::{Documents, decode};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};

/// How long a slot lasts whose turn has been admitted. A turn that has started renews it.
pub const ADMISSION_LEASE: Duration = Duration::from_mins(1);
/// How long a slot lasts after a report of a running session.
pub const SLOT_LEASE: Duration = Duration::from_mins(5);
/// How many days usage is kept.
pub const RETENTION_DAYS: u64 = 400;
/// Maximum number of rows of usage that are read at once: about 500 kB.
const USAGE_PAGE: usize = 2_000;
/// How many days the ledger keeps what it knows about an erased session, because a report may arrive late.
const ERASED_DAYS: u64 = 1;
/// The time of creation of a session that is not stored yet.
const UNSTORED: Timestamp = Timestamp(0);
/// The unit of the limit of requests.
const MINUTE: Duration = Duration::from_mins(1);

/// The version of the documents, and the newest that this program reads. Without a document of this version, it is 1: the
/// first change of a shape that an older Worker would misread has to raise it and write the document.
const SCHEMA: u32 = 1;

/// What the ledger knows of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    /// When the session was created; the epoch until its first report.
    created_at: Timestamp,
    /// Sequence number of the last record that was counted.
    reported: u64,
    /// When the newest standing was sent.
    sent_at: Timestamp,
    /// Whether the session has sent its last report. It takes no slot any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_erased: bool,
}

/// The slot of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Slot {
    until: Timestamp,
    open_turns: u32,
    /// The cost that the session's turns may have. Absent in slots that an older Worker has stored.
    #[serde(default, skip_serializing_if = "NanoUsd::is_zero")]
    hold: NanoUsd,
}

/// The sums of a day, against which limits are checked.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct DayTotals {
    /// Turns that started, some of which may still run or wait.
    started: u64,
    #[serde(flatten)]
    totals: UsageTotals,
}

type Slots = BTreeMap<SessionId, Slot>;

/// The requests of a minute.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Requests {
    ends_at: Timestamp,
    taken: u32,
}

/// The ledger of one tenant. Its state is in the documents of its store, which no session shares.
pub struct TenantLedger {
    store: Rc<dyn SessionStore>,
}

impl TenantLedger {
    /// Opens the ledger in a store.
    ///
    /// # Errors
    /// If a newer version has written the ledger, or the store fails.
    pub fn open(store: Rc<dyn SessionStore>) -> Result<Self, StoreError> {
        let ledger = Self { store };
        let stored = ledger.document::<u32>(key::SCHEMA)?.unwrap_or(1);
        if stored > SCHEMA {
            let why = format!("a newer version has written the ledger: {stored} instead of {SCHEMA}");
            return Err(StoreError(why));
        }
        Ok(ledger)
    }

    /// Decides whether a session may start one more turn, or continue one that waits.
    ///
    /// # Errors
    /// If the store fails, or the session has sent a newer standing or its last report.
    pub fn admit(&self, admission: &Admission, now: Timestamp) -> Result<Admitted, StoreError> {
        let Admission { session, created_at, standing, started, quota, continues, .. } = admission;
        let today = Day::of(now);
        let stored = self.documents(vec![key::SLOTS.into(), key::account(session), key::day(today)])?;
        let (mut slots, mut account) = (stored.slots(now)?, stored.account(session)?);
        if standing.sent_at < account.sent_at {
            return Err(StoreError("the request to start a turn arrived late".into()));
        }
        // A new session is not stored yet, and may have the id of an erased one.
        if account.is_erased && *created_at != UNSTORED && *created_at <= account.created_at {
            return Err(StoreError("the session was erased".into()));
        }
        let own = slots.remove(session);
        let is_running = |limit: &u32| u32::try_from(slots.len()).is_ok_and(|running| running < *limit);
        if own.is_none() && !quota.concurrent_turns.as_ref().is_none_or(is_running) {
            let limit = TimedLimit::ConcurrentTurns;
            return Ok(Admitted::Refused(Reached { limit, resets_at: now + SLOT_RETRY, held: true }));
        }
        // Nothing of a session is counted that has the id of an erased one.
        let counted = if *created_at > account.created_at { 0 } else { account.reported };
        let uncounted = started.iter().filter(|seq| **seq > counted).count();
        let open_turns = standing.open_turns.saturating_add(u32::try_from(uncounted).unwrap_or(u32::MAX));
        let DayTotals { started, totals: spent } = stored.get(&key::day(today))?.unwrap_or_default();
        let open = slots.values().map(|slot| slot.open_turns).chain([open_turns]);
        let turns = started + open.map(u64::from).sum::<u64>();
        let reached = if !continues && quota.turns_per_day.is_some_and(|limit| turns > limit.into()) {
            Some(TimedLimit::TurnsPerDay)
        } else if !continues && quota.tokens_per_day.is_some_and(|limit| spent.tokens.total_tokens >= limit) {
            Some(TimedLimit::TokensPerDay)
        } else if quota.cost_usd_per_day.is_some_and(|limit| spent.cost.usd() >= limit) {
            Some(TimedLimit::CostUsdPerDay)
        } else {
            None
        };
        if let Some(limit) = reached {
            return Ok(Admitted::Refused(Reached { limit, resets_at: today.next().start(), held: false }));
        }
        if quota.cost_usd_per_day.is_some_and(|limit| exceeds(limit, spent.cost, &slots, admission)) {
            let limit = TimedLimit::CostUsdPerDay;
            return Ok(Admitted::Refused(Reached { limit, resets_at: now + SLOT_RETRY, held: true }));
        }
        // A slot that the session already holds may last longer.
        let until = own.map_or(Timestamp(0), |own| own.until).max(now + ADMISSION_LEASE);
        if quota.needs_slots() {
            slots.insert(session.clone(), Slot { until, open_turns, hold: standing.hold });
            account.sent_at = standing.sent_at;
            let put = vec![put(key::SLOTS, &slots)?, put(&key::account(session), &account)?];
            self.store.commit(Batch { put, ..Batch::default() })?;
        }
        Ok(Admitted::Until(until))
    }

    /// Counts a report, unless it does not start where the last one ended, and applies the session's standing.
    ///
    /// # Errors
    /// If the store fails. Nothing has changed then.
    pub fn report(&self, report: &Report, now: Timestamp) -> Result<Receipt, StoreError> {
        let Report { session, created_at, from, to, rows, started, standing, is_last } = report;
        let stored = self.documents(vec![key::SLOTS.into(), key::account(session)])?;
        let mut account = stored.account(session)?;
        if *created_at < account.created_at {
            // A session that could not be stored gives back its slot. It has the id of one that was erased.
            if *created_at == UNSTORED && account.is_erased {
                return self.release(report, account, stored.slots(now)?, now);
            }
            // A late message of a session that was erased, whose id another session has.
            return Ok(Receipt { reported: *to, slot_until: None });
        }
        if *created_at > account.created_at {
            account = Account { created_at: *created_at, reported: *from, is_erased: false, ..account };
        }
        let mut changes = Batch::default();
        if account.reported == *from {
            account.reported = *to;
            self.count(rows, started, now, &mut changes)?;
        }
        let slots = stored.slots(now)?;
        account.is_erased |= is_last;
        let is_last = account.is_erased;
        let changed = with_standing(slots.clone(), session, &mut account, standing, is_last, now);
        if changed != slots {
            changes.put.push(put(key::SLOTS, &changed)?);
        }
        changes.put.push(put(&key::account(session), &account)?);
        if is_last {
            self.erase_later(session, now, &mut changes)?;
        }
        self.store.commit(changes)?;
        let slot_until = changed.get(session).map(|slot| slot.until);
        Ok(Receipt { reported: account.reported, slot_until })
    }

    /// Applies the standing of a session that was never stored.
    fn release(
        &self,
        Report { session, to, standing, .. }: &Report,
        mut account: Account,
        slots: Slots,
        now: Timestamp,
    ) -> Result<Receipt, StoreError> {
        let slots = with_standing(slots, session, &mut account, standing, false, now);
        let put = vec![put(key::SLOTS, &slots)?, put(&key::account(session), &account)?];
        self.store.commit(Batch { put, ..Batch::default() })?;
        Ok(Receipt { reported: *to, slot_until: slots.get(session).map(|slot| slot.until) })
    }

    /// Counts usage that no session reports.
    ///
    /// # Errors
    /// If the store fails. Nothing was counted then.
    pub fn charge(&self, rows: &[UsageRow], now: Timestamp) -> Result<(), StoreError> {
        let mut changes = Batch::default();
        self.count(rows, &BTreeMap::new(), now, &mut changes)?;
        self.store.commit(changes)
    }

    /// Takes up to `wanted` requests of the current minute, of which there are `limit`.
    ///
    /// # Errors
    /// If the store fails.
    pub fn take_requests(&self, wanted: u32, limit: u32, now: Timestamp) -> Result<RequestBlock, StoreError> {
        let minute = crate::types::time::millis(MINUTE);
        let ends_at = Timestamp((now.0 / minute).saturating_add(1).saturating_mul(minute));
        let stored: Option<Requests> = self.document(key::REQUESTS)?;
        let taken = stored.filter(|own| own.ends_at == ends_at).map_or(0, |own| own.taken);
        let granted = wanted.min(limit.saturating_sub(taken));
        if granted > 0 {
            let requests = Requests { ends_at, taken: taken.saturating_add(granted) };
            let put = vec![put(key::REQUESTS, &requests)?];
            self.store.commit(Batch { put, ..Batch::default() })?;
        }
        Ok(RequestBlock { granted, ends_at })
    }

    /// Returns a page of the usage of the days `from` to `to`, both included: the rows that follow `after`.
    ///
    /// # Errors
    /// If the store fails.
    pub fn usage(&self, from: Day, to: Day, after: Option<&str>) -> Result<UsagePage, StoreError> {
        if !self.store.exists()? {
            return Ok(UsagePage::default());
        }
        let first = key::rows(from.max(to.earlier(RETENTION_DAYS)));
        // The first key after the one of the last page.
        let first = after.map(|after| format!("{after}\0")).filter(|next| *next > first).unwrap_or(first);
        let mut keys = self.store.keys(&first, &key::rows(to.next()), USAGE_PAGE + 1)?;
        let has_more = keys.len() > USAGE_PAGE;
        keys.truncate(USAGE_PAGE);
        let mut page = UsagePage { rows: Vec::new(), next: keys.last().filter(|_| has_more).cloned() };
        for key in keys {
            if let Some(json) = self.store.get(&key)? {
                page.rows.push(decode(&json)?);
            }
        }
        Ok(page)
    }

    /// Returns how many sessions hold a slot that lasts longer than until `at`.
    ///
    /// # Errors
    /// If the store fails.
    pub fn slots_held(&self, at: Timestamp) -> Result<usize, StoreError> {
        Ok(self.documents(vec![key::SLOTS.into()])?.slots(at)?.len())
    }

    /// Erases the ledger.
    ///
    /// # Errors
    /// If the store fails.
    pub fn erase(&self) -> Result<(), StoreError> {
        self.store.erase()
    }

    /// Adds rows to the stored ones and to the totals of their days.
    fn count(
        &self,
        rows: &[UsageRow],
        started: &BTreeMap<Day, u64>,
        now: Timestamp,
        changes: &mut Batch,
    ) -> Result<(), StoreError> {
        let mut sums: BTreeMap<&UsageKey, UsageTotals> = BTreeMap::new();
        let mut days: BTreeMap<Day, DayTotals> = BTreeMap::new();
        for UsageRow { key, totals } in rows {
            *sums.entry(key).or_default() += *totals;
            days.entry(key.day).or_default().totals += *totals;
        }
        for (day, turns) in started {
            days.entry(*day).or_default().started += turns;
        }
        let rows = sums.keys().map(|key| key::row(key));
        let stored = self.documents(rows.chain(days.keys().copied().map(key::day)).collect())?;
        for (key, added) in sums {
            let row = stored.get::<UsageRow>(&key::row(key))?;
            let mut totals = row.map(|row| row.totals).unwrap_or_default();
            totals += added;
            changes.put.push(put(&key::row(key), &UsageRow { key: key.clone(), totals })?);
        }
        for (day, added) in days {
            let sums: Option<DayTotals> = stored.get(&key::day(day))?;
            if sums.is_none() {
                self.drop_old_days(Day::of(now), changes)?;
            }
            let mut sums = sums.unwrap_or_default();
            sums.started += added.started;
            sums.totals += added.totals;
            changes.put.push(put(&key::day(day), &sums)?);
        }
        Ok(())
    }

    /// Deletes the usage of days that are no longer kept.
    fn drop_old_days(&self, today: Day, changes: &mut Batch) -> Result<(), StoreError> {
        if !self.store.exists()? {
            return Ok(());
        }
        for (name, _) in self.store.list(key::DAYS)? {
            let day = name.strip_prefix(key::DAYS).and_then(Day::parse);
            let Some(day) = day.filter(|day| today.since(*day) > RETENTION_DAYS) else { continue };
            let rows = self.store.list(&key::rows(day))?;
            changes.delete.extend(rows.into_iter().map(|(row, _)| row).chain([name]));
        }
        Ok(())
    }

    /// Adds an erased session to those of today, and deletes what is stored of those of earlier days.
    fn erase_later(
        &self,
        session: &SessionId,
        now: Timestamp,
        changes: &mut Batch,
    ) -> Result<(), StoreError> {
        let today = Day::of(now);
        changes.put.push(put(&key::erased_session(today, session), &true)?);
        let first = key::erased(today);
        if self.document::<IgnoredAny>(&first)?.is_some() {
            return Ok(());
        }
        // The first one of the day, so that those of earlier days are read once.
        changes.put.push(put(&first, &Vec::<SessionId>::new())?);
        if !self.store.exists()? {
            return Ok(());
        }
        for (name, json) in self.store.list(key::ERASED)? {
            let day = name.strip_prefix(key::ERASED).and_then(Day::parse);
            let Some(day) = day.filter(|day| today.since(*day) > ERASED_DAYS) else { continue };
            let own = key::erased_sessions(day);
            let mut erased = decode::<Vec<SessionId>>(&json)?;
            for (name, _) in self.store.list(&own)? {
                erased.extend(name.strip_prefix(&own).map(SessionId::from));
                changes.delete.push(name);
            }
            for old in erased {
                let account = self.documents(vec![key::account(&old)])?.account(&old)?;
                // Another session may have this id by now.
                if old != *session && Day::of(account.sent_at) <= day.next() {
                    changes.delete.push(key::account(&old));
                }
            }
            changes.delete.push(name);
        }
        Ok(())
    }

    /// Reads documents in one call of the store.
    fn documents(&self, keys: Vec<String>) -> Result<Documents, StoreError> {
        Documents::read(self.store.as_ref(), keys)
    }

    /// Reads one document.
    fn document<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        self.documents(vec![key.to_owned()])?.get(key)
    }
}

/// Returns whether a turn may exceed a limit of the day's cost together with what other turns hold of it. The only turn with
/// a hold is admitted while anything is left, because otherwise no turn could use the last part of the limit.
fn exceeds(limit: f64, spent: NanoUsd, others: &Slots, admission: &Admission) -> bool {
    let Admission { standing, hold, .. } = admission;
    let held = others.values().fold(standing.hold.minus(*hold), |sum, slot| sum.plus(slot.hold));
    !held.is_zero() && spent.plus(held).plus(*hold).usd() > limit
}

/// Returns the slots with the standing of a session, unless a newer one was applied before.
fn with_standing(
    mut slots: Slots,
    session: &SessionId,
    account: &mut Account,
    standing: &Standing,
    is_last: bool,
    now: Timestamp,
) -> Slots {
    let Standing { sent_at, slot, open_turns, hold } = *standing;
    // A process that took over within the same millisecond may have an older time than the one before it.
    if sent_at < account.sent_at && !is_last {
        return slots;
    }
    account.sent_at = account.sent_at.max(sent_at);
    let lease = match slot.filter(|_| !is_last) {
        Some(SlotUse::Running) => SLOT_LEASE,
        Some(SlotUse::Starting) => ADMISSION_LEASE,
        None => {
            slots.remove(session);
            return slots;
        }
    };
    // From the time when it was sent: the session may have been lost since then.
    slots.insert(session.clone(), Slot { until: sent_at.min(now) + lease, open_turns, hold });
    slots
}

fn put(key: &str, value: &impl Serialize) -> Result<(String, String), StoreError> {
    let json = serde_json::to_string(value).map_err(|e| StoreError(format!("cannot write JSON: {e}")))?;
    Ok((key.to_owned(), json))
}
