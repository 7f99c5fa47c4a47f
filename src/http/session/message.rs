//! Reads and checks the message that a client posts.

use super::call::Call;
use super::checks::{self, MAX_OBJECT_BYTES};
use crate::agent::{ExternalTool, OnBusy, Post, external_tool::Declared};
use crate::session::{Session, artifacts::ArtifactError};
use crate::turn::schema;
use crate::types::{
    ArtifactId, BudgetPatch, Part, Problem, RunTurn, Thinking, ToolSpec, TurnId, TurnOptions,
    message::text_of,
    session::{Webhook, WebhookKey},
};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// Most parts of a message.
const MAX_PARTS: usize = 100;
/// Maximum size of the text of a message, in bytes (1 MiB). A record with the text is read as a whole.
const MAX_TEXT: usize = 1 << 20;
/// Most parts of a message that are files.
const MAX_FILES: usize = 20;

/// Most tools that a client may bring.
const MAX_CLIENT_TOOLS: usize = 128;

/// The body of `POST /v1/sessions/{id}/messages`.
#[derive(Clone, Default, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewMessage")]
pub struct MessageBody {
    /// The text.
    pub content: Option<String>,
    /// The content in parts, in place of the text.
    #[schemars(with = "Option<Vec<NewPart>>")]
    pub parts: Option<Vec<Value>>,
    /// Must be `user`.
    pub role: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// What to do while another turn runs.
    pub on_busy: Option<OnBusy>,
    /// Limits of the turn.
    #[serde(default)]
    pub budget: Option<BudgetPatch>,
    /// The only tools that the turn may use.
    pub tools: Option<Vec<String>>,
    /// The tools that the client runs.
    #[serde(default)]
    pub client_tools: Vec<Declared>,
    /// Instructions that follow those of the agent.
    pub instructions: Option<String>,
    /// Maximum number of tokens of each response.
    pub max_output_tokens: Option<u32>,
    /// How much the model should reason.
    pub think: Option<Thinking>,
    /// Whether the reply lists its sources.
    pub show_citations: Option<bool>,
    /// The JSON Schema of the reply.
    pub output_schema: Option<Value>,
    /// The webhook of the turn.
    #[serde(skip)]
    pub webhook: Option<NewWebhook>,
    /// See [`TurnOptions::request`].
    #[serde(skip)]
    pub request: Option<String>,
    /// See [`TurnOptions::run`].
    #[serde(skip)]
    pub run: Option<RunTurn>,
    /// What a new session has, besides what all new sessions have.
    #[serde(skip)]
    pub new_session: Option<NewSessionMeta>,
}

/// What a new session has, besides what all new sessions have.
#[derive(Clone)]
pub struct NewSessionMeta {
    /// The agent, if the body names one.
    pub agent: Option<String>,
    /// The title.
    pub title: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The limits of each turn.
    pub budget: BudgetPatch,
}

/// A webhook of the message's turn.
#[derive(Clone)]
pub struct NewWebhook {
    /// The id that the client chose.
    pub id: String,
    /// The URL, checked with [`SessionHost::check_receiver`](crate::agent::SessionHost::check_receiver).
    pub url: String,
    /// The headers of each request.
    pub headers: Vec<(String, String)>,
}

impl NewWebhook {
    /// Returns the webhook of this turn.
    pub fn of(self, turn: TurnId) -> Webhook {
        Webhook::new(WebhookKey { turn, id: self.id }, self.url, self.headers)
    }
}

/// The form of a part of a new message. Parts are read one by one, so that errors name the field.
#[allow(dead_code, reason = "describes the form")]
#[derive(schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum NewPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A file of the session.
    File {
        /// The `ref` of an attachment or artifact.
        r#ref: ArtifactId,
    },
}

