//! The requests that an isolate has taken from the ledgers of tenants.

use crate::types::{RequestBlock, TenantId, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The requests that this isolate may pass on, by tenant. Without an entry for the current minute it has to ask.
#[derive(Default)]
pub struct RequestBlocks(RefCell<BTreeMap<TenantId, RequestBlock>>);

impl RequestBlocks {
    /// Takes one request. Returns `None` if the isolate has none, and an error if the tenant has none until the end of
    /// the minute.
    pub(super) fn take(&self, tenant: &TenantId, now: Timestamp) -> Option<Result<(), Timestamp>> {
        let mut blocks = self.0.borrow_mut();
        let block = blocks.get_mut(tenant).filter(|block| block.ends_at > now)?;
        match block.granted {
            0 => Some(Err(block.ends_at)),
            1 => {
                blocks.remove(tenant);
                Some(Ok(()))
            }
            _ => {
                block.granted -= 1;
                Some(Ok(()))
            }
        }
    }

    /// Adds a block.
    pub(super) fn add(&self, tenant: &TenantId, block: RequestBlock, now: Timestamp) {
        let mut blocks = self.0.borrow_mut();
        blocks.retain(|_, block| block.ends_at > now);
        let own = blocks.entry(tenant.clone()).or_insert(RequestBlock { granted: 0, ..block });
        own.granted = own.granted.saturating_add(block.granted);
    }
}
