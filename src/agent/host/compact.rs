//! Makes the context smaller at somebody's wish.

use super::SessionHost;
use crate::session::{Session, tokens};
use crate::types::{CompactReason, ErrorCode, Problem};
use serde_json::{Value, json};
use std::rc::Rc;

impl SessionHost {
    /// Makes the session's context smaller, large or not, and says what came of it.
    ///
    /// # Errors
    /// `session_busy` while a turn runs, `not_configured` when nothing keeps the context, `unavailable` when it
    /// could not be done; the context is as it was then.
    pub async fn compact(&self, session: &Rc<Session>) -> Result<Value, Problem> {
        let Some(context_manager) = &self.agent.context_manager else {
            let detail = "the agent has no way to make a context smaller; set CONTEXT_STRATEGY";
            return Err(Problem::new(ErrorCode::NotConfigured, detail));
        };
        if session.state().turn.is_some() {
            let detail = "a turn is running, and sees to its context itself; wait for its end";
            return Err(Problem::new(ErrorCode::SessionBusy, detail));
        }
        let handle = context_manager.handle(session, &self.ports.clock, None, 0);
        let kept_from = handle.state().kept_from();
        let (before, tokens_before) = (handle.messages(), session.context().tokens());
        let made = context_manager.strategy.make_room(&handle, CompactReason::Request).await;
        let after = handle.messages();
        // Whoever made it smaller meanwhile.
        let compacted = handle.state().kept_from() > kept_from || made == Ok(true);
        if let (Err(why), false) = (made, compacted) {
            return Err(Problem::unavailable("the context could not be made smaller; it is as it was", why));
        }
        let is_in = |seq: u64| after.iter().any(|(message, _)| message.seq == seq);
        let summary = handle.state().cut.summary.as_deref().map_or(0, tokens::of_text);
        let notes = handle.state().observed.tokens();
        Ok(json!({
            "compacted": compacted,
            "dropped": before.iter().filter(|(message, _)| !is_in(message.seq)).count(),
            "summary_tokens": summary + notes,
            "tokens_before": tokens_before,
            "tokens_after": session.context().tokens(),
        }))
    }
}
