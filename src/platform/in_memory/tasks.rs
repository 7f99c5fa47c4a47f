//! Background tasks that run when a test says so.

use crate::ports::Spawner;
use futures::{
    StreamExt,
    future::LocalBoxFuture,
    stream::FuturesUnordered,
    task::{Context, Poll},
};
use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

/// Holds spawned tasks until [`TaskPool::run`]. A task may refer to the pool, so only [`TaskPool::evict`] frees both.
#[derive(Default)]
pub struct TaskPool {
    spawned: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
    tasks: RefCell<FuturesUnordered<LocalBoxFuture<'static, ()>>>,
    wake_up: Cell<Option<Duration>>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TaskPool {
    /// Runs all tasks until none can progress without time advancing.
    pub fn run(&self) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut tasks = self.tasks.take();
        loop {
            tasks.extend(self.spawned.take());
            woken.0.store(false, Ordering::Relaxed);
            let polled = tasks.poll_next_unpin(&mut Context::from_waker(&waker));
            let stalled = !matches!(polled, Poll::Ready(Some(()))) && !woken.0.load(Ordering::Relaxed);
            if stalled && self.spawned.borrow().is_empty() {
                break;
            }
        }
        *self.tasks.borrow_mut() = tasks;
    }

    /// Drops all tasks, as an eviction does.
    pub fn evict(&self) {
        drop((self.spawned.take(), self.tasks.take()));
    }

    /// Takes the delay of the last requested wake-up.
    pub fn take_wake_up(&self) -> Option<Duration> {
        self.wake_up.take()
    }
}

impl Spawner for TaskPool {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        self.spawned.borrow_mut().push(work);
    }

    fn wake_after(&self, delay: Duration) {
        self.wake_up.set(Some(delay));
    }

    fn let_sleep(&self) {
        self.wake_up.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn tasks_spawned_by_running_tasks_run() {
        let (pool, seen) = (Rc::new(TaskPool::default()), Rc::new(Cell::new(0)));
        let (inner, count) = (Rc::clone(&pool), Rc::clone(&seen));
        pool.spawn(Box::pin(async move {
            for _ in 0..10 {
                let count = Rc::clone(&count);
                inner.spawn(Box::pin(async move { count.set(count.get() + 1) }));
            }
        }));
        assert_eq!(seen.get(), 0);
        pool.run();
        assert_eq!(seen.get(), 10);
    }
}
