//! Reads parts of what is kept apart from the conversation.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// Bytes that one call reads unless it says otherwise.
const LENGTH: u64 = 8_000;
/// Most bytes of one call: with its first line it never becomes an artifact itself.
const MAX_LENGTH: u64 = 10_000;
/// The longest character, in bytes: in so many bytes at least one begins.
const CHAR: u64 = 4;

/// `read_artifact`.
pub struct ReadArtifact;

/// What to read.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The artifact, such as `art_…`.
    r#ref: String,
    /// The first byte to read, from 0.
    #[serde(default)]
    offset: u64,
    /// How many bytes to read: 8000 unless given, 10000 at most.
    length: Option<u64>,
}

impl Tool for ReadArtifact {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "read_artifact";
    const DESCRIPTION: &'static str = "Reads a part of a large output or of a file that the user gave. The first line of the answer \
         says which bytes follow; go on with the byte behind the last one.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let failed = |error: &dyn ToString| ToolError::new(error.to_string());
        let pointer = cx.artifacts.find(&args.r#ref).map_err(|error| failed(&error))?;
        let total = pointer.bytes;
        if args.offset >= total {
            return Err(ToolError::new(format!("there is nothing at {}: it has {total} bytes", args.offset)));
        }
        let length = args.length.unwrap_or(LENGTH).clamp(CHAR, MAX_LENGTH);
        // As much more as the last character may need.
        let end = args.offset.saturating_add(length + CHAR - 1).min(total);
        let read = cx.artifacts.read(&pointer, Some(args.offset..end)).await;
        let bytes = read.map_err(|error| failed(&error))?;
        let (start, text) = whole_characters(&bytes, args.offset > 0, length).ok_or_else(|| {
            ToolError::new(format!("not text: it is {} of {total} bytes", pointer.mime_type))
        })?;
        let first = args.offset + start as u64;
        let last = (first + text.len() as u64).saturating_sub(1);
        Ok(format!("bytes {first}-{last} of {total}\n{text}"))
    }
}

/// The characters that begin within the first `length` bytes, and where the first of them begins; parts
/// that follow each other therefore make the whole. `None` unless they are UTF-8.
fn whole_characters(bytes: &[u8], goes_on: bool, length: u64) -> Option<(usize, &str)> {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let until_next = |from: &[u8]| from.iter().take_while(|byte| continues(byte)).take(3).count();
    let start = if goes_on { until_next(bytes) } else { 0 };
    let length = usize::try_from(length).ok()?.min(bytes.len());
    let end = length + until_next(bytes.get(length..)?);
    Some((start, std::str::from_utf8(bytes.get(start..end)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_make_the_whole() {
        let text = "aé山😀\u{301}z".repeat(40);
        for length in CHAR..40 {
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
    fn what_is_not_text_is_not_made_text() {
        assert_eq!(whole_characters(&[0x89, b'P', 0xff, 0xfe], false, 4), None);
        assert_eq!(whole_characters(&[0xff; 12], true, 8), None);
        assert_eq!(whole_characters(b"plain", true, 8), Some((0, "plain")));
    }
}
