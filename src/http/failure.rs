//! Why a handler of the front has no answer.

use crate::ports::{FileError, directory::DirectoryError, memory::MemoryError};
use crate::types::{ErrorCode, Problem};

/// Why a handler of the front has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller is told what is wrong.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The directory is down: the caller may try again; the cause goes to the log.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl Failure {
    /// What the caller sees.
    pub fn into_problem(self) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            Self::Directory(error) => {
                Problem::unavailable("the directory does not answer; try again", error.to_string())
            }
        }
    }

    /// What belongs into the log: only what is our own trouble.
    pub fn for_log(&self) -> Option<String> {
        match self {
            Self::Problem(problem) => (problem.code.status() >= 500).then(|| problem.to_string()),
            Self::Directory(error) => Some(error.to_string()),
        }
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Self::Problem(Problem::unavailable("the memory does not answer; try again", error.to_string()))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let problem = |code| Problem::new(code, error.to_string());
        Self::Problem(match &error {
            FileError::NotFound => Problem::not_found("file"),
            FileError::Conflict => problem(ErrorCode::PreconditionFailed),
            FileError::TooLarge(_) => problem(ErrorCode::PayloadTooLarge),
            FileError::Full => problem(ErrorCode::QuotaExceeded),
            FileError::ReadOnly => problem(ErrorCode::MissingScope),
            FileError::Closed => Problem::internal(error.to_string()),
            FileError::Unavailable(cause) => {
                Problem::unavailable("the file store does not answer; try again", cause.as_str())
            }
        })
    }
}
