//! The requests that an isolate has taken from the ledgers of tenants.

use super::retries::Retries;
use crate::types::{RequestBlock, TenantId, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The unit of the limit.
const MINUTE: Duration = Duration::from_mins(1);
/// The share of the limit that is taken at once, as a divisor. An isolate may leave up to this share unused.
const BLOCKS_PER_MINUTE: u32 = 20;
/// Maximum size of a block, unless more requests wait for it.
const MAX_BLOCK: u32 = 100;
/// How often a request waits for the block that another request has asked for. That request may have been canceled.
const MAX_WAITS: u32 = 50;

/// The requests of the current minute that this isolate may pass on, by tenant.
#[derive(Default)]
pub struct RequestBlocks(RefCell<BTreeMap<TenantId, Minute>>);

/// The requests of a tenant in a minute.
struct Minute {
    ends_at: Timestamp,
    /// The requests that may pass.
    left: u32,
    /// Whether the ledger has none left.
    is_used_up: bool,
    /// Whether a request has asked the ledger for a block.
    is_asking: bool,
    /// The requests that wait for the block.
    waiting: u32,
    retries: Retries,
}

/// The decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The request may pass.
    Granted,
    /// The ledger has to be asked for a block of this size, which includes the request.
    Ask(u32),
    /// Another request has asked for a block. This one has to be taken again after a short time.
    Wait,
    /// The tenant has reached its limit.
    Refused(Refused),
}

/// A request over the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The end of the minute.
    pub resets_at: Timestamp,
    /// When the request should be tried again.
    pub retry_at: Timestamp,
}

impl RequestBlocks {
    /// Takes one request, which has waited `waits` times, of a tenant with this limit.
    ///
    /// Of requests that arrive together, only one asks the ledger. If each did, they would take blocks from each other.
    pub(super) fn take(&self, tenant: &TenantId, limit: u32, waits: u32, now: Timestamp) -> Taken {
        let mut minutes = self.0.borrow_mut();
        if minutes.get(tenant).is_none_or(|own| own.ends_at <= now) {
            minutes.retain(|_, minute| minute.ends_at > now);
        }
        let ends_at = now.start_of_minute() + MINUTE;
        let own = minutes.entry(tenant.clone()).or_insert_with(|| Minute::new(ends_at));
        if waits > 0 {
            own.waiting = own.waiting.saturating_sub(1);
        }
        if own.left > 0 {
            own.left -= 1;
            return Taken::Granted;
        }
        if own.is_used_up {
            return Taken::Refused(own.refuse(limit));
        }
        if own.is_asking && waits < MAX_WAITS {
            own.waiting += 1;
            return Taken::Wait;
        }
        own.is_asking = true;
        let block = (limit / BLOCKS_PER_MINUTE).clamp(1, MAX_BLOCK);
        Taken::Ask(block.max(own.waiting.saturating_add(1)))
    }

    /// Adds the block that a request has asked the ledger for. It may be smaller than `asked`.
    ///
    /// # Errors
    /// The request may not pass.
    pub(super) fn add(
        &self,
        tenant: &TenantId,
        limit: u32,
        asked: u32,
        RequestBlock { granted, ends_at }: RequestBlock,
    ) -> Result<(), Refused> {
        let mut minutes = self.0.borrow_mut();
        let own = minutes.entry(tenant.clone()).or_insert_with(|| Minute::new(ends_at));
        own.is_asking = false;
        // The clocks of isolate and ledger differ, or the minute has ended since the call.
        if own.ends_at > ends_at {
            let refused = Refused { resets_at: ends_at, retry_at: ends_at };
            return if granted > 0 { Ok(()) } else { Err(refused) };
        }
        if own.ends_at < ends_at {
            *own = Minute { waiting: own.waiting, ..Minute::new(ends_at) };
        }
        own.left = own.left.saturating_add(granted);
        own.is_used_up |= granted < asked;
        if own.left == 0 {
            return Err(own.refuse(limit));
        }
        own.left -= 1;
        Ok(())
    }

    /// Lets the next request ask the ledger, because a call has failed.
    pub(super) fn failed(&self, tenant: &TenantId) {
        if let Some(own) = self.0.borrow_mut().get_mut(tenant) {
            own.is_asking = false;
        }
    }
}

