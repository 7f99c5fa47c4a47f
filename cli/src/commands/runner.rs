//! `agentctl runner`.

use crate::{
    context::Context,
    error::{Error, Result},
    interrupt::{Interrupts, terminated},
    output::{Output, short},
    runner::{
        AgentCalls, Answer, Journal, News, Options, Server, SessionCalls, Source, TOOLS, find, for_call,
    },
};
use serde_json::{Value, json};
use std::io::{self, Write as _};

/// Length of a line of a command's output, in bytes.
const MAX_LINE: usize = 2_000;

const EXAMPLES: &str = "\
Examples:
  agentctl runner --root . --session fix
  agentctl runner --root . --agent coder
  agentctl runner --root . --session fix --verify 'cargo test' --write ~/.cargo --read ~/.rustup
  agentctl runner tools
  agentctl runner call --root . local_shell '{\"command\": \"make test\"}'";

/// Runs an agent's local tools on this machine, in a sandbox
///
/// The agent declares the tools that `agentctl runner tools` prints as external tools. When a session calls one, the call
/// runs here, in a folder of yours, and the agent gets the result. The server's rules decide which calls may run at all, and
/// which ones need an approval. If several runners serve the same calls, each call runs on one of them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Runner {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    served: Option<Served>,
    #[command(flatten)]
    options: Option<Options>,
}

/// Whose calls run here.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Served {
    /// Session whose calls run here
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Agent whose calls run here, those of all of its sessions
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
}

#[derive(clap::Subcommand)]
enum Command {
    Tools(Tools),
    Call(Call),
}

impl Runner {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match (self.command, self.served, self.options) {
            (Some(Command::Tools(command)), ..) => command.run(context),
            (Some(Command::Call(command)), ..) => command.run(context).await,
            (None, Some(served), Some(options)) => served.run(context, &options).await,
            (None, ..) => Err(Error::Usage("--root, and --session or --agent, are required".into())),
        }
    }
}

impl Served {
    async fn run(self, context: &Context, options: &Options) -> Result<()> {
        let api = context.api()?;
        let on_lost = |error: &Error| drop(writeln!(io::stderr(), "{error}; connecting again"));
        match (self.session, self.agent) {
            (Some(session), _) => {
                let calls = SessionCalls::new(&api, &session, on_lost);
                serve(context, &session, &format!("session {session}"), calls, options).await
            }
            (None, Some(agent)) => {
                let calls = AgentCalls::new(&api, &agent, on_lost);
                serve(context, &format!("agent/{agent}"), &format!("agent {agent}"), calls, options).await
            }
            (None, None) => Err(Error::Usage("--session or --agent is required".into())),
        }
    }
}

/// Runs the calls of a source until the user leaves. `journal` names the source in the names of journals.
async fn serve(
    context: &Context,
    journal: &str,
    what: &str,
    calls: impl Source,
    options: &Options,
) -> Result<()> {
    let api = context.api()?;
    let machine = options.machine(context).await?;
    let journal = Journal::open(&machine.journal(&api, journal)?)?;
    let mut interrupts = Interrupts::listen()?;
    let stop = async {
        tokio::select! {
            () = interrupts.next() => {}
            () = terminated() => {}
        }
    };
    context.out.note(&format!("serving {what}; Ctrl-C leaves"));
    let mut shown = Shown { out: context.out, line: Vec::new() };
    Server::new(&api, &machine, calls, journal, |news| shown.show(&news)).serve(stop).await
}

/// What the runner prints while it works.
struct Shown {
    out: Output,
    /// The line of a command's output that is not complete yet.
    line: Vec<u8>,
}

impl Shown {
    fn show(&mut self, news: &News<'_>) {
        if self.out.json {
            if let Some(json) = news.to_json() {
                // A closed standard output does not end the work.
                let _ = self.out.line(&json.to_string());
            }
            return;
        }
        match news {
            News::Started(wait) => {
                let args = for_call(&wait.call).map_or(&wait.call.args, |(_, args)| args);
                self.out.note(&format!("{} {}", wait.call.name, short(args)))
            }
            News::Output(piece) => self.output(piece),
            News::Answered(_, answer) => {
                self.output(b"\n");
                match answer {
                    Answer::Answer(_) => self.out.note("  answered"),
                    Answer::Error(error) => {
                        self.out.note(&format!("  failed: {}", short(&error.as_str().into())))
                    }
                }
            }
            News::Dropped(_, error) => {
                self.out.note(&format!("  the answer is not needed any more: {error}"))
            }
            News::Lost(error) => self.out.note(&format!("{error}; trying again")),
        }
    }

    /// Prints the lines of a command that are complete, with a mark before them.
    fn output(&mut self, piece: &[u8]) {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(line);
            if self.line.ends_with(b"\n") || self.line.len() > MAX_LINE {
                let line = std::mem::take(&mut self.line);
                if line != b"\n" {
                    self.out.note(&format!("  | {}", String::from_utf8_lossy(&line).trim_end()));
                }
            }
        }
    }
}

/// Prints the declarations of the tools for agent.toml, or with --json one on each line
#[derive(clap::Args)]
struct Tools {}

impl Tools {
    fn run(self, context: &Context) -> Result<()> {
        let tools: Vec<Value> = TOOLS.iter().map(|tool| tool.declaration()).collect();
        if context.out.json {
            return context.out.list(&tools, &[]);
        }
        let text = toml::to_string(&json!({ "external_tools": tools }));
        context.out.line(text.unwrap_or_default().trim_end())
    }
}

/// Runs one call without a server, to try what the sandbox allows
///
/// The exit code is 1 if the call fails.
#[derive(clap::Args)]
struct Call {
    /// Tool to call
    tool: String,
    /// Its arguments, as JSON
    #[arg(value_name = "JSON", default_value = "{}")]
    args: String,
    #[command(flatten)]
    options: Options,
}

impl Call {
    async fn run(self, context: &Context) -> Result<()> {
        let tool = find(&self.tool).ok_or_else(|| Error::Usage(format!("there is no tool {}", self.tool)))?;
        let args = serde_json::from_str(&self.args)
            .map_err(|e| Error::Usage(format!("the arguments are not JSON: {e}")))?;
        let machine = self.options.machine(context).await?;
        let mut interrupts = Interrupts::listen()?;
        let answer = machine.run(tool, args, "call", interrupts.next(), |_| ()).await.answer;
        let shown = serde_json::to_value(&answer).unwrap_or_default();
        match answer {
            Answer::Answer(text) => context.out.value(&shown, |_| text.trim_end().to_owned()),
            Answer::Error(error) => Err(Error::Incomplete(error)),
        }
    }
}
