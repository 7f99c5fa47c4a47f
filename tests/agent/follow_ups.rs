//! Follow-ups are completed despite failures and evictions, and never delay the reply.

use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::{
    FollowUp, Tool, ToolContext, ToolError,
    follow_up::{FollowUpContext, Progress},
};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{BoxError, Effect, EventKind, Owner, Part, SessionId, Timestamp, WorkspaceOwner};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::json;
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

    async fn erase(&self, workspace: &WorkspaceOwner, session: &SessionId) -> Result<bool, BoxError> {
        let Owner { tenant, agent, user } = &workspace.owner;
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
        stage.follow_up();
    }
    assert_eq!(*diary.rounds.borrow(), [["t1"], ["t2"]]);
    stage.live(ms(100_000));
    assert_eq!(diary.rounds.borrow().len(), 2);
    assert_eq!(count(&stage, "memory.flushed"), 2);
    stage.check();
}

#[test]
fn turns_in_quick_succession_share_a_round() {
    let (stage, diary) = stage();
    for turn in ["one", "two", "three"] {
        stage.post(turn, turn);
        stage.settle();
        stage.tick(ms(1_000));
    }
    assert_eq!(diary.rounds.borrow().len(), 0, "another turn may follow");
    stage.tick(ms(1_000));
    assert_eq!(*diary.rounds.borrow(), [["one", "two", "three"]]);
    assert_eq!(count(&stage, "memory.flushed"), 1);
    stage.check();
}

#[test]
fn a_follow_up_waits_at_most_ten_seconds() {
    let (stage, diary) = stage();
    for second in 0..25 {
        stage.post(&format!("t{second}"), "on and on");
        stage.settle();
        stage.tick(ms(1_000));
    }
    assert_eq!(*diary.times.borrow(), [10, 20]);
    stage.follow_up();
    assert_eq!(diary.rounds.borrow().iter().map(Vec::len).sum::<usize>(), 10 + 10 + 5);
}

#[test]
fn an_eviction_delays_a_waiting_follow_up_by_seconds() {
    let (stage, diary) = stage();
    stage.post("t1", "one");
    stage.settle();
    let alarm = stage.take_wake_up().expect("an alarm that survives the eviction");
    assert!(alarm <= ms(20_000));
    stage.crash();
    stage.tick(alarm);
    assert_eq!(diary.rounds.borrow().len(), 0);
    stage.wake();
    assert_eq!(*diary.rounds.borrow(), [["one"]]);
    stage.check();
}

/// A diary that runs right after the reply.
struct Prompt(Diary);

#[async_trait::async_trait(?Send)]
impl FollowUp for Prompt {
    fn name(&self) -> &'static str {
        "prompt"
    }

    fn runs_at_once(&self, _cx: &FollowUpContext) -> bool {
        true
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        self.0.run(cx).await
    }
}

#[test]
fn a_follow_up_that_runs_at_once_takes_the_others_along() {
    let (diary, prompt) = (Diary::default(), Diary::default());
    let own = (diary.clone(), prompt.clone());
    let (stage, _) = Stage::scripted(
        |_| answer(vec![Part::text("Hm.")]),
        move |builder| builder.follow_up(own.0.clone()).follow_up(Prompt(own.1.clone())),
    );
    stage.post("t1", "one");
    stage.settle();
    assert_eq!(prompt.rounds.borrow().len(), 0, "the reply leaves first");
    stage.tick(ms(100));
    assert_eq!((*prompt.rounds.borrow()).clone(), [["one"]]);
    assert_eq!(*diary.rounds.borrow(), [["one"]]);
}

#[test]
fn quick_turns_do_not_delay_a_follow_up_that_runs_at_once() {
    let prompt = Diary::default();
    let own = prompt.clone();
    let (stage, _) = Stage::scripted(
        |_| answer(vec![Part::text("Hm.")]),
        move |builder| builder.follow_up(Prompt(own.clone())),
    );
    for turn in 0..10 {
        stage.post(&format!("t{turn}"), "on and on");
        stage.settle();
        stage.tick(ms(2));
    }
    assert_eq!(prompt.rounds.borrow().len(), 3, "a round every six milliseconds");
}

