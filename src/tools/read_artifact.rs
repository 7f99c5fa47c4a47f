//! The `read_artifact` tool.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// Default number of bytes to read.
const DEFAULT_LENGTH: u64 = 8_000;
/// Maximum number of bytes to read, small enough that the result never becomes an artifact.
const MAX_LENGTH: u64 = 10_000;
/// Maximum length of a character in bytes. A range of this length contains the start of at least one
/// character.
const MAX_CHAR_BYTES: u64 = 4;

/// The `read_artifact` tool.
pub struct ReadArtifact;

/// The arguments of `read_artifact`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The artifact's id, such as `art_…`.
    r#ref: String,
    /// Offset of the first byte to read, starting at 0.
    #[serde(default)]
    offset: u64,
    /// Number of bytes to read: 8000 by default, at most 10000.
    length: Option<u64>,
}

impl Tool for ReadArtifact {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "read_artifact";
    const DESCRIPTION: &'static str = "Reads a part of a large output or of a file from the user. The first line of the result \
         states which bytes follow. To continue, set offset to the byte after the last one.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let failed = |error: &dyn ToString| ToolError::new(error.to_string());
        let pointer = cx.artifacts.find(&args.r#ref.as_str().into()).map_err(|error| failed(&error))?;
        let total = pointer.bytes;
        if args.offset >= total {
            return Err(ToolError::new(format!(
                "offset {} is past the end: the artifact has {total} bytes",
                args.offset
            )));
        }
        let length = args.length.unwrap_or(DEFAULT_LENGTH).clamp(MAX_CHAR_BYTES, MAX_LENGTH);
        // The last character may need a few more bytes.
        let end = args.offset.saturating_add(length + MAX_CHAR_BYTES - 1).min(total);
        let read = cx.artifacts.read(&pointer, Some(args.offset..end)).await;
        let bytes = read.map_err(|error| failed(&error))?;
        let (start, text) = whole_characters(&bytes, args.offset > 0, length).ok_or_else(|| {
            ToolError::new(format!("not text: the artifact is {} with {total} bytes", pointer.mime_type))
        })?;
        let first = args.offset + start as u64;
        let last = (first + text.len() as u64).saturating_sub(1);
        Ok(format!("bytes {first}-{last} of {total}\n{text}"))
    }
}

/// Returns the characters that start within the first `length` bytes, and the offset of the first one, so
/// that adjacent ranges add up to the whole text. Returns `None` if the bytes are not UTF-8.
fn whole_characters(bytes: &[u8], is_truncated: bool, length: u64) -> Option<(usize, &str)> {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let until_next = |from: &[u8]| from.iter().take_while(|byte| continues(byte)).take(3).count();
    let start = if is_truncated { until_next(bytes) } else { 0 };
    let length = usize::try_from(length).ok()?.min(bytes.len());
    let end = length + until_next(bytes.get(length..)?);
    Some((start, std::str::from_utf8(bytes.get(start..end)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_add_up_to_the_whole() {
        let text = "aé山😀\u{301}z".repeat(40);
        for length in MAX_CHAR_BYTES..40 {
            let (mut read, mut offset) = (String::new(), 0);
            while offset < text.len() {
                let end = (offset + length as usize + 3).min(text.len());
                let part = &text.as_bytes()[offset..end];
                read += whole_characters(part, offset > 0, length).expect("UTF-8").1;
                offset += length as usize;
            }
            assert_eq!(read, text, "{length}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_rejected() {
        assert_eq!(whole_characters(&[0x89, b'P', 0xff, 0xfe], false, 4), None);
        assert_eq!(whole_characters(&[0xff; 12], true, 8), None);
        assert_eq!(whole_characters(b"plain", true, 8), Some((0, "plain")));
    }
}
