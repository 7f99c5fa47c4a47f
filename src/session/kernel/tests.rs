//! Drives the kernel with random inputs and crashes at any point, against an independent computation of
//! obligations.

use super::*;
use crate::types::session::{Activity, Background, Webhook, WebhookKey};
use crate::types::{
    Budget, IntervalState, Owner, RequestTimes, SessionMeta, SessionStatus, TurnId, TurnOptions, TurnPhase,
    TurnStatus,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, rc::Rc, time::Duration};

const START: Timestamp = Timestamp(1_000_000_000);

/// A session's store and alarm, which survive a crash, and the kernel and its jobs, which do not.
struct World {
    state: SessionState,
    expires_at: Option<Timestamp>,
    socket_expires_at: Option<Timestamp>,
    children: Vec<Child>,
    status: Option<ChildStatus>,
    alarm: Option<Timestamp>,
    timers: BTreeSet<Timestamp>,
    /// Whether a follow-up should run at once when it is requested.
    at_once: bool,
    now: Timestamp,
    kernel: SessionKernel,
    running: BTreeSet<Job>,
    /// The jobs that failed in this process and may be delayed.
    failed: BTreeSet<Job>,
    limited: bool,
    ran: Vec<Permit>,
    turns: u32,
    started: Vec<TurnId>,
    /// The record up to which the running job notifies the receiver.
    notifying: u64,
}

#[derive(Clone, Debug)]
enum Act {
    Post,
    EndTurn,
    /// The turn starts to wait for a person or a child.
    Wait(bool),
    /// The rules change.
    Govern,
    /// The child has a new status for its parent.
    Status(bool),
    PutUntil(Duration),
    /// The platform opens a WebSocket whose token expires.
    OpenSocket(Duration),
    Retitle,
    JobEnds(usize, bool),
    Advance(Duration),
    Crash,
    Enter,
    /// An abort starts or ends to cancel the children.
    Cancel(bool),
    /// The context becomes full, or is compacted.
    AtOnce(bool),
    /// The tenant has limits of turns, or no longer.
    Limit(bool),
    NeedFollowUps,
    /// A record is appended of which the receiver of a webhook is notified.
    Notify,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => Just(Act::Post),
        3 => Just(Act::EndTurn),
        2 => any::<bool>().prop_map(Act::Wait),
        1 => Just(Act::Govern),
        1 => any::<bool>().prop_map(Act::Status),
        1 => (1_u64..200_000).prop_map(|ms| Act::PutUntil(Duration::from_millis(ms))),
        1 => (1_u64..200_000).prop_map(|ms| Act::OpenSocket(Duration::from_millis(ms))),
        1 => Just(Act::Retitle),
        8 => (0_usize..8, prop::bool::weighted(0.8)).prop_map(|(job, done)| Act::JobEnds(job, done)),
        4 => prop_oneof![0_u64..3_000, 0_u64..700_000].prop_map(|ms| Act::Advance(Duration::from_millis(ms))),
        2 => Just(Act::Crash),
        1 => Just(Act::Enter),
        1 => any::<bool>().prop_map(Act::Cancel),
        1 => any::<bool>().prop_map(Act::AtOnce),
        1 => any::<bool>().prop_map(Act::Limit),
        1 => Just(Act::NeedFollowUps),
        1 => Just(Act::Notify),
    ];
    prop::collection::vec(act, 1..120)
}

fn kernel() -> SessionKernel {
    SessionKernel::new(Schedule { follow_ups: vec!["index", "flush"], intervals: vec!["pulse"] })
}

impl World {
    fn activity(&mut self) -> &mut Activity {
        Rc::make_mut(&mut self.state.activity)
    }

    fn background(&mut self) -> &mut Background {
        Rc::make_mut(&mut self.state.background)
    }

