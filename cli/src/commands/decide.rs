//! `agentctl approve` and `agentctl answer`.

use super::send::read_json;
use crate::{
    api::segment,
    context::Context,
    error::{Error, Result},
    interrupt::Interrupts,
    printer::{Show, explain_waiting, print_turn},
    turn::Turn,
};
use serde_json::{Value, json};
use std::path::PathBuf;

const APPROVE_EXAMPLES: &str = "\
Examples:
  agentctl sessions show deploy
  agentctl approve deploy call_5_0 --args-hash 2f7d…
  agentctl approve deploy call_5_0 --decline --reason 'Not on a Friday.'
  agentctl approve deploy call_5_0 --always tool
  echo '{\"path\": \"b.txt\", \"content\": \"hi\"}' | agentctl approve deploy call_5_0 --args -";

const ANSWER_EXAMPLES: &str = "\
Examples:
  agentctl answer trip call_2_0 '\"Oslo\"'
  agentctl answer trip call_2_0 '[\"Oslo\", \"Bergen\"]'
  agentctl answer trip call_3_0 '{\"action\": \"rejected\", \"feedback\": \"Too long.\"}'
  agentctl answer camera call_4_0 --error 'the camera is off'";

/// Approves or declines a tool call that waits, and prints the rest of the turn
#[derive(clap::Args)]
#[command(after_help = APPROVE_EXAMPLES)]
pub(crate) struct Approve {
    /// Session of the call
    session: String,
    /// Call that waits; `agentctl sessions show` lists them
    call: String,
    /// Declines the call: it does not run
    #[arg(long, conflicts_with_all = ["always", "args"])]
    decline: bool,
    /// Reason, which the model reads
    #[arg(long)]
    reason: Option<String>,
    /// File with arguments, as JSON, that replace those of the call; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    args: Option<PathBuf>,
    /// Allows later calls, too: of this tool, or of all tools of its category
    #[arg(long, value_enum)]
    always: Option<Always>,
    /// Hash of the arguments that you saw, which `agentctl sessions show` prints: the decision is refused if the call has
    /// others
    #[arg(long, value_name = "HASH")]
    args_hash: Option<String>,
    /// Prints each event of the turn as a line of JSON
    #[arg(long)]
    events: bool,
}

/// What a decision allows for the rest of the session.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Always {
    /// Calls of this tool
    Tool,
    /// Calls of all tools of its category
    Category,
}

impl Approve {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let decision = match (self.decline, self.always) {
            (true, _) => "decline",
            (false, None) => "approve",
            (false, Some(Always::Tool)) => "always_allow_tool",
            (false, Some(Always::Category)) => "always_allow_category",
        };
        let mut body = json!({ "decision": decision });
        if let Some(reason) = &self.reason {
            body["reason"] = reason.as_str().into();
        }
        if let Some(hash) = &self.args_hash {
            body["args_hash"] = hash.as_str().into();
        }
        if let Some(file) = &self.args {
            body["args"] = read_json(file)?;
        }
        resolve(context, &self.session, &format!("approvals/{}", segment(&self.call)), &body, self.events)
            .await
    }
}

/// Answers a question, a plan or a call of an external tool, and prints the rest of the turn
#[derive(clap::Args)]
#[command(after_help = ANSWER_EXAMPLES)]
pub(crate) struct Answer {
    /// Session of the call
    session: String,
    /// Call that waits; `agentctl sessions show` lists them
    call: String,
    /// Answer, as JSON; `-` reads it from standard input
    #[arg(value_name = "JSON", required_unless_present = "error")]
    answer: Option<String>,
    /// Reason why an external tool has no result
    #[arg(long, conflicts_with = "answer")]
    error: Option<String>,
    /// Prints each event of the turn as a line of JSON
    #[arg(long)]
    events: bool,
}

impl Answer {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let body = match (&self.error, self.answer.as_deref()) {
            (Some(reason), _) => json!({ "error": reason }),
            (None, Some("-")) => json!({ "answer": read_json("-".as_ref())? }),
            (None, text) => json!({ "answer": parse(text.unwrap_or_default())? }),
        };
        resolve(context, &self.session, &format!("answers/{}", segment(&self.call)), &body, self.events).await
    }
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| {
        Error::Usage(format!("the answer is not JSON: {e}; a text needs quotes, such as '\"yes\"'"))
    })
}

async fn resolve(context: &Context, session: &str, route: &str, body: &Value, events: bool) -> Result<()> {
    let api = context.api()?;
    let mut interrupts = Interrupts::listen()?;
    let turn = Turn::post(&api, session, route, &[], body);
    let result = print_turn(context.out, Show::of(context, events), turn, &mut interrupts).await?;
    explain_waiting(context.out, session, &result.pending);
    result.check()
}
