//! The `propose_skill` tool.

use super::Skills;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use crate::workspace::{
    layout::{DRAFTS, SKILL_FILE},
    skills::{
        self, DraftFile,
        drafts::{self, MAX_DESCRIPTION, MAX_DRAFTS, MAX_FILES},
        scan,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Maximum length of the instructions, in characters.
const MAX_BODY: usize = 100_000;

/// The `propose_skill` tool.
pub struct ProposeSkill(pub(super) Skills);

/// The arguments of `propose_skill`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The name: 1 to 64 of a-z, 0-9 and -.
    name: String,
    /// What the skill does and when to use it, in at most 1,024 characters.
    description: String,
    /// The instructions, in Markdown.
    body: String,
    /// At most 8 further files, such as references and scripts.
    #[serde(default)]
    files: Vec<File>,
}

/// A further file of a skill.
#[derive(Deserialize, JsonSchema)]
pub struct File {
    /// Its path in the folder of the skill, such as `references/forms.md`.
    path: String,
    /// Its text.
    content: String,
}

impl Tool for ProposeSkill {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "propose_skill";
    const DESCRIPTION: &'static str = "Proposes a skill for later sessions, when a way of doing a task has proved itself. It is \
         a draft until a person promotes it. A draft of the same name is replaced.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CATEGORY: Category = Category::Edit;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        if cx.workspace.session.is_some() {
            return Err(ToolError::permanent("a subagent with a workspace of its own cannot propose skills"));
        }
        let name = args.name.clone();
        let files = checked(args).map_err(ToolError::new)?;
        let contents: Vec<_> = files.iter().map(|file| (file.path.clone(), file.text.as_bytes())).collect();
        let found = cx.unless_canceled(scan::scan(&contents, &cx.clock)).await?;
        let found = found.map_err(|error| ToolError::new(error.to_string()))?;
        if !found.is_empty() {
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            return Err(ToolError::new(format!("the skill is refused: {}", found.join("; "))));
        }
        let workspace = self.0.open(&cx);
        let has_room = workspace.has_room_for_draft(&name).await;
        if !has_room.map_err(|error| self.0.failed(&cx, error))? {
            return Err(ToolError::new(format!(
                "there are {MAX_DRAFTS} drafts, which is the maximum; a person has to promote or delete some first"
            )));
        }
        let written = workspace.write_draft(&name, &files).await;
        written.map_err(|error| self.0.failed(&cx, error))?;
        Ok(format!("stored the draft {DRAFTS}{name}; it becomes a skill when a person promotes it"))
    }
}

/// Returns the files of a draft, with its `SKILL.md`.
///
/// # Errors
/// What is wrong with the arguments.
fn checked(Args { name, description, body, files }: Args) -> Result<Vec<DraftFile>, String> {
    if !skills::is_name(&name) {
        return Err(format!("the name {name:?} is not 1 to 64 of a-z, 0-9 and -"));
    }
    let described = description.trim().chars().count();
    if !(1..=MAX_DESCRIPTION).contains(&described) {
        return Err(format!("the description has {described} characters instead of 1 to {MAX_DESCRIPTION}"));
    }
    let length = body.chars().count();
    if body.trim().is_empty() || length > MAX_BODY {
        return Err(format!("the body has {length} characters instead of 1 to {MAX_BODY}"));
    }
    if files.len() > MAX_FILES {
        return Err(format!("there are {} files; at most {MAX_FILES} are allowed", files.len()));
    }
    let text = drafts::skill_file(&name, description.trim(), &body);
    drafts::check_skill_file(&name, &text).map_err(|error| error.to_string())?;
    let mut paths = BTreeSet::from([SKILL_FILE.to_owned()]);
    let mut checked = vec![DraftFile { path: SKILL_FILE.to_owned(), text }];
    for File { path, content } in files {
        if drafts::draft_path(&name, &path).is_none() {
            return Err(format!("{path:?} is not a path in the folder of the skill"));
        }
        if !paths.insert(path.clone()) {
            return Err(format!("{path:?} occurs twice, or is SKILL.md"));
        }
        checked.push(DraftFile { path, text: content });
    }
    let sizes = checked.iter().map(|file| (&*file.path, file.text.len() as u64));
    match drafts::too_large(sizes) {
        Some(finding) => Err(finding.to_string()),
        None => Ok(checked),
    }
}
