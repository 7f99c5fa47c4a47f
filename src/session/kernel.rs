//! The session kernel: what a session has to do, and when, as a state machine without I/O.
//!
//! Everything a session owes follows from its stored state: a turn to run, a queued message to start, calls to
//! expire, a child to notify, an index to update. The kernel computes these *obligations* anew from the state after
//! each commit ([`SessionKernel::handle`]) and returns the effects that are due. Nothing has to be remembered or
//! scheduled by hand, so no obligation can be lost: neither by a crash, because it follows from what is stored, nor
//! by a missing call, because every commit leads here.
//!
//! What the kernel holds itself is volatile: what this process is doing at the moment, and how long to back off after
//! a failure. [`SessionKernel::next_wake`] is the earliest moment at which anything must be looked at again; the
//! host arms the alarm with it in the same commit that made the obligation.

mod obligations;
#[cfg(test)]
mod tests;

use super::{Permit, Session};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::types::{ChildStatus, SessionState, Timestamp, TurnState};
use std::collections::{BTreeMap, BTreeSet};

/// How long work in memory may go on without the alarm looking after it, in milliseconds.
pub const WATCHDOG_MS: u64 = 20_000;
/// The first delay after a failure, in milliseconds.
pub const RETRY_MS: u64 = 1_000;
/// The longest delay after failures, in milliseconds.
pub const MAX_RETRY_MS: u64 = 600_000;
/// How out of date the list of sessions may be, in milliseconds.
const LISTING_MS: u64 = 300_000;

/// A background job of a session. Each runs at most once at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Starts the oldest queued message.
    StartQueued,
    /// Continues a turn whose process was evicted.
    RecoverTurn,
    /// Declines the suspended calls whose time is over.
    ExpireCalls,
    /// Sends the child in this session its task and the rules.
    NotifyChild(String),
    /// Cancels the child in this session, for which no call waits any more.
    CancelChild(String),
    /// Sends the parent the status of this child's task.
    NotifyParent,
    /// Runs the follow-ups that turns have requested.
    FollowUps,
    /// Runs one tick of this interval.
    Tick(&'static str),
    /// Updates the session's entry in the list of sessions.
    List,
    /// Removes documents and artifacts that have expired.
    Purge,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The stored state was changed, or a request, an alarm or a peer has entered.
    Look,
    /// The alarm has fired.
    Alarm,
    /// A job has ended, successfully or not.
    JobEnded(Job, bool),
    /// The parent has acknowledged this status.
    Acknowledged(ChildStatus),
    /// The child in this session has acknowledged the rules with this hash.
    ChildNotified(String),
    /// A child that may be at work must be canceled: the call that waited for it does not wait any more.
    Cancel(Vec<String>),
}

/// What the host has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run the turn at hand, in this process.
    RunTurn(Permit),
    /// Start a background job.
    Start(Job),
    /// Arm the alarm, in place of any earlier one.
    WakeAt(Timestamp),
}

/// The parts of an agent that the kernel schedules by name.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The follow-ups, in the order in which they run.
    pub follow_ups: Vec<&'static str>,
    /// The intervals.
    pub intervals: Vec<&'static str>,
}

/// What is stored of a session, as far as obligations follow from it.
pub struct Durable<'a> {
    /// The session's state.
    pub state: &'a SessionState,
    /// When the first suspended call expires.
    pub expires_at: Option<Timestamp>,
    /// The children for which calls wait.
    pub children: Vec<Child>,
    /// The status that the parent has to know; none for a session that is no child, and once the parent has
    /// acknowledged the last one.
    pub status: Option<ChildStatus>,
}

/// A child for which a call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its session.
    pub session: String,
    /// The hash of the rules that it has to know.
    pub rules: String,
    /// Whether it has acknowledged these rules.
    pub knows: bool,
}

