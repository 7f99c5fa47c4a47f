//! A prompt of the editor: a turn, with the approvals that the editor shows.

use super::{
    notify,
    updates::{Updates, chunk},
};
use crate::{
    api::Api,
    error::{Error, Result},
    turn::{Turn, TurnResult, TurnStep, abort},
    waits::{Resolution, Wait},
};
use agent_client_protocol::{
    Client,
    v1::{
        ConnectionTo,
        schema::{
            ContentBlock, EmbeddedResourceResource, PermissionOption, PermissionOptionKind, PromptRequest,
            PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, SessionUpdate, StopReason,
            ToolCallContent, ToolCallUpdate, ToolCallUpdateFields,
        },
    },
};
use serde_json::json;

/// Runs a prompt until its turn has ended, or waits for a text, which the next prompt then is.
pub(super) async fn run(
    api: &Api,
    request: &PromptRequest,
    editor: &ConnectionTo<Client>,
) -> Result<PromptResponse> {
    let session: &str = &request.session_id.0;
    let text = text_of(&request.prompt);
    let mut updates = Updates::live();
    // What waits since the last prompt comes first.
    let (mut turn, mut message) = match resolve(api, session, Some(&text), editor).await? {
        Waiting::Nothing => (post(api, session, &text).await?, None),
        Waiting::Answered(turn) => (turn, None),
        Waiting::Decided(turn) => (turn, Some(text)),
        Waiting::ForText { is_answered: true } => return Ok(PromptResponse::new(StopReason::EndTurn)),
        Waiting::ForText { is_answered: false } => {
            let note = "\n\n*The turn waits for this answer first; your message was not sent.*";
            notify(editor, session, SessionUpdate::AgentMessageChunk(chunk(note)))?;
            return Ok(PromptResponse::new(StopReason::EndTurn));
        }
        Waiting::Canceled => return Ok(PromptResponse::new(StopReason::Cancelled)),
    };
    loop {
        let result = follow(session, &mut turn, &mut updates, editor).await?;
        if result.status != "waiting" {
            match message.take() {
                Some(message) => turn = post(api, session, &message).await?,
                None => return Ok(PromptResponse::new(stop_reason(&result)?)),
            }
            continue;
        }
        match resolve(api, session, None, editor).await? {
            // Another client has resolved the calls, or a subagent goes on.
            Waiting::Nothing => {}
            Waiting::Answered(next) | Waiting::Decided(next) => turn = next,
            Waiting::ForText { .. } => return Ok(PromptResponse::new(StopReason::EndTurn)),
            Waiting::Canceled => return Ok(PromptResponse::new(StopReason::Cancelled)),
        }
    }
}

async fn post(api: &Api, session: &str, text: &str) -> Result<Turn> {
    Turn::post(api, session, "messages", &[], &json!({ "content": text })).await
}

/// What became of the calls that wait.
enum Waiting {
    /// No call waits for the user.
    Nothing,
    /// The text has answered the first of them, and the turn continues.
    Answered(Turn),
    /// The user has decided all of them in the editor, and the turn continues.
    Decided(Turn),
    /// The next prompt is the answer to a question, which the editor now shows. The text may have answered an earlier one.
    ForText { is_answered: bool },
    /// The user has canceled the prompt, and with it the turn.
    Canceled,
}

/// Resolves the calls that wait, one after the other. The editor asks about a call with choices. The text answers only an
/// open question that comes first, because the editor has shown this one.
async fn resolve(
    api: &Api,
    session: &str,
    text: Option<&str>,
    editor: &ConnectionTo<Client>,
) -> Result<Waiting> {
    let (mut continued, mut is_answered) = (None, false);
    // A resolution may change what else waits, so the list is read again after each.
    while let Some((turn, waits)) = Turn::waiting(api, session).await? {
        let Some(wait) = waits.first() else { break };
        let answer = text.filter(|_| continued.is_none()).and_then(|text| wait.read(text));
        match (choices(wait), answer) {
            (Some(choices), _) => {
                if !ask(api, session, wait, &choices, editor).await? {
                    return Ok(Waiting::Canceled);
                }
            }
            (None, Some(answer)) => {
                wait.resolve(api, &answer).await?;
                is_answered = true;
            }
            (None, None) => {
                let question = format!("{}\n\n*{}*", wait.explain(), wait.hint());
                notify(editor, session, SessionUpdate::AgentMessageChunk(chunk(&question)))?;
                return Ok(Waiting::ForText { is_answered });
            }
        }
        // The events that follow are those since the first resolution.
        continued.get_or_insert(turn);
        if waits.len() == 1 {
            break;
        }
    }
    Ok(match continued {
        None => Waiting::Nothing,
        Some(turn) if is_answered => Waiting::Answered(turn),
        Some(turn) => Waiting::Decided(turn),
    })
}

