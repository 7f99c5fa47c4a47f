//! The task of a remote agent, as its messages describe it.

use crate::ports::outbound::Redaction;
use crate::types::{ModelError, ModelErrorKind};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most text of a task, in bytes (256 KiB). The rest is left out.
const MAX_TEXT: usize = 256 << 10;
/// Maximum length of a question at its end, in characters.
const MAX_QUESTION: usize = 8_000;
/// Most characters of an agent's explanation of a failure.
const MAX_REASON: usize = 2_000;
/// Most bytes of an id.
const MAX_ID: usize = 512;
/// Marks omitted text.
const LEFT_OUT: &str = "\n\n[The rest is left out.]";
/// Between the texts of two artifacts.
const BREAK: &str = "\n\n";

/// What the remote agent does with a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It works on the task, or will.
    #[default]
    Open,
    Completed,
    /// It needs input before it can go on.
    Waiting,
    Failed,
    Rejected,
    Canceled,
}

impl State {
    fn of(name: &str) -> Self {
        match name {
            "TASK_STATE_COMPLETED" => Self::Completed,
            "TASK_STATE_INPUT_REQUIRED" | "TASK_STATE_AUTH_REQUIRED" => Self::Waiting,
            "TASK_STATE_FAILED" => Self::Failed,
            "TASK_STATE_REJECTED" => Self::Rejected,
            "TASK_STATE_CANCELED" => Self::Canceled,
            _ => Self::Open,
        }
    }
}

/// A task of a remote agent.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub id: Option<String>,
    pub context: Option<String>,
    pub state: State,
    /// The text so far, without secrets.
    pub text: String,
    /// The end of the text, which may end with the start of a secret.
    held: String,
    /// Removes secrets, which may be split between two pieces of text.
    pub redaction: Redaction,
    /// What the agent says about the state.
    pub said: String,
    /// The text of each artifact, as far as it was passed on.
    artifacts: BTreeMap<String, String>,
    is_full: bool,
}

