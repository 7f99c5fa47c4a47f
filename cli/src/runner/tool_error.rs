//! The error of a tool.

use std::{io, path::Path};

/// Why a tool has no result. The model reads the text.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not have the form of the declaration.
    #[error("the arguments are wrong: {0}")]
    Arguments(#[from] serde_json::Error),
    /// A path leads out of the folder.
    #[error("{0}: is outside of the folder of the runner")]
    Outside(String),
    /// A file could not be read or changed.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Something else went wrong.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What is wrong.
    #[error("{0}")]
    Other(String),
}

impl ToolError {
    /// Returns the error of a file.
    pub fn file(path: &Path, source: io::Error) -> Self {
        // This is how the library reports a path that leads out by links.
        if source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error().is_none() {
            return Self::Outside(path.display().to_string());
        }
        Self::File { path: path.display().to_string(), source }
    }
}
