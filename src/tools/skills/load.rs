//! The `load_skill` tool.

use super::Skills;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::FileError;
use crate::types::{Category, Effect};
use crate::workspace::{
    Layer, Workspace,
    skills::{self, Skill},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum size of a part of a file, in bytes, small enough that the result never becomes an artifact.
const MAX_PART: usize = 8_000;
/// Maximum number of files to list.
const MAX_LISTED: usize = 50;

/// The `load_skill` tool.
pub struct LoadSkill(pub(super) Skills);

/// The arguments of `load_skill`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The name of the skill.
    name: String,
    /// A further file of the skill, from its folder, such as `references/forms.md`.
    path: Option<String>,
    /// Continues a long text at this byte.
    #[serde(default)]
    offset: usize,
}

impl Tool for LoadSkill {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "load_skill";
    const DESCRIPTION: &'static str =
        "Loads a skill: its instructions and the list of its files, or one of its files.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        cx.unless_canceled(self.load(&args, &cx)).await?
    }
}

impl LoadSkill {
    async fn load(&self, Args { name, path, offset }: &Args, cx: &ToolContext) -> Result<String, ToolError> {
        let failed = |error| self.0.failed(cx, error);
        let files = self.0.open(cx);
        let found = match self.0.admits(name, cx) {
            true => files.skill(name).await,
            false => Err(FileError::NotFound),
        };
        let (skill, file) = match found {
            Ok(found) => found,
            Err(FileError::NotFound) => return Err(self.unknown_name(name, cx).await),
            Err(error) => return Err(failed(error)),
        };
        if let Err(error) = &skill.description {
            return Err(ToolError::new(format!("the skill `{name}` is malformed: {error}")));
        }
        let whose = match skill.layer {
            Layer::User => "the user's own skill",
            Layer::Shared => "shared by all users, written by your operator",
        };
        let Some(path) = path else {
            let text = skills::instructions(text(&file.bytes, "SKILL.md")?);
            let text = text.map_err(|error| ToolError::new(error.to_string()))?;
            let mut shown = format!("{name}: {whose}\n{}", part(text, *offset)?);
            if *offset == 0 {
                shown.push_str(&listed(&skill, &files).await.map_err(failed)?);
            }
            return Ok(shown);
        };
        let at = skills::path_of(name, path).ok_or(FileError::NotFound);
        let read = match at {
            Ok(at) => files.layer(skill.layer).read(&at).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(file) => Ok(format!("{name}/{path}: {whose}\n{}", part(text(&file.bytes, path)?, *offset)?)),
            Err(FileError::NotFound) => {
                let listed = listed(&skill, &files).await.map_err(failed)?;
                let listed = if listed.is_empty() { "\nThe skill has no further files." } else { &listed };
                let path = path.escape_debug();
                Err(ToolError::new(format!("the skill `{name}` has no file `{path}`.{listed}")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the error for a wrong name, with the valid ones.
    async fn unknown_name(&self, name: &str, cx: &ToolContext) -> ToolError {
        let view = match self.0.workspaces.skills(&cx.workspace).await {
            Ok(view) => view,
            Err(error) => return self.0.failed(cx, error),
        };
        let all = skills::resolve(&view, |name| self.0.admits(name, cx)).into_iter();
        let names: Vec<&str> =
            all.filter(|skill| skill.description.is_ok()).map(|skill| skill.name.as_str()).collect();
        let names = match names.is_empty() {
            true => "there are no skills".to_owned(),
            false => format!("the skills are: {}", names.join(", ")),
        };
        ToolError::new(format!("no such skill: `{}`; {names}", name.escape_debug()))
    }
}

fn text<'a>(bytes: &'a [u8], path: &str) -> Result<&'a str, ToolError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ToolError::new(format!("`{path}` is not text: it has {} bytes", bytes.len())))
}

/// Returns the part of a text that starts at an offset, in whole lines if these are not too long.
fn part(text: &str, offset: usize) -> Result<String, ToolError> {
    if offset > 0 && offset >= text.len() {
        return Err(ToolError::new(format!(
            "the text has {} bytes; offset {offset} is past the end",
            text.len()
        )));
    }
    let start = text.ceil_char_boundary(offset);
    let most = text.floor_char_boundary(start.saturating_add(MAX_PART));
    let rest = text.get(start..most).unwrap_or_default();
    if most == text.len() {
        return Ok(rest.trim_end().to_owned());
    }
    let end = rest.rfind('\n').map(|at| at + 1).filter(|end| *end > MAX_PART / 2).unwrap_or(rest.len());
    let shown = rest.get(..end).unwrap_or_default();
    Ok(format!("{shown}\n[{} more bytes; continue with offset {}]", text.len() - start - end, start + end))
}

/// Returns the list of a skill's further files; empty if there are none.
async fn listed(skill: &Skill, files: &Workspace) -> Result<String, FileError> {
    let mut paths = files.skill_files(skill, MAX_LISTED + 1).await?;
    if paths.is_empty() {
        return Ok(String::new());
    }
    let more = if paths.len() > MAX_LISTED { "\n[more files follow]" } else { "" };
    paths.truncate(MAX_LISTED);
    Ok(format!("\n\nFiles of the skill, to load with `path`:\n- {}{more}", paths.join("\n- ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_continues_at_an_offset() {
        assert_eq!(part("short\n", 0).ok().as_deref(), Some("short"));
        assert_eq!(part("", 0).ok().as_deref(), Some(""));
        assert!(part("short", 5).is_err());
        let text = "a line\n".repeat(2_000);
        let first = part(&text, 0).ok().unwrap_or_default();
        assert!(first.ends_with("a line\n\n[6006 more bytes; continue with offset 7994]"), "{first}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn parts_add_up_to_the_whole(text in prop::collection::vec("[aé山\\n]{0,900}", 1..30).prop_map(|p| p.concat())) {
            let (mut read, mut offset) = (String::new(), 0);
            while offset < text.len().max(1) {
                let part = part(&text, offset).expect("a part");
                prop_assert!(part.len() < MAX_PART + 100);
                match part.rsplit_once("\n[") {
                    Some((shown, note)) => {
                        read.push_str(shown);
                        let next = note.trim_end_matches(']').rsplit(' ').next().expect("an offset");
                        offset = next.parse().expect("a number");
                    }
                    None => {
                        read.push_str(&part);
                        break;
                    }
                }
            }
            prop_assert_eq!(read.trim_end(), text.trim_end());
        }
    }
}