    fn new() -> Self {
        let owner = Owner { tenant: "t".into(), user: "u".into(), agent: "a".into() };
        let state = SessionState::new(SessionMeta::new("s".into(), owner, START));
        let mut world = Self {
            state,
            expires_at: None,
            socket_expires_at: None,
            children: Vec::new(),
            status: None,
            alarm: None,
            timers: BTreeSet::new(),
            at_once: false,
            limited: false,
            now: START,
            kernel: kernel(),
            running: BTreeSet::new(),
            failed: BTreeSet::new(),
            ran: Vec::new(),
            turns: 0,
            started: Vec::new(),
            notifying: 0,
        };
        world.handle(Input::Changed);
        world
    }

    fn handle(&mut self, input: Input) {
        let durable = Durable {
            state: &self.state,
            expires_at: self.expires_at,
            promote_at: None,
            socket_expires_at: self.socket_expires_at,
            follow_up_at_once: self.at_once,
            children: self.children.clone(),
            inbox: None,
            ledger: LedgerDues { needs_slots: self.limited, ..LedgerDues::default() },
            status: self.status.clone(),
        };
        for effect in self.kernel.handle(input, Ok(Some(durable)), self.now) {
            match effect {
                Effect::WakeAt(at) => self.alarm = Some(at),
                Effect::TimerAt(at) => {
                    self.timers.insert(at);
                }
                Effect::RunTurn(permit) => {
                    assert!(!self.ran.contains(&permit), "{permit:?} runs twice");
                    self.ran.push(permit);
                }
                Effect::Start(job) => {
                    if job == Job::NotifyWebhook {
                        self.notifying = self.state.webhooks[0].due;
                    }
                    assert!(self.running.insert(job.clone()), "{job:?} runs twice at a time")
                }
            }
        }
        self.check();
    }

    /// Computes the obligations and when they are due, independently of the kernel.
    fn owed(&self) -> Vec<(Job, Timestamp)> {
        let mut owed = Vec::new();
        if self.state.activity.turn.is_none() && !self.state.activity.queue.is_empty() {
            owed.push((Job::StartQueued, START));
        }
        owed.extend(self.expires_at.map(|at| (Job::ExpireCalls, at)));
        owed.extend(self.state.background.purge_at.map(|at| (Job::Purge, at)));
        let unknowing = self.children.iter().filter(|child| !child.acknowledged);
        owed.extend(unknowing.map(|child| (Job::NotifyChild(child.session.clone()), START)));
        if !self.state.webhooks.is_empty() {
            owed.push((Job::NotifyWebhook, START));
        }
        let turn = self.state.activity.turn.as_ref().filter(|turn| !turn.waits_for_people());
        match (turn, self.state.background.listed_running) {
            _ if self.state.background.listed_at == Timestamp(0) => owed.push((Job::List, START)),
            (Some(turn), false) => owed.push((Job::List, turn.started_at + LONG_TURN)),
            (None, true) => owed.push((Job::List, START)),
            _ => {}
        }
        if self.status.as_ref().is_some_and(ChildStatus::is_final) {
            owed.push((Job::NotifyParent, START));
        }
        let interval = self.state.background.intervals.get("pulse").copied().unwrap_or_default();
        owed.push((Job::Tick("pulse"), interval.next_at));
        let follow_ups =
            ["index", "flush"].iter().filter_map(|name| self.state.activity.follow_ups.get(*name));
        let first = follow_ups.into_iter().find(|progress| progress.is_requested());
        let due = first.and_then(|first| first.waiting).map(|times| match self.at_once {
            true => times.first + AFTER_REPLY,
            false => (times.last + Duration::from_secs(2)).min(times.first + Duration::from_secs(10)),
        });
        owed.extend(due.map(|at| (Job::FollowUps, at)));
        let runs = self.limited && self.works();
        owed.extend(match (runs, self.state.account.slot_until) {
            (true, Some(until)) => Some((Job::Report, until - Duration::from_secs(30))),
            (true, None) | (false, Some(_)) => Some((Job::Report, START)),
            (false, None) => None,
        });
        owed
    }

    /// Returns whether the session holds a slot if its tenant has limits.
    fn works(&self) -> bool {
        let waits_with_child = self.state.activity.turn.as_ref().is_some_and(|turn| turn.has_running_child);
        self.state.status() == SessionStatus::Running || waits_with_child
    }

