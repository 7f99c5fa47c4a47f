//! `agentctl files`.

mod sync;
mod tree;

pub(crate) use {
    sync::{Push, unified},
    tree::place,
};

use crate::{
    api::path,
    context::Context,
    error::{Error, InFile as _, Result},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
};

const FILES: &str = "/v1/workspace/files";

const EXAMPLES: &str = "\
Examples:
  agentctl files ls notes/
  agentctl files get notes/plan.md -o plan.md
  echo 'Tea: 3 EUR' | agentctl files put - prices.md
  agentctl files diff ./site --prefix site
  agentctl files push ./site --prefix site --delete
  agentctl files pull ./copy --prefix site
  agentctl files push examples/workspace --layer shared";

/// Lists, reads, writes and synchronizes the files of a workspace
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Files {
    Ls(Ls),
    Get(Get),
    Put(Put),
    Rm(Rm),
    Push(sync::Push),
    Pull(sync::Pull),
    Diff(sync::Diff),
}

impl Files {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Ls(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::Put(command) => command.run(context).await,
            Self::Rm(command) => command.run(context).await,
            Self::Push(command) => command.run(context).await,
            Self::Pull(command) => command.run(context).await,
            Self::Diff(command) => command.run(context).await,
        }
    }
}

/// Whose files.
#[derive(Clone, clap::Args)]
pub(crate) struct Place {
    /// Agent of the workspace
    #[arg(long, default_value = "default")]
    pub(crate) agent: String,
    /// Layer of the files [default: reads see both layers, and writes change the user's]
    #[arg(long, value_enum)]
    pub(crate) layer: Option<Layer>,
}

/// A layer of a workspace.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Layer {
    /// The user's own files
    User,
    /// The files that all users of the agent share; to write them, the key needs the scope `admin`
    Shared,
}

impl Place {
    /// Returns the place as parameters of a query. A precondition applies to a single layer, so those who use one name
    /// it.
    fn query(&self, default: Option<Layer>) -> Vec<(&str, &str)> {
        let mut query = vec![("agent", self.agent.as_str())];
        match self.layer.or(default) {
            Some(Layer::User) => query.push(("layer", "user")),
            Some(Layer::Shared) => query.push(("layer", "shared")),
            None => {}
        }
        query
    }
}

/// Lists files with their sizes
#[derive(clap::Args)]
pub(crate) struct Ls {
    /// Start of the paths
    prefix: Option<String>,
    #[command(flatten)]
    place: Place,
}

impl Ls {
    async fn run(self, context: &Context) -> Result<()> {
        let mut query = self.place.query(None);
        query.extend(self.prefix.iter().map(|prefix| ("prefix", prefix.as_str())));
        let files = context.api()?.list(FILES, &query, usize::MAX).await?;
        context.out.list(&files, &["bytes", "updated_at", "layer", "path"])
    }
}

/// Prints a file, or saves it
#[derive(clap::Args)]
pub(crate) struct Get {
    /// Path in the workspace
    path: String,
    /// File to write; standard output if absent
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

impl Get {
    async fn run(self, context: &Context) -> Result<()> {
        let bytes = context.api()?.get(&file(&self.path)).queries(&self.place.query(None)).bytes().await?;
        match &self.output {
            Some(output) => fs::write(output, bytes).in_file(output),
            None if context.out.json => {
                let text = str::from_utf8(&bytes).map_err(|_| {
                    Error::Usage(format!("{}: not a text; save it with --output FILE", self.path))
                })?;
                context.out.line(&json!({"path": self.path, "content": text}).to_string())
            }
            // A file must not control the terminal.
            None if io::stdout().is_terminal() => context.out.piece(&String::from_utf8_lossy(&bytes)),
            None => Ok(io::stdout().write_all(&bytes)?),
        }
    }
}

/// Writes a file
#[derive(clap::Args)]
pub(crate) struct Put {
    /// File to upload; `-` reads standard input
    file: PathBuf,
    /// Path in the workspace
    path: String,
    /// Refuses to replace an existing file
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    place: Place,
}

impl Put {
    async fn run(self, context: &Context) -> Result<()> {
        let mut bytes = Vec::new();
        if self.file.as_os_str() == "-" {
            io::stdin().read_to_end(&mut bytes)?;
        } else {
            bytes = fs::read(&self.file).in_file(&self.file)?;
        }
        let api = context.api()?;
        let mut request =
            api.put(&file(&self.path)).queries(&self.place.query(Some(Layer::User))).body(bytes.clone());
        if self.new {
            request = request.header("if-none-match", "*");
        }
        let written: Value = match request.json().await {
            Err(Error::Refused(problem)) if problem.status == 412 && problem.is_repeated => {
                // If the file is the one to write, an earlier attempt has written it.
                let stored = api.get(&file(&self.path)).queries(&self.place.query(Some(Layer::User)));
                if stored.bytes().await? != bytes {
                    return Err(Error::Refused(problem));
                }
                json!({ "path": self.path })
            }
            written => written?,
        };
        context.out.value(&written, |_| format!("wrote {}", self.path))
    }
}

/// Removes files
#[derive(clap::Args)]
pub(crate) struct Rm {
    /// Paths in the workspace
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    place: Place,
}

impl Rm {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        for path in &self.paths {
            api.delete(&file(path)).queries(&self.place.query(Some(Layer::User))).send().await?;
            context.out.value(&json!({ "removed": path }), |_| format!("removed {path}"))?;
        }
        Ok(())
    }
}

/// Returns the route of a file.
fn file(name: &str) -> String {
    format!("{FILES}/{}", path(name))
}
