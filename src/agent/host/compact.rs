//! Compacts the context at a caller's request.

use super::SessionHost;
use crate::session::{Session, tokens};
use crate::types::{CompactReason, ErrorCode, ModelError, Problem};
use serde_json::{Value, json};
use std::rc::Rc;

impl SessionHost {
    /// Compacts the session's context regardless of its size, and returns the token counts before and after.
    ///
    /// # Errors
    /// `session_busy` while a turn runs, `not_configured` without a context strategy, `validation_failed` if the session
    /// may no longer use its model, `unavailable` when the strategy fails. The context is then unchanged.
    pub async fn compact(&self, session: &Rc<Session>) -> Result<Value, Problem> {
        let Some(context_manager) = &self.agent().context_manager else {
            let detail = "the agent has no context strategy; set CONTEXT_STRATEGY";
            return Err(Problem::new(ErrorCode::NotConfigured, detail));
        };
        if session.state().activity.turn.is_some() {
            let detail = "a turn is running; wait for it to end, then compact";
            return Err(Problem::new(ErrorCode::SessionBusy, detail));
        }
        self.check_model(session)
            .map_err(|error| Problem::new(ErrorCode::ValidationFailed, error.message))?;
        let handle = context_manager.handle(session, &self.ports.clock, None, 0);
        let kept_from = handle.state().kept_from();
        let (before, tokens_before) = (handle.messages(), session.context().tokens());
        let made = context_manager.strategy.make_room(&handle, CompactReason::Request).await;
        let after = handle.messages();
        // Background work may have compacted the context during the await.
        let compacted = handle.state().kept_from() > kept_from || matches!(made, Ok(true));
        if let (Err(why), false) = (made, compacted) {
            return Err(Problem::unavailable("the context could not be compacted and is unchanged", why));
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

    /// Checks that the session may use its model.
    fn check_model(&self, session: &Session) -> Result<(), ModelError> {
        let state = session.state();
        let model = self.agent().model_of(&state.meta);
        self.agent().find_model(&model, &state.guidance.tenant_policy.limits).map(drop)
    }
}
