//! `agentctl spec generate` and `agentctl spec prompt`.

use super::{folder, note_problems};
use crate::{
    context::Context,
    error::{Error, InFile as _, Result},
};
use serde_json::{Value, json};
use std::{fs, io, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  agentctl spec prompt fix-parser --prompt 'The tests of the parser must pass.'
  agentctl spec prompt fix-parser --prompt-file issue.txt --overwrite
  git log -5 | agentctl spec generate changelog --prompt-file - --agent coder";

/// What the model gets.
#[derive(clap::Args)]
struct Request {
    /// Name of the spec: letters, digits, `-` and `_`
    name: String,
    /// What the spec is about
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file")]
    prompt: Option<String>,
    /// File that says what the spec is about; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
    /// Replaces a spec of this name
    #[arg(long)]
    overwrite: bool,
    /// Agent whose model writes the spec, and in whose workspace it is stored
    #[arg(long, default_value = "default")]
    agent: String,
}

impl Request {
    /// Returns the spec that the agent's model has written and the server has stored.
    async fn send(&self, context: &Context) -> Result<Value> {
        let body = json!({
            "name": self.name, "prompt": self.text()?, "overwrite": self.overwrite, "agent": self.agent,
        });
        let written: Value = context.api()?.post("/v1/specs/generate").body_json(&body).json().await?;
        note_problems(context, &self.name, &written);
        Ok(written)
    }

    fn text(&self) -> Result<String> {
        match (&self.prompt, &self.prompt_file) {
            (Some(prompt), _) => Ok(prompt.clone()),
            (None, Some(file)) if file.as_os_str() == "-" => Ok(io::read_to_string(io::stdin())?),
            (None, Some(file)) => fs::read_to_string(file).in_file(file),
            (None, None) => Err(Error::Usage("--prompt or --prompt-file is required".into())),
        }
    }
}

/// Has the agent's model write a spec into the workspace, and prints it
///
/// Remarks say what is missing in the spec. The call of the model counts as a turn.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Generate {
    #[command(flatten)]
    request: Request,
}

impl Generate {
    pub(super) async fn run(self, context: &Context) -> Result<()> {
        print(context, &self.request.send(context).await?)
    }
}

/// Has the agent's model write a spec, and stores it in the workspace and as specs/NAME.md in this folder
///
/// Remarks say what is missing in the spec. The call of the model counts as a turn.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Prompt {
    #[command(flatten)]
    request: Request,
    /// Prints the spec in place of writing the file
    #[arg(long)]
    print: bool,
}

impl Prompt {
    pub(super) async fn run(self, context: &Context) -> Result<()> {
        let Self { request, print: prints } = self;
        if !prints && !request.overwrite {
            // Before the model is paid for.
            folder::check_absent(&request.name)?;
        }
        let written = request.send(context).await?;
        if prints {
            return print(context, &written);
        }
        let text = written["content"].as_str().unwrap_or_default();
        let path = folder::write(&request.name, text, request.overwrite)?;
        context.out.value(&written, |_| format!("wrote {}", path.display()))
    }
}

fn print(context: &Context, written: &Value) -> Result<()> {
    context.out.value(written, |spec| spec["content"].as_str().unwrap_or_default().trim_end().to_owned())
}
