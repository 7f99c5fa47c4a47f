//! The `memory_flush` follow-up: extracts facts from new messages.

use crate::agent::{
    FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use crate::memory::{
    Flush, Memories,
    flush::{TRANSCRIPT_KINDS, portion},
};
use crate::ports::memory::MemoryError;
use crate::types::{BoxError, EventKind};
use std::rc::Rc;

/// Maximum number of records per round.
const MAX_RECORDS: usize = 100;

/// Priority 5. Also runs after a failed turn, because the user's message still counts.
pub struct MemoryFlush(pub Rc<Memories>);

#[async_trait::async_trait(?Send)]
impl FollowUp for MemoryFlush {
    fn name(&self) -> &'static str {
        "memory_flush"
    }

    fn priority(&self) -> i32 {
        5
    }

    fn before_drop(&self) -> bool {
        true
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        let Flush::Every(gap) = self.0.flush_setting() else { return Ok(Progress::Done(Vec::new())) };
        let (records, has_more) = cx.oldest(cx.seen, TRANSCRIPT_KINDS, MAX_RECORDS)?;
        let Some(newest) = records.last() else { return Ok(Progress::Done(Vec::new())) };
        if !cx.urgent
            && let Some(free_at) = self.0.claim_flush(&cx.owner, gap).await?
        {
            return Ok(Progress::NotBefore(free_at));
        }
        let portion = portion(&records);
        let extraction = self.0.extract(&cx.owner, &cx.session_id, cx.model.as_deref(), portion);
        let (facts, mut flushed) = cx.unless_canceled(extraction).await??;
        if !facts.is_empty() {
            cx.ensure_active()?;
            let stored = self.0.learn(&cx.owner, facts).await;
            let stored = match stored {
                Ok(stored) => stored,
                Err(MemoryError::Quota(quota)) => return cx.skipped(self.name(), quota),
                Err(error) => return Err(self.0.log_failure("memory.not_flushed", &cx.owner, &error).into()),
            };
            flushed.extend((stored > 0).then_some(EventKind::MemoryFlushed { facts: stored }));
        }
        match portion.last().filter(|last| has_more || last.seq < newest.seq) {
            Some(last) => Ok(Progress::UpTo(last.seq, flushed)),
            None => Ok(Progress::Done(flushed)),
        }
    }
}
