//! Lets another model take over when the session's model fails.

use super::{preparer::PreparedRequest, react::ReactAgent};
use crate::session::WriteError;
use crate::types::{EventKind, ModelError, ModelErrorKind};

/// Returns the model that takes over after this error, if one may. `is_retried` is whether the failed model can be asked
/// again.
pub(super) fn next(
    turn: &ReactAgent<'_>,
    failed: &PreparedRequest,
    error: &ModelError,
    is_retried: bool,
) -> Option<String> {
    let settings = &turn.agent.settings;
    let helps = match error.kind {
        ModelErrorKind::RateLimited => !is_retried,
        ModelErrorKind::Unavailable
        | ModelErrorKind::Network
        | ModelErrorKind::Cut
        | ModelErrorKind::Stalled => true,
        ModelErrorKind::Auth | ModelErrorKind::Billing => settings.fallback_for_account,
        ModelErrorKind::Overflow | ModelErrorKind::Invalid => false,
    };
    if !helps {
        return None;
    }
    let state = turn.cx.session.state();
    if turn.agent.remote_kind_of(&state.meta).is_some() {
        // No model has the tools and the instructions of the remote agent.
        return None;
    }
    let limits = &state.guidance.tenant_policy.limits;
    let needs_price = state.activity.turn.as_ref().is_some_and(|turn| turn.budget.max_cost_usd.is_some());
    let models = &settings.fallback_models;
    // The session's model may be in the list, too. Each model is asked once.
    let taken_over = turn.cx.state.fallback();
    let tried = taken_over.and_then(|own| models.iter().position(|model| *model == own));
    let tried = tried.map_or(0, |place| place + 1);
    let chosen = turn.agent.model_of(&state.meta);
    let usable = |model: &&String| {
        **model != failed.model
            && **model != chosen
            && turn.agent.find_model(model, limits).is_ok()
            && (!needs_price || turn.agent.models.price(model).is_some())
    };
    models.iter().skip(tried).find(usable).cloned()
}

/// Makes a model take over from one that has failed, until the end of the turn.
pub(super) fn take_over(
    turn: &ReactAgent<'_>,
    model: String,
    previous: &str,
    why: ModelErrorKind,
) -> Result<(), WriteError> {
    let (previous, reason) = (previous.to_owned(), why.code().to_owned());
    turn.journal(vec![EventKind::ModelFallback { model, previous, reason }], |_, _| ())
}
