//! Work that outlives the request that started it.

use futures::future::LocalBoxFuture;
use std::time::Duration;

/// Runs futures to completion, even if the client disconnects.
///
/// ```
/// use edge_harness::{platform::in_memory::TaskPool, ports::Spawner};
/// use std::{cell::Cell, rc::Rc};
///
/// let (tasks, done) = (TaskPool::default(), Rc::new(Cell::new(false)));
/// let task = Rc::clone(&done);
/// tasks.spawn(Box::pin(async move { task.set(true) }));
/// tasks.run();
/// assert!(done.get());
/// ```
pub trait Spawner {
    /// Starts `work`. The platform keeps the object in memory until it is done.
    fn spawn(&self, work: LocalBoxFuture<'static, ()>);

    /// Sets the object's alarm, which also fires after an eviction. Replaces an earlier alarm.
    fn wake_after(&self, delay: Duration);

    /// Cancels the alarm set by [`Spawner::wake_after`].
    fn let_sleep(&self);
}
