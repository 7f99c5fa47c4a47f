//! Images, PDFs and audio that users send, as a request carries them to a model.

use super::{ArtifactId, FileRef};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Maximum size of the files that one request carries together, in bytes (4 MiB). Providers accept images of at most
/// 5 MB, and an isolate holds several copies of a request while it sends it.
pub const MAX_MEDIA: usize = 4 << 20;
/// Maximum number of files that one request carries.
pub const MAX_MEDIA_FILES: usize = 20;
/// Maximum size of the files of all requests that an isolate prepares or sends at the same time, in bytes.
const MAX_HELD: usize = 2 * MAX_MEDIA;

/// The size of the files that the isolate holds for requests, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// A kind of content, besides text, that some models take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// PNG, JPEG, GIF and WebP.
    Image,
    /// PDF documents.
    Pdf,
    /// WAV and MP3.
    Audio,
}

impl MediaKind {
    /// Returns the kind of files of this media type; `None` if no model takes them.
    pub fn of(mime_type: &str) -> Option<Self> {
        match essence(mime_type).as_str() {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Some(Self::Image),
            "application/pdf" => Some(Self::Pdf),
            "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/mpeg" | "audio/mp3" => Some(Self::Audio),
            _ => None,
        }
    }

    /// Estimates the tokens of a file of this kind. Source: the documentation of OpenAI and Anthropic as of November
    /// 2025, with 50 kB for each page of a PDF, and 16 kB for each second of audio.
    pub fn tokens(self, bytes: u64) -> u64 {
        match self {
            Self::Image => 1_600,
            Self::Pdf => bytes.div_ceil(50_000) * 2_500,
            Self::Audio => bytes.div_ceil(16_000) * 10,
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Image => "images",
            Self::Pdf => "PDFs",
            Self::Audio => "audio",
        }
    }
}

/// Returns the media type in lowercase and without its parameters.
fn essence(mime_type: &str) -> String {
    mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the usual extension of files of this media type, which has no parameters.
pub fn extension(mime_type: &str) -> &str {
    match mime_type {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "audio/mpeg" => "mp3",
        "text/plain" => "txt",
        other => {
            let subtype = other.rsplit('/').next().unwrap_or_default();
            let is_extension = |text: &&str| {
                (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
            };
            Some(subtype.trim_start_matches("x-")).filter(is_extension).unwrap_or("bin")
        }
    }
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// What it is.
    pub kind: MediaKind,
    /// Its media type, in lowercase and without parameters.
    pub mime_type: String,
    /// Its bytes in base64.
    pub base64: String,
}

impl Media {
    /// Creates the content of a file of this media type; `None` if no model takes such files.
    pub fn new(mime_type: &str, base64: String) -> Option<Self> {
        Some(Self { kind: MediaKind::of(mime_type)?, mime_type: essence(mime_type), base64 })
    }

    /// Returns the content as a `data:` URL.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.mime_type, self.base64)
    }
}

/// Why a request does not carry a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// The model does not take files of this kind.
    #[error("this model takes no {}", .0.plural())]
    NotTaken(MediaKind),
    /// The request would exceed [`MAX_MEDIA`] or [`MAX_MEDIA_FILES`].
    #[error("the files of a request have at most 4 MiB together, and newer files come first")]
    TooLarge,
    /// The provider refused a request with files.
    #[error("the provider has refused a request with the files")]
    Refused,
    /// The content could not be read.
    #[error("it could not be read")]
    Unreadable,
}

/// The images, PDFs and audio of a request, by file.
#[derive(Debug, Default)]
pub struct RequestMedia {
    /// The contents, and for the other files why the request does not carry them.
    pub files: BTreeMap<ArtifactId, Result<Media, LeftOut>>,
    /// The share of the isolate's memory that the contents take.
    pub permit: Option<Rc<MediaPermit>>,
}

impl RequestMedia {
    /// Returns the content of a file, if the request carries it.
    pub fn content(&self, file: &FileRef) -> Option<&Media> {
        self.files.get(&file.r#ref)?.as_ref().ok()
    }

    /// Returns whether the request carries any file.
    pub fn has_content(&self) -> bool {
        self.files.values().any(Result::is_ok)
    }

    /// Returns the line that represents a file in the prompt. Its content, if the request carries it, follows the line.
    pub fn line(&self, file: &FileRef) -> String {
        match self.files.get(&file.r#ref) {
            None => file.line(),
            Some(Ok(_)) => file.line_with("its content follows"),
            Some(Err(why)) => file.line_with(&format!("you cannot see its content: {why}")),
        }
    }
}

/// The right to hold the files of a request in the isolate's memory. Dropping it frees its share.
#[derive(Debug)]
pub struct MediaPermit {
    bytes: usize,
}

impl MediaPermit {
    /// Reserves memory for files of this size; `None` if other requests leave no room at the moment.
    pub fn reserve(bytes: usize) -> Option<Self> {
        let has_room = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= MAX_HELD);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        Some(Self { bytes })
    }
}

impl Drop for MediaPermit {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn kinds_follow_the_media_type() {
        let kinds = ["image/PNG; x=y", "application/pdf", "audio/mpeg", "image/svg+xml", "text/plain", ""];
        let (image, pdf, audio) = (MediaKind::Image, MediaKind::Pdf, MediaKind::Audio);
        assert_eq!(kinds.map(MediaKind::of), [Some(image), Some(pdf), Some(audio), None, None, None]);
        assert_eq!(
            Media::new("Image/PNG; x=y", "eA==".into()).unwrap().data_url(),
            "data:image/png;base64,eA=="
        );
    }

    #[test]
    fn an_isolate_holds_the_files_of_few_requests() {
        let first = MediaPermit::reserve(MAX_MEDIA).unwrap();
        let second = MediaPermit::reserve(MAX_MEDIA).unwrap();
        assert!(MediaPermit::reserve(1).is_none());
        drop(first);
        assert!(MediaPermit::reserve(MAX_MEDIA).is_some());
        drop(second);
    }
}
