//! The content that a server returns: texts, and files, which are stored with the outcome of the call.

use crate::agent::{ToolContext, ToolError};
use crate::ports::outbound::Redaction;
use crate::types::{FileRef, media::extension};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Maximum number of files of a result. Their size is bounded by that of the response.
const MAX_FILES: usize = 10;
/// Maximum length of a media type, in bytes.
const MAX_TYPE: usize = 127;
/// Maximum length of the name of a file, in characters.
const MAX_NAME: usize = 100;

/// A file to store: content, media type and name.
pub(super) type NewFile = (Bytes, String, String);

/// Stores a file with the outcome of a call.
pub(super) async fn store(cx: &ToolContext, (bytes, mime_type, name): NewFile) -> Result<FileRef, ToolError> {
    cx.unless_canceled(cx.store_file(bytes, mime_type, name)).await?
}

/// Writes content as text, and stores its files.
pub(super) struct Writer<S> {
    store: S,
    stored: usize,
    /// Why a file could not be stored. The store is not asked again, because each attempt may take seconds.
    failure: Option<String>,
}

impl<S: AsyncFn(NewFile) -> Result<FileRef, ToolError>> Writer<S> {
    /// Creates a writer that stores files with this function.
    pub fn new(store: S) -> Self {
        Self { store, stored: 0, failure: None }
    }

    /// Writes blocks, each on its own lines. What is neither text nor a file that can be stored is described.
    pub async fn blocks(&mut self, blocks: impl IntoIterator<Item = &Value>) -> String {
        let mut texts = Vec::new();
        for block in blocks.into_iter().filter_map(Value::as_object) {
            texts.push(self.block(block).await);
        }
        texts.join("\n")
    }

    async fn block(&mut self, block: &Map<String, Value>) -> String {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text" => text("text").to_owned(),
            kind @ ("image" | "audio") => {
                let encoded = Encoded { label: kind, mime_type: text("mimeType"), base64: text("data") };
                let name = |extension: &str| format!("{kind}.{extension}");
                match encoded.decode().filter(|_| encoded.mime_type.starts_with(&format!("{kind}/"))) {
                    Some(bytes) => self.file(&encoded, bytes, name).await,
                    None => encoded.line("not shown"),
                }
            }
            "resource_link" => {
                let name = Some(text("title")).filter(|title| !title.is_empty()).unwrap_or(text("name"));
                format!("[resource {name:?}: {}]", text("uri"))
            }
            "resource" => match block.get("resource") {
                Some(resource) => self.resource(resource).await,
                None => "[resource ]".to_owned(),
            },
            kind => format!("[content of the kind {kind:?}: not shown]"),
        }
    }

    /// Writes the content of a resource.
    pub async fn resource(&mut self, resource: &Value) -> String {
        let field = |name: &str| resource.get(name).and_then(Value::as_str);
        let uri = field("uri").unwrap_or_default();
        match (field("text"), field("blob")) {
            (Some(text), _) => format!("[resource {uri}]\n{text}"),
            (None, Some(base64)) => {
                let label = format!("resource {uri}");
                let mime_type = field("mimeType").unwrap_or("unknown type");
                let encoded = Encoded { label: &label, mime_type, base64 };
                match encoded.decode() {
                    Some(bytes) => {
                        let name = |extension: &str| resource_name(uri, extension);
                        format!("[{label}]\n{}", self.file(&encoded, bytes, name).await)
                    }
                    None => encoded.line("not shown"),
                }
            }
            (None, None) => format!("[resource {uri}]"),
        }
    }

    /// Stores a file, and returns the line that names it.
    async fn file(&mut self, encoded: &Encoded<'_>, bytes: Bytes, name: impl Fn(&str) -> String) -> String {
        if let Some(why) = &self.failure {
            return encoded.line(&format!("not stored: {why}"));
        }
        if self.stored == MAX_FILES {
            return encoded.line(&format!("not shown, because a result has at most {MAX_FILES} files"));
        }
        let mime_type = encoded.mime_type.to_ascii_lowercase();
        let name = name(extension(&mime_type));
        match (self.store)((bytes, mime_type, name)).await {
            Ok(file) => {
                self.stored += 1;
                file.line()
            }
            Err(error) => {
                let why = self.failure.insert(error.to_string());
                encoded.line(&format!("not stored: {why}"))
            }
        }
    }
}

/// A file as a server sends it.
struct Encoded<'a> {
    label: &'a str,
    mime_type: &'a str,
    base64: &'a str,
}

impl Encoded<'_> {
    /// Returns the bytes of a file that can be stored.
    fn decode(&self) -> Option<Bytes> {
        let bytes = BASE64_STANDARD.decode(self.base64).ok().filter(|_| is_media_type(self.mime_type))?;
        (!bytes.is_empty()).then(|| bytes.into())
    }

    /// Returns the line of a file that is not stored.
    fn line(&self, note: &str) -> String {
        let bytes = self.base64.trim_end_matches('=').len() * 3 / 4;
        format!("[{}, {}, {bytes} bytes: {note}]", self.label, self.mime_type)
    }
}

/// Returns whether a text is a media type without parameters, which is a header of later responses.
fn is_media_type(text: &str) -> bool {
    let token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    text.len() <= MAX_TYPE && text.split_once('/').is_some_and(|(kind, sub)| token(kind) && token(sub))
}

