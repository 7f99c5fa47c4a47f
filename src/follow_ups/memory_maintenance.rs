//! The `memory_maintenance` follow-up: requests the consolidation of a changed memory, and reports the last
//! one.

use crate::agent::{
    FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use crate::memory::Memories;
use crate::types::{BoxError, EventKind};
use std::rc::Rc;

/// Priority 6. The consolidation itself runs in the scheduled handler.
pub struct MemoryMaintenance(pub Rc<Memories>);

#[async_trait::async_trait(?Send)]
impl FollowUp for MemoryMaintenance {
    fn name(&self) -> &'static str {
        "memory_maintenance"
    }

    fn priority(&self) -> i32 {
        6
    }

    fn runs_after_failure(&self) -> bool {
        false
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        // Facts are added by the flush, in the same commit or before, and by tools.
        let flushed = |kind: &EventKind| matches!(kind, EventKind::MemoryFlushed { .. });
        if !cx.uncommitted.iter().any(flushed) && cx.newest(&["memory.flushed"], 1)?.is_empty() {
            return Ok(Progress::Done(Vec::new()));
        }
        let last = self.0.request_consolidation(&cx.owner).await;
        let last = last.map_err(|error| self.0.log_failure("memory.not_requested", &cx.owner, &error))?;
        let announced = cx.last_of("memory.consolidated")?.unwrap_or(cx.created_at);
        let news = last.filter(|last| *last > announced);
        let news = news.map(|consolidated_at| EventKind::MemoryConsolidated { consolidated_at });
        Ok(Progress::Done(news.into_iter().collect()))
    }
}
