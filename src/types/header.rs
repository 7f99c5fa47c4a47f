//! Headers of outbound requests that definitions of agents declare.

use http::HeaderName;

/// Maximum size of the headers of a request, in bytes of names and values.
pub const MAX_BYTES: usize = 32_000;

/// What the value of a header must not have, as the end of a sentence.
pub const VALUE_RULE: &str = "contains a control character, or one that is not ASCII";

/// Headers that the connection sets. So does each one that begins with `proxy-`.
const OF_CONNECTION: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns whether a text is a token of RFC 9110, such as the name of a header.
pub fn is_token(text: &str) -> bool {
    HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Returns whether a text can be the value of a header, see [`VALUE_RULE`].
pub fn is_value(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii() && !c.is_control())
}

/// Returns whether the connection sets a header, whose name is in lower case.
pub fn is_of_connection(name: &str) -> bool {
    OF_CONNECTION.contains(&name) || name.starts_with("proxy-")
}

/// Returns whether the headers of a request exceed [`MAX_BYTES`].
pub fn too_large(headers: &[(String, String)]) -> bool {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_BYTES
}

/// Returns the explanation of [`too_large`].
pub fn too_large_text() -> String {
    format!("the request would have more than {MAX_BYTES} bytes of headers")
}