impl Minute {
    const fn new(ends_at: Timestamp) -> Self {
        Self { ends_at, left: 0, is_used_up: false, is_asking: false, waiting: 0, retries: Retries::new() }
    }

    /// Refuses a request. Retries return at the pace of the limit.
    fn refuse(&mut self, limit: u32) -> Refused {
        let retry_at = self.retries.next(self.ends_at, MINUTE / limit.max(1));
        Refused { resets_at: self.ends_at, retry_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const LIMIT: u32 = 60;

    fn acme() -> TenantId {
        "acme".into()
    }

    /// Takes `count` requests at a time in milliseconds.
    fn take(blocks: &RequestBlocks, count: usize, waits: u32, now: u64) -> Vec<Taken> {
        (0..count).map(|_| blocks.take(&acme(), LIMIT, waits, Timestamp(now))).collect()
    }

    fn add(blocks: &RequestBlocks, asked: u32, granted: u32, ends_at: u64) -> Result<(), (u64, u64)> {
        let added = blocks.add(&acme(), LIMIT, asked, RequestBlock { granted, ends_at: Timestamp(ends_at) });
        added.map_err(|Refused { resets_at, retry_at }| (resets_at.0, retry_at.0))
    }

    #[test]
    fn requests_that_arrive_together_take_two_blocks() {
        let blocks = RequestBlocks::default();
        assert_eq!(take(&blocks, 1, 0, 0), [Taken::Ask(3)]);
        assert!(take(&blocks, 40, 0, 0).iter().all(|taken| *taken == Taken::Wait));
        assert_eq!(add(&blocks, 3, 3, 60_000), Ok(()));
        assert_eq!(take(&blocks, 3, 1, 10), [Taken::Granted, Taken::Granted, Taken::Ask(38)]);
        assert_eq!(take(&blocks, 1, 1, 10), [Taken::Wait]);
        assert_eq!(add(&blocks, 38, 38, 60_000), Ok(()));
        assert!(take(&blocks, 37, 1, 20).iter().all(|taken| *taken == Taken::Granted));
        assert_eq!(take(&blocks, 1, 0, 20), [Taken::Ask(3)]);
    }

    #[test]
    fn a_smaller_block_ends_the_minute() {
        let blocks = RequestBlocks::default();
        let refused = |resets_at, retry_at| {
            Taken::Refused(Refused { resets_at: Timestamp(resets_at), retry_at: Timestamp(retry_at) })
        };
        assert_eq!(take(&blocks, 1, 0, 0), [Taken::Ask(3)]);
        assert_eq!(add(&blocks, 3, 2, 60_000), Ok(()));
        let taken = [Taken::Granted, refused(60_000, 60_000), refused(60_000, 61_000)];
        assert_eq!(take(&blocks, 3, 0, 59_999), taken);
        assert_eq!(take(&blocks, 1, 0, 60_000), [Taken::Ask(3)]);
        assert_eq!(add(&blocks, 3, 0, 120_000), Err((120_000, 120_000)));
    }

    #[test]
    fn a_block_of_another_minute_counts_there() {
        let blocks = RequestBlocks::default();
        assert_eq!(take(&blocks, 1, 0, 59_999), [Taken::Ask(3)]);
        // The ledger is in the next minute.
        assert_eq!(add(&blocks, 3, 3, 120_000), Ok(()));
        let taken = [Taken::Granted, Taken::Granted, Taken::Ask(3)];
        assert_eq!(take(&blocks, 3, 0, 60_001), taken);
        // Its clock is late, and its minute has no requests left.
        assert_eq!(add(&blocks, 3, 0, 60_000), Err((60_000, 60_000)));
        assert_eq!(take(&blocks, 1, 0, 60_002), [Taken::Ask(3)], "it is asked again");
    }

    #[test]
    fn a_call_that_fails_or_is_lost_blocks_no_request_for_long() {
        let blocks = RequestBlocks::default();
        assert_eq!(take(&blocks, 2, 0, 0), [Taken::Ask(3), Taken::Wait]);
        blocks.failed(&acme());
        assert_eq!(take(&blocks, 2, 1, 0), [Taken::Ask(3), Taken::Wait]);
        assert_eq!(take(&blocks, 1, MAX_WAITS, 500), [Taken::Ask(3)]);
    }
}