    /// Checks that each obligation is running or has an alarm that fires in time.
    fn check(&self) {
        for (job, due) in self.owed() {
            if self.running.contains(&job) {
                let alarm = self.alarm.expect("an alarm looks after what runs");
                assert!(alarm <= self.now + WATCHDOG, "{job:?} runs unwatched");
                continue;
            }
            let alarm = self.alarm.unwrap_or_else(|| panic!("nothing looks after {job:?}"));
            if self.kernel.canceling && matches!(job, Job::NotifyChild(_)) {
                assert!(alarm <= self.now + WATCHDOG, "nothing looks after {job:?} during an abort");
                continue;
            }
            let timer = self.timers.first().copied().unwrap_or(alarm);
            match self.failed.contains(&job) {
                true => assert!(alarm <= due.max(self.now) + MAX_RETRY, "{job:?} comes too late"),
                false => {
                    let wake = timer.min(alarm);
                    assert!(due > self.now && wake <= due, "{job:?} is due at {due:?}, wake-up {wake:?}");
                    // After an eviction there is only the alarm.
                    assert!(
                        alarm <= due.max(self.now + WATCHDOG),
                        "an eviction delays {job:?} until {alarm:?}"
                    );
                }
            }
        }
        if let Some(turn) = self.state.activity.turn.as_ref().filter(|turn| turn.waiting_since.is_none()) {
            let permit = Permit { turn: turn.id.clone(), epoch: turn.epoch };
            let recovers =
                self.running.contains(&Job::RecoverTurn) || self.failed.contains(&Job::RecoverTurn);
            let runs = self.ran.contains(&permit) || recovers || self.kernel.canceling;
            assert!(runs, "nothing runs {permit:?}");
            assert!(self.alarm.is_some_and(|alarm| alarm <= self.now + MAX_RETRY));
        }
    }

