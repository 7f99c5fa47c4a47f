//! The session kernel: what a session has to do, and when, as a state machine without I/O.
//!
//! Pending work follows from the stored state: a turn to run, a queued message to start, calls to expire, a
//! child to notify, an index to update. After each commit the kernel recomputes these *obligations* from the
//! state ([`SessionKernel::handle`]) and returns the effects that are due. No obligation can be lost: a crash
//! cannot lose it, because it is derived from stored state, and no caller can forget to schedule it, because
//! every commit is handled.
//!
//! The kernel's own state is volatile: the work that this process is running, and the backoff after failures.
//! [`SessionKernel::next_wake`] is the time of the earliest obligation; the host arms the alarm for it right
//! after the commit that created the obligation. An obligation that is due within seconds gets a timer of this
//! process instead, and the alarm only covers an eviction.

#[cfg(test)]
mod background_tests;
mod obligations;
#[cfg(test)]
mod tests;

use super::{Permit, Session};
use crate::ports::StoreError;
use crate::types::{
    CallId, ChildKey, ChildStatus, ListedCall, SessionId, SessionState, Timestamp, TurnState,
};
use obligations::{Obligation, listed_as_running_at};
pub use obligations::{holds_slot, runs_long_from, wakes, works};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Delay of the alarm that checks work in memory.
pub const WATCHDOG: Duration = Duration::from_secs(20);
/// The first delay after a failure.
pub const RETRY: Duration = Duration::from_secs(1);
/// The longest delay after failures.
pub const MAX_RETRY: Duration = Duration::from_mins(10);
/// Maximum age of a session's list entry.
const LISTING: Duration = Duration::from_mins(5);
/// How long a turn runs before its session is listed as running. An entry costs two row writes, so most turns have none.
const LONG_TURN: Duration = Duration::from_secs(10);
/// The longest timer. Up to here it costs less to keep the session in memory than to arm an alarm and wake up.
const MAX_TIMER: Duration = Duration::from_secs(3);
/// How long follow-ups wait for another turn, so that turns in quick succession share a round.
const QUIET: Duration = Duration::from_secs(2);
/// How long follow-ups wait at most.
const MAX_QUIET: Duration = Duration::from_secs(10);
/// How long a child in the background may be silent before it is notified again. The parent thereby finds out if its
/// session is gone.
const CHECK_CHILD: Duration = Duration::from_mins(10);
/// How long an ephemeral session is kept when nothing runs: its first message may still arrive, and its last response be
/// sent.
const DISCARD_AFTER: Duration = Duration::from_secs(2);
/// How long before the end of its lease a slot is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// How long follow-ups that run at once wait: enough for the reply to leave first. Turns in quick succession fill the
/// context window within tenths of a second.
const AFTER_REPLY: Duration = Duration::from_millis(5);

/// A background job of a session. Each runs at most once at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Starts the oldest queued message.
    StartQueued,
    /// Continues a turn whose process was evicted.
    RecoverTurn,
    /// Declines expired suspensions, and gives up expired background tasks.
    ExpireCalls,
    /// Lets the subagents whose calls have waited long enough go on in the background.
    Promote,
    /// Starts a turn because background tasks have ended.
    StartWoken,
    /// Sends the child in this session its task and the rules.
    NotifyChild(SessionId),
    /// Cancels this task of a child, for which nothing waits.
    CancelChild(ChildKey),
    /// Sends the parent the status of this child's task.
    NotifyParent,
    /// Sends the state of a turn to the receiver of a webhook.
    NotifyWebhook,
    /// Runs each follow-up that turns have requested.
    FollowUps,
    /// Runs one tick of this interval.
    Tick(&'static str),
    /// Reports usage to the tenant's ledger, and takes, renews or releases the session's slot.
    Report,
    /// Updates the session's entry in the list of sessions.
    List,
    /// Sends the calls that wait to the tenant's inbox.
    NotifyInbox,
    /// Removes documents and artifacts that have expired.
    Purge,
    /// Closes WebSockets whose token has expired.
    CloseSockets,
    /// Erases an ephemeral session whose turn has ended.
    Discard,
}

