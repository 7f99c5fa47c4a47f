//! `agentctl spec`.

mod folder;
mod generate;

pub(super) use self::folder::LocalSpec;
use self::folder::SPEC_TEMPLATE;
use crate::{
    api::{Api, Request, segment},
    context::Context,
    error::{Error, Result},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  agentctl spec new fix-parser
  agentctl spec validate specs/fix-parser.md
  agentctl spec push specs/fix-parser.md --agent coder
  agentctl spec prompt fix-parser --prompt 'The tests of the parser must pass.' --agent coder
  agentctl run --spec specs/fix-parser.md --agent coder --root .";

/// Writes, checks and uploads specs, which say what a run has to achieve
///
/// A spec is a Markdown file `specs/NAME.md` with three headings: a goal, constraints, and acceptance criteria.
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Spec {
    New(New),
    Prompt(generate::Prompt),
    Generate(generate::Generate),
    Validate(Validate),
    List(List),
    Push(Push),
}

impl Spec {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::New(command) => command.run(context),
            Self::Prompt(command) => command.run(context).await,
            Self::Generate(command) => command.run(context).await,
            Self::Validate(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Push(command) => command.run(context).await,
        }
    }
}

/// Writes a template to specs/NAME.md in this folder
#[derive(clap::Args)]
pub(crate) struct New {
    /// Name of the spec: letters, digits, `-` and `_`
    name: String,
    /// Replaces a file that exists
    #[arg(long)]
    force: bool,
}

impl New {
    fn run(self, context: &Context) -> Result<()> {
        let text = SPEC_TEMPLATE.replacen("name: template", &format!("name: {}", self.name), 1);
        let path = folder::write(&self.name, &text, self.force)?;
        context
            .out
            .value(&json!({ "name": self.name, "path": path }), |_| format!("wrote {}", path.display()))
    }
}

/// Checks a file, or a spec of the workspace
///
/// The exit code is 1 if the spec has problems.
#[derive(clap::Args)]
pub(crate) struct Validate {
    /// File such as specs/fix.md, or the name of a spec in the workspace
    spec: String,
    /// Agent of the workspace
    #[arg(long, default_value = "default")]
    agent: String,
}

impl Validate {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let found = match LocalSpec::named(&self.spec)? {
            Some(LocalSpec { name, text }) => check(&api, &name, &self.agent, text).await?,
            None => check(&api, &self.spec, &self.agent, Vec::new()).await?,
        };
        context.out.value(&found, |found| match found["ok"] == true {
            true => format!("{}: ok", self.spec),
            false => problems(&self.spec, found).join("\n"),
        })?;
        match found["ok"] == true {
            true => Ok(()),
            false => Err(Error::Incomplete("the spec has problems".into())),
        }
    }
}

/// Lists the specs of the workspace
#[derive(clap::Args)]
pub(crate) struct List {
    /// Agent of the workspace
    #[arg(long, default_value = "default")]
    agent: String,
}

impl List {
    async fn run(self, context: &Context) -> Result<()> {
        let specs = context.api()?.list("/v1/specs", &[("agent", &self.agent)], usize::MAX).await?;
        context.out.list(&specs, &["name", "bytes", "updated_at", "layer"])
    }
}

/// Uploads specs into the workspace, with a remark about their problems
#[derive(clap::Args)]
pub(crate) struct Push {
    /// Files such as specs/fix.md
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Agent of the workspace
    #[arg(long, default_value = "default")]
    agent: String,
    /// Refuses to replace an existing spec
    #[arg(long)]
    new: bool,
}

impl Push {
    async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        for file in &self.files {
            let spec = LocalSpec::read(file)?;
            let written = push(context, &api, file, &spec, &self.agent, self.new).await?;
            context.out.value(&written, |_| format!("{}: {}", file.display(), spec.name))?;
        }
        Ok(())
    }
}

/// Uploads a spec, and notes its problems.
pub(super) async fn push(
    context: &Context,
    api: &Api,
    file: &Path,
    spec: &LocalSpec,
    agent: &str,
    is_new: bool,
) -> Result<Value> {
    let mut request = route(api.put(&path(&spec.name)), agent).body(spec.text.clone());
    if is_new {
        request = request.header("if-none-match", "*");
    }
    let mut written: Value = request.header("content-type", MARKDOWN).json().await?;
    let mut found = check(api, &spec.name, agent, Vec::new()).await?;
    note_problems(context, &file.display().to_string(), &found);
    written["problems"] = found["problems"].take();
    Ok(written)
}

const MARKDOWN: &str = "text/markdown; charset=utf-8";

/// Has the server check a text, or the stored spec if the text is empty.
async fn check(api: &Api, name: &str, agent: &str, text: Vec<u8>) -> Result<Value> {
    let request = route(api.post(&format!("{}/validate", path(name))), agent);
    request.header("content-type", MARKDOWN).body(text).json().await
}

fn path(name: &str) -> String {
    format!("/v1/specs/{}", segment(name))
}

fn route<'a>(request: Request<'a>, agent: &str) -> Request<'a> {
    request.query("agent", agent)
}

fn note_problems(context: &Context, spec: &str, found: &Value) {
    problems(spec, found).iter().for_each(|problem| context.out.note(problem));
}

/// Returns a line for each problem of a spec.
fn problems(spec: &str, found: &Value) -> Vec<String> {
    let all = found["problems"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(|problem| format!("{spec}: {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_a_line() {
        let found = json!({"ok": false, "problems": ["no heading starts with \"goal\"", "x"]});
        assert_eq!(problems("a.md", &found), ["a.md: no heading starts with \"goal\"", "a.md: x"]);
        assert!(problems("a.md", &json!({"ok": true, "problems": []})).is_empty());
        assert!(problems("a.md", &Value::Null).is_empty());
    }
}
