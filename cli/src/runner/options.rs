//! The options of the runner, which several commands have.

use super::{
    check::{Check, check},
    job::Limits,
    machine::{Machine, Settings},
    tool_error::ToolError,
    tools::Commands,
};
use crate::{
    context::Context,
    error::{Error, InFile as _, Result},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// What commands may do on this machine.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Folder in which the tools work
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Checks the project; `local_verify` runs all checks in this order
    #[arg(long, value_name = "COMMAND")]
    verify: Vec<String>,
    /// Lets commands read another folder, too
    #[arg(long, value_name = "DIR")]
    read: Vec<PathBuf>,
    /// Lets commands change another folder, too
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// Gives commands a variable of the environment: this one of yours, or one with a value
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Lets commands use the network, and with it the services of this machine
    #[arg(long)]
    allow_network: bool,
    /// Time of a command, in seconds
    #[arg(long, value_name = "N", default_value_t = 600)]
    timeout_s: u64,
    /// Memory of a command, in MiB
    #[arg(long, value_name = "N", default_value_t = 4096)]
    memory_mib: u64,
    /// Processes and threads of a command
    #[arg(long, value_name = "N", default_value_t = 512)]
    processes: u32,
    /// Runs commands without protection: they can do all that you can
    #[arg(long)]
    no_sandbox: bool,
}

impl Options {
    /// Returns this machine with these options. Notes say what its sandbox does not do.
    ///
    /// # Errors
    /// Wrong options, and a machine that cannot protect itself.
    pub(crate) async fn machine(&self, context: &Context) -> Result<Machine> {
        let settings = self.settings()?;
        let sandbox = if self.no_sandbox {
            context.out.note("warning: commands run without a sandbox, and can do all that you can");
            None
        } else {
            let check = check().await?;
            for note in notes(&check)? {
                context.out.note(&note);
            }
            Some(check.sandbox)
        };
        Ok(Machine::new(settings, sandbox)?)
    }

    fn settings(&self) -> Result<Settings> {
        let root = folder(&self.root)?;
        let home = dirs::home_dir().and_then(|home| home.canonicalize().ok());
        if !self.no_sandbox && home.is_some_and(|home| home.starts_with(&root)) {
            let why = "contains your whole home folder; choose that of a project";
            return Err(Error::Usage(format!("--root {}: {why}", root.display())));
        }
        Ok(Settings {
            root,
            commands: Commands { verify: self.verify.clone() },
            read: self.read.iter().map(|path| folder(path)).collect::<Result<_>>()?,
            write: self.write.iter().map(|path| folder(path)).collect::<Result<_>>()?,
            network: self.allow_network,
            env: self.env.iter().map(|variable| variable_of(variable)).collect::<Result<_>>()?,
            limits: Limits {
                time: Duration::from_secs(self.timeout_s),
                memory: self.memory_mib.saturating_mul(1 << 20),
                processes: self.processes,
            },
        })
    }
}

/// Returns the notes on what the sandbox of this machine does not do.
///
/// # Errors
/// The sandbox does not protect this machine.
fn notes(check: &Check) -> Result<Vec<String>> {
    if check.missing.is_empty() {
        let note = |what: &&str| format!("note: in the sandbox of this machine, {what}");
        return Ok(check.weaker.iter().map(note).collect());
    }
    Err(Error::Usage(format!(
        "the sandbox of this machine does not keep commands from this: {}. Use a newer kernel (Linux 6.12 prevents all of \
         it), or start with --no-sandbox to run commands without protection",
        check.missing.join("; ")
    )))
}

/// Returns the path without links, which is the one that the kernel compares.
fn folder(path: &Path) -> Result<PathBuf> {
    path.canonicalize().in_file(path)
}

fn variable_of(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.to_owned(), value)),
            Err(_) => Err(Error::Usage(format!("--env {text}: the environment has no such variable"))),
        },
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::File { path, source } => Self::File { path, source },
            ToolError::Io(error) => Self::Io(error),
            other => Self::Incomplete(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::job::Sandbox;

    fn check(missing: &[&'static str], weaker: &[&'static str]) -> Check {
        Check { sandbox: Sandbox { namespaces: true }, missing: missing.to_vec(), weaker: weaker.to_vec() }
    }

    #[test]
    fn a_sandbox_that_is_weaker_has_notes() {
        assert_eq!(notes(&check(&[], &[])).unwrap(), [""; 0]);
        let noted = notes(&check(&[], &["local sockets fail"])).unwrap();
        assert_eq!(noted, ["note: in the sandbox of this machine, local sockets fail"]);
    }

    #[test]
    fn a_sandbox_that_does_not_protect_is_refused() {
        let refused = notes(&check(&["use the network", "send signals"], &["slow"])).unwrap_err();
        assert!(matches!(refused, Error::Usage(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("from this: use the network; send signals. Use a newer kernel"), "{text}");
        assert!(text.contains("--no-sandbox"), "{text}");
    }
}