/// An event that the kernel reacts to.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The stored state changed.
    Changed,
    /// A request or a message of another session arrived. A queued message that could not be started, and calls
    /// that could not be expired, are tried again without the delay after a failure.
    Arrived,
    /// The alarm has fired.
    Alarm,
    /// The timer has fired.
    Timer,
    /// Requested follow-ups must not wait for more turns.
    NeedFollowUps,
    /// A job has ended, successfully or not.
    JobEnded(Job, bool),
    /// The parent has acknowledged this status.
    Acknowledged(ChildStatus),
    /// The child in this session has acknowledged the rules with this hash.
    ChildNotified(SessionId),
    /// These tasks of children must be canceled: nothing waits for them.
    Cancel(Vec<ChildKey>),
}

/// An action for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run the current turn in this process.
    RunTurn(Permit),
    /// Start a background job.
    Start(Job),
    /// Arm the alarm, replacing an earlier one.
    WakeAt(Timestamp),
    /// Start a timer in this process.
    TimerAt(Timestamp),
}

/// The parts of an agent that the kernel schedules by name.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The follow-ups, in the order in which they run.
    pub follow_ups: Vec<&'static str>,
    /// The intervals.
    pub intervals: Vec<&'static str>,
}

/// The stored facts of a session from which obligations are computed.
pub struct Durable<'a> {
    /// The session's state.
    pub state: &'a SessionState,
    /// When the first suspended call or background task expires.
    pub expires_at: Option<Timestamp>,
    /// When the first subagent goes on in the background.
    pub promote_at: Option<Timestamp>,
    /// When the token of a WebSocket expires.
    pub socket_expires_at: Option<Timestamp>,
    /// Whether a requested follow-up should run at once.
    pub follow_up_at_once: bool,
    /// The children that calls wait for, and those that work on background tasks. Each is there once: a further task begins
    /// when nothing waits for the earlier one.
    pub children: Vec<Child>,
    /// The calls that the tenant's inbox must list, if it may list others.
    pub inbox: Option<Vec<ListedCall>>,
    /// What the session owes to the tenant's ledger.
    pub ledger: LedgerDues,
    /// The status to send to the parent; `None` if the session is not a child or the parent has acknowledged
    /// the final status.
    pub status: Option<ChildStatus>,
}

/// What a session owes to its tenant's ledger, besides what is in the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerDues {
    /// Whether a turn is being admitted. Reports then wait.
    pub is_starting: bool,
    /// The time of the first record for which a report is due.
    pub unreported: Option<Timestamp>,
    /// Whether reports must not wait for more turns, because the tenant has limits.
    pub at_once: bool,
    /// Whether a running session holds a slot.
    pub needs_slots: bool,
}

/// A child that a call waits for, or that works on a background task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its session.
    pub session: SessionId,
    /// The call that gave it its task.
    pub call_id: CallId,
    /// The hash of the current rules.
    pub rules: String,
    /// Whether it has acknowledged these rules.
    pub acknowledged: bool,
    /// Whether it works on a background task.
    pub in_background: bool,
}

/// The volatile state of one session in one process. See the module's documentation.
#[derive(Debug, Default)]
pub struct SessionKernel {
    schedule: Schedule,
    /// The turn that runs in this process.
    running: Option<Permit>,
    /// The turn that was running when this process read the session. It must be recovered before it runs.
    orphan: Option<Permit>,
    jobs: BTreeMap<Job, Attempts>,
    /// The children that this process has notified, with the hash of the task and the rules, and when.
    notified: BTreeMap<SessionId, (u64, Timestamp)>,
    /// Tasks of children to cancel.
    to_cancel: BTreeSet<ChildKey>,
    /// The status that the parent has acknowledged to this process, and when.
    acknowledged: Option<(ChildStatus, Timestamp)>,
    /// Set while an abort cancels the children of the current turn. No task is sent to children then, and a turn
    /// whose children have ended does not continue: it is about to end.
    pub canceling: bool,
    /// Set while the session is being erased. Nothing runs then.
    pub erasing: bool,
    /// When to read the store again after it failed.
    reopen_at: Option<Timestamp>,
    /// The alarm that this process last armed.
    alarm: Option<Timestamp>,
    /// The timer that this process last started.
    timer: Option<Timestamp>,
    /// Set until the follow-ups requested so far have run.
    needs_follow_ups: bool,
}

