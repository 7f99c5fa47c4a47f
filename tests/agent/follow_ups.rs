//! Follow-ups are completed despite failures and evictions, and never delay the reply.

use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::{
    FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use edge_harness::platform::in_memory::models::answer;
use edge_harness::types::{BoxError, EventKind, Owner, Part, SessionId, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Records the context of each run.
#[derive(Clone, Default)]
struct Diary {
    /// The users' messages in each run.
    rounds: Rc<RefCell<Vec<Vec<String>>>>,
    /// The start time of each run, in seconds since the first.
    times: Rc<RefCell<Vec<u64>>>,
    erased: Rc<RefCell<Vec<String>>>,
    /// Number of initial runs that fail.
    fails: Rc<Cell<u32>>,
    takes: Rc<Cell<Duration>>,
    not_before: Rc<Cell<Timestamp>>,
}

#[async_trait::async_trait(?Send)]
impl FollowUp for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        self.times.borrow_mut().push((cx.clock.now().0 - NOW.0) / 1_000);
        let said = cx.newest(&["turn.started"], 10)?;
        let text = |kind: &EventKind| match kind {
            EventKind::TurnStarted { message } => message.text(),
            _ => String::new(),
        };
        self.rounds.borrow_mut().push(said.iter().map(|record| text(&record.kind)).collect());
        if self.not_before.get() > cx.clock.now() {
            return Ok(Progress::NotBefore(self.not_before.get()));
        }
        cx.unless_canceled(cx.clock.sleep(self.takes.get())).await?;
        if self.fails.get() > 0 {
            self.fails.set(self.fails.get() - 1);
            return Err("not now".into());
        }
        Ok(Progress::Done(vec![EventKind::MemoryFlushed { facts: said.len() }]))
    }

    async fn erase(&self, owner: &Owner, session: &SessionId) -> Result<bool, BoxError> {
        let Owner { tenant, agent, user } = owner;
        self.erased.borrow_mut().push(format!("{tenant}/{agent}/{user}/{session}"));
        Ok(true)
    }
}

fn stage() -> (Stage, Diary) {
    let diary = Diary::default();
    let own = diary.clone();
    let (stage, _) =
        Stage::scripted(|_| answer(vec![Part::text("Hm.")]), move |builder| builder.follow_up(own.clone()));
    (stage, diary)
}

fn count(stage: &Stage, kind: &str) -> usize {
    stage.kinds().iter().filter(|found| *found == kind).count()
}

#[test]
fn each_turn_is_followed_up_once() {
    let (stage, diary) = stage();
    for turn in ["t1", "t2"] {
        stage.post(turn, turn);
        stage.settle();
        stage.run();
    }
    assert_eq!(*diary.rounds.borrow(), [["t1"], ["t2"]]);
    stage.live(ms(100_000));
    assert_eq!(diary.rounds.borrow().len(), 2);
    assert_eq!(count(&stage, "memory.flushed"), 2);
    stage.check();
}

#[test]
fn turns_that_end_during_a_run_are_followed_up_together() {
    let (stage, diary) = stage();
    diary.takes.set(ms(5_000));
    stage.post("t1", "one");
    stage.settle();
    for turn in ["two", "three"] {
        stage.post(turn, turn);
        stage.settle();
    }
    for _ in 0..20 {
        stage.tick(ms(1_000));
    }
    assert_eq!(*diary.rounds.borrow(), [vec!["one"], vec!["two", "three"]]);
}

/// A follow-up that takes five seconds.
struct Slow;

#[async_trait::async_trait(?Send)]
impl FollowUp for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        cx.clock.sleep(ms(5_000)).await;
        Ok(Progress::Done(Vec::new()))
    }
}

#[test]
fn a_turn_that_ends_during_an_earlier_follow_up_is_followed_up() {
    let diary = Diary::default();
    let own = diary.clone();
    let (stage, _) = Stage::scripted(
        |_| answer(vec![Part::text("Hm.")]),
        move |builder| builder.follow_up(Slow).follow_up(own.clone()),
    );
    for turn in ["one", "two"] {
        stage.post(turn, turn);
        stage.settle();
    }
    for _ in 0..20 {
        stage.tick(ms(1_000));
    }
    assert_eq!(*diary.rounds.borrow(), [["one"], ["two"]]);
}

#[test]
fn a_failure_is_recorded_once_and_retried_with_backoff() {
    let (stage, diary) = stage();
    diary.fails.set(4);
    stage.post("t1", "one");
    stage.settle();
    stage.run();
    stage.live(ms(60_000));
    assert_eq!(*diary.times.borrow(), [0, 1, 3, 7, 15]);
    assert_eq!(*diary.rounds.borrow(), vec![["one"]; 5]);
    assert_eq!((count(&stage, "turn.sub_step_failed"), count(&stage, "memory.flushed")), (1, 1));
    stage.check();
}

#[test]
fn a_follow_up_survives_evictions() {
    let (stage, diary) = stage();
    diary.takes.set(ms(5_000));
    stage.post("t1", "one");
    stage.settle();
    stage.tick(ms(1_000));
    let alarm = stage.take_wake_up().expect("a wake-up that survives the eviction");
    stage.crash();
    stage.tick(alarm);
    stage.wake();
    stage.run();
    stage.tick(ms(5_000));
    assert_eq!(*diary.rounds.borrow(), [["one"], ["one"]]);
    assert_eq!(count(&stage, "memory.flushed"), 1);
}

#[test]
fn a_postponed_follow_up_waits() {
    let (stage, diary) = stage();
    diary.not_before.set(stage.host().now() + ms(60_000));
    stage.post("t1", "one");
    stage.settle();
    stage.run();
    stage.live(ms(90_000));
    assert_eq!(count(&stage, "memory.flushed"), 1);
    assert_eq!(*diary.times.borrow(), [0, 60]);
}

#[test]
fn erasing_a_session_stops_its_follow_ups_and_erases_their_data() {
    let (stage, diary) = stage();
    diary.takes.set(ms(50_000));
    stage.post("t1", "one");
    stage.settle();
    let host = stage.host();
    block_on(host.erase(&"t".into(), &"s".into())).expect("erased");
    stage.tick(ms(60_000));
    assert_eq!(*diary.erased.borrow(), ["t/default/u/s"]);
    assert_eq!((diary.rounds.borrow().len(), stage.store.log().len()), (1, 0));
}
