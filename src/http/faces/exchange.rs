//! Runs what is new in a request of a client, in its session.

use super::children::{ChildCall, flattened};
use super::transcript::Transcript;
use crate::agent::host::suspensions::CallAnswer;
use crate::http::disposition;
use crate::http::response::Response;
use crate::http::session::call::Call;
use crate::http::session::message::MessageBody;
use crate::http::session::subscription::{ResponseMode, TurnFormat, TurnSubscription};
use crate::http::session::{checks, decisions, turns};
use crate::session::{Session, artifacts::Content as Attachment};
use crate::types::{CallId, Decision, FieldError, Pending, Problem};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use std::rc::Rc;

/// The detail of the problem of a request with a message next to results of calls that wait.
pub(super) const SEPARATE: &str =
    "the results of calls that wait and a message are two requests: send the results first, then the message";

/// The new messages of a request.
pub(super) enum New {
    /// A message of the user, with files. Its text is in the native message.
    Message(Vec<Attachment>),
    /// What the client says to calls that wait.
    Results(Vec<CallResult>),
}

/// What a client says to a call that waits.
pub(super) struct CallResult {
    /// The id of the call.
    pub id: String,
    pub given: Given,
}

pub(super) enum Given {
    /// The result of a tool, or an answer.
    Answer(CallAnswer),
    /// Whether the call may run, and why.
    Decision(bool, Option<String>),
}

impl CallResult {
    /// Sends it to the call, and responds in this mode with the turn as it continues.
    ///
    /// # Errors
    /// See [`decisions::answer_as`] and [`decisions::decide_as`].
    pub async fn send(
        self,
        call: &Call<'_>,
        session: &Rc<Session>,
        suffix: &str,
        mode: ResponseMode,
    ) -> Result<Response, Problem> {
        let id = self.id.strip_suffix(suffix).unwrap_or(&self.id);
        if let Some(theirs) = ChildCall::parse(id)
            && let Some(response) = self.send_to_child(call, session, &theirs, &mode).await?
        {
            return Ok(response);
        }
        let call_id = CallId::from(id);
        match self.given {
            Given::Answer(answer) => {
                call.host.ensure_current(session, &call_id, &answer, None).await?;
                decisions::answer_as(call, session, &call_id, answer, mode).await
            }
            Given::Decision(approves, reason) => {
                decisions::decide_as(call, session, &call_id, (decision(approves), reason), mode).await
            }
        }
    }

    /// Sends it to a call of a subagent; `None` if the current turn waits for no such subagent.
    async fn send_to_child(
        &self,
        call: &Call<'_>,
        session: &Rc<Session>,
        theirs: &ChildCall<'_>,
        mode: &ResponseMode,
    ) -> Result<Option<Response>, Problem> {
        let Some(turn) = session.current_turn() else { return Ok(None) };
        let (route, body) = match &self.given {
            Given::Decision(approves, reason) => {
                ("approvals", json!({"decision": decision(*approves), "reason": reason}))
            }
            Given::Answer(CallAnswer::Answer(answer)) => ("answers", json!({ "answer": answer })),
            Given::Answer(CallAnswer::Failure(error)) => ("answers", json!({ "error": error })),
        };
        let waits = theirs.is_among(&session.pending()?);
        // Before the message to the subagent, so that the client misses nothing of what follows.
        let subscription = TurnSubscription::new(call, session, &turn, mode.clone());
        if !theirs.post(call, session, route, &body).await? {
            return Ok(None);
        }
        let subscription = match mode {
            // Nothing follows on what is repeated.
            ResponseMode::Face(format) if !waits => {
                TurnSubscription::current(call, session, &turn, Rc::clone(format))?
            }
            _ => subscription,
        };
        subscription.respond(session).await.map(Some)
    }
}

/// Returns the calls that wait in a session.
///
/// # Errors
/// A failed store.
pub(super) fn waiting(session: &Session) -> Result<Vec<Pending>, Problem> {
    Ok(flattened(&session.pending()?))
}

fn decision(approves: bool) -> Decision {
    if approves { Decision::Approve } else { Decision::Decline }
}

/// Whom a request is for, and the session that is created for it.
pub(super) struct Exchange {
    pub user: Option<String>,
    pub agent: Option<String>,
    pub model: Option<String>,
    pub is_ephemeral: bool,
}

