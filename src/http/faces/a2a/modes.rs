//! The media types that messages and artifacts may have.

use crate::types::{ErrorCode, Problem};

/// The media types that cards name as input: those that every agent can read.
pub(super) const INPUT: [&str; 7] = [
    "text/plain",
    "application/json",
    "text/markdown",
    "text/csv",
    "text/html",
    "application/xml",
    "application/yaml",
];

/// The media types that cards name as output.
pub(super) const OUTPUT: [&str; 2] = ["text/plain", "application/json"];

/// The type of a file without one.
pub(super) const BYTES: &str = "application/octet-stream";

/// Further types of files. An agent may have tools that use them.
const FILES: [&str; 3] = [BYTES, "application/pdf", "application/zip"];
/// The start of further types.
const KINDS: [&str; 4] = ["text/", "image/", "audio/", "video/"];

/// Checks the media type of a file.
///
/// # Errors
/// `unsupported_media_type`.
pub(super) fn check(media_type: &str) -> Result<(), Problem> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_named = INPUT.iter().chain(&FILES).any(|own| *own == essence);
    if is_named || KINDS.iter().any(|kind| essence.starts_with(kind)) {
        return Ok(());
    }
    let detail = format!("the agent accepts no files of the type {media_type:?}; {BYTES} is accepted");
    Err(Problem::new(ErrorCode::UnsupportedMediaType, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_names_is_accepted_and_an_unknown_type_is_refused() {
        let others = ["Text/X-Rust; charset=utf-8", "image/heic", "application/pdf"];
        for accepted in INPUT.into_iter().chain(others) {
            assert_eq!(check(accepted), Ok(()), "{accepted}");
        }
        for refused in ["application/x-unknown", "text", "", "model/stl"] {
            let code = check(refused).map_err(|problem| problem.code);
            assert_eq!(code, Err(ErrorCode::UnsupportedMediaType), "{refused}");
        }
    }
}
