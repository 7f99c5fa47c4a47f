//! Work that outlives the request that started it.

use futures::future::LocalBoxFuture;
use std::time::Duration;

/// Runs futures to completion, even if the client disconnects.
pub trait Spawner {
    /// Starts `work`. The platform keeps the object in memory until it is done.
    fn spawn(&self, work: LocalBoxFuture<'static, ()>);

    /// Sets the object's alarm, which also fires after an eviction. Replaces an earlier alarm.
    fn wake_after(&self, delay: Duration);

    /// Cancels the alarm set by [`Spawner::wake_after`].
    fn let_sleep(&self);
}
