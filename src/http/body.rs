//! Reads JSON bodies: malformed JSON is 400, another content type 415, too many values 413, a field of the
//! wrong type 422 with a pointer to it. Unknown fields are ignored.

use super::request::{MAX_BODY, Request, RequestExt};
use crate::types::{
    ErrorCode, Problem,
    json::{MAX_DEPTH, MAX_VALUES, from_value, has_too_many_values, too_deep},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the body as JSON.
///
/// # Errors
/// `malformed_json`, `unsupported_media_type`, `payload_too_large` or `validation_failed`.
pub fn json<T: DeserializeOwned>(request: &Request) -> Result<T, Problem> {
    check_type(request)?;
    parse(&request.body().bytes())
}

/// Checks that the content type is JSON.
fn check_type(request: &Request) -> Result<(), Problem> {
    let content_type = request.header("content-type").unwrap_or("application/json");
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    if !(subtype.eq_ignore_ascii_case("json") || subtype.to_ascii_lowercase().ends_with("+json")) {
        return Err(Problem::new(
            ErrorCode::UnsupportedMediaType,
            format!("content-type is {essence:?}; send application/json"),
        ));
    }
    Ok(())
}

/// Reads the body as JSON; an empty body counts as `{}`.
///
/// # Errors
/// `malformed_json`, `unsupported_media_type`, `payload_too_large` or `validation_failed`.
pub fn json_or_empty<T: DeserializeOwned>(request: &Request) -> Result<T, Problem> {
    if request.body().bytes().is_empty() { parse(b"{}") } else { json(request) }
}

/// Checks the size of a text frame, before it is parsed.
///
/// # Errors
/// `payload_too_large`.
pub fn check_frame(text: &str) -> Result<(), Problem> {
    if text.len() > MAX_BODY {
        return Err(Problem::new(ErrorCode::PayloadTooLarge, "the frame is larger than 4 MiB"));
    }
    check_values(text.as_bytes(), "frame")
}

/// Checks the number of values in a text, because parsed values take much more memory than their text.
fn check_values(text: &[u8], what: &str) -> Result<(), Problem> {
    if has_too_many_values(text) {
        let detail = format!(
            "the {what} has more than {MAX_VALUES} JSON values; split it into several requests, or attach the data as a file"
        );
        return Err(Problem::new(ErrorCode::PayloadTooLarge, detail));
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    from_value(object(bytes)?).map_err(|error| Problem::fields(vec![error]))
}

/// Reads an object, whatever its fields.
fn object(bytes: &[u8]) -> Result<Value, Problem> {
    check_values(bytes, "body")?;
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(ErrorCode::MalformedJson, format!("the body is not JSON: {error}")))?;
    if !value.is_object() {
        return Err(Problem::field("", "expected an object"));
    }
    // Parts of it are stored, and a deeper value could not be read again.
    if too_deep(&value) {
        return Err(Problem::field("", format!("nested deeper than {} levels", MAX_DEPTH)));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Body {
        name: String,
        #[serde(default)]
        sizes: Vec<u32>,
    }

    fn read(content_type: &str, body: &'static str) -> Result<Body, Problem> {
        let request =
            http::Request::builder().header("content-type", content_type).body(body.to_owned().into());
        json(&request.expect("a request"))
    }

    #[test]
    fn values_nested_too_deep_are_refused() {
        let body = |depth: usize| format!(r#"{{"more":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(parse::<Value>(body(63).as_bytes()).is_ok());
        let problem = parse::<Value>(body(64).as_bytes()).expect_err("too deep");
        assert_eq!((problem.code.status(), problem.errors[0].pointer.as_str()), (422, ""));
        assert_eq!(problem.errors[0].detail, "nested deeper than 64 levels");
    }

    #[test]
    fn bodies_and_frames_with_too_many_values_are_refused() {
        let text = |count: usize| format!(r#"{{"sizes":[{}]}}"#, vec![r#"{"a":1}"#; count].join(","));
        assert!(parse::<Value>(text(MAX_VALUES / 2 - 1).as_bytes()).is_ok());
        let many = text(MAX_VALUES / 2);
        for refused in [parse::<Value>(many.as_bytes()).map(drop), check_frame(&many)] {
            let problem = refused.expect_err("too many");
            assert_eq!(problem.code, ErrorCode::PayloadTooLarge);
            assert!(problem.detail.contains("has more than 100000 JSON values; split it"), "{problem}");
        }
        assert!(
            check_frame(&"x".repeat(MAX_BODY)).is_ok() && check_frame(&"x".repeat(MAX_BODY + 1)).is_err()
        );
    }

    #[test]
    fn problems_point_to_the_field() {
        let cases = [
            ("application/json", "{", 400, None),
            ("application/json", "{}", 422, Some("")),
            ("application/json", "{} x", 400, None),
            ("application/json", "\u{1}", 400, None),
            ("application/json", r#"{"name":"a"} x"#, 400, None),
            ("application/json", r#"{"name":1}"#, 422, Some("/name")),
            ("application/json", r#"{"name":"a","sizes":[1,"b"]}"#, 422, Some("/sizes/1")),
            ("application/json", "[]", 422, Some("")),
            ("text/plain", "{}", 415, None),
        ];
        for (content_type, body, status, pointer) in cases {
            let problem = read(content_type, body).expect_err(body);
            assert_eq!(problem.code.status(), status, "{body}: {problem}");
            let found = problem.errors.first().map(|error| error.pointer.as_str());
            assert_eq!(found, pointer, "{body}");
        }
        assert!(read("application/json; charset=utf-8", r#"{"name":"a","else":1}"#).is_ok());
        assert!(read("application/merge-patch+json", r#"{"name":"a"}"#).is_ok());
    }
}
