//! `agentctl new`.

use crate::{
    context::Context,
    error::{Error, Result},
};
use serde_json::json;
use std::{
    env,
    path::{Path, PathBuf},
    process,
};

/// The script of a clone that creates a crate.
const SCRIPT: &str = "scripts/new.sh";
/// What the script copies, by which a clone is recognized.
const EXAMPLE: &str = "examples/my-agent/Cargo.toml";

const EXAMPLES: &str = "\
Examples:
  agentctl new ../my-agent
  agentctl new ~/src/my-agent --clone ~/src/edge-harness";

/// Creates a crate for a Worker of your own, with a tool and a hook, from examples/my-agent of a clone of edge-harness
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    /// Folder to create; its name becomes the name of the crate
    folder: PathBuf,
    /// Clone of edge-harness, which the crate depends on [default: the one that contains the current folder]
    #[arg(long, value_name = "FOLDER")]
    clone: Option<PathBuf>,
}

impl New {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        let is_clone = |folder: &&Path| folder.join(SCRIPT).is_file() && folder.join(EXAMPLE).is_file();
        let here = env::current_dir()?;
        let clone = match &self.clone {
            Some(clone) => Some(clone.as_path()).filter(is_clone),
            // A folder above, such as /tmp, may have the script of another user.
            None => here.ancestors().filter(|folder| is_own(&folder.join(SCRIPT))).find(is_clone),
        };
        let Some(clone) = clone else {
            return Err(Error::Usage("there is no clone of edge-harness here; name it with --clone".into()));
        };
        let folder = std::path::absolute(&self.folder)?;
        let ended = process::Command::new(clone.join(SCRIPT)).env("WORKER", &folder).output()?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let why = said.trim();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            return Err(Error::Incomplete(format!("the crate was not created: {why}")));
        }
        let shown = json!({ "folder": folder.display().to_string() });
        context.out.value(&shown, |_| String::from_utf8_lossy(&ended.stdout).trim_end().to_owned())
    }
}

/// Returns whether a file belongs to the user.
#[cfg(unix)]
fn is_own(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().is_ok_and(|file| file.uid() == rustix::process::geteuid().as_raw())
}

/// Returns whether a file belongs to the user, of which only Unix has a simple test.
#[cfg(not(unix))]
fn is_own(_file: &Path) -> bool {
    true
}
