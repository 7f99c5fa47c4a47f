//! The pauses and work limits of searches.

use super::{ManualClock, Stage, grep, put};
use crate::ports::Clock;
use crate::types::{PathPrefix, Timestamp};
use crate::workspace::pace::{MAX_TURN_WORK, MAX_WORK, Pace};
use futures::{
    FutureExt,
    executor::block_on,
    future::{LocalBoxFuture, poll_fn},
};
use pretty_assertions::assert_eq;
use std::{
    cell::Cell,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A clock that counts sleeps, each of which lets other tasks run once.
#[derive(Default)]
struct CountingClock(Rc<Cell<usize>>);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn sleep(&self, _span: Duration) -> LocalBoxFuture<'static, ()> {
        self.0.set(self.0.get() + 1);
        let mut is_over = false;
        poll_fn(move |_| match std::mem::replace(&mut is_over, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .boxed_local()
    }
}

/// An expression that needs a new transition for almost every byte of this text.
const SLOW: &str = "[ab]*a[ab]{60}c";

fn slow_text() -> String {
    (0..100_000_u32)
        .map(|n| if n.wrapping_mul(0x9e37_79b9).count_ones() % 2 == 0 { 'a' } else { 'b' })
        .collect()
}

#[test]
fn a_long_line_is_searched_to_its_end_with_pauses() {
    let stage = Stage::new();
    put(&*stage.tree(), "line", &format!("{}b", "a".repeat(3_800_000)));
    let (sleeps, turn) = (Rc::default(), Rc::default());
    let mut pace = Pace::new(Rc::new(CountingClock(Rc::clone(&sleeps))), Rc::clone(&turn));
    let (workspace, grep) = (stage.of("u"), grep("(a*){40}b", false, "", None));
    let mut search = pin!(workspace.grep(&grep, &mut pace));
    let mut polls = 1;
    let found = loop {
        match search.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => break found.expect("lines"),
            Poll::Pending => polls += 1,
        }
    };
    assert_eq!((found.hits.len(), found.notes.len()), (1, 0));
    assert!(found.hits[0].text.ends_with("aab"));
    assert_eq!((polls, sleeps.get()), (9, 8));
    assert!((3_800_000..6_000_000).contains(&turn.get()));
}

#[test]
fn a_dropped_search_does_no_more_work() {
    let stage = Stage::new();
    put(&*stage.tree(), "text", &slow_text());
    let (sleeps, turn) = (Rc::default(), Rc::default());
    let mut pace = Pace::new(Rc::new(CountingClock(Rc::clone(&sleeps))), Rc::clone(&turn));
    let (workspace, grep) = (stage.of("u"), grep(SLOW, false, "", None));
    {
        let mut search = pin!(workspace.grep(&grep, &mut pace));
        assert!(search.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(sleeps.get(), 1);
    assert!(turn.get() < MAX_WORK / 16, "{}", turn.get());
}

#[test]
fn the_work_of_a_search_and_of_a_turn_is_limited() {
    let stage = Stage::new();
    let workspace = stage.of("u");
    put(&*stage.tree(), "a", "abc");
    put(&*stage.tree(), "b", &slow_text());
    let lines = |pattern: &str, pace: &mut Pace| {
        let found = block_on(workspace.grep(&grep(pattern, false, "", None), pace)).expect("lines");
        (found.hits.len(), found.notes)
    };
    let turn = Rc::new(Cell::new(0));
    let pace = || Pace::new(Rc::new(ManualClock::default()), Rc::clone(&turn));
    let mut small = pace();
    small.left = MAX_WORK / 16;
    let note = "the search stopped in b at its work limit; narrow it or use a simpler pattern";
    assert_eq!(lines("c|[ab]*a[ab]{60}d", &mut small), (1, vec![note.to_owned()]));
    assert!((1..=MAX_WORK / 16).contains(&turn.get()));

    turn.set(MAX_TURN_WORK - 10_000);
    let note = "the search stopped in b at the work limit for all searches of this turn; \
                continue in the next turn";
    assert_eq!(lines("b", &mut pace()), (1, vec![note.to_owned()]));
    turn.set(0);
    assert_eq!(lines("b", &mut pace()), (2, vec![]));
}

#[test]
fn the_work_of_matching_paths_is_limited() {
    let stage = Stage::new();
    let workspace = stage.of("u");
    for n in 0..30 {
        put(&*stage.tree(), &format!("{n:02}{}", "a".repeat(500)), "x");
    }
    let folder = PathPrefix::folder("").expect("a folder");
    let glob = |pattern: &str| block_on(workspace.glob(&folder, pattern, &mut stage.pace())).expect("files");
    let costly = format!("{}x", "{*,*,*,*,*,*,*,*,*,*}".repeat(3));
    let found = glob(&costly);
    assert_eq!((found.hits.len(), found.notes.len()), (0, 1));
    assert!(found.notes[0].starts_with("the search for files stopped at 1"), "{:?}", found.notes);
    assert!(found.notes[0].contains("at its work limit"), "{:?}", found.notes);
    assert_eq!(glob("*{a,b}").hits.len(), 30);
}
