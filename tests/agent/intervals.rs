//! Intervals: ticks start with the session, continue after evictions, and end with the session.

use crate::http::ask;
use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::{
    BuildError, Interval,
    interval::{Tick, TickContext},
};
use edge_harness::platform::in_memory::models::answer;
use edge_harness::ports::{Clock, SessionStore};
use edge_harness::types::{BoxError, ModelRequest, Part, Timestamp};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

const EVERY: Duration = Duration::from_secs(10);

/// Counts in the session's state, and records when each tick started and whether it was the first run.
#[derive(Clone, Default)]
struct Heart {
    beats: Rc<RefCell<Vec<(u64, bool)>>>,
    takes: Rc<Cell<Duration>>,
    /// Number of initial ticks that fail.
    fails: Rc<Cell<u32>>,
    stops: Rc<Cell<bool>>,
    shut: Rc<RefCell<Vec<String>>>,
}

#[async_trait::async_trait(?Send)]
impl Interval for Heart {
    fn name(&self) -> &'static str {
        "heart"
    }

    fn every(&self) -> Duration {
        EVERY
    }

    async fn tick(&self, cx: &TickContext) -> Result<Tick, BoxError> {
        self.beats.borrow_mut().push(((cx.clock.now().0 - NOW.0) / 1_000, cx.first_run));
        cx.clock.sleep(self.takes.get()).await;
        if self.fails.get() > 0 {
            self.fails.set(self.fails.get() - 1);
            return Err("not now".into());
        }
        cx.set_state("beats", (cx.runs + 1).into())?;
        Ok(if self.stops.get() { Tick::Stop } else { Tick::Again })
    }

    async fn shutdown(&self, cx: &TickContext) {
        assert!(cx.set_state("beats", 0.into()).is_err());
        self.shut.borrow_mut().push(format!("{}/{} after {}", cx.owner.user, cx.session_id, cx.runs));
    }
}

/// A stage and the platform's alarm, which survives evictions.
struct Life {
    stage: Stage,
    alarm: Cell<Option<Timestamp>>,
}

impl Life {
    fn new() -> (Self, Heart) {
        let heart = Heart::default();
        let own = heart.clone();
        let said = |_: &ModelRequest| answer(vec![Part::text("Hm.")]);
        let (stage, _) = Stage::scripted(said, move |builder| builder.interval(own.clone()));
        (Self { stage, alarm: Cell::default() }, heart)
    }

    fn create(&self) {
        ask(&self.stage, "POST /v1/sessions", "user=u", &json!({})).unwrap();
    }

    fn run(&self) {
        self.stage.run();
        if let Some(wait) = self.stage.take_wake_up() {
            self.alarm.set(Some(self.stage.clock.now() + wait));
        }
    }

    /// Advances the clock to this second and fires the alarm when it is due.
    fn until(&self, second: u64) {
        self.run();
        while self.stage.clock.now() < NOW + Duration::from_secs(second) {
            self.stage.clock.advance(ms(1_000));
            self.run();
            if self.alarm.get().is_some_and(|at| at <= self.stage.clock.now()) {
                self.alarm.take();
                self.stage.wake();
                self.run();
            }
        }
    }

    fn count(&self) -> Value {
        self.stage.session().state().meta.state.get("beats").cloned().unwrap_or_default()
    }
}

fn times(heart: &Heart) -> Vec<u64> {
    heart.beats.borrow().iter().map(|(at, _)| *at).collect()
}

#[test]
fn an_interval_ticks_from_the_creation_until_it_stops() {
    let (life, heart) = Life::new();
    life.create();
    life.until(35);
    assert_eq!(*heart.beats.borrow(), [(0, true), (10, false), (20, false), (30, false)]);
    assert_eq!(life.count(), 4);
    heart.stops.set(true);
    life.until(100);
    assert_eq!(times(&heart), [0, 10, 20, 30, 40]);
    assert_eq!(life.alarm.get(), None, "an idle session has no alarm");
    life.stage.check();
}

#[test]
fn ticks_run_during_turns() {
    let (life, heart) = Life::new();
    life.stage.post("t1", "hello");
    life.until(25);
    assert_eq!(times(&heart), [0, 10, 20]);
    life.stage.check();
}

#[test]
fn without_intervals_a_session_is_not_woken() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    stage.run();
    // The watchdog of the new session's directory entry. Nothing is pending when it fires.
    let watchdog = stage.take_wake_up().expect("a watchdog");
    stage.clock.advance(watchdog);
    stage.wake();
    assert_eq!(stage.take_wake_up(), None);
}