    fn turn(&mut self, id: TurnId) {
        self.started.push(id.clone());
        self.activity().turn = Some(TurnState {
            id,
            epoch: 1,
            attempts: 0,
            started_at: self.now,
            deadline: self.now + Duration::from_mins(10),
            budget: Budget::default(),
            steps: 0,
            tool_calls: 0,
            reflections: 0,
            repairs: 0,
            empty_responses: 0,
            verifications: 0,
            subagents: 0,
            steps_of_subagents: 0,
            tool_calls_of_subagents: 0,
            tool_calls_of_step: 0,
            usage: Default::default(),
            cost_usd: None,
            options: TurnOptions::default(),
            waiting_since: None,
            delegated: false,
            has_running_child: false,
            phase: TurnPhase::Model,
        });
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Post => {
                self.turns += 1;
                let id = TurnId::from(format!("t{}", self.turns));
                match self.state.activity.turn.is_some() || !self.state.activity.queue.is_empty() {
                    true => self.activity().queue.push(id),
                    false => self.turn(id),
                }
                self.handle(Input::Changed);
            }
            Act::EndTurn => {
                let Some(turn) = self.activity().turn.take() else { return };
                self.expires_at = None;
                let key = |child: Child| ChildKey { session: child.session, call_id: child.call_id };
                let children: Vec<_> = self.children.drain(..).map(key).collect();
                let now = self.now;
                for name in ["index", "flush"] {
                    let progress = self.activity().follow_ups.entry(name.into()).or_default();
                    let first = progress.waiting.map_or(now, |times| times.first);
                    progress.waiting = Some(RequestTimes { first, last: now });
                    progress.requested += 1;
                }
                let _ = turn;
                self.handle(Input::Cancel(children));
            }
            Act::Wait(for_child) => {
                let now = self.now;
                let Some(turn) = self.activity().turn.as_mut().filter(|turn| turn.waiting_since.is_none())
                else {
                    return;
                };
                turn.waiting_since = Some(now);
                let turn = turn.clone();
                self.expires_at = Some(now + Duration::from_mins(10));
                if for_child {
                    let session = format!("child of {}", turn.id).into();
                    self.children = vec![Child {
                        session,
                        call_id: "c".into(),
                        rules: "r0".into(),
                        acknowledged: false,
                        in_background: false,
                    }];
                }
                self.handle(Input::Changed);
            }
            Act::Govern => {
                for child in &mut self.children {
                    child.rules.push('+');
                    child.acknowledged = false;
                    self.failed.remove(&Job::NotifyChild(child.session.clone()));
                }
                self.handle(Input::Changed);
            }
            Act::Status(is_final) => {
                let mut status = ChildStatus::not_started("s".into(), "c".into());
                if !is_final {
                    status.status = TurnStatus::Waiting;
                }
                self.status = Some(status);
                self.handle(Input::Changed);
            }
            Act::OpenSocket(span) => {
                let at = self.now + span;
                self.socket_expires_at = Some(self.socket_expires_at.map_or(at, |earlier| earlier.min(at)));
                self.handle(Input::Changed);
            }
            Act::PutUntil(span) => {
                let at = self.now + span;
                let purge_at = &mut self.background().purge_at;
                *purge_at = Some(purge_at.map_or(at, |earlier| earlier.min(at)));
                self.handle(Input::Changed);
            }
            Act::Retitle => {
                self.background().listed_at = Timestamp(0);
                self.handle(Input::Changed);
            }
            Act::JobEnds(n, succeeded) => {
                let Some(job) = self.running.iter().nth(n).cloned() else { return };
                self.job_ends(job, succeeded);
            }
            Act::Advance(span) => {
                let end = self.now + span;
                loop {
                    let alarm = self.alarm.filter(|alarm| *alarm <= end);
                    let timer = self.timers.first().copied().filter(|timer| *timer <= end);
                    let Some(next) = alarm.into_iter().chain(timer).min() else { break };
                    self.now = self.now.max(next);
                    match alarm == Some(next) {
                        true => {
                            self.alarm = None;
                            self.handle(Input::Alarm);
                        }
                        false => {
                            self.timers.remove(&next);
                            self.handle(Input::Timer);
                        }
                    }
                }
                self.now = end;
                self.handle(Input::Changed);
            }
            Act::Crash => {
                self.kernel = kernel();
                self.running.clear();
                self.failed.clear();
                self.timers.clear();
                // Only the alarm survives a crash, so it must cover every obligation.
                let owes =
                    self.owed().iter().any(|(_, due)| *due <= self.now) || self.state.activity.turn.is_some();
                assert!(!owes || self.alarm.is_some(), "no alarm covers an obligation");
                self.kernel.opened_with(self.state.activity.turn.as_ref());
                self.handle(Input::Changed);
            }
            Act::Enter => self.handle(Input::Arrived),
            Act::AtOnce(at_once) => {
                self.at_once = at_once;
                self.handle(Input::Changed);
            }
            Act::Limit(limited) => {
                self.limited = limited;
                self.handle(Input::Changed);
            }
            Act::NeedFollowUps => {
                self.handle(Input::NeedFollowUps);
                let requested = self.owed().iter().any(|(job, _)| *job == Job::FollowUps);
                let runs = self.running.contains(&Job::FollowUps) || self.failed.contains(&Job::FollowUps);
                assert!(!requested || runs, "needed follow-ups wait");
            }
            Act::Notify => {
                // Of a turn that has ended, so it stays until its receiver has acknowledged everything.
                let key = WebhookKey { turn: "t".into(), id: "w".into() };
                self.failed.remove(&Job::NotifyWebhook);
                let webhooks = Rc::make_mut(&mut self.state.webhooks);
                if webhooks.is_empty() {
                    webhooks.push(Webhook::new(key, "https://example.com/".into(), Vec::new()));
                }
                webhooks[0].due += 1;
                self.handle(Input::Changed);
            }
            Act::Cancel(canceling) => {
                self.kernel.canceling = canceling;
                self.handle(Input::Changed);
            }
        }
    }

    fn job_ends(&mut self, job: Job, succeeded: bool) {
        self.running.remove(&job);
        if !succeeded {
            self.failed.insert(job.clone());
            return self.handle(Input::JobEnded(job, false));
        }
        self.failed.remove(&job);
        match &job {
            Job::StartQueued => {
                if self.state.activity.turn.is_none() && !self.state.activity.queue.is_empty() {
                    let next = self.activity().queue.remove(0);
                    self.turn(next);
                }
            }
            Job::RecoverTurn => {
                if let Some(turn) = &mut self.activity().turn {
                    turn.epoch += 1;
                }
            }
            Job::ExpireCalls if self.expires_at.is_some_and(|at| at <= self.now) => {
                self.expires_at = None;
                self.children.clear();
                if let Some(turn) = &mut self.activity().turn {
                    turn.waiting_since = None;
                    turn.epoch += 1;
                }
            }
            Job::NotifyChild(session) => {
                for child in self.children.iter_mut().filter(|child| child.session == *session) {
                    child.acknowledged = true;
                }
                self.kernel.apply(Input::ChildNotified(session.clone()), self.now);
            }
            Job::NotifyParent => match self.status.take() {
                Some(status) if !status.is_final() => {
                    self.status = Some(status.clone());
                    self.kernel.apply(Input::Acknowledged(status), self.now);
                }
                _ => {}
            },
            Job::NotifyWebhook => {
                let webhooks = Rc::make_mut(&mut self.state.webhooks);
                webhooks[0].acknowledged = self.notifying;
                webhooks.retain(|webhook| webhook.due > webhook.acknowledged);
            }
            Job::FollowUps => {
                for progress in self.activity().follow_ups.values_mut() {
                    progress.served = progress.requested;
                    progress.waiting = None;
                }
            }
            Job::Tick(name) => {
                let next_at = self.now + Duration::from_mins(1);
                let state = IntervalState { next_at, ..IntervalState::default() };
                self.background().intervals.insert((*name).into(), state);
            }
            Job::Report => {
                let until = self.now + Duration::from_mins(5);
                let runs = self.limited && self.works();
                Rc::make_mut(&mut self.state.account).slot_until = runs.then_some(until);
            }
            Job::List => {
                let turn = self.state.activity.turn.as_ref();
                let is_long =
                    |turn: &TurnState| !turn.waits_for_people() && self.now >= turn.started_at + LONG_TURN;
                let listed = (self.now, turn.is_some_and(is_long));
                let background = self.background();
                (background.listed_at, background.listed_running) = listed;
            }
            Job::Purge => {
                self.background().purge_at = self.state.background.purge_at.filter(|at| *at > self.now)
            }
            // The model has no ephemeral sessions, no background tasks, and no inbox.
            Job::Discard | Job::Promote | Job::StartWoken | Job::NotifyInbox => {
                panic!("nothing requires {job:?}")
            }
            Job::CloseSockets => {
                self.socket_expires_at = self.socket_expires_at.filter(|at| *at > self.now);
            }
            Job::ExpireCalls | Job::CancelChild(_) => {}
        }
        self.handle(Input::JobEnded(job, true));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_obligation_is_lost_late_or_performed_twice(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        // From here on every job succeeds, so alarms alone must fulfill every obligation.
        for _ in 0..2_000 {
            while let Some(job) = world.running.first().cloned() {
                world.job_ends(job, true);
            }
            if world.state.activity.turn.as_ref().is_some_and(|turn| turn.waiting_since.is_none()) {
                world.act(Act::EndTurn);
            }
            if world.state.activity.queue.is_empty() && world.state.activity.turn.is_none() && world.running.is_empty() {
                break;
            }
            world.act(Act::Advance(Duration::from_mins(1)));
        }
        prop_assert!(world.state.activity.queue.is_empty() && world.state.activity.turn.is_none());
        // Each message started one turn, in order.
        let expected: Vec<TurnId> = (1..=world.turns).map(|n| format!("t{n}").into()).collect();
        prop_assert_eq!(world.started, expected);
    }
}