/// Returns the name of the file of a resource: the end of its URI, or a general name.
fn resource_name(uri: &str, extension: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let end = path.rsplit(['/', ':', '\\']).next().unwrap_or_default();
    let name: String = end.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    match name.trim_matches(['.', ' ']) {
        "" => format!("resource.{extension}"),
        name => name.to_owned(),
    }
}

/// Empties the files in a message that contain a secret: a server may echo the request in Base64.
pub(super) fn remove_secret_files(redaction: &Redaction, message: &mut Value) {
    if redaction.is_empty() {
        return;
    }
    let children: Vec<(bool, &mut Value)> = match message {
        Value::Array(items) => items.iter_mut().map(|item| (false, item)).collect(),
        Value::Object(members) => {
            members.iter_mut().map(|(name, member)| (matches!(&**name, "data" | "blob"), member)).collect()
        }
        _ => return,
    };
    for (is_file, child) in children {
        match child {
            Value::String(text) if is_file => {
                let decoded = BASE64_STANDARD.decode(text.as_bytes());
                if decoded.is_ok_and(|bytes| redaction.is_in(&bytes)) {
                    text.clear();
                }
            }
            child => remove_secret_files(redaction, child),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pretty_assertions::assert_eq;
    use serde_json::json;
    use std::cell::RefCell;

    /// Writes blocks. Returns the files, too. The store has room for 12 bytes.
    fn write(blocks: &Value) -> (String, Vec<NewFile>) {
        let files = RefCell::new(Vec::new());
        let store = async |(bytes, mime_type, name): NewFile| {
            if bytes.len() > 12 {
                return Err(ToolError::new("no room"));
            }
            let mut files = files.borrow_mut();
            let file = FileRef {
                r#ref: format!("art_{}", files.len()).as_str().into(),
                mime_type: mime_type.clone(),
                bytes: bytes.len() as u64,
                name: Some(name.clone()),
            };
            files.push((bytes, mime_type, name));
            Ok(file)
        };
        let text = block_on(Writer::new(store).blocks(blocks.as_array().expect("a list")));
        (text, files.into_inner())
    }

    #[test]
    fn files_are_stored_and_named() {
        let (text, files) = write(&json!([
            {"type": "text", "text": "Two:"},
            {"type": "image", "mimeType": "image/JPEG", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a/c.bin?x=/", "blob": "AAE=", "mimeType": "x/y"}},
            {"type": "resource", "resource": {"uri": "file:///", "blob": "AAE=", "mimeType": "a/b"}},
            {"type": "resource_link", "name": "n", "uri": "file:///a"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "B"}},
        ]));
        let expected = [
            "Two:",
            "[file \"image.jpg\", image/jpeg, 3 bytes: read parts of it with read_artifact, ref art_0]",
            "[resource file:///a/c.bin?x=/]",
            "[file \"c.bin\", x/y, 2 bytes: read parts of it with read_artifact, ref art_1]",
            "[resource file:///]",
            "[file \"resource.b\", a/b, 2 bytes: read parts of it with read_artifact, ref art_2]",
            "[resource \"n\": file:///a]",
            "[resource file:///b]",
            "B",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(files[1], (Bytes::from_static(&[0, 1]), "x/y".to_owned(), "c.bin".to_owned()));
    }

    #[test]
    fn what_cannot_be_stored_is_described() {
        let image =
            |mime_type: &str, data: &str| json!({"type": "image", "mimeType": mime_type, "data": data});
        let (text, files) = write(&json!([
            image("image/png", "A"),
            image("image/png", ""),
            image("text/html", "AAAA"),
            image("image/png\nx: y", "AAAA"),
            {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}},
            {"type": "hologram"}, 7, {"type": "resource"},
        ]));
        let expected = "[image, image/png, 0 bytes: not shown]\n[image, image/png, 0 bytes: not shown]\n\
                        [image, text/html, 3 bytes: not shown]\n[image, image/png\nx: y, 3 bytes: not shown]\n\
                        [resource a:b, unknown type, 3 bytes: not shown]\n\
                        [content of the kind \"hologram\": not shown]\n[resource ]";
        assert_eq!((text.as_str(), files.len()), (expected, 0));
        let (text, files) = write(&json!(vec![image("image/png", "AAAA"); 11]));
        let last = "[image, image/png, 3 bytes: not shown, because a result has at most 10 files]";
        assert_eq!((text.lines().last(), files.len()), (Some(last), 10));
        let large = image("image/png", &"A".repeat(20));
        let (text, files) = write(&json!([large, image("image/png", "AAAA")]));
        let expected = "[image, image/png, 15 bytes: not stored: no room]\n\
                        [image, image/png, 3 bytes: not stored: no room]";
        assert_eq!((text.as_str(), files.len()), (expected, 0));
    }

    #[test]
    fn a_file_with_a_secret_is_removed() {
        let redaction = Redaction::new([(&"KEY".to_owned(), &"s3cret".to_owned())]);
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let mut message = json!({"content": [
            {"data": encoded("x s3cret")}, {"data": encoded("other")}, {"resource": {"blob": encoded("s3cret")}},
        ]});
        remove_secret_files(&redaction, &mut message);
        let expected =
            json!({"content": [{"data": ""}, {"data": encoded("other")}, {"resource": {"blob": ""}}]});
        assert_eq!(message, expected);
    }
}
