//! Where lines and large things go.

use crate::ports::{BlobStore, Log};
use async_trait::async_trait;
use serde_json::Value;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

/// Keeps every line.
#[derive(Default)]
pub struct MemoryLog(RefCell<Vec<Value>>);

impl MemoryLog {
    /// All lines, oldest first.
    pub fn lines(&self) -> Vec<Value> {
        self.0.borrow().clone()
    }
}

impl Log for MemoryLog {
    fn line(&self, json: &Value) {
        self.0.borrow_mut().push(json.clone());
    }
}

/// The keys of large things.
#[derive(Default)]
pub struct MemoryBlobs {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// What is there.
    pub keys: RefCell<BTreeSet<String>>,
}

#[async_trait(?Send)]
impl BlobStore for MemoryBlobs {
    async fn delete_prefix(&self, prefix: &str) -> Result<(), String> {
        if self.down.get() {
            return Err("switched off".into());
        }
        self.keys.borrow_mut().retain(|key| !key.starts_with(prefix));
        Ok(())
    }
}