#[test]
fn each_failure_increases_the_delay_of_a_job() {
    let mut world = World::new();
    world.job_ends(Job::Tick("pulse"), true);
    let mut delays = Vec::new();
    for _ in 0..12 {
        world.job_ends(Job::List, false);
        let failed_at = world.now;
        while !world.running.contains(&Job::List) {
            let wake = world.alarm.into_iter().chain(world.timers.first().copied()).min().expect("a wake-up");
            world.act(Act::Advance(wake.since(world.now)));
            if world.running.contains(&Job::Tick("pulse")) {
                world.job_ends(Job::Tick("pulse"), true);
            }
        }
        delays.push(world.now.since(failed_at));
    }
    assert_eq!(delays[..5], [1, 2, 4, 8, 16].map(Duration::from_secs));
    assert!(delays.iter().all(|delay| *delay <= MAX_RETRY));
}

#[test]
fn the_first_turn_of_a_session_arms_the_alarm_once() {
    let mut world = World::new();
    // The first message creates the session and starts the turn in one commit.
    (world.kernel, world.alarm, world.running) = (kernel(), None, BTreeSet::new());
    world.act(Act::Post);
    assert_eq!(world.alarm, Some(START + LONG_TURN));
    while let Some(job) = world.running.first().cloned() {
        world.job_ends(job, true);
        assert_eq!(world.alarm, Some(START + LONG_TURN));
    }
}