/// The volatile state of one session in one process. See the module's documentation.
#[derive(Debug, Default)]
pub struct SessionKernel {
    schedule: Schedule,
    /// The turn that runs in this process.
    running: Option<Permit>,
    /// The turn that was running when this process read the session: it has to be recovered before it runs.
    orphan: Option<Permit>,
    jobs: BTreeMap<Job, Attempts>,
    /// The children that this process has notified, with the hash of the rules.
    notified: BTreeMap<String, u64>,
    /// Children to cancel.
    to_cancel: BTreeSet<String>,
    /// The status that the parent has acknowledged to this process, and when.
    acknowledged: Option<(ChildStatus, Timestamp)>,
    /// Set while the children of the turn at hand are being canceled by an abort: they get no new task.
    pub canceling: bool,
    /// Set while the session is being erased: nothing is done for it.
    pub erasing: bool,
    /// When the store, which has failed, is read again.
    reopen_at: Option<Timestamp>,
    /// The alarm that is armed, as far as this process knows.
    alarm: Option<Timestamp>,
}

/// How a job is getting on.
#[derive(Clone, Debug, Default)]
struct Attempts {
    running: bool,
    failures: u32,
    not_before: Timestamp,
    /// The version of the obligation that the attempts are about. A new version starts without delay.
    version: u64,
    /// Set when the last attempt has succeeded. If the obligation is still the same, the attempt was in vain.
    succeeded: bool,
}

impl Attempts {
    fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.plus(backoff(self.failures));
    }
}

