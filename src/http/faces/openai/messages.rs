//! Messages as the clients of OpenAI send them, and what is new among them.

use super::super::exchange::{CallResult, Given, New, SEPARATE, attachment, media_type};
use super::super::transcript::{TextOnlyFile, Transcript, with_lines};
use crate::agent::host::suspensions::CallAnswer;
use crate::http::session::message::MessageBody;
use crate::session::artifacts::Content as Attachment;
use crate::types::{CallId, Pending, Problem, Thinking};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;

/// The new message of a conversation that ends with results of calls, because each turn begins with a user message.
const RESULTS_ONLY: &str = "(The conversation ends with the results of the last calls.)";

/// One message.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(in super::super) struct ChatMessage {
    pub role: ChatRole,
    #[serde(default)]
    pub content: Option<Content>,
    #[serde(default)]
    pub tool_calls: Option<Vec<PastCall>>,
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// Whether the user approves the call, if the message is a decision; its text is the reason.
    #[serde(skip)]
    pub approves: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum ChatRole {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub(in super::super) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message: of Chat Completions, or of Responses.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in super::super) enum ContentPart {
    #[serde(alias = "input_text", alias = "output_text")]
    Text {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
    InputImage {
        image_url: Option<String>,
    },
    File {
        file: FileData,
    },
    InputFile(FileData),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(in super::super) struct ImageUrl {
    url: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(in super::super) struct FileData {
    file_data: Option<String>,
    filename: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(in super::super) struct PastCall {
    pub id: String,
    pub function: PastFunction,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(in super::super) struct PastFunction {
    pub name: String,
    pub arguments: String,
}

/// How much the model should reason.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Effort {
    /// Returns the nearest level that agents know.
    pub fn thinking(self) -> Thinking {
        match self {
            Self::None | Self::Minimal => Thinking::Off,
            Self::Low => Thinking::Low,
            Self::Medium => Thinking::Medium,
            Self::High | Self::Xhigh | Self::Max => Thinking::High,
        }
    }
}

/// The messages of a request: what is new, and what came before.
pub(in super::super) struct Conversation {
    /// The system messages.
    pub instructions: String,
    /// The messages before the new ones.
    pub transcript: Transcript,
    /// What is new.
    pub new: New,
    /// The text of the new message.
    text: String,
}

/// Reads `tool_choice`: whether the client's tools may be called. Models cannot be forced to call one here.
///
/// # Errors
/// `validation_failed` unless the choice is `auto` or `none`.
pub(in super::super) fn may_call_tools(choice: Option<&Value>) -> Result<bool, Problem> {
    match choice.map(|choice| choice.as_str()) {
        None | Some(Some("auto")) => Ok(true),
        Some(Some("none")) => Ok(false),
        Some(_) => Err(Problem::field("/tool_choice", "expected \"auto\" or \"none\"")),
    }
}

impl Conversation {
    /// Splits messages into what is new and what came before. `at` is the pointer to them. `waiting` are the calls that
    /// wait in the session; `None` if there is no session. Then the messages may end with results, if they have the
    /// calls, too.
    ///
    /// # Errors
    /// `validation_failed` for messages that end with the assistant, for a message next to results of calls that wait,
    /// and for malformed ones.
    pub fn read(messages: Vec<ChatMessage>, at: &str, waiting: Option<&[Pending]>) -> Result<Self, Problem> {
        let is_system =
            |message: &ChatMessage| matches!(message.role, ChatRole::System | ChatRole::Developer);
        let mut instructions = Vec::new();
        let mut others = Vec::new();
        for (index, message) in messages.into_iter().enumerate() {
            match is_system(&message) {
                true => instructions.push(message.text()),
                false => others.push((index, message)),
            }
        }
        let instructions = instructions.join("\n\n");
        let last = others.last().map(|(_, message)| message.role);
        if waiting.is_none() && last == Some(ChatRole::Tool) && ends_with_known_results(&others) {
            let (transcript, new) = (transcript(others), New::Message(Vec::new()));
            return Ok(Self { instructions, transcript, new, text: RESULTS_ONLY.to_owned() });
        }
        check_separate(&others, at, waiting.unwrap_or_default())?;
        let count = others.iter().rev().take_while(|(_, message)| Some(message.role) == last).count();
        let new = others.split_off(others.len() - count);
        let mut text = Vec::new();
        let new = match last {
            Some(ChatRole::Tool) => {
                let results = new.into_iter().map(|(index, message)| match &message.tool_call_id {
                    Some(id) => Ok(CallResult { id: id.clone(), given: message.given() }),
                    None => Err(Problem::field(format!("{at}/{index}/tool_call_id"), "missing")),
                });
                New::Results(results.collect::<Result<_, _>>()?)
            }
            Some(ChatRole::User) => {
                let mut files = Vec::new();
                for (index, message) in &new {
                    text.push(message.text());
                    files.extend(message.files(&format!("{at}/{index}"))?);
                }
                New::Message(files)
            }
            _ => {
                let detail = "the last message must be of the user, or the result of a tool";
                return Err(Problem::field(at, detail));
            }
        };
        Ok(Self { instructions, transcript: transcript(others), new, text: text.join("\n\n") })
    }

    /// Returns the calls of which the request has the results. `suffix` is what their ids end with for the client.
    pub fn answered(&self, suffix: &str) -> Vec<CallId> {
        let New::Results(results) = &self.new else { return Vec::new() };
        let answers = results.iter().filter(|result| matches!(result.given, Given::Answer(_)));
        answers.map(|result| result.id.strip_suffix(suffix).unwrap_or(&result.id).into()).collect()
    }

    /// Returns the native message with the new text. With `may_instruct`, the system messages are instructions;
    /// otherwise they are part of the user's message.
    pub fn message(&self, may_instruct: bool) -> MessageBody {
        let instructions = Some(self.instructions.clone()).filter(|text| !text.is_empty());
        let text = &self.text;
        match instructions {
            Some(system) if !may_instruct => {
                MessageBody { content: Some(format!("{system}\n\n{text}")), ..MessageBody::default() }
            }
            instructions => {
                MessageBody { content: Some(text.clone()), instructions, ..MessageBody::default() }
            }
        }
    }
}

/// Returns the messages after the last one of the assistant.
fn newest(messages: &[(usize, ChatMessage)]) -> &[(usize, ChatMessage)] {
    let earlier = messages.iter().rposition(|(_, message)| message.role == ChatRole::Assistant);
    &messages[earlier.map_or(0, |index| index + 1)..]
}

/// Returns whether the messages have the calls of all their newest results.
fn ends_with_known_results(messages: &[(usize, ChatMessage)]) -> bool {
    let mut results = newest(messages).iter().filter(|(_, message)| message.role == ChatRole::Tool);
    let mut calls = HashSet::new();
    for (_, message) in messages {
        calls.extend(message.tool_calls.iter().flatten().map(|call| call.id.as_str()));
    }
    results.all(|(_, message)| message.tool_call_id.as_deref().is_some_and(|id| calls.contains(id)))
}

/// Checks that a request has either results or a message: results continue a turn that waits, and a message would end it.
fn check_separate(messages: &[(usize, ChatMessage)], at: &str, waiting: &[Pending]) -> Result<(), Problem> {
    let newest = newest(messages);
    let is_waiting = |id: &str| waiting.iter().any(|call| *call.call_id == *id);
    let continues = match newest.last() {
        Some((_, last)) if last.role == ChatRole::Tool => true,
        // A result that no call waits for is repeated from an earlier request.
        _ => newest.iter().any(|(_, message)| message.tool_call_id.as_deref().is_some_and(is_waiting)),
    };
    match newest.iter().find(|(_, message)| message.role == ChatRole::User) {
        Some((index, _)) if continues => Err(Problem::field(format!("{at}/{index}"), SEPARATE)),
        _ => Ok(()),
    }
}

fn transcript(messages: Vec<(usize, ChatMessage)>) -> Transcript {
    let mut transcript = Transcript::default();
    for (_, message) in messages {
        let text = message.text_with_files();
        match message.role {
            ChatRole::Assistant => {
                transcript.assistant(text);
                for PastCall { id, function } in message.tool_calls.into_iter().flatten() {
                    transcript.call_with_text(id, function.name, function.arguments);
                }
            }
            ChatRole::Tool => transcript.result(message.tool_call_id.as_deref().unwrap_or_default(), text),
            ChatRole::User | ChatRole::System | ChatRole::Developer => transcript.user(&text),
        }
    }
    transcript
}

impl ChatMessage {
    /// Returns what the message says to a call.
    fn given(&self) -> Given {
        let text = self.text_with_files();
        match self.approves {
            Some(approves) => Given::Decision(approves, Some(text).filter(|text| !text.is_empty())),
            None => Given::Answer(CallAnswer::Answer(Value::String(text))),
        }
    }

    /// Returns the text of the message.
    pub fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let texts = parts.iter().filter_map(|part| match part {
                    ContentPart::Text { text } | ContentPart::Refusal { refusal: text } => {
                        Some(text.as_str())
                    }
                    _ => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Returns the text of the message, with a line for each of its files.
    fn text_with_files(&self) -> String {
        let files = self.file_parts().map(|(_, file)| TextOnlyFile {
            name: file.name,
            mime_type: file.url.and_then(media_type).or(file.kind),
        });
        with_lines(self.text(), files)
    }

    /// Returns the files of the message. `at` is the pointer to it.
    fn files(&self, at: &str) -> Result<Vec<Attachment>, Problem> {
        let files = self.file_parts().map(|(index, FilePart { url, name, .. })| {
            let fault = || Problem::field(format!("{at}/content/{index}"), "expected a data URL with base64");
            url.and_then(|url| attachment(url, name.map(str::to_owned))).ok_or_else(fault)
        });
        files.collect()
    }

    /// Returns the parts of the message that are files, with their places.
    fn file_parts(&self) -> impl Iterator<Item = (usize, FilePart<'_>)> {
        let parts = match &self.content {
            Some(Content::Parts(parts)) => parts.as_slice(),
            Some(Content::Text(_)) | None => &[],
        };
        parts.iter().enumerate().filter_map(|(index, part)| Some((index, part.file()?)))
    }
}

/// A part of a message that is a file.
struct FilePart<'a> {
    url: Option<&'a str>,
    name: Option<&'a str>,
    /// The kind of the file if its URL has no media type.
    kind: Option<&'static str>,
}

impl ContentPart {
    fn file(&self) -> Option<FilePart<'_>> {
        let (url, name, kind) = match self {
            Self::Text { .. } | Self::Refusal { .. } => return None,
            Self::ImageUrl { image_url } => (Some(image_url.url.as_str()), None, Some("image")),
            Self::InputImage { image_url } => (image_url.as_deref(), None, Some("image")),
            Self::File { file } | Self::InputFile(file) => {
                (file.file_data.as_deref(), file.filename.as_deref(), None)
            }
        };
        Some(FilePart { url, name, kind })
    }
}
