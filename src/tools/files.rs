//! Tools for the files of the workspace.

mod arrange;
mod edit;
mod find;
mod of_runner;
mod read;
mod write;

use crate::agent::{DynTool, Tool, ToolContext, ToolError};
use crate::ports::{Clock, FileError, Log, filesystem::MAX_FILE};
use crate::types::{
    Effect, FilePath, PathError, PathPrefix, SpecName, WorkspaceKind, json::from_value, spec,
};
use crate::workspace::{
    Workspace, Workspaces,
    pace::{Pace, SearchLimits},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};
use thiserror::Error;

pub use arrange::{DeleteFile, MoveFile};
pub use edit::EditFile;
pub use find::{GlobFiles, GrepFiles, ListFiles};
pub use read::ReadFile;
pub use write::WriteFile;

/// Maximum number of characters in a result, small enough that it never becomes an artifact.
pub const MAX_OUTPUT: usize = 10_000;

/// The names of the file tools, and their effects.
pub const TOOLS: [(&str, Effect); 8] = [
    (ReadFile::NAME, ReadFile::EFFECT),
    (WriteFile::NAME, WriteFile::EFFECT),
    (EditFile::NAME, EditFile::EFFECT),
    (ListFiles::NAME, ListFiles::EFFECT),
    (GlobFiles::NAME, GlobFiles::EFFECT),
    (GrepFiles::NAME, GrepFiles::EFFECT),
    (MoveFile::NAME, MoveFile::EFFECT),
    (DeleteFile::NAME, DeleteFile::EFFECT),
];

/// What the file tools share: the workspaces, and the log for failures.
#[derive(Clone)]
pub struct Files {
    workspaces: Rc<Workspaces>,
    log: Rc<dyn Log>,
}

/// Creates the file tools of a workspace of this kind.
pub fn family(workspaces: Rc<Workspaces>, log: Rc<dyn Log>, kind: WorkspaceKind) -> Vec<Rc<dyn DynTool>> {
    let files = || Files { workspaces: Rc::clone(&workspaces), log: Rc::clone(&log) };
    let tools: [Rc<dyn DynTool>; 8] = [
        Rc::new(ReadFile(files())),
        Rc::new(WriteFile(files())),
        Rc::new(EditFile(files())),
        Rc::new(ListFiles(files())),
        Rc::new(GlobFiles(files())),
        Rc::new(GrepFiles(files())),
        Rc::new(MoveFile(files())),
        Rc::new(DeleteFile(files())),
    ];
    match kind {
        WorkspaceKind::Server => tools.into(),
        WorkspaceKind::Runner => tools.map(of_runner::OfRunner::wrap).into(),
    }
}

/// Runs a call of a file tool on files that belong to no session, such as those of a runner's folder. Returns `None` if there
/// is no file tool with this name.
pub async fn run(name: &str, args: Value, access: &FileAccess) -> Option<Result<String, FileToolError>> {
    async fn with<A: DeserializeOwned>(
        args: Value,
        apply: impl AsyncFnOnce(A) -> Result<String, FileToolError>,
    ) -> Option<Result<String, FileToolError>> {
        Some(match from_value(args) {
            Ok(args) => apply(args).await,
            Err(error) => {
                Err(ToolError::new(format!("the arguments do not match the schema: {error}")).into())
            }
        })
    }
    match name {
        ReadFile::NAME => with(args, async |args| read::apply(&args, access).await).await,
        WriteFile::NAME => with(args, async |args| write::apply(args, access).await).await,
        EditFile::NAME => with(args, async |args| edit::apply(&args, access).await).await,
        ListFiles::NAME => with(args, async |args| find::list(&args, access).await).await,
        GlobFiles::NAME => with(args, async |args| find::glob(&args, access).await).await,
        GrepFiles::NAME => with(args, async |args| find::grep(args, access).await).await,
        MoveFile::NAME => with(args, async |args| arrange::rename(&args, access).await).await,
        DeleteFile::NAME => with(args, async |args| arrange::delete(&args, access).await).await,
        _ => None,
    }
}

/// The files that a call works on, and how much it may search.
pub struct FileAccess {
    /// The files.
    pub files: Workspace,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The work of all searches of the turn.
    pub search_work: Rc<Cell<u64>>,
    /// The limits of a search.
    pub limits: SearchLimits,
}

impl FileAccess {
    /// Starts counting the work of the call's search.
    fn pace(&self) -> Pace {
        Pace::limited(Rc::clone(&self.clock), Rc::clone(&self.search_work), self.limits)
    }
}

/// Why a call of a file tool failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileToolError {
    /// The call is not valid, or does not fit the files.
    #[error(transparent)]
    Call(#[from] ToolError),
    /// A file operation failed.
    #[error("{}", explain(path, error))]
    File {
        /// The path that the call names.
        path: String,
        /// Why it failed.
        error: FileError,
    },
}

impl FileToolError {
    /// Returns a function that adds a path to an error.
    fn at(path: &str) -> impl Fn(FileError) -> Self {
        move |error| Self::File { path: path.to_owned(), error }
    }
}

/// Returns what a file error means, for the model.
fn explain(path: &str, error: &FileError) -> String {
    match error {
        FileError::NotFound => format!("no such file: `{path}`; use list_files to see the files"),
        FileError::Conflict => format!("`{path}` was changed concurrently; read it again"),
        FileError::TooLarge(bytes) => {
            format!("`{path}` would have {bytes} bytes; a file may have at most {MAX_FILE}; split it")
        }
        FileError::Full => format!("cannot create `{path}`: {error}, or put the content into fewer files"),
        FileError::Quota(_) => format!("cannot write `{path}`: {error}"),
        FileError::ReadOnly => {
            format!("`{path}` is shared by all users and read-only; write a copy instead")
        }
        FileError::Closed => "the call has ended and can no longer write".to_owned(),
        FileError::Unavailable(_) => "the file store is unavailable; try again".to_owned(),
    }
}

impl Files {
    /// Opens the workspace of the call's session. The call's gate is checked immediately before each
    /// change.
    fn open(&self, cx: &ToolContext) -> FileAccess {
        let gate = cx.gate.clone();
        FileAccess {
            files: self.workspaces.open_for(&cx.workspace, Some(Rc::new(move || gate.is_open()))),
            clock: Rc::clone(&cx.clock),
            search_work: cx.search_work(),
            limits: SearchLimits::SERVER,
        }
    }

    /// Converts an error to a message for the model. The cause of a failed store goes to the log.
    fn failed(&self, cx: &ToolContext, error: FileToolError) -> ToolError {
        match error {
            FileToolError::Call(error) => return error,
            FileToolError::File { error: FileError::Unavailable(ref cause), .. } => {
                let (tenant, session) = (&cx.tenant, &cx.session);
                self.log.line(&json!({
                    "event": "files.unavailable", "tenant": tenant, "session": session, "cause": cause,
                }));
            }
            FileToolError::File { .. } => {}
        }
        ToolError::new(error.to_string())
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
