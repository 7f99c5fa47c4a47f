//! Checks of values that several handlers of a session accept.

use crate::agent::SessionHost;
use crate::session::Session;
use crate::types::{BudgetPatch, ErrorCode, Problem};
use serde_json::{Map, Value};

/// Largest object that a client may store, in bytes of JSON.
pub const MAX_OBJECT_BYTES: usize = 64 << 10;
/// Longest title, in characters.
const MAX_TITLE: usize = 200;

/// Checks the length of a title.
pub fn title(title: Option<String>) -> Result<Option<String>, Problem> {
    match title {
        Some(title) if title.chars().count() > MAX_TITLE => {
            Err(Problem::field("/title", format!("longer than {MAX_TITLE} characters")))
        }
        title => Ok(title),
    }
}

/// Checks the size of an object.
pub fn object(pointer: &str, object: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let bytes = serde_json::to_vec(&object).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_OBJECT_BYTES {
        return Err(Problem::field(pointer, format!("larger than {MAX_OBJECT_BYTES} bytes of JSON")));
    }
    Ok(object)
}

/// Checks that the session may use a model; `None` is the default model.
pub fn model(host: &SessionHost, model: Option<String>) -> Result<Option<String>, Problem> {
    let (agent, limits) = (host.agent(), host.tenant_limits());
    let checked = match &model {
        Some(id) => agent.find_model(id, &limits).map(drop),
        // Whether its provider is configured is not up to the caller.
        None => limits.check_model(&agent.models().default_model()),
    };
    checked.map_err(|error| Problem::field("/model", error.message))?;
    Ok(model)
}

/// Checks that the limits of a budget are in their ranges, which the tenant's limits may narrow.
pub fn budget(host: &SessionHost, budget: &BudgetPatch) -> Result<(), Problem> {
    let errors = budget.violations("/budget", &host.tenant_limits().ceiling());
    if errors.is_empty() { Ok(()) } else { Err(Problem::fields(errors)) }
}

/// Checks that the model has a price if there is a limit in money, of the request, the session or the tenant: without
/// a price the limit has no effect.
pub fn priced(
    host: &SessionHost,
    limit: Option<f64>,
    model: Option<&str>,
    pointer: &str,
) -> Result<(), Problem> {
    let agent = host.agent();
    let model = model.map_or_else(|| agent.models().default_model(), str::to_owned);
    let limit = limit.or(host.tenant_limits().max_cost_usd);
    if limit.is_some() && agent.models().price(&model).is_none() {
        let detail = format!("there is no price for model {model:?}; set MODEL_PRICES");
        return Err(Problem::field(pointer, detail));
    }
    Ok(())
}

/// Refuses another WebSocket of a session that has the maximum number of them.
pub fn room_for_socket(session: &Session) -> Result<(), Problem> {
    if !session.hub().is_full() {
        return Ok(());
    }
    let detail = "the session has too many open WebSockets; close some of them";
    Err(Problem { retry_after_s: Some(10), ..Problem::new(ErrorCode::RateLimited, detail) })
}

/// Refuses an operation in the session of a subagent, which works on its task under the rules of its parent.
pub fn not_a_subagent(session: &Session) -> Result<(), Problem> {
    match &session.state().meta.parent {
        Some(parent) => {
            let detail = format!("this is possible only in the parent session: {}", parent.session);
            Err(Problem::new(ErrorCode::SubagentSession, detail))
        }
        None => Ok(()),
    }
}