/// Checks a message for the session, or for a new session if there is none.
///
/// # Errors
/// `validation_failed`, or a failed store.
pub(super) fn checked_post(
    call: &Call<'_>,
    body: MessageBody,
    session: Option<&Rc<Session>>,
    turn: &TurnId,
) -> Result<Post, Problem> {
    if body.role.is_some_and(|role| role != "user") {
        return Err(Problem::field("/role", "only messages of role `user` may be posted"));
    }
    let (parts, place) = match (body.content, body.parts) {
        (Some(text), None) => (vec![Part::Text { text }], "/content"),
        (None, Some(parts)) => (read_parts(call, session, &parts)?, "/parts"),
        (Some(_), Some(_)) => return Err(Problem::field("/parts", "send either `content` or `parts`")),
        (None, None) => return Err(Problem::field("/content", "missing: the text of the message")),
    };
    let is_file = |part: &Part| matches!(part, Part::File(_));
    let text = text_of(&parts);
    if text.len() > MAX_TEXT {
        let detail = format!("the text has {} bytes; expected at most {MAX_TEXT} (1 MiB)", text.len());
        return Err(Problem::field(place, detail));
    }
    if text.trim().is_empty() && !parts.iter().any(is_file) {
        return Err(Problem::field(place, "the message has no text and no file"));
    }
    let agent = call.host.agent();
    let toolkit = agent.toolkit();
    let mut names = body.tools.iter().flatten().enumerate();
    if let Some((index, name)) = names.find(|(_, name)| toolkit.get(name).is_none()) {
        return Err(Problem::field(format!("/tools/{index}"), format!("no tool named {name:?}")));
    }
    let mut tools = body.tools;
    if let Some(names) = &mut tools {
        // They are part of the state, which each step stores.
        names.sort_unstable();
        names.dedup();
    }
    if let Some(schema) = &body.output_schema {
        check_schema(schema)?;
    }
    if body.instructions.is_some() && (call.principal.user.is_some() || call.principal.session.is_some()) {
        let detail = "only a caller with a key may send instructions; put them into the message";
        return Err(Problem::field("/instructions", detail));
    }
    let instructions = body.instructions.unwrap_or_default();
    if instructions.len() > MAX_OBJECT_BYTES {
        return Err(Problem::field("/instructions", format!("larger than {MAX_OBJECT_BYTES} bytes")));
    }
    if body.max_output_tokens == Some(0) {
        return Err(Problem::field("/max_output_tokens", "expected 1 or more"));
    }
    let budget = body.budget.unwrap_or_default();
    let new = body.new_session.as_ref().and_then(|new| new.model.as_deref());
    check_budget(call, session.map(Rc::as_ref), new, &budget)?;
    Ok(Post {
        turn: turn.clone(),
        parts,
        budget,
        options: TurnOptions {
            tools,
            think: body.think,
            show_citations: body.show_citations.unwrap_or(true),
            // The reply of a run is its report.
            output_schema: body
                .output_schema
                .or_else(|| agent.output_schema().filter(|_| body.run.is_none()).cloned()),
            client_tools: client_tools(call, body.client_tools)?,
            instructions,
            max_output_tokens: body.max_output_tokens,
            request: body.request,
            run: body.run,
        },
        on_busy: body.on_busy.unwrap_or_default(),
        webhook: body.webhook.map(|webhook| webhook.of(turn.clone())),
        response: None,
        slot_until: None,
    })
}

/// Checks the tools that the client brings.
fn client_tools(call: &Call<'_>, declared: Vec<Declared>) -> Result<Vec<ToolSpec>, Problem> {
    let fault = |index: usize, detail: String| Problem::field(format!("/client_tools/{index}"), detail);
    if declared.len() > MAX_CLIENT_TOOLS {
        return Err(Problem::field("/client_tools", format!("expected at most {MAX_CLIENT_TOOLS} tools")));
    }
    let mut tools: Vec<ToolSpec> = Vec::with_capacity(declared.len());
    let mut bytes = 0;
    for (index, declared) in declared.into_iter().enumerate() {
        let name = declared.name.clone();
        if !call.host.agent().accepts_client_tool(&name) {
            let detail = format!("the agent's tool {name:?} cannot be replaced; choose another name");
            return Err(fault(index, detail));
        }
        if tools.iter().any(|tool| tool.name == name) {
            return Err(fault(index, format!("there already is a tool named {name:?}")));
        }
        let spec = ExternalTool::of_client(declared).map_err(|invalid| fault(index, invalid.0))?;
        bytes += name.len() + spec.description.len() + spec.parameters.to_string().len();
        tools.push(spec);
    }
    // They are part of the state, which each step stores.
    if bytes > MAX_OBJECT_BYTES {
        return Err(Problem::field("/client_tools", format!("larger than {MAX_OBJECT_BYTES} bytes")));
    }
    Ok(tools)
}

