//! The commands, a file for each.

mod acp;
mod agents;
mod audit;
mod chat;
mod complete;
mod decide;
mod doctor;
mod files;
mod inbox;
mod init;
mod keys;
mod limits;
mod login;
mod mcp;
mod memory;
mod new;
mod run;
#[cfg(target_os = "linux")]
mod runner;
mod runs;
mod send;
mod sessions;
mod skills;
mod spec;
mod tenants;
mod usage;

use crate::{
    context::{Context, Global},
    error::Result,
};

const AFTER_HELP: &str = "\
Exit codes:
  0    success; a turn has its reply, a run has succeeded
  1    failure; a turn or a run failed or was canceled, or there is no connection
  2    wrong usage
  3    refused: the server does not accept the request
  4    not found
  5    waiting: the turn or the run waits for a decision or an answer
  130  left with Ctrl-C

Environment:
  EDGE_HARNESS_URL  URL of the server
  EDGE_HARNESS_KEY  key or token";

/// Command-line client of edge-harness, the agent server
#[derive(clap::Parser)]
#[command(name = "agentctl", version, term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Login(login::Login),
    Doctor(doctor::Doctor),
    Chat(chat::Chat),
    Send(send::Send),
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    Export(sessions::Export),
    Inbox(inbox::Inbox),
    Approve(decide::Approve),
    Answer(decide::Answer),
    #[command(subcommand)]
    Files(files::Files),
    #[command(subcommand)]
    Memory(memory::Memory),
    #[command(subcommand)]
    Agents(agents::Agents),
    #[command(subcommand)]
    Skills(skills::Skills),
    #[command(subcommand)]
    Spec(spec::Spec),
    Run(Box<run::Run>),
    #[command(subcommand)]
    Runs(runs::Runs),
    #[cfg(target_os = "linux")]
    Runner(Box<runner::Runner>),
    #[command(subcommand)]
    Tenants(tenants::Tenants),
    #[command(subcommand)]
    Keys(keys::Keys),
    #[command(subcommand)]
    Limits(limits::Limits),
    Usage(usage::Usage),
    Audit(audit::Audit),
    New(new::New),
    Init(init::Init),
    Acp(acp::Acp),
    Mcp(mcp::Mcp),
    Completions(complete::Completions),
}

impl Command {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Login(command) => command.run(context).await,
            Self::Doctor(command) => command.run(context).await,
            Self::Chat(command) => command.run(context).await,
            Self::Send(command) => command.run(context).await,
            Self::Sessions(command) => command.run(context).await,
            Self::Export(command) => command.run(context).await,
            Self::Inbox(command) => command.run(context).await,
            Self::Approve(command) => command.run(context).await,
            Self::Answer(command) => command.run(context).await,
            Self::Files(command) => command.run(context).await,
            Self::Memory(command) => command.run(context).await,
            Self::Agents(command) => command.run(context).await,
            Self::Skills(command) => command.run(context).await,
            Self::Spec(command) => command.run(context).await,
            Self::Run(command) => command.run(context).await,
            Self::Runs(command) => command.run(context).await,
            #[cfg(target_os = "linux")]
            Self::Runner(command) => command.run(context).await,
            Self::Tenants(command) => command.run(context).await,
            Self::Keys(command) => command.run(context).await,
            Self::Limits(command) => command.run(context).await,
            Self::Usage(command) => command.run(context).await,
            Self::Audit(command) => command.run(context).await,
            Self::New(command) => command.run(context),
            Self::Init(command) => command.run(context),
            Self::Acp(command) => command.run(context).await,
            Self::Mcp(command) => command.run(context).await,
            Self::Completions(command) => command.run(context),
        }
    }
}
