//! Converts failures of ports into problems. The caller sees no cause; the log does.

use crate::ports::{FileError, PeerError, directory::DirectoryError, memory::MemoryError};
use crate::session::SwitchError;
use crate::session::artifacts::ArtifactError;
use crate::types::{ErrorCode, Problem, StorageQuota};

impl From<DirectoryError> for Problem {
    fn from(error: DirectoryError) -> Self {
        Self::unavailable("the directory is unavailable; try again", error.to_string())
    }
}

impl From<MemoryError> for Problem {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Quota(quota) => quota.into(),
            MemoryError::Unavailable(_) => {
                Self::unavailable("the memory store is unavailable; try again", error.to_string())
            }
        }
    }
}

impl From<StorageQuota> for Problem {
    fn from(quota: StorageQuota) -> Self {
        Self::over_quota(quota)
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        let problem = |code| Self::new(code, error.to_string());
        match &error {
            FileError::NotFound => Self::not_found("file"),
            FileError::Conflict => problem(ErrorCode::PreconditionFailed),
            FileError::TooLarge(_) => problem(ErrorCode::PayloadTooLarge),
            FileError::Full => problem(ErrorCode::QuotaExceeded),
            FileError::Quota(quota) => Self::over_quota(*quota),
            FileError::ReadOnly => problem(ErrorCode::ReadOnly),
            FileError::Closed => Self::internal(error.to_string()),
            FileError::Unavailable(cause) => {
                Self::unavailable("the file store is unavailable; try again", cause.as_str())
            }
        }
    }
}

impl From<PeerError> for Problem {
    fn from(error: PeerError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<ArtifactError> for Problem {
    fn from(error: ArtifactError) -> Self {
        match error {
            ArtifactError::NotFound => Self::not_found("artifact"),
            ArtifactError::Expired(_) => Self::new(ErrorCode::Gone, error.to_string()),
            ArtifactError::Range(_) => Self::new(ErrorCode::RangeNotSatisfiable, error.to_string()),
            ArtifactError::Full => Self::new(ErrorCode::QuotaExceeded, error.to_string()),
            ArtifactError::Busy(refused) => refused.into(),
            ArtifactError::Store(cause) => {
                Self::unavailable("the artifact store is unavailable; try again", cause)
            }
        }
    }
}

impl From<SwitchError> for Problem {
    fn from(error: SwitchError) -> Self {
        match error {
            SwitchError::Unknown { .. } => Self::field("/mode", error.to_string()),
            SwitchError::NotAllowed { .. } => Self::new(ErrorCode::TransitionNotAllowed, error.to_string()),
        }
    }
}
