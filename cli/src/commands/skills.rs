//! `agentctl skills`.

use super::files::{Layer, Place, Push};
use crate::{
    api::segment,
    context::Context,
    error::{Error, Result},
};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  agentctl skills list
  agentctl skills push ./skills/invoices --layer shared
  agentctl skills push ./greet --draft
  agentctl skills promote greet";

/// Lists, uploads and promotes skills
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Skills {
    List(List),
    Push(PushSkill),
    Promote(Promote),
}

impl Skills {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Push(command) => command.run(context).await,
            Self::Promote(command) => command.run(context).await,
        }
    }
}

/// Lists skills and drafts
#[derive(clap::Args)]
pub(crate) struct List {
    /// Agent that has the skills
    #[arg(long, default_value = "default")]
    agent: String,
}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let mut skills = context.api()?.list("/v1/skills", &[("agent", &self.agent)], usize::MAX).await?;
        if !context.out.json {
            for skill in skills.iter_mut().filter_map(Value::as_object_mut) {
                // A malformed skill has an error in place of a description.
                if let Some(error) = skill.get("error").and_then(Value::as_str) {
                    let description = format!("error: {error}");
                    skill.insert("description".to_owned(), description.into());
                }
            }
        }
        context.out.list(&skills, &["name", "layer", "draft", "state", "description"])
    }
}

/// Uploads a skill: a folder with SKILL.md, whose name is the skill's
#[derive(clap::Args)]
pub(crate) struct PushSkill {
    /// Folder of the skill
    folder: PathBuf,
    /// Uploads a draft, which the agent does not load until it is promoted
    #[arg(long)]
    draft: bool,
    #[command(flatten)]
    place: Place,
}

impl PushSkill {
    async fn run(self, context: &Context) -> Result<()> {
        if !self.folder.join("SKILL.md").is_file() {
            return Err(Error::Usage(format!("{}: has no SKILL.md", self.folder.display())));
        }
        let folder = std::path::absolute(&self.folder)?;
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::Usage(format!("{}: has no name", self.folder.display())));
        };
        let prefix = if self.draft { format!("skills/_drafts/{name}") } else { format!("skills/{name}") };
        Push::all(folder.clone(), prefix, self.place).run(context).await
    }
}

/// Makes a draft a skill
#[derive(clap::Args)]
pub(crate) struct Promote {
    /// Name of the draft
    name: String,
    /// Version of the draft that you have read [default: the current one]
    #[arg(long)]
    version: Option<String>,
    /// Agent that has the draft
    #[arg(long, default_value = "default")]
    agent: String,
    /// Layer of the skill
    #[arg(long, value_enum)]
    layer: Option<Layer>,
}

impl Promote {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let query = [("agent", self.agent.as_str())];
        let version = match self.version {
            Some(version) => version,
            None => {
                let skills = api.list("/v1/skills", &query, usize::MAX).await?;
                let is_draft = |skill: &&Value| skill["name"] == *self.name && skill["draft"] == true;
                let draft = skills.iter().find(is_draft).and_then(|skill| skill["version"].as_str());
                draft
                    .ok_or_else(|| Error::not_found(&format!("there is no draft {:?}", self.name)))?
                    .to_owned()
            }
        };
        let body =
            if matches!(self.layer, Some(Layer::Shared)) { json!({"layer": "shared"}) } else { json!({}) };
        let request = api.post(&format!("/v1/skills/{}/promote", segment(&self.name))).queries(&query);
        let promoted: Value =
            request.header("if-match", &format!("\"{version}\"")).body_json(&body).json().await?;
        context.out.value(&promoted, |_| format!("promoted {}", self.name))
    }
}
