//! `agentctl inbox`.

use crate::{
    context::Context,
    error::{Error, Result},
    interrupt::Interrupts,
    output::Output,
    runs,
    stream::{Follow, Step},
    waits::Wait,
    wire::{InboxCall, InboxEvent},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  agentctl inbox
  agentctl inbox --kind approval --follow
  agentctl inbox --kind step
  agentctl inbox --json | jq -r '[.session, .call_id, .name] | @tsv'";

/// Lists the calls of all sessions that wait for a decision or an answer
///
/// A token has the calls of its user; with a key you see the whole tenant, or one user with --user.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inbox {
    /// Lists only calls of this kind; a step of a run that needs an approval has the kind `step`
    #[arg(long, value_parser = ["approval", "step", "question", "plan", "external", "auth"])]
    kind: Option<String>,
    /// Lists only calls of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Lists only calls of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Prints each change, until you press Ctrl-C
    ///
    /// With --json, each change is a line of JSON: `{"event": "pending.added", "call": {…}}`. `pending.reset` comes before all
    /// calls that wait.
    #[arg(short, long)]
    follow: bool,
}

impl Inbox {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let fields = [("kind", self.kind), ("agent", self.agent), ("session", self.session)];
        let filter: Vec<_> =
            fields.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect();
        if self.follow { follow(context, filter).await } else { list(context, &filter).await }
    }
}

async fn list(context: &Context, filter: &[(&str, String)]) -> Result<()> {
    let filter: Vec<_> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let calls = context.api()?.list("/v1/pending", &filter, usize::MAX).await?;
    if context.out.json || calls.is_empty() {
        return context.out.list(&calls, &[]);
    }
    calls.iter().try_for_each(|call| show(context.out, call))
}

async fn follow(context: &Context, filter: Vec<(&'static str, String)>) -> Result<()> {
    let out = context.out;
    let mut events = Follow::inbox(&context.api()?, filter);
    let mut interrupts = Interrupts::listen()?;
    loop {
        match interrupts.unless(events.next()).await? {
            Step::Event(event) if out.json => out.line(&line(&event).to_string())?,
            Step::Event(event) => match *event {
                InboxEvent::Reset => {}
                InboxEvent::Added(call) => show(out, &call)?,
                InboxEvent::Removed(call) => {
                    let of = |field: &str| call[field].as_str().unwrap_or_default().to_owned();
                    out.line(&format!("no longer waits: {} in {}", of("call_id"), of("session")))?;
                }
            },
            Step::Lost(error) => out.note(&format!("{error}; connecting again")),
            Step::Connected | Step::Idle => {}
        }
    }
}

fn line(event: &InboxEvent) -> Value {
    match event {
        InboxEvent::Reset => json!({"event": "pending.reset"}),
        InboxEvent::Added(call) => json!({"event": "pending.added", "call": call}),
        InboxEvent::Removed(call) => json!({"event": "pending.removed", "call": call}),
    }
}

/// Prints a call, and the command that resolves it.
fn show(out: Output, call: &Value) -> Result<()> {
    let InboxCall { session, step, truncated, call } =
        InboxCall::deserialize(call).map_err(|e| Error::Response(e.to_string()))?;
    let claimed = call.claim.as_ref().map(|claim| format!("\n  the runner {} works on it", claim.runner));
    let wait = Wait { session, call };
    // A person must see all of what a decision is about.
    let (text, command) = match (truncated, step.filter(|_| wait.call.kind == "step")) {
        (true, _) => (wait.describe(), format!("agentctl sessions show {}", wait.session)),
        (false, Some(step)) => {
            (wait.explain(), runs::approval(&wait.session, &step, wait.call.args_hash.as_deref()))
        }
        (false, None) => (wait.explain(), wait.command()),
    };
    out.line(&format!("{}: {text}\n  {command}{}", wait.session, claimed.unwrap_or_default()))
}
