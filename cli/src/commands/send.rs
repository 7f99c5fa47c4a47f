//! `agentctl send`.

use crate::{
    api::{Api, segment},
    context::Context,
    error::{Error, InFile as _, Result},
    interrupt::Interrupts,
    printer::{Show, explain_waiting, print_turn},
    turn::Turn,
};
use serde_json::{Value, json};
use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  agentctl send notes 'What did we decide yesterday?'
  git diff | agentctl send review -
  agentctl send notes 'What does it say?' --file offer.txt
  agentctl send notes 'Write it down.' --json | jq -r .reply.text
  agentctl send long-job 'Read all files.' --async";

/// Sends a message to a session, and prints the reply while it is written
///
/// A session that does not exist is created. A message to a session that waits cancels its turn, and declines the calls
/// that wait; `approve` and `answer` continue it instead. Ctrl-C aborts the turn, and a second one leaves while the turn continues.
/// The exit code is 5 if the turn waits for a decision or an answer; the commands that continue it are then printed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Send {
    /// Session: its id, or a new one of your choice
    session: String,
    /// Text of the message; `-` reads it from standard input
    text: String,
    /// Agent of a new session
    #[arg(long)]
    agent: Option<String>,
    /// File to attach; repeat the option for several
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What to do if the session has a turn already
    #[arg(long, value_enum, default_value_t = OnBusy::Queue)]
    on_busy: OnBusy,
    /// Maximum number of model calls of the turn
    #[arg(long, value_name = "N")]
    max_steps: Option<u32>,
    /// Maximum cost of the turn, in US dollars
    #[arg(long, value_name = "USD")]
    max_cost: Option<f64>,
    /// File with a JSON Schema that the reply must match
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Returns at once with the turn's id, and does not wait for the reply
    #[arg(long = "async", conflicts_with = "events")]
    is_async: bool,
    /// Prints each event of the turn as a line of JSON
    #[arg(long)]
    events: bool,
}

/// What happens to a message to a busy session.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum OnBusy {
    /// It runs after the others
    Queue,
    /// The running turn is aborted, and the queue is cleared
    Steer,
    /// It is refused
    Reject,
}

impl OnBusy {
    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Steer => "steer",
            Self::Reject => "reject",
        }
    }
}

impl Send {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let mut body = self.body()?;
        if !self.files.is_empty() {
            let text = json!({"type": "text", "text": body["content"].take()});
            let mut parts = self.attach(context, &api).await?;
            parts.push(text);
            body["parts"] = parts.into();
        }
        let agent: Vec<_> = self.agent.iter().map(|agent| ("agent", agent.as_str())).collect();
        let turn = Turn::post(&api, &self.session, "messages", &agent, &body);
        if self.is_async {
            let turn = turn.await?;
            return context
                .out
                .value(&json!({"turn_id": turn.id(), "status": "running"}), |_| turn.id().to_owned());
        }
        let mut interrupts = Interrupts::listen()?;
        let result = print_turn(context.out, Show::of(context, self.events), turn, &mut interrupts).await?;
        explain_waiting(context.out, &self.session, &result.pending);
        result.check()
    }

    fn body(&self) -> Result<Value> {
        let mut text = self.text.clone();
        if text == "-" {
            text.clear();
            io::stdin().read_to_string(&mut text)?;
        }
        let mut body = json!({"content": text, "on_busy": self.on_busy.name()});
        if let Some(steps) = self.max_steps {
            body["budget"]["max_steps"] = steps.into();
        }
        if let Some(cost) = self.max_cost {
            body["budget"]["max_cost_usd"] = cost.into();
        }
        if let Some(file) = &self.schema {
            body["output_schema"] = read_json(file)?;
        }
        Ok(body)
    }

    /// Uploads the files, and returns the parts of the message that name them.
    async fn attach(&self, context: &Context, api: &Api) -> Result<Vec<Value>> {
        // Only an existing session takes attachments; this returns it if it exists.
        let mut session = json!({ "id": self.session });
        if let Some(agent) = &self.agent {
            session["agent"] = agent.as_str().into();
        }
        api.post("/v1/sessions").body_json(&session).send().await?;
        let bar = context.out.progress(self.files.len() as u64, "uploading");
        let mut parts = Vec::new();
        for file in &self.files {
            let bytes = std::fs::read(file).in_file(file)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let kind = if str::from_utf8(&bytes).is_ok() {
                "text/plain; charset=utf-8"
            } else {
                "application/octet-stream"
            };
            let upload = api.post(&format!("/v1/sessions/{}/attachments", segment(&self.session)));
            let stored: Value =
                upload.query("name", &name).header("content-type", kind).body(bytes).json().await?;
            parts.push(json!({"type": "file", "ref": stored["ref"]}));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(parts)
    }
}

/// Reads a file of JSON; `-` is standard input.
pub(crate) fn read_json(file: &Path) -> Result<Value> {
    let text =
        if file.as_os_str() == "-" { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(file) };
    serde_json::from_str(&text.in_file(file)?).map_err(|e| Error::Usage(format!("{}: {e}", file.display())))
}
