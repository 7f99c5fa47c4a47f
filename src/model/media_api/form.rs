//! Bodies of `multipart/form-data` (RFC 7578).

use crate::ports::media::MediaFile;
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// A form, field by field.
#[derive(Default)]
pub(super) struct Form {
    /// The head and the content of each field.
    fields: Vec<(String, Bytes)>,
}

impl Form {
    /// Adds a field with a text.
    pub(super) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        let head = format!("content-disposition: form-data; name=\"{name}\"\r\n\r\n");
        self.fields.push((head, text.to_owned().into()));
        self
    }

    /// Adds a field with a file.
    pub(super) fn file(&mut self, name: &str, file: &MediaFile) -> &mut Self {
        // Names are user input, and providers look only at their extension.
        let plain = |text: &str, extra: &str| -> String {
            text.chars().filter(|c| c.is_ascii_alphanumeric() || extra.contains(*c)).collect()
        };
        let (filename, kind) = (plain(&file.name, "._-"), plain(&file.mime_type, "/.+-"));
        let head = format!(
            "content-disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\ncontent-type: {kind}\r\n\r\n"
        );
        self.fields.push((head, file.bytes.clone()));
        self
    }

    /// Returns the content type and the body.
    pub(super) fn finish(&self) -> (String, Bytes) {
        // The hash of the fields, which they cannot contain.
        let mut hash = Sha256::new();
        self.fields.iter().for_each(|(_, content)| hash.update(content));
        let boundary: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut body = Vec::new();
        for (head, content) in &self.fields {
            body.extend_from_slice(format!("--{boundary}\r\n{head}").as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), body.into())
    }
}