async fn follow(
    session: &str,
    turn: &mut Turn,
    updates: &mut Updates,
    editor: &ConnectionTo<Client>,
) -> Result<TurnResult> {
    loop {
        match turn.next().await? {
            TurnStep::Event(event) => {
                for update in updates.of(&event) {
                    notify(editor, session, update)?;
                }
            }
            TurnStep::Lost(_) => {}
            TurnStep::Done(result) => return Ok(result),
        }
    }
}

/// Lets the editor ask about a call. Returns whether the user has chosen, and not canceled the prompt.
async fn ask(
    api: &Api,
    session: &str,
    wait: &Wait,
    choices: &[Choice],
    editor: &ConnectionTo<Client>,
) -> Result<bool> {
    let mut fields = ToolCallUpdateFields::new().title(wait.describe()).raw_input(wait.call.args.clone());
    if let Some(plan) = wait.call.payload["plan"].as_str() {
        fields = fields.content(vec![ToolCallContent::from(plan)]);
    }
    let call = ToolCallUpdate::new(wait.call.call_id.clone(), fields);
    let options = choices
        .iter()
        .enumerate()
        .map(|(at, (name, kind, _))| PermissionOption::new(at.to_string(), name.clone(), *kind));
    let request = RequestPermissionRequest::new(session.to_owned(), call, options.collect::<Vec<_>>());
    let response = editor.send_request(request).block_task().await.map_err(|e| Error::Response(e.message))?;
    let chosen = match response.outcome {
        RequestPermissionOutcome::Selected(selected) => selected.option_id.0.parse::<usize>().ok(),
        _ => None,
    };
    match chosen.and_then(|at| choices.get(at)) {
        Some((_, _, resolution)) => wait.resolve(api, resolution).await.map(|_| true),
        None => abort(api, session).await.map(|()| false),
    }
}

type Choice = (String, PermissionOptionKind, Resolution);

/// Returns what the editor offers; `None` for a call that needs a text.
fn choices(wait: &Wait) -> Option<Vec<Choice>> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let review = |action: &str| Resolution::Answer(json!({ "action": action }));
    let choices = match wait.call.kind.as_str() {
        "approval" => vec![
            ("Approve".to_owned(), AllowOnce, Resolution::Approve),
            (format!("Always allow {}", wait.call.name), AllowAlways, Resolution::AlwaysTool),
            ("Decline".to_owned(), RejectOnce, Resolution::Decline(None)),
        ],
        "plan" => vec![
            ("Approve the plan".to_owned(), AllowOnce, review("approved")),
            ("Reject the plan".to_owned(), RejectOnce, review("rejected")),
        ],
        // A choice of several options needs a text.
        _ if wait.is_multi() => Vec::new(),
        _ => {
            let options = wait.options().into_iter();
            options.filter_map(|option| Some((option.to_owned(), AllowOnce, wait.read(option)?))).collect()
        }
    };
    if choices.is_empty() { None } else { Some(choices) }
}

fn stop_reason(result: &TurnResult) -> Result<StopReason> {
    match (result.status.as_str(), result.json["stop_reason"].as_str().unwrap_or_default()) {
        ("canceled", _) => Ok(StopReason::Cancelled),
        ("failed", _) => {
            let error = &result.json["error"];
            Err(Error::Response(format!(
                "the turn failed: {}",
                error["message"].as_str().unwrap_or_default()
            )))
        }
        (_, "length" | "tokens") => Ok(StopReason::MaxTokens),
        (_, "max_steps" | "max_tool_calls" | "deadline" | "cost") => Ok(StopReason::MaxTurnRequests),
        (_, "content_filter") => Ok(StopReason::Refusal),
        _ => Ok(StopReason::EndTurn),
    }
}

/// Returns a prompt as text. Files that the editor attaches are quoted.
fn text_of(blocks: &[ContentBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.clone()),
        ContentBlock::ResourceLink(link) => Some(format!("[{}]({})", link.name, link.uri)),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(file) => {
                Some(format!("\n<file uri=\"{}\">\n{}\n</file>\n", file.uri, file.text))
            }
            _ => None,
        },
        _ => None,
    });
    texts.collect()
}
