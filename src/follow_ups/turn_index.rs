//! The `turn_index` follow-up: indexes messages for `session_search`.

use crate::agent::{
    FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use crate::memory::{Memories, flush::TRANSCRIPT_KINDS};
use crate::types::{BoxError, Owner, SessionId};
use std::rc::Rc;

/// Maximum number of records per round.
const MAX_RECORDS: usize = 200;

/// Priority 4, before facts are extracted. Also runs after a failed turn, because its messages still count.
pub struct TurnIndex(pub Rc<Memories>);

#[async_trait::async_trait(?Send)]
impl FollowUp for TurnIndex {
    fn name(&self) -> &'static str {
        "turn_index"
    }

    fn priority(&self) -> i32 {
        4
    }

    fn before_drop(&self) -> bool {
        true
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        let mut seen = cx.seen;
        loop {
            let records = cx.oldest(seen, TRANSCRIPT_KINDS, MAX_RECORDS)?;
            let Some(last) = records.last() else { return Ok(Progress::Done(Vec::new())) };
            seen = last.seq;
            cx.ensure_active()?;
            let indexed = self.0.index_messages(&cx.owner, &cx.session_id, &records).await;
            indexed.map_err(|error| self.0.log_failure("memory.not_indexed", &cx.owner, &error))?;
        }
    }

    async fn erase(&self, owner: &Owner, session: &SessionId) -> Result<bool, BoxError> {
        Ok(self.0.forget_session(owner, session).await?)
    }
}