#[test]
fn a_tick_interrupted_by_an_eviction_runs_again() {
    let (life, heart) = Life::new();
    life.create();
    life.until(5);
    life.stage.crash();
    life.until(15);
    assert_eq!(*heart.beats.borrow(), [(0, true), (10, false)]);
    // In the middle of a tick.
    heart.takes.set(ms(5_000));
    life.until(22);
    life.stage.crash();
    life.until(46);
    assert_eq!(times(&heart), [0, 10, 20, 40]);
    assert_eq!(life.count(), 3, "the interrupted tick succeeded once");
    life.stage.check();
}

#[test]
fn missed_ticks_are_skipped() {
    let (life, heart) = Life::new();
    life.create();
    life.until(1);
    life.stage.tick(ms(94_000));
    life.stage.wake();
    life.until(104);
    assert_eq!(times(&heart), [0, 95]);
    life.until(105);
    assert_eq!(times(&heart), [0, 95, 105]);
}

#[test]
fn ticks_of_an_interval_never_overlap() {
    let (life, heart) = Life::new();
    heart.takes.set(ms(25_000));
    life.create();
    life.until(30);
    assert_eq!((times(&heart), life.count()), (vec![0], json!(1)));
    heart.takes.set(ms(1_000_000));
    life.until(96);
    assert_eq!(times(&heart), [0, 35]);
    let failed = life.stage.records().pop().unwrap();
    assert_eq!(failed["type"], "turn.sub_step_failed");
    assert_eq!(failed["reason"], "timed out");
    heart.takes.set(Duration::ZERO);
    life.until(106);
    assert_eq!(times(&heart), [0, 35, 105]);
}

#[test]
fn a_failure_is_recorded_once_and_the_interval_continues() {
    let (life, heart) = Life::new();
    heart.fails.set(3);
    life.create();
    life.until(45);
    assert_eq!(*heart.beats.borrow(), [(0, true), (10, true), (20, true), (30, true), (40, false)]);
    let records = life.stage.records();
    let failures: Vec<_> = records.iter().filter(|record| record["type"] == "turn.sub_step_failed").collect();
    assert_eq!(
        (failures.len(), &failures[0]["step"], &failures[0]["reason"]),
        (1, &json!("heart"), &json!("not now"))
    );
    assert_eq!(life.count(), 2);
    life.stage.check();
}

#[test]
fn erasing_a_session_ends_its_intervals() {
    let (life, heart) = Life::new();
    life.create();
    life.until(15);
    heart.takes.set(ms(50_000));
    life.until(21);
    assert_eq!(times(&heart), [0, 10, 20]);
    let host = life.stage.host();
    let erased = Rc::new(Cell::new(false));
    let (own, work) = (Rc::clone(&erased), host.clone());
    // As in a request: tasks that the erasure waits for run concurrently.
    host.spawn(async move { own.set(work.erase(&"t".into(), &"s".into()).await.is_ok()) });
    life.run();
    assert!(erased.get());
    life.until(120);
    assert_eq!((times(&heart).len(), life.stage.store.exists().unwrap()), (3, false));
    assert_eq!(*heart.shut.borrow(), ["u/s after 2"]);
    // A new session with the same id.
    heart.takes.set(Duration::ZERO);
    life.create();
    life.run();
    assert_eq!(heart.beats.borrow().last(), Some(&(120, true)));
}

#[test]
fn intervals_must_have_distinct_names_and_a_minimum_length() {
    struct Fast;
    #[async_trait::async_trait(?Send)]
    impl Interval for Fast {
        fn name(&self) -> &'static str {
            "fast"
        }
        fn every(&self) -> Duration {
            ms(999)
        }
        async fn tick(&self, _cx: &TickContext) -> Result<Tick, BoxError> {
            Ok(Tick::Again)
        }
    }
    let bare = || {
        let models = Rc::new(edge_harness::platform::in_memory::ScriptedModels::new(|_| Vec::new()));
        let clock = edge_harness::platform::in_memory::ManualClock::at(NOW);
        edge_harness::standard::builder(crate::stage::standard(
            models,
            &clock,
            &Rc::default(),
            &Rc::default(),
        ))
    };
    assert_eq!(bare().interval(Fast).build().err(), Some(BuildError::Interval("fast")));
    let twice = bare().interval(Heart::default()).interval(Heart::default());
    assert_eq!(twice.build().err(), Some(BuildError::Interval("heart")));
}
