//! Reads the response of a server, and converts it to the result of a call.

use crate::ports::{HttpError, HttpResponse};
use crate::types::json;
use futures::StreamExt;
use serde_json::Value;

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Longest time that a server can ask to wait, in seconds: more than a call takes.
const MAX_RETRY_AFTER_S: u64 = 3_600;
/// Number of characters of an error response that the model reads.
const ERROR_CHARS: usize = 2_000;
/// Number of characters of a media type that are read.
const TYPE_CHARS: usize = 100;
/// Number of bytes of an error response that are read: more than the model reads, because a secret in it can be long.
const ERROR_BYTES: usize = 64 << 10;

/// A response that was read completely.
pub(super) struct Reply {
    pub(super) status: u16,
    /// The seconds after which the server accepts another request.
    pub(super) retry_after_s: Option<u64>,
    content_type: String,
    body: Vec<u8>,
    is_complete: bool,
}

impl Reply {
    /// Reads a response.
    ///
    /// # Errors
    /// The connection was lost.
    pub(super) async fn read(mut response: HttpResponse) -> Result<Self, HttpError> {
        let status = response.status;
        let retry_after_s = response.header("retry-after").and_then(|text| text.trim().parse().ok());
        let retry_after_s = retry_after_s.map(|seconds: u64| seconds.min(MAX_RETRY_AFTER_S));
        let content_type = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let most = if status < 300 { MAX_BYTES } else { ERROR_BYTES };
        let (mut body, mut is_complete) = (Vec::new(), true);
        while let Some(piece) = response.body.next().await {
            body.extend_from_slice(&piece?);
            if body.len() > most {
                body.truncate(most);
                is_complete = false;
                break;
            }
        }
        Ok(Self { status, retry_after_s, content_type, body, is_complete })
    }

    /// Returns whether the server has accepted the request.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns whether the status says that a proxy has no response of the server; those from 520 are Cloudflare's.
    pub(super) fn is_of_proxy(&self) -> bool {
        matches!(self.status, 408 | 502 | 504 | 520..=527)
    }

    /// Returns the result that the model reads, or the failure. `clean` removes secrets from a text.
    pub(super) fn result(
        self,
        pointer: Option<&str>,
        clean: impl Fn(String) -> String,
    ) -> Result<Value, String> {
        let status = self.status;
        match status {
            200..300 => {}
            300..400 => {
                return Err(format!(
                    "the server responded with a redirect (status {status}), which is not followed"
                ));
            }
            _ => {
                let text = clean(String::from_utf8_lossy(&self.body).into_owned());
                let start: String = text.chars().take(ERROR_CHARS).collect();
                let what =
                    if start.len() < text.len() { "the start of its response" } else { "its response" };
                let failure = format!("the server responded with status {status}");
                return Err(match start.is_empty() {
                    true => failure,
                    false => format!("{failure}; {what}, which is untrusted: {start}"),
                });
            }
        }
        if !self.is_complete {
            return Err(format!("the response has more than {MAX_BYTES} bytes (1 MiB)"));
        }
        let essence = self.content_type.split(';').next().unwrap_or_default().trim();
        let essence: String = essence.chars().take(TYPE_CHARS).collect();
        let is_json = essence == "application/json" || essence == "text/json" || essence.ends_with("+json");
        let text = match String::from_utf8(self.body) {
            Ok(text) => text,
            Err(_) => {
                return Err(format!(
                    "the response is neither JSON nor text in UTF-8; its type is {essence:?}"
                ));
            }
        };
        if text.is_empty() {
            return Ok(serde_json::json!({ "status": status }));
        }
        if is_json {
            let value =
                serde_json::from_str(&text).map_err(|error| format!("the response is not JSON: {error}"))?;
            return selected(value, pointer);
        }
        if !is_text(&essence) {
            return Err(format!("the response is neither JSON nor text; its type is {essence:?}"));
        }
        match pointer {
            // Servers that send JSON as text.
            Some(_) => match serde_json::from_str(&text) {
                Ok(value) => selected(value, pointer),
                Err(_) => Err("the response is not JSON, so no part of it can be selected".into()),
            },
            None => Ok(Value::String(text)),
        }
    }
}

/// Returns the part of a value at a pointer.
fn selected(value: Value, pointer: Option<&str>) -> Result<Value, String> {
    let part = match pointer {
        None => value,
        Some(pointer) => match value.pointer(pointer) {
            Some(part) => part.clone(),
            None => return Err(format!("the response has nothing at {pointer:?}")),
        },
    };
    Ok(match json::too_deep(&part) {
        // It could be stored but not parsed again.
        true => Value::String(part.to_string()),
        false => part,
    })
}

fn is_text(essence: &str) -> bool {
    let names = ["application/xml", "application/javascript", "application/yaml", "application/x-ndjson"];
    essence.is_empty()
        || essence.starts_with("text/")
        || essence.ends_with("+xml")
        || names.contains(&essence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::{executor::block_on, stream};
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn result(status: u16, content_type: &str, body: &str, pointer: Option<&str>) -> Result<Value, String> {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let body = stream::iter([Ok(Bytes::from(body.to_owned()))]).boxed_local();
        let reply = block_on(Reply::read(HttpResponse { status, headers, body })).expect("a reply");
        reply.result(pointer, |text| text.replace("token", "***"))
    }

    #[test]
    fn json_is_parsed_and_text_stays_text() {
        let body = r#"{"data": {"a/b": [1, 2]}}"#;
        assert_eq!(
            result(200, "application/json; charset=utf-8", body, None),
            Ok(json!({"data": {"a/b": [1, 2]}}))
        );
        assert_eq!(result(200, "application/vnd.api+json", body, Some("/data/a~1b/1")), Ok(json!(2)));
        assert_eq!(result(200, "Text/Plain", "7", None), Ok(json!("7")));
        assert_eq!(result(200, "text/plain", body, Some("/data/a~1b/0")), Ok(json!(1)));
        assert_eq!(result(204, "", "", None), Ok(json!({"status": 204})));
        for (content_type, body, pointer, why) in [
            ("application/json", "{", None, "is not JSON"),
            ("application/json", "{}", Some("/a"), "nothing at \"/a\""),
            ("text/html", "<p>", Some("/a"), "is not JSON"),
            ("image/png", "png", None, "\"image/png\""),
        ] {
            let failure = result(200, content_type, body, pointer).expect_err(content_type);
            assert!(failure.contains(why), "{failure}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let body = format!(r#"{{"deep": {deep}, "other": 1}}"#);
        assert_eq!(result(200, "application/json", &body, Some("/deep")), Ok(json!(deep)));
        let large = "x".repeat(MAX_BYTES + 1);
        assert!(result(200, "text/plain", &large, None).is_err_and(|why| why.contains("1 MiB")));
        assert_eq!(result(200, "text/plain", &large[1..], None), Ok(json!(large[1..])));
    }

    #[test]
    fn an_error_has_its_status_and_the_start_of_its_body() {
        let failure = result(404, "text/plain", "no token here", None);
        let expected = "the server responded with status 404; its response, which is untrusted: no *** here";
        assert_eq!(failure, Err(expected.to_owned()));
        let long = result(500, "text/plain", &"é".repeat(40_000), None).expect_err("a failure");
        assert!(
            long.contains("the start of its response") && long.chars().filter(|c| *c == 'é').count() == 2_000
        );
        assert_eq!(result(500, "", "", None), Err("the server responded with status 500".to_owned()));
        assert!(
            result(302, "", "elsewhere", None)
                .is_err_and(|why| why.contains("redirect") && !why.contains("elsewhere"))
        );
    }
}
