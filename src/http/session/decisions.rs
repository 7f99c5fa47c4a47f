//! What people say about calls that wait for them.

use super::{
    Handler, SessionRequest,
    follow::{self, Follow, Wants},
    resource::named_user,
};
use crate::agent::host::suspensions::{ApprovalDecision, CallAnswer, TurnEffect};
use crate::http::{ApiResponse, body};
use crate::session::{Session, suspensions::Row};
use crate::types::{Approver, Decision, Problem, TurnStatus};
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// The longest reason, in characters.
const MAX_REASON: usize = 2_000;

#[derive(Deserialize)]
struct ApprovalBody {
    decision: Option<Decision>,
    reason: Option<String>,
    args: Option<Value>,
    args_hash: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct AnswerBody {
    #[serde(default)]
    answer: Value,
    error: Option<String>,
    user: Option<String>,
}

impl Handler {
    /// Decides on a call, and answers with what comes of its turn.
    pub(super) async fn approve(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let body: ApprovalBody = body::json(&call.request)?;
        let decision =
            body.decision.ok_or_else(|| Problem::field("/decision", "missing: say what is decided"))?;
        bounded("/reason", body.reason.as_deref())?;
        let by = approver(call, body.user.clone());
        let session = self.session_of(call, body.user)?;
        let ruling = ApprovalDecision {
            decision,
            reason: body.reason.filter(|reason| !reason.trim().is_empty()),
            args: body.args,
            args_hash: body.args_hash,
        };
        self.resolve(call, &session, Row::Approval, || self.host.decide(&session, &call.item, ruling, by))
            .await
    }

    /// Answers a call, and answers with what comes of its turn.
    pub(super) async fn answer(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let body: AnswerBody = body::json(&call.request)?;
        bounded("/error", body.error.as_deref())?;
        let by = approver(call, body.user.clone());
        let session = self.session_of(call, body.user)?;
        let reply = match (body.error, body.answer) {
            (Some(error), Value::Null) => CallAnswer::Failure(error),
            (Some(_), _) => return Err(Problem::field("/error", "send either `answer` or `error`")),
            (None, Value::Null) => return Err(Problem::field("/answer", "missing: say what the answer is")),
            (None, answer) => CallAnswer::Answer(answer),
        };
        self.resolve(call, &session, Row::Answer, || self.host.answer(&session, &call.item, reply, by)).await
    }

    fn session_of(&self, call: &SessionRequest, user: Option<String>) -> Result<Rc<Session>, Problem> {
        let named = named_user(&call.request, user);
        self.find(call, named.as_deref())?.ok_or_else(|| Problem::not_found("session"))
    }

    async fn resolve(
        &self,
        call: &SessionRequest,
        session: &Rc<Session>,
        row: Row,
        change: impl FnOnce() -> Result<TurnEffect, Problem>,
    ) -> Result<ApiResponse, Problem> {
        let wants = Wants::of(&call.request);
        let suspension = session.suspension(row, &call.item)?;
        let Some(turn) = suspension.map(|suspension| suspension.turn) else {
            // It says what is wrong.
            change()?;
            return Err(Problem::not_found("call"));
        };
        // No await between: whoever wants to hear the rest of the turn listens before it goes on.
        let follow = Follow::new(&self.host, session, &turn, wants);
        match change()? {
            TurnEffect::Continues if wants == Wants::Receipt => {
                let body = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
                Ok(follow::receipt(&call.session, &turn, body))
            }
            TurnEffect::Continues => follow.answer(session).await,
            // Also for whoever says it again: the line may have been cut.
            TurnEffect::Waits | TurnEffect::None if wants == Wants::Stream && session.is_at_hand(&turn) => {
                follow.answer(session).await
            }
            TurnEffect::Waits | TurnEffect::None => follow::stands(session, &turn),
        }
    }
}

/// Who decides: the user that the credential or the request names, and the key.
fn approver(call: &SessionRequest, user: Option<String>) -> Approver {
    let named = named_user(&call.request, user);
    Approver { user: call.principal.user.clone().or(named), key: call.principal.key.clone() }
}

fn bounded(pointer: &str, text: Option<&str>) -> Result<(), Problem> {
    match text {
        Some(text) if text.chars().count() > MAX_REASON => {
            Err(Problem::field(pointer, format!("longer than {MAX_REASON} characters")))
        }
        _ => Ok(()),
    }
}
