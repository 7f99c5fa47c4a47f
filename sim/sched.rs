//! Virtual time and scheduling: a clock that jumps to the next timer when no task can run, and a seeded
//! choice of the task to poll next.

use super::dice::Dice;
use edge_harness::ports::Clock;
use edge_harness::types::{Timestamp, time::millis};
use futures::future::LocalBoxFuture;
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// The start time of every simulation.
pub const START: u64 = 1_795_176_000_000;

/// The owner of a task: the index of a node, or `None` for clients.
pub type Owner = Option<usize>;

/// The scheduler of a simulated world.
pub struct Sched {
    now: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    tasks: RefCell<Vec<Task>>,
    ids: Cell<u64>,
    dice: RefCell<Dice>,
}

/// A task panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

struct Task {
    id: u64,
    owner: Owner,
    work: Option<LocalBoxFuture<'static, ()>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Sched {
    pub fn new(dice: Dice) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(START),
            timers: RefCell::default(),
            tasks: RefCell::default(),
            ids: Cell::new(0),
            dice: RefCell::new(dice),
        })
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    fn id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }

    pub fn spawn(&self, owner: Owner, work: LocalBoxFuture<'static, ()>) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.tasks.borrow_mut().push(Task { id: self.id(), owner, work: Some(work), woken });
    }

    /// Returns the task to poll next and its owner, or `None` if every task is waiting.
    pub fn pick(&self) -> Option<(u64, Owner)> {
        let tasks = self.tasks.borrow();
        let ready: Vec<&Task> = tasks.iter().filter(|task| task.woken.0.load(Ordering::Relaxed)).collect();
        if ready.is_empty() {
            return None;
        }
        let task = self.dice.borrow_mut().pick(&ready);
        Some((task.id, task.owner))
    }

    /// Polls a task.
    ///
    /// # Errors
    /// If the task panicked.
    pub fn poll(&self, id: u64) -> Result<(), Panicked> {
        let taken = self.tasks.borrow_mut().iter_mut().find(|task| task.id == id).and_then(|task| {
            task.woken.0.store(false, Ordering::Relaxed);
            Some((task.work.take()?, Arc::clone(&task.woken)))
        });
        let Some((mut work, woken)) = taken else { return Ok(()) };
        let waker = Waker::from(woken);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        let mut tasks = self.tasks.borrow_mut();
        let place = tasks.iter().position(|task| task.id == id);
        match (polled, place) {
            (Ok(Poll::Pending), Some(place)) => tasks[place].work = Some(work),
            (polled, place) => {
                place.map(|place| tasks.remove(place));
                drop(tasks);
                drop(work);
                let _ = polled.map_err(|_| Panicked)?;
            }
        }
        Ok(())
    }

    /// Drops all tasks of an owner, wherever they are.
    pub fn kill(&self, owner: Owner) {
        let mut dead = Vec::new();
        self.tasks.borrow_mut().retain_mut(|task| {
            let dies = task.owner == owner;
            dead.extend(task.work.take_if(|_| dies));
            !dies
        });
    }

    /// Drops everything. Tasks hold references to the scheduler.
    pub fn clear(&self) {
        let tasks = self.tasks.take();
        drop(tasks);
        let later = self.tasks.take();
        drop(later);
    }

    /// Returns when the next timer is due.
    pub fn next_timer(&self) -> Option<u64> {
        self.timers.borrow().keys().next().map(|(due, _)| *due)
    }

    /// Advances the clock and wakes the timers that are due.
    pub fn advance_to(&self, now: u64) {
        self.now.set(now.max(self.now.get()));
        let later = self.timers.borrow_mut().split_off(&(self.now.get() + 1, 0));
        let due = self.timers.replace(later);
        due.into_values().for_each(Waker::wake);
    }

    pub fn sleep(self: &Rc<Self>, ms: u64) -> LocalBoxFuture<'static, ()> {
        Box::pin(Sleep { sched: Rc::clone(self), key: (self.now().saturating_add(ms), self.id()) })
    }
}

struct Sleep {
    sched: Rc<Sched>,
    key: (u64, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.sched.now() >= self.key.0 {
            return Poll::Ready(());
        }
        self.sched.timers.borrow_mut().insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.sched.timers.borrow_mut().remove(&self.key);
    }
}

/// The clock of the core.
pub struct SimClock(pub Rc<Sched>);

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.now())
    }

    fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()> {
        self.0.sleep(millis(span))
    }
}