/// Reads the parts of a message: text, and files of the session.
fn read_parts(call: &Call<'_>, session: Option<&Rc<Session>>, parts: &[Value]) -> Result<Vec<Part>, Problem> {
    if parts.len() > MAX_PARTS {
        return Err(Problem::field("/parts", format!("expected at most {MAX_PARTS} parts")));
    }
    let is = |part: &Value, kind: &str| part.get("type").and_then(Value::as_str) == Some(kind);
    if parts.iter().filter(|part| is(part, "file")).count() > MAX_FILES {
        return Err(Problem::field("/parts", format!("expected at most {MAX_FILES} files")));
    }
    let mut files: BTreeMap<&str, Part> = BTreeMap::new();
    let mut read = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let fault = |name: &str, detail| Err(Problem::field(format!("/parts/{index}/{name}"), detail));
        read.push(match (text("type"), text("text"), text("ref")) {
            (Some("text"), Some(text), _) => Part::text(text),
            (Some("text"), None, _) => return fault("text", "expected a string"),
            (Some("file"), _, Some(id)) => match files.get(id) {
                Some(known) => known.clone(),
                None => {
                    let file = file_part(call, session, index, &id.into())?;
                    files.entry(id).or_insert(file).clone()
                }
            },
            (Some("file"), _, None) => return fault("ref", "expected the `ref` of an attachment"),
            _ => return fault("type", "expected \"text\" or \"file\""),
        });
    }
    Ok(read)
}

/// Reads the part of a message that names a file of the session.
fn file_part(
    call: &Call<'_>,
    session: Option<&Rc<Session>>,
    index: usize,
    id: &ArtifactId,
) -> Result<Part, Problem> {
    // A session that does not exist yet has no files.
    let found = session.map_or(Err(ArtifactError::NotFound), |own| call.host.artifacts(own).find(id));
    match found {
        Ok(pointer) => Ok(Part::File(pointer.as_file())),
        Err(error @ ArtifactError::Store(_)) => Err(error.into()),
        Err(error) => Err(Problem::field(format!("/parts/{index}/ref"), error.to_string())),
    }
}

/// Checks the limit in money of a turn: the turn's own, or else the session's. `new` is the model of a session that the
/// message creates.
fn check_budget(
    call: &Call<'_>,
    session: Option<&Session>,
    new: Option<&str>,
    budget: &BudgetPatch,
) -> Result<(), Problem> {
    let (limit, model) = match session.map(Session::state) {
        Some(state) => (state.meta.budget.patched(budget).max_cost_usd, state.meta.model.clone()),
        None => (call.host.agent().budget().patched(budget).max_cost_usd, new.map(str::to_owned)),
    };
    checks::budget(call.host, budget)?;
    checks::priced(call.host, limit, model.as_deref(), "/budget/max_cost_usd")
}

/// Checks that replies can be validated against a client's schema.
fn check_schema(schema: &Value) -> Result<(), Problem> {
    if schema.to_string().len() > MAX_OBJECT_BYTES {
        return Err(Problem::field("/output_schema", format!("larger than {MAX_OBJECT_BYTES} bytes")));
    }
    schema::check(schema)
        .map_err(|misfit| Problem::field(format!("/output_schema{}", misfit.pointer), misfit.detail))
}
