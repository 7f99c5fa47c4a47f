//! agentctl, the command-line client of edge-harness.
//!
//! `commands` has a file for each command. They share the client of the HTTP API (`api`), the streams that continue
//! after a lost connection (`stream`, `turn`), the profiles, and the output. `chat` is the terminal interface.

mod api;
mod backoff;
mod chat;
mod commands;
mod context;
mod error;
mod help;
mod interrupt;
mod output;
mod printer;
mod profile;
mod prompt;
#[cfg(target_os = "linux")]
mod runner;
mod runs;
mod stream;
mod turn;
mod waits;
mod wire;

pub use commands::Cli;
pub use help::reference;

use clap::{CommandFactory as _, Parser as _};
use context::Context;
use error::{Error, Result};
use std::{io, process::ExitCode};

/// Runs the command of this process, and returns its exit code.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = runner::process_of_call() {
        return code;
    }
    let cli = Cli::parse();
    let context = Context::new(cli.global.clone());
    match run(&context, cli) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe, such as `head`, has what it wanted.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let is_reported = matches!(error, Error::Waiting | Error::NoReply | Error::Interrupted);
            if context.out.json && !is_reported {
                eprintln!("{}", output::escaped(&error.to_json().to_string()));
            } else if !is_reported {
                eprintln!("error: {}", output::without_controls(&error.to_string()));
            }
            error.exit_code()
        }
    }
}

fn run(context: &Context, cli: Cli) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(cli.command.run(context));
    // A blocking read of standard input must not keep the program.
    runtime.shutdown_background();
    result
}

/// Returns the commands with their help, from which docs/agentctl.md is generated.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_consistent() {
        super::command().debug_assert();
    }
}