impl Exchange {
    /// Posts the new message, or sends what the client says to calls that wait, and responds in this format. A session that
    /// does not exist is created with the earlier messages. `suffix` is what ids of calls end with for the client.
    ///
    /// # Errors
    /// See [`turns::post_as`] and [`decisions::answer_as`].
    pub async fn run(
        self,
        call: &Call<'_>,
        transcript: Transcript,
        new: New,
        message: MessageBody,
        suffix: &str,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Response, Problem> {
        let session = call.find(self.user.as_deref())?;
        if let Some(session) = session {
            self.check_agent(session)?;
        }
        let files = match new {
            New::Message(files) => files,
            New::Results(results) => return self.resume(call, results, suffix, format).await,
        };
        let mode = ResponseMode::Face(format);
        let message = MessageBody { user: self.user.clone(), ..message };
        // A repetition with the key gets the same turn.
        let repeatable = |problem: Problem| Problem {
            started_turn: problem.started_turn && call.key.is_none(),
            ..problem
        };
        if session.is_some() {
            return post(call, message, files, &mode).await.map_err(repeatable);
        }
        let mut meta = call.new_meta(self.user, self.agent)?;
        meta.model = checks::model(call.host, self.model.or(meta.model))?;
        meta.ephemeral = self.is_ephemeral;
        let turns = transcript.turns();
        let is_new = transcript.create(call, meta).await?;
        let posted = post(&call.again().await?, message, files, &mode).await;
        if is_new && posted.as_ref().is_err_and(|problem| !problem.started_turn) {
            discard(&call.again().await?, turns).await?;
        }
        posted.map_err(repeatable)
    }

    /// Checks that a session belongs to the agent that the request names.
    fn check_agent(&self, session: &Session) -> Result<(), Problem> {
        let own = &session.state().meta.agent;
        match &self.agent {
            Some(agent) if **agent != **own => {
                Err(Problem::field("/agent", format!("the session belongs to the agent {:?}", &**own)))
            }
            _ => Ok(()),
        }
    }

    /// Continues a turn that waits.
    async fn resume(
        self,
        call: &Call<'_>,
        results: Vec<CallResult>,
        suffix: &str,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Response, Problem> {
        let session = call.session_of(self.user)?;
        let mut left = results.len();
        for result in results {
            left -= 1;
            let is_last = left == 0;
            let mode = if is_last { ResponseMode::Face(Rc::clone(&format)) } else { ResponseMode::Receipt };
            let response = result.send(call, session, suffix, mode).await;
            // A repeated result continues no other turn.
            let response = response.map_err(|problem| Problem { started_turn: false, ..problem })?;
            if is_last {
                return Ok(response);
            }
        }
        Err(Problem::not_found("call"))
    }
}

/// Posts a message to a session, after its files.
async fn post(
    call: &Call<'_>,
    message: MessageBody,
    files: Vec<Attachment>,
    mode: &ResponseMode,
) -> Result<Response, Problem> {
    let session = call.session_of(message.user.clone())?;
    // A repeated message is not posted, so its files are not stored again.
    let files = if turns::is_repeated(call, session)? { Vec::new() } else { files };
    let message = with_files(call, message, files).await?;
    let call = call.again().await?;
    // The session may have been deleted while the files were stored. A message creates no session here: the session would
    // lack the agent and the conversation of the request.
    call.session_of(message.user.clone())?;
    turns::post_as(&call, mode, &|| Ok(message.clone())).await
}

/// Erases a session that was created for a message which is refused, unless another request uses it or may be about to.
async fn discard(call: &Call<'_>, turns: usize) -> Result<(), Problem> {
    let Ok(session) = call.session() else { return Ok(()) };
    let is_unused = call.host.in_flight() == 1 && {
        let activity = &session.state().activity;
        activity.turn.is_none() && activity.queue.is_empty() && activity.totals.turns == turns as u64
    };
    if is_unused {
        call.host.erase(&call.principal.tenant, call.session_id).await?;
    }
    Ok(())
}

/// Stores the files of a message as attachments of its session.
async fn with_files(
    call: &Call<'_>,
    mut message: MessageBody,
    files: Vec<Attachment>,
) -> Result<MessageBody, Problem> {
    if files.is_empty() {
        return Ok(message);
    }
    let session = call.session_of(message.user.clone())?;
    let text = message.content.take().filter(|text| !text.is_empty());
    let mut parts: Vec<_> = text.map(|text| json!({"type": "text", "text": text})).into_iter().collect();
    for file in files {
        let file = Attachment { name: file.name.as_deref().and_then(disposition::plain), ..file };
        let stored = call.host.artifacts(session).attach(call.host.new_id(), file).await?;
        parts.push(json!({"type": "file", "ref": stored.r#ref}));
    }
    message.parts = Some(parts);
    Ok(message)
}

/// Decodes a data URL (RFC 2397) with base64.
pub(super) fn attachment(url: &str, name: Option<String>) -> Option<Attachment> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let mime_type = kind.strip_suffix(";base64")?;
    let bytes = STANDARD.decode(data).ok().filter(|bytes| !bytes.is_empty())?;
    Some(Attachment { bytes: bytes.into(), mime_type: mime_type.to_owned(), name })
}

/// Returns the media type of a data URL.
pub(super) fn media_type(url: &str) -> Option<&str> {
    let (kind, _) = url.strip_prefix("data:")?.split_once(',')?;
    kind.split(';').next().filter(|kind| !kind.is_empty())
}

/// Replaces the starts of the pointers of a problem.
pub(super) fn renamed(mut problem: Problem, names: &[(&str, &str)]) -> Problem {
    for FieldError { pointer, .. } in &mut problem.errors {
        let rest = names.iter().find_map(|(native, own)| Some((own, pointer.strip_prefix(native)?)));
        if let Some((own, rest)) = rest {
            *pointer = format!("{own}{rest}");
        }
    }
    problem
}

/// Names calls that wait, for a text that a person or a model reads.
pub(super) fn named<'a>(pending: impl IntoIterator<Item = &'a Pending>) -> String {
    let names = pending.into_iter().map(|call| format!("{} (call {})", call.name, call.call_id));
    names.collect::<Vec<_>>().join(", ")
}
