//! `agentctl agents`.

mod folder;

use super::files::unified;
use crate::{
    api::segment,
    context::Context,
    error::{Error, InFile as _, Result},
};
use serde_json::{Value, json};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  agentctl agents push examples/agents/support
  agentctl agents pull support ./support
  agentctl agents diff ./support
  agentctl agents versions support
  agentctl agents rollback support 3";

/// Lists, stores, compares and rolls back agents, each of which is a folder
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Agents {
    List(List),
    Push(Push),
    Pull(Pull),
    Diff(Diff),
    Versions(Versions),
    Rollback(Rollback),
}

impl Agents {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Push(command) => command.run(context).await,
            Self::Pull(command) => command.run(context).await,
            Self::Diff(command) => command.run(context).await,
            Self::Versions(command) => command.run(context).await,
            Self::Rollback(command) => command.run(context).await,
        }
    }
}

/// Lists the agents
#[derive(clap::Args)]
pub(crate) struct List {}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let agents = context.api()?.list("/v1/agents", &[], usize::MAX).await?;
        context.out.list(&agents, &["id", "version", "name", "description"])
    }
}

/// Stores agents as new versions; a folder that has not changed makes none
///
/// All folders are read first, so that a fault in one of them changes nothing.
#[derive(clap::Args)]
pub(crate) struct Push {
    /// Folder of an agent, whose name is the agent's id, or a folder with several of them
    folder: PathBuf,
    /// Refuses to store the agent if its newest version is not this one
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

impl Push {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let folders = folder::agents(&self.folder)?;
        let agents = folders
            .iter()
            .map(|folder| Ok((id(folder)?, folder::read(folder)?)))
            .collect::<Result<Vec<_>>>()?;
        for (id, definition) in agents {
            let mut request = api.put(&route(&id)).body_json(&definition);
            if let Some(version) = self.if_version {
                request = request.header("if-match", &format!("\"{version}\""));
            }
            let stored: Value = request.json().await?;
            context.out.value(&json!({"id": id, "version": stored["version"]}), |agent| {
                format!("{id}: version {}", agent["version"])
            })?;
        }
        Ok(())
    }
}

/// Writes an agent into a folder
///
/// A file of the folder that differs is kept, unless --force replaces it.
#[derive(clap::Args)]
pub(crate) struct Pull {
    /// Agent to read
    agent: String,
    /// Folder to write [default: the agent's id]
    folder: Option<PathBuf>,
    /// Version to read [default: the active one]
    #[arg(long, value_name = "VERSION")]
    version: Option<u64>,
    /// Replaces files that differ
    #[arg(long)]
    force: bool,
}

impl Pull {
    async fn run(self, context: &Context) -> Result<()> {
        let version = self.version.map(|version| version.to_string());
        let definition =
            context.api()?.get(&route(&self.agent)).maybe("version", version.as_deref()).json().await?;
        let folder = self.folder.unwrap_or_else(|| PathBuf::from(&self.agent));
        let mut kept = 0;
        for (name, text) in folder::files(definition)? {
            let path = super::files::place(&folder, &name)?;
            let status = match fs::read(&path) {
                Ok(old) if old == text.as_bytes() => continue,
                Ok(_) if !self.force => "kept",
                Ok(_) => "replaced",
                Err(error) if error.kind() == io::ErrorKind::NotFound => "created",
                Err(error) => return Err(error).in_file(&path),
            };
            if status == "kept" {
                kept += 1;
            } else {
                let parent = path.parent().unwrap_or(&folder);
                fs::create_dir_all(parent).in_file(parent)?;
                fs::write(&path, text).in_file(&path)?;
            }
            context.out.value(&json!({"path": path, "status": status}), |_| {
                format!("{status:<9} {}", path.display())
            })?;
        }
        if kept == 0 {
            Ok(())
        } else {
            Err(Error::Incomplete(format!("{kept} files differ; --force replaces them")))
        }
    }
}

/// Shows what a push of the folder would change
///
/// The exit code is 1 if there are differences.
#[derive(clap::Args)]
pub(crate) struct Diff {
    /// Folder of the agent, whose name is the agent's id
    folder: PathBuf,
}

impl Diff {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let new = folder::files(folder::read(&self.folder)?)?;
        let old = match api.get(&route(&id(&self.folder)?)).json::<Value>().await {
            Ok(definition) => folder::files(definition)?,
            Err(error) if error.is_not_found() => Default::default(),
            Err(error) => return Err(error),
        };
        let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        let changed: Vec<_> = names.into_iter().filter(|name| old.get(*name) != new.get(*name)).collect();
        for name in &changed {
            let [old, new] =
                [&old, &new].map(|files| files.get(*name).map(String::as_str).unwrap_or_default());
            let text = unified(name, old.as_bytes(), new.as_bytes());
            context.out.value(&json!({"path": name, "diff": text}), |_| text.clone())?;
        }
        match changed.len() {
            0 => Ok(()),
            differences => Err(Error::Incomplete(format!("{differences} files differ"))),
        }
    }
}

/// Lists the versions of an agent, newest first
#[derive(clap::Args)]
pub(crate) struct Versions {
    /// Agent whose versions are listed
    agent: String,
}

impl Versions {
    async fn run(self, context: &Context) -> Result<()> {
        let versions =
            context.api()?.list(&format!("{}/versions", route(&self.agent)), &[], usize::MAX).await?;
        context.out.list(&versions, &["version", "active", "created_at", "created_by"])
    }
}

/// Gives a version to new sessions
#[derive(clap::Args)]
pub(crate) struct Rollback {
    /// Agent to roll back, or forward
    agent: String,
    /// Version to activate
    version: u64,
}

impl Rollback {
    async fn run(self, context: &Context) -> Result<()> {
        let path = format!("{}/versions/{}/activate", route(&self.agent), self.version);
        let active: Value = context.api()?.post(&path).json().await?;
        context.out.value(&active, |_| format!("{}: version {} is active", self.agent, self.version))
    }
}

fn route(agent: &str) -> String {
    format!("/v1/agents/{}", segment(agent))
}

/// Returns the id of the agent in a folder: the folder's name.
fn id(folder: &Path) -> Result<String> {
    let absolute = std::path::absolute(folder)?;
    let name = absolute.file_name().and_then(|name| name.to_str());
    Ok(name.ok_or_else(|| Error::Usage(format!("{}: has no name", folder.display())))?.to_owned())
}
