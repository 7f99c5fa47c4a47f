//! `agentctl sessions tail`.

use super::summary;
use crate::{
    api::segment,
    context::Context,
    error::Result,
    interrupt::Interrupts,
    output::short,
    stream::{Follow, Step},
    waits::Wait,
    wire::{Event, Received, Session},
};

/// Follows the events of a session: the last ones, then each new one
///
/// With --json, each event is a line of JSON, deltas included. The stream continues after a lost connection without a
/// gap, until you press Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Tail {
    /// Session to follow
    session: String,
    /// Number of earlier events to print first
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: u64,
    /// Event id after which to start, in place of --lines
    #[arg(long, value_name = "ID", conflicts_with = "lines")]
    after: Option<String>,
    /// Ends as soon as the session has no turn that runs or waits
    #[arg(long)]
    until_idle: bool,
}

impl Tail {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let session: Session = api.get(&format!("/v1/sessions/{}", segment(&self.session))).json().await?;
        let after = self.after.unwrap_or_else(|| session.last_seq.saturating_sub(self.lines).to_string());
        let mut events = Follow::new(&api, &self.session, after);
        if self.until_idle {
            events = events.until_idle();
        }
        let mut interrupts = Interrupts::listen()?;
        loop {
            match interrupts.unless(events.next()).await? {
                Step::Event(event) if context.out.json => context.out.line(&event.json.to_string())?,
                Step::Event(event) => {
                    if let Some(line) = line(&event) {
                        context.out.line(&line)?;
                    }
                }
                Step::Lost(error) => context.out.note(&format!("{error}; connecting again")),
                Step::Connected => {}
                Step::Idle => return Ok(()),
            }
        }
    }
}

/// Returns the line of a record; deltas have none, because the record of their message follows.
fn line(received: &Received) -> Option<String> {
    let json = &received.json;
    let seq = json["seq"].as_u64()?;
    let time = json["at"].as_str().and_then(|at| at.get(11..19)).unwrap_or_default();
    let kind = json["type"].as_str().unwrap_or_default();
    let detail = match &received.event {
        Event::TurnStarted { message } | Event::MessageCompleted { message } => summary(message),
        Event::ToolStarted { name, args, .. } => format!("{name} {}", short(args)),
        Event::ToolCompleted(outcome) if outcome.outcome == "result" => short(&outcome.result),
        Event::ToolCompleted(outcome) => {
            format!("{}: {}", outcome.outcome, outcome.reason.as_deref().unwrap_or_default())
        }
        Event::TurnWaiting { pending } => {
            Wait::all("", pending).iter().map(Wait::describe).collect::<Vec<_>>().join("; ")
        }
        Event::TurnCompleted { stop_reason } => stop_reason.clone(),
        Event::TurnFailed { error } => format!("{} ({})", error.message, error.code),
        Event::TurnResumed { reason } => reason.clone(),
        Event::ApprovalDecided { decision, reason, .. } => {
            format!("{decision} {}", reason.as_deref().unwrap_or_default())
        }
        Event::AnswerGiven { answer, .. } => short(answer),
        Event::ModeChanged { mode, .. } => mode.clone().unwrap_or_default(),
        Event::SessionUpdated { changed } => short(changed),
        _ => String::new(),
    };
    Some(format!("{seq:>5} {time} {kind} {detail}").trim_end().to_owned())
}