/// The result of a request, and an event of a stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Update {
    Task(WireTask),
    Message(WireMessage),
    StatusUpdate(StatusUpdate),
    ArtifactUpdate(ArtifactUpdate),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireTask {
    id: String,
    context_id: String,
    status: Status,
    artifacts: Vec<Artifact>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    state: String,
    message: Option<WireMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireMessage {
    context_id: String,
    parts: Vec<WirePart>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusUpdate {
    task_id: String,
    context_id: String,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ArtifactUpdate {
    task_id: String,
    context_id: String,
    artifact: Artifact,
    append: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Artifact {
    artifact_id: String,
    parts: Vec<WirePart>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WirePart {
    text: Option<String>,
    data: Option<Value>,
    url: Option<String>,
    filename: Option<String>,
}

impl WirePart {
    /// Returns what the part is in a text. Bytes of files are only named.
    fn text(&self) -> String {
        let name = self.filename.as_deref().unwrap_or("a file");
        match (&self.text, &self.data, &self.url) {
            (Some(text), ..) => text.clone(),
            (None, Some(data), _) => data.to_string(),
            (None, None, Some(url)) => format!("[{name}: {url}]"),
            (None, None, None) => format!("[{name}]"),
        }
    }
}

fn text_of(parts: &[WirePart]) -> String {
    parts.iter().map(WirePart::text).collect()
}

impl Task {
    /// Takes over the task as it was before an answer, which some agents send first. Returns whether the update is that.
    pub fn resume(&mut self, update: &Update) -> bool {
        let Update::Task(task) = update else { return false };
        if State::of(&task.status.state) != State::Waiting {
            return false;
        }
        self.of(task.id.clone(), task.context_id.clone());
        // The earlier reply has their text.
        let known = task.artifacts.iter().map(|own| (own.artifact_id.clone(), text_of(&own.parts)));
        self.artifacts.extend(known);
        true
    }

    /// Applies an update. Returns the text that it adds.
    pub fn apply(&mut self, update: Update) -> String {
        let before = self.text.len();
        match update {
            Update::Task(task) => return self.replace(task),
            Update::Message(WireMessage { context_id, parts }) => {
                // A reply without a task.
                self.of(String::new(), context_id);
                self.add(&text_of(&parts));
                self.state = State::Completed;
            }
            Update::ArtifactUpdate(ArtifactUpdate { task_id, context_id, artifact, append }) => {
                self.of(task_id, context_id);
                self.artifact(&artifact, append);
            }
            Update::StatusUpdate(StatusUpdate { task_id, context_id, status }) => {
                self.of(task_id, context_id);
                self.status(&status);
            }
        }
        self.text[before..].to_owned()
    }

    /// Applies the whole task. Returns the text that it adds.
    pub fn replace(&mut self, task: WireTask) -> String {
        let before = self.text.len();
        self.of(task.id, task.context_id);
        for artifact in &task.artifacts {
            self.artifact(artifact, false);
        }
        self.status(&task.status);
        self.text[before..].to_owned()
    }

    fn of(&mut self, task: String, context: String) {
        let is_id = |id: &String| (1..=MAX_ID).contains(&id.len());
        self.id = Some(task).filter(is_id).or(self.id.take());
        self.context = Some(context).filter(is_id).or(self.context.take());
    }

    fn status(&mut self, status: &Status) {
        self.state = State::of(&status.state);
        self.said = status.message.as_ref().map(|message| text_of(&message.parts)).unwrap_or_default();
    }

    /// Adds what is new in an artifact. Text that was passed on cannot be withdrawn, so an artifact that was replaced by
    /// another text follows it.
    fn artifact(&mut self, artifact: &Artifact, append: bool) {
        if self.is_full {
            return;
        }
        let text = text_of(&artifact.parts);
        let start = if self.is_empty() { "" } else { BREAK };
        match self.artifacts.get_mut(&artifact.artifact_id) {
            Some(known) if append => {
                known.push_str(&text);
                self.add(&text);
            }
            Some(known) if text.starts_with(known.as_str()) => {
                let rest = text[known.len()..].to_owned();
                *known = text;
                self.add(&rest);
            }
            _ => {
                self.add(&format!("{start}{text}"));
                self.artifacts.insert(artifact.artifact_id.clone(), text);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.held.is_empty()
    }

    /// Adds text, as far as there is room.
    fn add(&mut self, text: &str) {
        if self.is_full {
            return;
        }
        let room = MAX_TEXT.saturating_sub(self.text.len() + self.held.len());
        if text.len() <= room {
            self.held.push_str(text);
        } else {
            self.is_full = true;
            self.held.push_str(&text[..text.floor_char_boundary(room)]);
            self.held.push_str(LEFT_OUT);
        }
        self.pass_on(self.redaction.longest().saturating_sub(1));
    }

    /// Ends a task that is no longer open. Returns the text that this adds.
    ///
    /// # Errors
    /// The agent has not done the task.
    pub fn end(&mut self) -> Result<String, ModelError> {
        let said = std::mem::take(&mut self.said);
        let has_text = [&self.text, &self.held].iter().any(|text| !text.trim().is_empty());
        let failed = |what: &str| {
            let why: String = said.chars().take(MAX_REASON).collect();
            let why = if why.is_empty() { why } else { format!(": {why}") };
            Err(ModelError::new(ModelErrorKind::Invalid, format!("the remote agent {what}{why}")))
        };
        let before = self.text.len();
        match self.state {
            State::Failed => return failed("has failed at the task"),
            State::Rejected => return failed("has rejected the task"),
            State::Canceled => return failed("has canceled the task"),
            State::Waiting => {
                let start = if has_text { BREAK } else { "" };
                let question: String = said.chars().take(MAX_QUESTION).collect();
                // Also if the reply is full, because the next message is the answer.
                self.held.push_str(&format!(
                    "{start}The remote agent needs input before it can go on: {question}"
                ));
            }
            State::Completed | State::Open if has_text => {}
            State::Completed | State::Open if said.trim().is_empty() => {
                self.add("The remote agent has finished without a text.");
            }
            State::Completed | State::Open => self.add(&said),
        }
        self.pass_on(0);
        Ok(self.text[before..].to_owned())
    }

    /// Passes on all text but this many bytes at its end.
    fn pass_on(&mut self, held: usize) {
        let text = self.redaction.text(std::mem::take(&mut self.held));
        let (passed, held) = text.split_at(text.floor_char_boundary(text.len().saturating_sub(held)));
        self.text.push_str(passed);
        self.held = held.to_owned();
    }
}