/// The attempts to run a job.
#[derive(Clone, Debug, Default)]
struct Attempts {
    running: bool,
    failures: u32,
    not_before: Timestamp,
    /// The version of the obligation that was attempted. A new version starts without delay.
    version: u64,
    /// Set when the last attempt succeeded. If the obligation is unchanged, the attempt had no effect.
    succeeded: bool,
}

impl Attempts {
    fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + backoff(self.failures, MAX_RETRY);
    }
}

impl SessionKernel {
    /// Creates the kernel of a session that this process has not read.
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, ..Self::default() }
    }

    /// Schedules the parts of another agent.
    pub fn reschedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// Adopts a session that was read from its store. A running turn of it is an orphan: no process runs it.
    pub fn opened(&mut self, session: &Session) {
        self.opened_with(session.state().activity.turn.as_ref());
    }

    fn opened_with(&mut self, turn: Option<&TurnState>) {
        self.orphan = permit_to_run(turn);
        self.running = None;
        self.reopen_at = None;
    }

    /// Marks the current turn as started by this process, so that it is not recovered.
    pub fn started_here(&mut self) {
        self.orphan = None;
    }

    /// Returns whether no process runs the current turn.
    pub fn is_orphan(&self, session: &Session) -> bool {
        !self.erasing && self.orphan.is_some() && self.orphan == Permit::of(session)
    }

    /// Forgets the session after its store failed, and schedules reading it again.
    pub fn store_failed(&mut self, now: Timestamp) {
        self.forget();
        self.reopen_at = Some(now + RETRY);
    }

    /// Forgets the session. Jobs that still run are remembered until they end.
    pub fn forget(&mut self) {
        self.running = None;
        self.orphan = None;
        self.notified.clear();
        self.to_cancel.clear();
        self.acknowledged = None;
        self.reopen_at = None;
        self.needs_follow_ups = false;
        self.jobs.retain(|_, attempts| attempts.running);
    }

    /// Forgets the armed alarm, which the host has removed.
    pub fn disarmed(&mut self) {
        self.alarm = None;
    }

    /// Applies an input and returns the effects that are due. `durable` is the stored state; `None` while no
    /// session is in memory. If the stored state could not be read, the alarm is armed for another attempt.
    pub fn handle(
        &mut self,
        input: Input,
        durable: Result<Option<Durable<'_>>, StoreError>,
        now: Timestamp,
    ) -> Vec<Effect> {
        self.apply(input, now);
        let mut effects = Vec::new();
        if self.erasing {
            self.arm_alarm(now + WATCHDOG, now, &mut effects);
            return effects;
        }
        match durable {
            Ok(Some(durable)) => {
                self.run_due(&durable, now, &mut effects);
                if let Some(wake) = self.next_wake(Some(&durable), now) {
                    self.arm(wake, now, &mut effects);
                }
            }
            // Only an alarm opens the session, so a timer would start over and over again.
            Ok(None) => {
                if let Some(wake) = self.next_wake(None, now) {
                    self.arm_alarm(wake, now, &mut effects);
                }
            }
            Err(_) => self.arm_alarm(now + RETRY, now, &mut effects),
        }
        effects
    }

    /// Returns when the kernel must be called again at the latest; `None` when there is nothing to do.
    ///
    /// The watchdog covers work that runs in this process, an abort and an erasure included: after an eviction, the
    /// alarm finds the obligation, which still follows from the stored state.
    pub fn next_wake(&self, durable: Option<&Durable<'_>>, now: Timestamp) -> Option<Timestamp> {
        let runs = self.jobs.values().any(|attempts| attempts.running) || self.running.is_some();
        let in_memory = runs || self.canceling;
        let watchdog = in_memory.then(|| now + WATCHDOG);
        let Some(durable) = durable else {
            let reopen = self.reopen_at.map(|at| if at > now { at } else { now + RETRY });
            return watchdog.into_iter().chain(reopen).min();
        };
        let waiting =
            self.obligations(durable, now).into_iter().filter_map(|Obligation { job, due, .. }| {
                let attempts = self.jobs.get(&job);
                let not_before = attempts.map_or(Timestamp(0), |attempts| attempts.not_before);
                match attempts.is_some_and(|attempts| attempts.running) {
                    true => None,
                    false => Some(due.max(not_before)),
                }
            });
        // Also while the session's first entry is being written: otherwise, the alarm would be armed again after that.
        let listing = listed_as_running_at(durable.state).filter(|at| *at > now);
        waiting.chain(watchdog).chain(listing).min()
    }

    fn apply(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Changed => {}
            Input::Arrived => {
                for job in [Job::StartQueued, Job::ExpireCalls] {
                    self.jobs.entry(job).and_modify(|attempts| attempts.not_before = Timestamp(0));
                }
            }
            Input::Alarm => self.alarm = None,
            Input::Timer => self.timer = None,
            Input::NeedFollowUps => self.needs_follow_ups = true,
            Input::Acknowledged(status) => self.acknowledged = Some((status, now)),
            Input::ChildNotified(child) => {
                let version = self.jobs.get(&Job::NotifyChild(child.clone())).map(|job| job.version);
                self.notified.insert(child, (version.unwrap_or_default(), now));
            }
            Input::Cancel(tasks) => self.to_cancel.extend(tasks),
            Input::JobEnded(job, succeeded) => {
                if let (Job::CancelChild(task), true) = (&job, succeeded) {
                    self.to_cancel.remove(task);
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

    fn run_due(&mut self, durable: &Durable<'_>, now: Timestamp, effects: &mut Vec<Effect>) {
        let permit = permit_to_run(durable.state.activity.turn.as_ref());
        // A sealed or waiting turn does not run, even if its task is still in memory.
        self.running = self.running.take().filter(|running| permit.as_ref() == Some(running));
        self.orphan = self.orphan.take().filter(|orphan| permit.as_ref() == Some(orphan));
        if let Some(permit) = permit
            && self.running.is_none()
            && self.orphan.is_none()
            && !self.canceling
        {
            self.running = Some(permit.clone());
            effects.push(Effect::RunTurn(permit));
        }
        self.notified.retain(|child, _| durable.children.iter().any(|known| known.session == *child));
        let obligations = self.obligations(durable, now);
        self.jobs.retain(|job, attempts| {
            attempts.running || obligations.iter().any(|obligation| obligation.job == *job)
        });
        for Obligation { job, due, version } in obligations {
            let attempts = self.jobs.entry(job.clone()).or_default();
            if !attempts.running && attempts.version != version {
                *attempts = Attempts { version, ..Attempts::default() };
            }
            if std::mem::take(&mut attempts.succeeded) && due <= now {
                // Without a delay, a job without effect would run in an endless loop.
                attempts.failed(now);
            }
            if !attempts.running && due.max(attempts.not_before) <= now {
                attempts.running = true;
                if job == Job::FollowUps {
                    self.needs_follow_ups = false;
                }
                effects.push(Effect::Start(job));
            }
        }
    }

    /// Starts a timer or arms the alarm, unless an earlier one fires early enough.
    fn arm(&mut self, wake: Timestamp, now: Timestamp, effects: &mut Vec<Effect>) {
        let mut wake = wake.max(now + Duration::from_millis(1));
        if wake <= now + MAX_TIMER {
            let started = self.timer.filter(|started| *started > now);
            if started.is_none_or(|started| started > wake) {
                self.timer = Some(wake);
                effects.push(Effect::TimerAt(wake));
            }
            wake = now + WATCHDOG;
        }
        self.arm_alarm(wake, now, effects);
    }

    /// Arms the alarm, unless an earlier one fires early enough.
    fn arm_alarm(&mut self, wake: Timestamp, now: Timestamp, effects: &mut Vec<Effect>) {
        let wake = wake.max(now + Duration::from_millis(1));
        // Arming is a billed write.
        let armed = self.alarm.filter(|armed| *armed > now);
        if armed.is_none_or(|armed| armed > wake) {
            self.alarm = Some(wake);
            effects.push(Effect::WakeAt(wake));
        }
    }
}

/// Returns the permit of a turn that must run; `None` for a waiting turn.
fn permit_to_run(turn: Option<&TurnState>) -> Option<Permit> {
    let runs = |turn: &&TurnState| turn.waiting_since.is_none();
    turn.filter(runs).map(|turn| Permit { turn: turn.id.clone(), epoch: turn.epoch })
}

/// Returns the delay after `failures` consecutive failures. It doubles each time, up to `longest`.
pub fn backoff(failures: u32, longest: Duration) -> Duration {
    RETRY.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(longest)
}
