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

/// Further types of files. Most are text, which every agent can read; an agent may have tools for the others.
const FILES: [&str; 17] = [
    BYTES,
    "application/ecmascript",
    "application/graphql",
    "application/gzip",
    "application/javascript",
    "application/jsonl",
    "application/pdf",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/typescript",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-tar",
    "application/x-yaml",
    "application/zip",
];
/// The starts of the names of further types of files.
const KINDS: [&str; 5] = ["text/", "image/", "audio/", "video/", "application/vnd."];
/// The ends of the names of further types of files, which are in these formats.
const SUFFIXES: [&str; 4] = ["+json", "+xml", "+yaml", "+zip"];

/// Checks the media type of a file.
///
/// # Errors
/// `unsupported_media_type`.
pub(super) fn check(media_type: &str) -> Result<(), Problem> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_named = INPUT.iter().chain(&FILES).any(|own| *own == essence);
    let is_of_kind = KINDS.iter().any(|kind| essence.starts_with(kind));
    if is_named || is_of_kind || SUFFIXES.iter().any(|suffix| essence.ends_with(suffix)) {
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
        let others = [
            "Text/X-Rust; charset=utf-8",
            "image/heic",
            "application/pdf",
            "application/ld+json",
            "application/atom+xml; charset=utf-8",
            "application/vnd.ms-excel",
            "application/javascript",
            "application/x-sh",
            "application/toml",
            "application/gzip",
        ];
        for accepted in INPUT.into_iter().chain(others) {
            assert_eq!(check(accepted), Ok(()), "{accepted}");
        }
        for refused in ["application/x-unknown", "text", "", "model/stl"] {
            let code = check(refused).map_err(|problem| problem.code);
            assert_eq!(code, Err(ErrorCode::UnsupportedMediaType), "{refused}");
        }
    }
}
