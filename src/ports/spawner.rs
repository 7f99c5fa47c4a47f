//! Work that outlives the request that started it.

use futures::future::LocalBoxFuture;

/// Runs futures to their end, whoever leaves.
pub trait Spawner {
    /// Starts `work`; the platform keeps the object alive until it is done.
    fn spawn(&self, work: LocalBoxFuture<'static, ()>);

    /// Asks to be woken after `ms` milliseconds even if the machine went away. Only the last
    /// call counts.
    fn wake_after(&self, ms: u64);

    /// Takes back the last [`Spawner::wake_after`].
    fn let_sleep(&self);
}
