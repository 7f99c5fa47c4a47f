//! `agentctl sessions`, and `agentctl export`.

pub(super) mod archive;
mod tail;

use crate::{
    api::segment,
    context::Context,
    error::Result,
    output::short,
    runs::{self, is_run},
    waits::Wait,
    wire::{Message, Pending},
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::{fmt::Write as _, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  agentctl sessions create careful --ask edit --ask execute
  agentctl sessions list --limit 10
  agentctl sessions show notes
  agentctl sessions tail notes --until-idle
  agentctl sessions export notes -o notes.zip
  agentctl sessions rm notes";

/// Creates, lists, shows, follows, exports, copies and erases sessions
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Sessions {
    Create(Create),
    List(List),
    Show(Show),
    Tail(tail::Tail),
    Export(Export),
    Fork(Fork),
    Rm(Rm),
}

impl Sessions {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Create(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Show(command) => command.run(context).await,
            Self::Tail(command) => command.run(context).await,
            Self::Export(command) => command.run(context).await,
            Self::Fork(command) => command.run(context).await,
            Self::Rm(command) => command.run(context).await,
        }
    }
}

/// Creates a session; `send` and `chat` also create one
#[derive(clap::Args)]
pub(crate) struct Create {
    /// Id of the session [default: one of the server]
    session: Option<String>,
    /// Agent of the session
    #[arg(long)]
    agent: Option<String>,
    /// Title [default: taken from the first message]
    #[arg(long)]
    title: Option<String>,
    /// Mode of the session
    #[arg(long)]
    mode: Option<String>,
    /// Model of the session
    #[arg(long)]
    model: Option<String>,
    /// Category of tools whose calls wait for an approval, such as `edit`; repeat the option for several
    #[arg(long, value_name = "CATEGORY")]
    ask: Vec<String>,
}

impl Create {
    async fn run(self, context: &Context) -> Result<()> {
        let mut body = json!({});
        let Self { session, agent, title, mode, model, ask } = self;
        let fields = [("id", session), ("agent", agent), ("title", title), ("mode", mode), ("model", model)];
        for (name, value) in fields {
            if let Some(value) = value {
                body[name] = value.into();
            }
        }
        for category in ask {
            body["permissions"]["categories"][category] = "ask".into();
        }
        let session: Value = context.api()?.post("/v1/sessions").body_json(&body).json().await?;
        context.out.value(&session, |session| cell(&session["id"]).to_owned())
    }
}

/// Lists sessions, newest first
#[derive(clap::Args)]
pub(crate) struct List {
    /// Lists only sessions of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Maximum number of sessions
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let agent: Vec<_> = self.agent.iter().map(|agent| ("agent", agent.as_str())).collect();
        let sessions = context.api()?.list("/v1/sessions", &agent, self.limit).await?;
        context.out.list(&sessions, &["id", "status", "agent", "updated_at", "title"])
    }
}

/// Shows a session: its state, its conversation, and the calls that wait
///
/// With --json, the session has its messages in the field `messages`.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Session to show
    session: String,
}

impl Show {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let path = format!("/v1/sessions/{}", segment(&self.session));
        let mut session = Value::Object(api.get(&path).json().await?);
        session["messages"] = api.list(&format!("{path}/messages"), &[], usize::MAX).await?.into();
        context.out.value(&session, page)
    }
}

/// Returns a session as text.
fn page(session: &Value) -> String {
    let mut text = String::new();
    for field in ["id", "title", "status", "agent", "mode", "model", "user", "created_at", "updated_at"] {
        if let Some(value) = session[field].as_str() {
            let _ = writeln!(text, "{field}: {}", value.lines().next().unwrap_or_default());
        }
    }
    for message in session["messages"].as_array().into_iter().flatten() {
        for part in message["parts"].as_array().into_iter().flatten() {
            let line = match part["type"].as_str() {
                Some("text") => {
                    format!("\n{}\n{}", message["role"].as_str().unwrap_or_default(), cell(&part["text"]))
                }
                Some("file") => format!("\n[file {}]", cell(&part["name"])),
                Some("tool_call") => format!("\n[{} {}]", cell(&part["name"]), short(&part["args"])),
                Some("tool_result") => match part["outcome"].as_str() {
                    Some("result") => format!("[→ {}]", short(&part["result"])),
                    other => format!("[→ {}: {}]", other.unwrap_or_default(), short(&part["reason"])),
                },
                _ => continue,
            };
            text.push_str(&line);
            text.push('\n');
        }
    }
    let pending = session["pending"].as_array().into_iter().flatten();
    let pending: Vec<_> = pending.filter_map(|call| Pending::deserialize(call).ok()).collect();
    for wait in Wait::all(cell(&session["id"]), &pending) {
        let _ = writeln!(text, "\nwaiting: {}\n  {}", wait.explain(), wait.command());
    }
    for queued in session["queue"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "\nqueued: {}", cell(&queued["turn"]));
    }
    text.trim_end().to_owned()
}

fn cell(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes a session or a run into a zip archive: session.json or run.json, events.ndjson and its artifacts
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Session or run to export
    session: String,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Export {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let path = match is_run(&self.session) {
            true => runs::path(&self.session),
            false => format!("/v1/sessions/{}", segment(&self.session)),
        };
        archive::write(context, &path, &self.output).await
    }
}

/// Creates a session that starts as a copy of another one
#[derive(clap::Args)]
pub(crate) struct Fork {
    /// Session to copy
    session: String,
    /// Last message to copy: its id
    #[arg(long, value_name = "MESSAGE")]
    at: Option<String>,
}

impl Fork {
    async fn run(self, context: &Context) -> Result<()> {
        let path = format!("/v1/sessions/{}/fork", segment(&self.session));
        let body = self.at.map_or_else(|| json!({}), |at| json!({ "at_message": at }));
        let session: Value = context.api()?.post(&path).body_json(&body).json().await?;
        context.out.value(&session, |session| cell(&session["id"]).to_owned())
    }
}

/// Erases sessions: their messages, artifacts, indexed turns and extracted facts
#[derive(clap::Args)]
pub(crate) struct Rm {
    /// Sessions to erase
    #[arg(required = true)]
    sessions: Vec<String>,
}

impl Rm {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        for session in &self.sessions {
            api.delete(&format!("/v1/sessions/{}", segment(session))).send().await?;
            context.out.value(&json!({ "erased": session }), |_| format!("erased {session}"))?;
        }
        Ok(())
    }
}

/// Returns the text and the files of a message in one line.
pub(super) fn summary(message: &Message) -> String {
    let mut text = short(&message.text().into());
    for file in message.files() {
        let _ = write!(text, " [{file}]");
    }
    text.trim_start().to_owned()
}
