//! `agentctl init`.

use crate::{
    context::Context,
    error::{InFile as _, Result},
};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
};

const EXAMPLES: &str = "\
Examples:
  agentctl init
  agentctl init ../project";

/// The files of a project, with their templates.
const FILES: &[(&str, &str)] =
    &[("AGENTS.md", include_str!("init/AGENTS.md")), ("specs/template.md", include_str!("init/spec.md"))];

/// Writes AGENTS.md and a template for specs into a project
///
/// AGENTS.md says how an agent works in the project. Files that exist are kept.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Init {
    /// Folder of the project
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Replaces files that exist
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        for (name, text) in FILES {
            let path = self.folder.join(name);
            let folder = path.parent().unwrap_or(&self.folder);
            fs::create_dir_all(folder).in_file(folder)?;
            let options = if self.force { File::create(&path) } else { File::create_new(&path) };
            let status = match options {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => "kept",
                file => {
                    file.and_then(|mut file| file.write_all(text.as_bytes())).in_file(&path)?;
                    "wrote"
                }
            };
            context.out.value(&json!({"path": path, "status": status}), |_| {
                format!("{status} {}", path.display())
            })?;
        }
        Ok(())
    }
}