impl SessionKernel {
    /// The kernel of a session that this process has not read.
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, ..Self::default() }
    }

    /// Takes over a session as it was read from its store. Its turn, if one runs, belongs to no process.
    pub fn opened(&mut self, session: &Session) {
        self.opened_with(session.state().turn.as_ref());
    }

    fn opened_with(&mut self, turn: Option<&TurnState>) {
        self.orphan = permit_to_run(turn);
        self.running = None;
        self.reopen_at = None;
    }

    /// Notes that the turn at hand was started by this process: there is nothing to recover.
    pub fn started_here(&mut self) {
        self.orphan = None;
    }

    /// Whether the turn at hand belongs to no process.
    pub fn is_orphan(&self, session: &Session) -> bool {
        !self.erasing && self.orphan.is_some() && self.orphan == Permit::of(session)
    }

    /// Forgets the session after its store has failed; it is read again soon.
    pub fn store_failed(&mut self, now: Timestamp) {
        self.forget();
        self.reopen_at = Some(now.plus(RETRY_MS));
    }

    /// Forgets the session. Jobs that still run are remembered until they end.
    pub fn forget(&mut self) {
        self.running = None;
        self.orphan = None;
        self.notified.clear();
        self.to_cancel.clear();
        self.acknowledged = None;
        self.reopen_at = None;
        self.jobs.retain(|_, attempts| attempts.running);
    }

    /// Forgets the armed alarm, which the host has removed.
    pub fn disarmed(&mut self) {
        self.alarm = None;
    }

    /// Takes in what happened and returns what is due. `durable` is what is stored; `None` while there is no session
    /// in memory.
    ///
    /// # Errors
    /// Passes on the error of a `durable` that could not be read, after arming the alarm for another attempt.
    pub fn handle(
        &mut self,
        input: Input,
        durable: Result<Option<Durable<'_>>, StoreError>,
        now: Timestamp,
    ) -> Vec<Effect> {
        self.take_in(input, now);
        if self.erasing {
            return Vec::new();
        }
        let mut effects = Vec::new();
        match durable {
            Ok(Some(durable)) => {
                self.look_at(&durable, now, &mut effects);
                let wake = self.next_wake(Some(&durable), now);
                self.arm(wake, now, &mut effects);
            }
            Ok(None) => {
                let wake = self.next_wake(None, now);
                self.arm(wake, now, &mut effects);
            }
            Err(_) => self.arm(Some(now.plus(RETRY_MS)), now, &mut effects),
        }
        effects
    }

    /// When anything must be looked at again at the latest; `None` when nothing is owed.
    ///
    /// What runs in this process is looked after by the watchdog: if the process is evicted, the alarm finds the
    /// obligation, which still follows from what is stored.
    pub fn next_wake(&self, durable: Option<&Durable<'_>>, now: Timestamp) -> Option<Timestamp> {
        let in_memory = self.jobs.values().any(|attempts| attempts.running) || self.running.is_some();
        let watchdog = in_memory.then(|| now.plus(WATCHDOG_MS));
        let Some(durable) = durable else { return watchdog.into_iter().chain(self.reopen_at).min() };
        let waiting = self.obligations(durable, now).into_iter().filter_map(|(job, due, _)| {
            let attempts = self.jobs.get(&job);
            let not_before = attempts.map_or(Timestamp(0), |attempts| attempts.not_before);
            match attempts.is_some_and(|attempts| attempts.running) {
                true => None,
                false => Some(due.max(not_before)),
            }
        });
        waiting.chain(watchdog).min()
    }

    fn take_in(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Look => {}
            Input::Alarm => self.alarm = None,
            Input::Acknowledged(status) => self.acknowledged = Some((status, now)),
            Input::ChildNotified(child) => {
                let version = self.jobs.get(&Job::NotifyChild(child.clone())).map(|job| job.version);
                self.notified.insert(child, version.unwrap_or_default());
            }
            Input::Cancel(children) => self.to_cancel.extend(children),
            Input::JobEnded(job, succeeded) => {
                if let (Job::CancelChild(child), true) = (&job, succeeded) {
                    self.to_cancel.remove(child);
                }
                let attempts = self.jobs.entry(job).or_default();
                attempts.running = false;
                attempts.succeeded = succeeded;
                if !succeeded {
                    attempts.failed(now);
                }
            }
        }
    }

    fn look_at(&mut self, durable: &Durable<'_>, now: Timestamp, effects: &mut Vec<Effect>) {
        let permit = permit_to_run(durable.state.turn.as_ref());
        // A turn that was sealed, or that waits, does not run, whatever its task in memory still does.
        self.running = self.running.take().filter(|running| permit.as_ref() == Some(running));
        self.orphan = self.orphan.take().filter(|orphan| permit.as_ref() == Some(orphan));
        if let Some(permit) = permit
            && self.running.is_none()
            && self.orphan.is_none()
        {
            self.running = Some(permit.clone());
            effects.push(Effect::RunTurn(permit));
        }
        self.notified.retain(|child, _| durable.children.iter().any(|known| known.session == *child));
        let obligations = self.obligations(durable, now);
        self.jobs.retain(|job, attempts| {
            attempts.running || obligations.iter().any(|(obligation, ..)| obligation == job)
        });
        for (job, due, version) in obligations {
            let attempts = self.jobs.entry(job.clone()).or_default();
            if !attempts.running && attempts.version != version {
                *attempts = Attempts { version, ..Attempts::default() };
            }
            if std::mem::take(&mut attempts.succeeded) && due <= now {
                // Without a delay, a job that changes nothing would run without end.
                attempts.failed(now);
            }
            if !attempts.running && due.max(attempts.not_before) <= now {
                attempts.running = true;
                effects.push(Effect::Start(job));
            }
        }
    }

    /// Arms the alarm unless one is armed that comes soon enough: arming it is a billed write.
    fn arm(&mut self, wake: Option<Timestamp>, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(wake) = wake.map(|wake| wake.max(now.plus(1))) else { return };
        let armed = self.alarm.filter(|armed| *armed > now);
        if armed.is_none_or(|armed| armed > wake) {
            self.alarm = Some(wake);
            effects.push(Effect::WakeAt(wake));
        }
    }
}

/// The permit of a turn that has to run: one that waits does not.
fn permit_to_run(turn: Option<&TurnState>) -> Option<Permit> {
    let runs = |turn: &&TurnState| turn.waiting_since.is_none() || fault::active(Fault::RestartWaiting);
    turn.filter(runs).map(|turn| Permit { turn: turn.id.clone(), epoch: turn.epoch })
}

/// How long to wait after so many failures in a row: twice as long each time.
pub fn backoff(failures: u32) -> u64 {
    (RETRY_MS << failures.saturating_sub(1).min(20)).min(MAX_RETRY_MS)
}
