//! Tracks writes to the object store until they finish.
//!
//! A store performs a write even if its caller has stopped waiting. Each write therefore runs in a task of
//! its own, so that erasing a session can await the writes in progress.

use crate::ports::{BlobError, BlobResult, BlobStore, Clock, Spawner};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, Shared, join_all, select},
};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
};

type Put = Shared<LocalBoxFuture<'static, BlobResult<()>>>;

/// An object store that tracks its writes in progress.
pub struct Puts {
    blobs: Rc<dyn BlobStore>,
    spawner: Rc<dyn Spawner>,
    clock: Rc<dyn Clock>,
    under_way: RefCell<Vec<Put>>,
    /// Number of [`Closed`] guards.
    closed: Cell<u32>,
}

/// Blocks new writes until it is dropped.
pub struct Closed<'a>(&'a Puts);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.set(self.0.closed.get() - 1);
    }
}

impl Puts {
    /// Wraps `blobs`.
    pub fn new(blobs: Rc<dyn BlobStore>, spawner: Rc<dyn Spawner>, clock: Rc<dyn Clock>) -> Self {
        Self { blobs, spawner, clock, under_way: RefCell::default(), closed: Cell::new(0) }
    }

    /// Blocks new writes until the guard is dropped.
    pub fn close(&self) -> Closed<'_> {
        self.closed.set(self.closed.get() + 1);
        Closed(self)
    }

    /// Waits until no write is in progress, for at most `timeout`.
    ///
    /// # Errors
    /// If a write is still in progress after that time.
    pub async fn settle(&self, timeout: Duration) -> BlobResult<()> {
        let mut under_way = self.under_way.borrow().clone();
        under_way.retain(|put| put.peek().is_none());
        if under_way.is_empty() {
            return Ok(());
        }
        match select(join_all(under_way), self.clock.sleep(timeout)).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(BlobError(format!("a write is still in progress after {timeout:?}"))),
        }
    }
}

#[async_trait(?Send)]
impl BlobStore for Puts {
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> BlobResult<()> {
        if self.closed.get() > 0 {
            return Err(BlobError("the session is being erased".into()));
        }
        let (blobs, key, mime_type) = (Rc::clone(&self.blobs), key.to_owned(), mime_type.to_owned());
        let put = async move { blobs.put(&key, bytes, &mime_type).await }.boxed_local().shared();
        {
            let mut under_way = self.under_way.borrow_mut();
            under_way.retain(|put| put.peek().is_none());
            under_way.push(put.clone());
        }
        self.spawner.spawn(put.clone().map(drop).boxed_local());
        put.await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
        self.blobs.get(key, range).await
    }

    async fn delete(&self, keys: &[String]) -> BlobResult<()> {
        self.blobs.delete(keys).await
    }

    async fn delete_prefix(&self, prefix: &str) -> BlobResult<()> {
        self.blobs.delete_prefix(prefix).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::{ManualClock, MemoryBlobs, TaskPool};
    use crate::types::Timestamp;
    use futures::channel::oneshot;

    /// Completes its first write only when released.
    struct Held(RefCell<Option<oneshot::Receiver<()>>>, MemoryBlobs);

    #[async_trait(?Send)]
    impl BlobStore for Held {
        async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> BlobResult<()> {
            let held = self.0.take();
            if let Some(held) = held {
                let _ = held.await;
            }
            self.1.put(key, bytes, mime_type).await
        }

        async fn get(&self, key: &str, range: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
            self.1.get(key, range).await
        }

        async fn delete(&self, keys: &[String]) -> BlobResult<()> {
            self.1.delete(keys).await
        }

        async fn delete_prefix(&self, prefix: &str) -> BlobResult<()> {
            self.1.delete_prefix(prefix).await
        }
    }

    #[test]
    fn a_write_continues_without_its_caller_and_is_awaited() {
        let (clock, tasks) = (ManualClock::at(Timestamp(0)), Rc::new(TaskPool::default()));
        let (go, held) = oneshot::channel();
        let blobs = Rc::new(Held(RefCell::new(Some(held)), MemoryBlobs::default()));
        let puts = Puts::new(blobs.clone(), tasks.clone(), Rc::new(clock.clone()));
        let put = |key: &'static str| puts.put(key, Bytes::from_static(b"x"), "text/plain");
        // Polled once and dropped.
        assert_eq!(put("a").now_or_never(), None);
        let mut settled = Box::pin(puts.settle(Duration::from_secs(1)));
        assert_eq!((&mut settled).now_or_never(), None);
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            settled.now_or_never(),
            Some(Err(BlobError("a write is still in progress after 1s".into())))
        );
        go.send(()).expect("the write is in progress");
        tasks.run();
        assert_eq!(puts.settle(Duration::ZERO).now_or_never(), Some(Ok(())));
        assert_eq!(blobs.1.objects.borrow().len(), 1);
        {
            let (_first, second) = (puts.close(), puts.close());
            drop(second);
            assert_eq!(put("b").now_or_never(), Some(Err(BlobError("the session is being erased".into()))));
        }
        assert_eq!(put("b").now_or_never(), Some(Ok(())));
    }
}
