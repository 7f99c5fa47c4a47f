//! Follows a run until it ends, or until it waits for a person and this command has no terminal to ask on.

use super::{Run, page, path, plan};
use crate::{
    api::{Api, segment},
    context::Context,
    error::{Error, Result},
    interrupt::Interrupts,
    printer::{Show, TextPrinter},
    prompt::Prompt,
    stream::{Follow, Step},
    turn::MAX_FAILURES,
    waits::Wait,
    wire::{Event, Received, Session},
};
use serde::Deserialize as _;
use serde_json::Value;
use std::{
    collections::HashSet,
    io::{self, IsTerminal as _},
    time::Duration,
};

/// Time before the state of a run is read again that has ended no turn yet.
const PAUSE: Duration = Duration::from_millis(500);

/// How a run is followed.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// What to print.
    pub(crate) show: Show,
    /// Whether Ctrl-C cancels the run; otherwise it leaves.
    pub(crate) cancels: bool,
    /// Whether local calls run in this process.
    pub(crate) is_served: bool,
}

/// Follows a run.
pub(crate) struct Follower<'a> {
    context: &'a Context,
    api: &'a Api,
    run: &'a str,
    output: Output,
    text: TextPrinter,
    /// Asks for decisions, on a terminal.
    prompt: Option<Prompt>,
    interrupts: Interrupts,
    is_canceling: bool,
    /// The number of the last record.
    after: String,
    /// Calls that were answered here, or about which a remark was printed.
    done: HashSet<String>,
    /// Connections in a row that could not be made.
    failures: u32,
}

impl<'a> Follower<'a> {
    /// Follows a run after an event id; `0` is the start of its log.
    ///
    /// # Errors
    /// A system without signals.
    pub(crate) fn new(
        context: &'a Context,
        api: &'a Api,
        run: &'a str,
        after: String,
        output: Output,
    ) -> Result<Self> {
        let asks = output.show == Show::Text && io::stdin().is_terminal() && io::stderr().is_terminal();
        Ok(Self {
            context,
            api,
            run,
            output,
            text: TextPrinter::new(context.out),
            prompt: asks.then(Prompt::new),
            interrupts: Interrupts::listen()?,
            is_canceling: false,
            after,
            done: HashSet::new(),
            failures: 0,
        })
    }

    /// Prints the run until it has ended.
    ///
    /// # Errors
    /// `Waiting` if the run waits for a person and there is no terminal, `NoReply` if it has failed or was canceled, and what
    /// the server refuses.
    pub(crate) async fn follow(mut self) -> Result<()> {
        loop {
            match self.until_idle().await {
                Err(Error::Waiting) => {
                    if self.output.show == Show::Result {
                        self.show_run(&self.read().await?)?;
                    }
                    return Err(Error::Waiting);
                }
                other => other?,
            }
            let run = self.read().await?;
            if Run::deserialize(&run).is_ok_and(|run| run.is_over()) {
                self.show_run(&run)?;
                return if run["status"] == "succeeded" { Ok(()) } else { Err(Error::NoReply) };
            }
            self.pause().await?;
        }
    }

    async fn pause(&mut self) -> Result<()> {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Ok(()),
            () = self.interrupts.next() => Err(Error::Interrupted),
        }
    }

    /// Prints events until no turn runs or waits.
    async fn until_idle(&mut self) -> Result<()> {
        let mut events = Follow::run(self.api, self.run, self.after.clone());
        loop {
            let step = tokio::select! {
                step = events.next() => step?,
                () = self.interrupts.next() => {
                    self.cancel().await?;
                    continue;
                }
            };
            match step {
                Step::Event(event) => {
                    self.failures = 0;
                    self.print(&event)?;
                    if let Some(seq) = event.json["seq"].as_u64() {
                        self.after = seq.to_string();
                    }
                    if matches!(event.event, Event::TurnWaiting { .. }) {
                        self.answer().await?;
                    }
                }
                Step::Lost(error) if self.failures >= MAX_FAILURES => return Err(error),
                Step::Lost(error) => {
                    self.failures += 1;
                    self.context.out.note(&format!("{error}; connecting again"));
                }
                Step::Connected => {}
                Step::Idle => return Ok(()),
            }
        }
    }

    fn print(&mut self, event: &Received) -> Result<()> {
        match (self.output.show, &event.event) {
            (Show::Events, _) => self.context.out.line(&event.json.to_string()),
            (Show::Result, _) => Ok(()),
            (Show::Text, Event::ToolStarted { name, args, .. }) if name == "run_plan" => {
                self.context.out.note(&plan(args));
                Ok(())
            }
            (Show::Text, _) => self.text.print(event),
        }
    }

    /// Asks for what the run waits for now. An event of the past may have led here.
    async fn answer(&mut self) -> Result<()> {
        let path = format!("/v1/sessions/{}", segment(self.run));
        let session: Session = self.interrupts.unless(self.api.get(&path).json()).await?;
        let waits = Wait::all(self.run, &session.pending);
        for wait in &waits {
            if self.done.contains(&wait.call.call_id) {
                continue;
            }
            if wait.is_local() {
                self.done.insert(wait.call.call_id.clone());
                if !self.output.is_served && wait.call.claim.is_none() {
                    let command = format!("agentctl runner --root . --session {}", self.run);
                    self.context.out.note(&format!("[{} waits for a runner: {command}]", wait.call.name));
                }
                continue;
            }
            let Some(prompt) = &mut self.prompt else {
                for wait in waits.iter().filter(|wait| !wait.is_local()) {
                    self.context.out.note(&format!("waiting: {}\n  {}", wait.explain(), wait.command()));
                }
                return Err(Error::Waiting);
            };
            let resolution = self.interrupts.unless(prompt.resolution(self.context.out, wait)).await?;
            self.done.insert(wait.call.call_id.clone());
            match self.interrupts.unless(wait.resolve(self.api, &resolution)).await {
                // Someone else was faster.
                Err(Error::Refused(problem)) if matches!(problem.status, 404 | 409) => {
                    self.context.out.note(&Error::Refused(problem).to_string());
                }
                resolved => drop(resolved?),
            }
        }
        Ok(())
    }

    /// Reacts to Ctrl-C: cancels the run, or leaves.
    async fn cancel(&mut self) -> Result<()> {
        if !self.output.cancels || self.is_canceling {
            return Err(Error::Interrupted);
        }
        self.is_canceling = true;
        self.context.out.note("\ncanceling the run; press Ctrl-C again to leave");
        let request = self.api.post(&format!("{}/cancel", path(self.run))).send();
        self.interrupts.unless(request).await.map(drop)
    }

    async fn read(&self) -> Result<Value> {
        self.api.get(&path(self.run)).json().await
    }

    fn show_run(&self, run: &Value) -> Result<()> {
        match self.output.show {
            Show::Events => Ok(()),
            Show::Result => self.context.out.line(&run.to_string()),
            Show::Text => {
                let shown = Run::deserialize(run).map_err(|e| Error::Response(e.to_string()))?;
                self.context.out.note(&page(&shown));
                Ok(())
            }
        }
    }
}
