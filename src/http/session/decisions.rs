//! What people say about calls that wait for them.

use super::{
    Handler, SessionRequest,
    follow::{self, Follow, Wants},
    resource::named_user,
};
use crate::agent::host::parked::{Change, Reply, Ruling};
use crate::http::{ApiResponse, body};
use crate::session::Session;
use crate::types::{Approver, Decision, PendingKind, Problem, TurnStatus};
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
        let ruling = Ruling {
            decision,
            reason: body.reason.filter(|reason| !reason.trim().is_empty()),
            args: body.args,
            args_hash: body.args_hash,
        };
        self.resolve(call, &session, PendingKind::Approval, || {
            self.host.decide(&session, &call.item, ruling, by)
        })
        .await
    }

    /// Answers a call, and answers with what comes of its turn.
    pub(super) async fn answer(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let body: AnswerBody = body::json(&call.request)?;
        bounded("/error", body.error.as_deref())?;
        let by = approver(call, body.user.clone());
        let session = self.session_of(call, body.user)?;
        let reply = match (body.error, body.answer) {
            (Some(error), Value::Null) => Reply::Failure(error),
            (Some(_), _) => return Err(Problem::field("/error", "send either `answer` or `error`")),
            (None, Value::Null) => return Err(Problem::field("/answer", "missing: say what the answer is")),
            (None, answer) => Reply::Answer(answer),
        };
        self.resolve(call, &session, PendingKind::Question, || {
            self.host.answer(&session, &call.item, reply, by)
        })
        .await
    }

    fn session_of(&self, call: &SessionRequest, user: Option<String>) -> Result<Rc<Session>, Problem> {
        let named = named_user(&call.request, user);
        self.find(call, named.as_deref())?.ok_or_else(|| Problem::not_found("session"))
    }

    async fn resolve(
        &self,
        call: &SessionRequest,
        session: &Rc<Session>,
        kind: PendingKind,
        change: impl FnOnce() -> Result<Change, Problem>,
    ) -> Result<ApiResponse, Problem> {
        let wants = Wants::of(&call.request);
        let row = session.parked(kind, &call.item).map_err(Problem::from)?;
        let Some(turn) = row.map(|row| row.pending.turn) else {
            // It says what is wrong.
            change()?;
            return Err(Problem::not_found("call"));
        };
        // No await between: whoever wants to hear the rest of the turn listens before it goes on.
        let follow = Follow::new(&self.host, session, &turn, wants);
        match change()? {
            Change::GoesOn if wants == Wants::Receipt => {
                let body = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
                Ok(follow::receipt(&call.session, &turn, body))
            }
            Change::GoesOn => follow.answer(session).await,
            // Also for whoever says it again: the line may have been cut.
            Change::Waits | Change::None if wants == Wants::Stream && session.is_at_hand(&turn) => {
                follow.answer(session).await
            }
            Change::Waits | Change::None => follow::stands(session, &turn),
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
