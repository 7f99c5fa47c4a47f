//! Extracts facts from what was said, behind the reply.

use crate::agent::{
    FollowUp,
    follow_up::{FollowContext, Followed},
};
use crate::memory::{Flush, Memories, flush::SAID};
use crate::types::EventKind;
use std::rc::Rc;

/// Most records of one flush.
const MAX_RECORDS: usize = 400;
/// How long nothing must have been said, in milliseconds: what comes in one go is one question to the model.
const QUIET_MS: u64 = 2_000;
/// How long a flush is put off for that at most, in milliseconds.
const PUT_OFF_MS: u64 = 60_000;

/// Priority 5. Also behind a turn that failed: what the user said was said.
pub struct MemoryFlush(pub Rc<Memories>);

#[async_trait::async_trait(?Send)]
impl FollowUp for MemoryFlush {
    fn name(&self) -> &'static str {
        "memory_flush"
    }

    fn priority(&self) -> i32 {
        5
    }

    async fn follow(&self, cx: &FollowContext) -> Result<Followed, String> {
        let Flush::Every(gap_ms) = self.0.flush_setting() else { return Ok(Followed::Done(Vec::new())) };
        let records = cx.newest(SAID, MAX_RECORDS)?;
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(Followed::Done(Vec::new()));
        };
        let quiet_at = last.at.plus(QUIET_MS).min(first.at.plus(PUT_OFF_MS));
        if cx.clock.now() < quiet_at {
            return Ok(Followed::NotBefore(quiet_at));
        }
        if let Some(free_at) = self.0.claim_flush(&cx.owner, gap_ms).await? {
            return Ok(Followed::NotBefore(free_at));
        }
        let extraction = self.0.extract(&cx.owner, &cx.session_id, cx.model.as_deref(), &records);
        let facts = cx.while_wanted(extraction).await??;
        if facts.is_empty() {
            return Ok(Followed::Done(Vec::new()));
        }
        cx.go_on()?;
        let stored = self.0.learn(&cx.owner, facts).await.map_err(|error| error.to_string())?;
        let flushed = (stored > 0).then_some(EventKind::MemoryFlushed { facts: stored });
        Ok(Followed::Done(flushed.into_iter().collect()))
    }
}
