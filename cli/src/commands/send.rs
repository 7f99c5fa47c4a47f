//! `agentctl send`.

use crate::{
    context::Context,
    error::{Error, Result},
    printer::{Show, explain_waiting, print_turn},
    turn::Turn,
};
use serde_json::{Value, json};
use std::io::{self, Read as _};

const EXAMPLES: &str = "\
Examples:
  agentctl send notes 'What did we decide yesterday?'
  git diff | agentctl send review -
  agentctl send notes 'Write it down.' --json | jq -r .reply.text
  agentctl send long-job 'Read all files.' --async";

/// Sends a message to a session, and prints the reply while it is written
///
/// A session that does not exist is created. Ctrl-C aborts the turn, and a second one leaves while the turn continues.
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
    schema: Option<std::path::PathBuf>,
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
        let body = self.body()?;
        let agent: Vec<_> = self.agent.iter().map(|agent| ("agent", agent.as_str())).collect();
        let turn = Turn::post(&context.api()?, &self.session, "messages", &agent, &body).await?;
        if self.is_async {
            return context
                .out
                .value(&json!({"turn_id": turn.id(), "status": "running"}), |_| turn.id().to_owned());
        }
        let result = print_turn(context.out, Show::of(context, self.events), turn).await?;
        explain_waiting(context.out, &self.session, &result.pending)?;
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
}

/// Reads a file of JSON; `-` is standard input.
pub(crate) fn read_json(file: &std::path::Path) -> Result<Value> {
    use crate::error::InFile as _;
    let text =
        if file.as_os_str() == "-" { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(file) };
    serde_json::from_str(&text.in_file(file)?).map_err(|e| Error::Usage(format!("{}: {e}", file.display())))
}
