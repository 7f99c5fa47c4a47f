//! Files of the workspace: read, found, written, changed, moved, removed.

mod arrange;
mod edit;
mod find;
mod read;
mod write;

use crate::agent::{DynTool, ToolContext, ToolError};
use crate::ports::{FileError, Log, filesystem::MAX_FILE};
use crate::types::{FilePath, PathError, PathPrefix};
use crate::workspace::Workspaces;
use serde_json::json;
use std::rc::Rc;

pub use arrange::{DeleteFile, MoveFile};
pub use edit::EditFile;
pub use find::{GlobFiles, GrepFiles, ListFiles};
pub use read::ReadFile;
pub use write::WriteFile;

/// Most characters of an answer: it never becomes an artifact.
const MAX_ANSWER: usize = 10_000;

/// What the tools share: where the files are, and where trouble with them is written down.
#[derive(Clone)]
pub struct Files {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
}

/// The tools on files.
pub fn family(workspaces: Rc<Workspaces>, log: Rc<dyn Log>) -> Vec<Rc<dyn DynTool>> {
    let files = || Files { workspaces: Rc::clone(&workspaces), log: Rc::clone(&log) };
    vec![
        Rc::new(ReadFile(files())),
        Rc::new(WriteFile(files())),
        Rc::new(EditFile(files())),
        Rc::new(ListFiles(files())),
        Rc::new(GlobFiles(files())),
        Rc::new(GrepFiles(files())),
        Rc::new(MoveFile(files())),
        Rc::new(DeleteFile(files())),
    ]
}

impl Files {
    /// The workspace of the call's user and agent. Right before anything in it is changed, the call's
    /// gate is asked.
    fn open(&self, cx: &ToolContext) -> crate::workspace::Workspace {
        let gate = cx.gate.clone();
        self.workspaces.open(&cx.tenant, &cx.agent, &cx.user, Some(Rc::new(move || gate.is_open())))
    }

    /// What the model is told about a file that cannot be had; our own trouble goes to the log.
    fn failed(&self, cx: &ToolContext, path: &str, error: FileError) -> ToolError {
        ToolError::new(match error {
            FileError::NotFound => format!("there is no file `{path}`: list_files shows what there is"),
            FileError::Conflict => format!("`{path}` was changed by somebody else meanwhile: read it again"),
            FileError::TooLarge(bytes) => {
                format!("`{path}` would have {bytes} bytes, and a file may have {MAX_FILE}: split it")
            }
            FileError::Full => {
                format!("`{path}` cannot be made: {error}, or put what you have into fewer files")
            }
            FileError::ReadOnly => {
                format!("`{path}` is shared by all users and stays where it is: write a copy instead")
            }
            FileError::Closed => "the call is over, so nothing is written any more".to_owned(),
            FileError::Unavailable(cause) => {
                let (tenant, session) = (&cx.tenant, &cx.session);
                self.log.line(&json!({
                    "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
                }));
                "the file store does not answer: try again".to_owned()
            }
        })
    }
}

/// A path that the model wrote.
fn path(text: &str) -> Result<FilePath, ToolError> {
    FilePath::parse(text).map_err(|error| bad(text, error))
}

/// A folder that the model wrote, or the root.
fn folder(text: Option<&str>) -> Result<PathPrefix, ToolError> {
    let text = text.unwrap_or_default();
    PathPrefix::folder(text).map_err(|error| bad(text, error))
}

fn bad(text: &str, error: PathError) -> ToolError {
    ToolError::new(format!("`{}` is not a path: {error}", text.escape_debug()))
}

/// What a call on this path touches: one key however the path is spelled.
fn key(text: &str) -> String {
    FilePath::parse(text).map_or_else(|_| text.to_owned(), |path| format!("file:{path}"))
}

/// Lines, as many as fit into an answer, and below them what there is to say about the rest.
fn answer(lines: impl IntoIterator<Item = String>, mut notes: Vec<String>) -> String {
    // Room for the notes.
    let room = MAX_ANSWER - 1_000;
    let (mut text, mut chars, mut left_out) = (String::new(), 0, 0);
    for line in lines {
        chars += line.chars().count() + 1;
        if chars > room {
            left_out += 1;
        } else {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if left_out > 0 {
        notes.push(format!("{left_out} more lines do not fit into one answer: ask for less"));
    }
    if text.is_empty() && notes.is_empty() {
        text.push_str("nothing found\n");
    }
    for note in notes {
        text.push_str(&format!("[{note}]\n"));
    }
    text.pop();
    text
}
