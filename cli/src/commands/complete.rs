//! `agentctl completions`.

use super::Cli;
use crate::{context::Context, error::Result};
use clap::CommandFactory as _;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  agentctl completions bash > ~/.local/share/bash-completion/completions/agentctl
  agentctl completions zsh > ~/.zfunc/_agentctl
  agentctl completions fish > ~/.config/fish/completions/agentctl.fish";

/// Prints the completions of a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        // The generator panics if the reader of a pipe leaves, so it writes to memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "agentctl", &mut script);
        let script = String::from_utf8_lossy(&script);
        let shown = json!({"shell": self.shell.to_string(), "script": script});
        context.out.value(&shown, |_| script.trim_end().to_owned())
    }
}
