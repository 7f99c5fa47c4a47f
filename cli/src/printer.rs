//! Prints a turn while it runs.

use crate::{
    context::Context,
    error::{Error, Result},
    interrupt::Interrupts,
    output::{Output, short},
    turn::{Turn, TurnResult, TurnStep},
    waits::Wait,
    wire::{Event, Pending, Received},
};
use std::pin::pin;

/// What to print of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// The text of the reply as it is written, and tool calls as remarks.
    Text,
    /// Each event as a line of JSON.
    Events,
    /// Only the result, as JSON.
    Result,
}

impl Show {
    /// Returns what `--json` and `--events` ask for.
    pub fn of(context: &Context, events: bool) -> Self {
        match (events, context.out.json) {
            (true, _) => Self::Events,
            (false, true) => Self::Result,
            (false, false) => Self::Text,
        }
    }
}

/// Said after the first Ctrl-C.
const STOPPING: &str = "\nstopping the turn; press Ctrl-C again to leave";

/// Prints a turn that is being started until it ends or waits. Ctrl-C aborts the turn, and a second one leaves.
///
/// # Errors
/// What the server refuses, `Interrupted`, and a closed standard output.
pub async fn print_turn(
    out: Output,
    show: Show,
    starting: impl Future<Output = Result<Turn>>,
    interrupts: &mut Interrupts,
) -> Result<TurnResult> {
    let mut text = TextPrinter::new(out);
    let mut starting = pin!(starting);
    // The server may have the message before its response is here.
    let (mut turn, mut is_aborting) = tokio::select! {
        turn = &mut starting => (turn?, false),
        () = interrupts.next() => {
            out.note(STOPPING);
            let turn = interrupts.unless(starting).await?;
            stop(out, &turn, interrupts).await?;
            (turn, true)
        }
    };
    loop {
        let step = tokio::select! {
            step = turn.next() => step?,
            () = interrupts.next() => {
                if is_aborting {
                    return Err(Error::Interrupted);
                }
                is_aborting = true;
                out.note(STOPPING);
                stop(out, &turn, interrupts).await?;
                continue;
            }
        };
        match (step, show) {
            (TurnStep::Event(event), Show::Events) => out.line(&event.json.to_string())?,
            (TurnStep::Event(event), Show::Text) => text.print(&event)?,
            (TurnStep::Event(_), Show::Result) => {}
            (TurnStep::Lost(error), _) => out.note(&format!("{error}; connecting again")),
            (TurnStep::Done(result), _) => {
                if show == Show::Result {
                    out.line(&result.json.to_string())?;
                }
                return Ok(result);
            }
        }
    }
}

/// Aborts a turn.
///
/// # Errors
/// `NoReply` if the message was still in the queue, which it leaves.
async fn stop(out: Output, turn: &Turn, interrupts: &mut Interrupts) -> Result<()> {
    if interrupts.unless(turn.abort()).await? {
        out.note("the message has left the queue");
        return Err(Error::NoReply);
    }
    Ok(())
}

/// Prints the text of a turn, and remarks about everything else.
pub struct TextPrinter {
    out: Output,
    /// The message that is being printed, as far as it has been.
    printed: String,
}

impl TextPrinter {
    /// Creates a printer of turns.
    pub fn new(out: Output) -> Self {
        Self { out, printed: String::new() }
    }

    /// Prints an event.
    ///
    /// # Errors
    /// A closed standard output.
    pub fn print(&mut self, received: &Received) -> Result<()> {
        match &received.event {
            Event::Text { delta, .. } => {
                self.printed.push_str(delta);
                self.out.piece(delta)?;
            }
            Event::MessageCompleted { message } => {
                let text = message.text();
                // Empty if all of it arrived as deltas.
                let rest = text.strip_prefix(self.printed.as_str()).unwrap_or_default();
                self.printed.clear();
                self.out.piece(&format!("{rest}\n"))?;
            }
            Event::TurnResumed { reason } if !self.printed.is_empty() => {
                self.printed.clear();
                self.out.piece("\n")?;
                self.out.note(&format!("[{reason}: the model writes its message again]"));
            }
            Event::ToolStarted { name, args, .. } => self.out.note(&format!("[{name} {}]", short(args))),
            Event::ToolCompleted(outcome) if outcome.outcome == "result" => {
                self.out.note(&format!("[→ {}]", short(&outcome.result)));
            }
            Event::ToolCompleted(outcome) => {
                let reason = outcome.reason.clone().unwrap_or_default();
                self.out.note(&format!("[→ {}: {reason}]", outcome.outcome));
            }
            Event::BudgetExceeded { limit } => {
                self.out.note(&format!("[the turn reached its limit: {limit}]"));
            }
            Event::TurnFailed { error } => {
                self.out.note(&format!("error: the turn failed: {} ({})", error.message, error.code));
            }
            Event::TurnCanceled { .. } => self.out.note("the turn was canceled"),
            _ => {}
        }
        Ok(())
    }
}

/// Explains what a turn waits for, and how to continue it.
pub fn explain_waiting(out: Output, session: &str, pending: &[Pending]) {
    for wait in Wait::all(session, pending) {
        out.note(&format!("waiting: {}\n  {}", wait.explain(), wait.command()));
    }
}
