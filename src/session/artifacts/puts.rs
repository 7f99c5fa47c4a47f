//! Writes to the object store that run to their end, whoever leaves.
//!
//! A store does what it was asked to also when nobody waits for the answer any more. So that whoever
//! erases a session can wait for what is under way, each write is work of its own.

use crate::ports::{BlobStore, Clock, Spawner};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, Shared, join_all, select},
};
use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
};

type Put = Shared<LocalBoxFuture<'static, Result<(), String>>>;

/// An object store whose writes are known while they are under way.
pub struct Puts {
    blobs: Rc<dyn BlobStore>,
    spawner: Rc<dyn Spawner>,
    clock: Rc<dyn Clock>,
    under_way: RefCell<Vec<Put>>,
    /// How many want it to stay closed.
    closed: Cell<u32>,
}

/// Keeps writes from starting, until it is dropped.
pub struct Closed<'a>(&'a Puts);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.set(self.0.closed.get() - 1);
    }
}

impl Puts {
    /// Writes to `blobs`.
    pub fn new(blobs: Rc<dyn BlobStore>, spawner: Rc<dyn Spawner>, clock: Rc<dyn Clock>) -> Self {
        Self { blobs, spawner, clock, under_way: RefCell::default(), closed: Cell::new(0) }
    }

    /// Lets nothing be written from now on.
    pub fn close(&self) -> Closed<'_> {
        self.closed.set(self.closed.get() + 1);
        Closed(self)
    }

    /// Waits until nothing is under way, for so many milliseconds.
    ///
    /// # Errors
    /// When something still is then.
    pub async fn settle(&self, patience_ms: u64) -> Result<(), String> {
        let mut under_way = self.under_way.borrow().clone();
        under_way.retain(|put| put.peek().is_none());
        if under_way.is_empty() {
            return Ok(());
        }
        match select(join_all(under_way), self.clock.sleep(patience_ms)).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(format!("it is still writing after {patience_ms} ms")),
        }
    }
}

#[async_trait(?Send)]
impl BlobStore for Puts {
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> Result<(), String> {
        if self.closed.get() > 0 {
            return Err("the session is being erased".into());
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

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, String> {
        self.blobs.get(key, range).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), String> {
        self.blobs.delete(keys).await
    }

    async fn delete_prefix(&self, prefix: &str) -> Result<(), String> {
        self.blobs.delete_prefix(prefix).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::{ManualClock, MemoryBlobs, TaskPool};
    use crate::types::Timestamp;
    use futures::channel::oneshot;

    /// Answers when it is let.
    struct Held(RefCell<Option<oneshot::Receiver<()>>>, MemoryBlobs);

    #[async_trait(?Send)]
    impl BlobStore for Held {
        async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> Result<(), String> {
            let held = self.0.take();
            if let Some(held) = held {
                let _ = held.await;
            }
            self.1.put(key, bytes, mime_type).await
        }

        async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, String> {
            self.1.get(key, range).await
        }

        async fn delete(&self, keys: &[String]) -> Result<(), String> {
            self.1.delete(keys).await
        }

        async fn delete_prefix(&self, prefix: &str) -> Result<(), String> {
            self.1.delete_prefix(prefix).await
        }
    }

    #[test]
    fn a_write_goes_on_without_whoever_asked_and_is_waited_for() {
        let (clock, tasks) = (ManualClock::at(Timestamp(0)), Rc::new(TaskPool::default()));
        let (go, held) = oneshot::channel();
        let blobs = Rc::new(Held(RefCell::new(Some(held)), MemoryBlobs::default()));
        let puts = Puts::new(blobs.clone(), tasks.clone(), Rc::new(clock.clone()));
        let put = |key: &'static str| puts.put(key, Bytes::from_static(b"x"), "text/plain");
        // Asked for, and the one who asked has left.
        assert_eq!(put("a").now_or_never(), None);
        let mut settled = Box::pin(puts.settle(1_000));
        assert_eq!((&mut settled).now_or_never(), None);
        clock.advance(1_000);
        assert_eq!(settled.now_or_never(), Some(Err("it is still writing after 1000 ms".into())));
        go.send(()).expect("it is waited for");
        tasks.run();
        assert_eq!(puts.settle(0).now_or_never(), Some(Ok(())));
        assert_eq!(blobs.1.objects.borrow().len(), 1);
        {
            let (_first, second) = (puts.close(), puts.close());
            drop(second);
            assert_eq!(put("b").now_or_never(), Some(Err("the session is being erased".into())));
        }
        assert_eq!(put("b").now_or_never(), Some(Ok(())));
    }
}