/// Waits for the follow-ups.
struct Finish;

impl Tool for Finish {
    type Args = serde_json::Map<String, serde_json::Value>;
    type Output = String;
    const NAME: &'static str = "finish";
    const DESCRIPTION: &'static str = "Waits for the follow-ups.";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn run(&self, _args: Self::Args, cx: ToolContext) -> Result<String, ToolError> {
        cx.finish_follow_ups().await?;
        Ok("finished".to_owned())
    }
}

/// A stage whose model calls `finish` in each turn but the first.
fn finishing() -> (Stage, Diary) {
    let diary = Diary::default();
    let own = diary.clone();
    let (stage, _) = Stage::scripted(
        |request| match request.messages.last().map(|message| message.text()).as_deref() {
            Some("finish") => answer(vec![call("c", "finish", json!({}))]),
            _ => answer(vec![Part::text("Hm.")]),
        },
        move |builder| builder.follow_up(own.clone()).tool(Finish),
    );
    (stage, diary)
}

#[test]
fn a_tool_can_finish_the_follow_ups_of_earlier_turns() {
    let (stage, diary) = finishing();
    diary.takes.set(ms(500));
    for turn in ["one", "two"] {
        stage.post(turn, turn);
        stage.settle();
    }
    stage.post("t3", "finish");
    stage.settle();
    assert_eq!(stage.outcomes("t3"), ["result"]);
    assert_eq!(*diary.rounds.borrow(), [["one", "two"]]);
    assert_eq!(count(&stage, "memory.flushed"), 1, "the call waits until the progress is stored");
}

#[test]
fn a_tool_that_finishes_follow_ups_also_waits_for_the_turns_after_a_running_round() {
    let (stage, diary) = finishing();
    diary.takes.set(ms(1_000));
    stage.post("t1", "one");
    stage.settle();
    stage.follow_up();
    stage.post("t2", "two");
    stage.settle();
    stage.post("t3", "finish");
    stage.settle();
    assert_eq!(*diary.rounds.borrow(), [["one"], ["two"]]);
    assert_eq!(count(&stage, "memory.flushed"), 2);
}

#[test]
fn a_call_does_not_wait_long_for_follow_ups() {
    for (fails, takes) in [(0, ms(100_000)), (1, ms(0))] {
        let (stage, diary) = finishing();
        diary.fails.set(fails);
        diary.takes.set(takes);
        stage.post("t1", "one");
        stage.settle();
        let posted_at = stage.host().now();
        stage.post("t2", "finish");
        stage.settle();
        assert_eq!(stage.outcomes("t2"), ["result"]);
        assert!(stage.host().now().since(posted_at) <= ms(5_100));
        assert_eq!(count(&stage, "memory.flushed"), 0);
    }
}

#[test]
fn turns_that_end_during_a_run_are_followed_up_together() {
    let (stage, diary) = stage();
    diary.takes.set(ms(5_000));
    stage.post("t1", "one");
    stage.settle();
    stage.follow_up();
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
        stage.follow_up();
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
    assert_eq!(*diary.times.borrow(), [2, 3, 5, 9, 17]);
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
    stage.follow_up();
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
    assert_eq!(*diary.times.borrow(), [2, 60]);
}

#[test]
fn erasing_a_session_stops_its_follow_ups_and_erases_their_data() {
    let (stage, diary) = stage();
    diary.takes.set(ms(50_000));
    stage.post("t1", "one");
    stage.settle();
    stage.follow_up();
    let host = stage.host();
    block_on(host.erase(&"t".into(), &"s".into())).expect("erased");
    stage.tick(ms(60_000));
    assert_eq!(*diary.erased.borrow(), ["t/default/u/s"]);
    assert_eq!((diary.rounds.borrow().len(), stage.store.log().len()), (1, 0));
}
