//! Tools for the files of the workspace.

mod arrange;
mod edit;
mod find;
mod read;
mod write;

use crate::agent::{DynTool, ToolContext, ToolError};
use crate::ports::{FileError, Log, filesystem::MAX_FILE};
use crate::types::{FilePath, PathError, PathPrefix, SpecName, spec};
use crate::workspace::Workspaces;
use serde_json::json;
use std::rc::Rc;

pub use arrange::{DeleteFile, MoveFile};
pub use edit::EditFile;
pub use find::{GlobFiles, GrepFiles, ListFiles};
pub use read::ReadFile;
pub use write::WriteFile;

/// Maximum number of characters in a result, small enough that it never becomes an artifact.
const MAX_OUTPUT: usize = 10_000;

/// What the file tools share: the workspaces, and the log for failures.
#[derive(Clone)]
pub struct Files {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
}

/// Creates the file tools.
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
    /// Opens the workspace of the call's session. The call's gate is checked immediately before each
    /// change.
    fn open(&self, cx: &ToolContext) -> crate::workspace::Workspace {
        let gate = cx.gate.clone();
        self.workspaces.open_for(&cx.workspace, Some(Rc::new(move || gate.is_open())))
    }

    /// Converts a file error to a message for the model. The cause of a failed store goes to the log.
    fn failed(&self, cx: &ToolContext, path: &str, error: FileError) -> ToolError {
        ToolError::new(match error {
            FileError::NotFound => format!("no such file: `{path}`; use list_files to see the files"),
            FileError::Conflict => {
                format!("`{path}` was changed concurrently; read it again")
            }
            FileError::TooLarge(bytes) => {
                format!("`{path}` would have {bytes} bytes; a file may have at most {MAX_FILE}; split it")
            }
            FileError::Full => {
                format!("cannot create `{path}`: {error}, or put the content into fewer files")
            }
            FileError::Quota(_) => format!("cannot write `{path}`: {error}"),
            FileError::ReadOnly => {
                format!("`{path}` is shared by all users and read-only; write a copy instead")
            }
            FileError::Closed => "the call has ended and can no longer write".to_owned(),
            FileError::Unavailable(cause) => {
                let (tenant, session) = (&cx.tenant, &cx.session);
                self.log.line(&json!({
                    "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
                }));
                "the file store is unavailable; try again".to_owned()
            }
        })
    }
}

/// Parses a path from the model.
fn path(text: &str) -> Result<FilePath, ToolError> {
    FilePath::parse(text).map_err(|error| bad(text, error))
}

/// Parses a folder from the model; the root if absent.
fn folder(text: Option<&str>) -> Result<PathPrefix, ToolError> {
    let text = text.unwrap_or_default();
    PathPrefix::folder(text).map_err(|error| bad(text, error))
}

fn bad(text: &str, error: PathError) -> ToolError {
    ToolError::new(format!("`{}` is not a valid path: {error}", text.escape_debug()))
}

/// Returns what the result of a write says about the content: for a spec, its problems; otherwise nothing.
fn checked(path: &FilePath, content: &[u8]) -> String {
    let Some(name) = SpecName::of_path(path.as_str()) else { return String::new() };
    let problems = spec::problems(&name, content);
    if problems.is_empty() {
        return "; the spec is valid".to_owned();
    }
    format!("; the spec is not valid: {}", problems.join("; "))
}

/// Returns the resource key of a path, the same for all spellings of the path.
fn key(text: &str) -> String {
    FilePath::parse(text).map_or_else(|_| text.to_owned(), |path| format!("file:{path}"))
}

/// Joins as many lines as fit into a result, followed by the notes.
fn joined(lines: impl IntoIterator<Item = String>, mut notes: Vec<String>) -> String {
    // Reserved for the notes.
    let room = MAX_OUTPUT - 1_000;
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
        notes.push(format!("{left_out} more lines left out; narrow the request"));
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