#[test]
fn a_request_tries_again_to_start_a_queued_message() {
    let mut world = World::new();
    world.activity().queue.push("t1".into());
    world.handle(Input::Changed);
    for _ in 0..10 {
        world.job_ends(Job::StartQueued, false);
        world.handle(Input::Changed);
        assert!(!world.running.contains(&Job::StartQueued), "it waits after a failure");
        world.handle(Input::Arrived);
        assert!(world.running.contains(&Job::StartQueued), "a request does not wait");
    }
}

#[test]
fn a_turn_does_not_continue_while_an_abort_cancels_its_children() {
    let mut world = World::new();
    world.act(Act::Post);
    world.act(Act::Wait(true));
    world.act(Act::Cancel(true));
    world.children.clear();
    if let Some(turn) = world.activity().turn.as_mut() {
        turn.waiting_since = None;
        turn.epoch += 1;
    }
    world.handle(Input::Changed);
    assert_eq!(world.ran.len(), 1);
    world.act(Act::Cancel(false));
    assert_eq!(world.ran.len(), 2);
}

#[test]
fn an_alarm_covers_an_abort_and_an_erasure() {
    for (canceling, erasing) in [(true, false), (false, true)] {
        let mut world = World::new();
        world.job_ends(Job::List, true);
        world.job_ends(Job::Tick("pulse"), true);
        let child = Child {
            session: "c".into(),
            call_id: "c".into(),
            rules: "r".into(),
            acknowledged: false,
            in_background: false,
        };
        world.act(Act::Post);
        world.act(Act::Wait(false));
        world.children = vec![child];
        (world.kernel.canceling, world.kernel.erasing) = (canceling, erasing);
        // Without the alarm that fires now, nothing would continue the session after a crash.
        world.alarm = None;
        let durable = Durable {
            state: &world.state,
            expires_at: None,
            promote_at: None,
            socket_expires_at: None,
            follow_up_at_once: false,
            children: world.children.clone(),
            inbox: None,
            ledger: LedgerDues::default(),
            status: None,
        };
        let effects = world.kernel.handle(Input::Alarm, Ok(Some(durable)), world.now);
        assert_eq!(effects, [Effect::WakeAt(world.now + WATCHDOG)]);
    }
}

#[test]
fn a_session_whose_store_failed_is_opened_again_by_an_alarm() {
    let mut kernel = SessionKernel::default();
    kernel.store_failed(START);
    let handle =
        |kernel: &mut SessionKernel, input: Input, now: Timestamp| kernel.handle(input, Ok(None), now);
    assert_eq!(handle(&mut kernel, Input::Changed, START), [Effect::WakeAt(START + RETRY)]);
    // It could not be opened: the next attempt follows a second later, and no timer runs until then.
    let later = START + RETRY;
    assert_eq!(handle(&mut kernel, Input::Alarm, later), [Effect::WakeAt(later + RETRY)]);
    assert_eq!(handle(&mut kernel, Input::Changed, later), []);
}
