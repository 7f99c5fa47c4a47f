//! Runs the new messages of a client in a session.

use super::messages::{CallResult, Conversation, New};
use crate::agent::host::suspensions::CallAnswer;
use crate::http::response::Response;
use crate::http::session::call::Call;
use crate::http::session::message::MessageBody;
use crate::http::session::subscription::{ResponseMode, TurnFormat};
use crate::http::session::{checks, decisions, turns};
use crate::session::artifacts::Content as Attachment;
use crate::types::{CallId, Decision, Problem};
use serde_json::{Value, json};
use std::rc::Rc;

/// Whom a request is for, and the session that is created for it.
pub(in super::super) struct Exchange {
    pub user: Option<String>,
    pub agent: Option<String>,
    pub model: Option<String>,
    pub is_ephemeral: bool,
}

impl Exchange {
    /// Posts the new message, or sends the results of the client's tools, and responds in this format. A session that
    /// does not exist is created with the earlier messages. `suffix` is what ids of calls end with for the client.
    ///
    /// # Errors
    /// See [`turns::post_as`] and [`decisions::answer_as`].
    pub async fn run(
        self,
        call: &Call<'_>,
        conversation: Conversation,
        message: MessageBody,
        suffix: &str,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Response, Problem> {
        let Conversation { transcript, new, .. } = conversation;
        let files = match new {
            New::Message(_, files) => files,
            New::Results(results) => return self.resume(call, results, suffix, format).await,
        };
        if call.find(self.user.as_deref())?.is_none() {
            let mut meta = call.new_meta(self.user.clone(), self.agent)?;
            meta.model = checks::model(call.host, self.model.or(meta.model))?;
            meta.ephemeral = self.is_ephemeral;
            transcript.create(call, meta).await?;
        }
        let message = MessageBody { user: self.user, ..message };
        let message = with_files(&call.again()?, message, files).await?;
        let mode = ResponseMode::Face(format);
        turns::post_as(&call.again()?, &mode, &|| Ok(message.clone())).await
    }

    /// Continues a turn that waits for the results of the client's tools.
    async fn resume(
        self,
        call: &Call<'_>,
        results: Vec<CallResult>,
        suffix: &str,
        format: Rc<dyn TurnFormat>,
    ) -> Result<Response, Problem> {
        let session = call.session_of(self.user)?;
        let mut left = results.len();
        for CallResult { id, text, approves } in results {
            left -= 1;
            let call_id = CallId::from(id.strip_suffix(suffix).unwrap_or(&id));
            let is_last = left == 0;
            let mode = if is_last { ResponseMode::Face(Rc::clone(&format)) } else { ResponseMode::Receipt };
            let response = match approves {
                Some(approves) => {
                    let decision = if approves { Decision::Approve } else { Decision::Decline };
                    let reason = Some(text).filter(|text| !text.is_empty());
                    decisions::decide_as(call, session, &call_id, (decision, reason), mode).await?
                }
                None => {
                    let answer = CallAnswer::Answer(Value::String(text));
                    decisions::answer_as(call, session, &call_id, answer, mode).await?
                }
            };
            if is_last {
                return Ok(response);
            }
        }
        Err(Problem::not_found("call"))
    }
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
        let stored = call.host.artifacts(session).attach(call.host.new_id(), file).await?;
        parts.push(json!({"type": "file", "ref": stored.r#ref}));
    }
    message.parts = Some(parts);
    Ok(message)
}
