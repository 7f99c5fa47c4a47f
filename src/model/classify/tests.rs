#![allow(clippy::unwrap_used)]

use super::*;
use crate::types::time::millis;
use serde_json::json;

fn kind_of(status: u16, body: &str) -> ModelErrorKind {
    http(status, &[], body.as_bytes(), Timestamp(0)).kind
}

#[test]
fn statuses() {
    let table = [
        (400, Invalid),
        (401, Auth),
        (402, Billing),
        (403, Auth),
        (404, Invalid),
        (408, Unavailable),
        (409, Unavailable),
        (413, Invalid),
        (422, Invalid),
        (429, RateLimited),
        (500, Unavailable),
        (501, Invalid),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (529, Unavailable),
        (302, Invalid),
    ];
    for (status, expected) in table {
        assert_eq!(kind_of(status, "oh no"), expected, "{status}");
        assert_eq!(kind_of(status, ""), expected, "{status} without a body");
    }
}

#[test]
fn codes_and_wording() {
    let table = [
        (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, Overflow),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            Overflow,
        ),
        (
            400,
            r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}"#,
            Overflow,
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds"}}"#,
            Overflow,
        ),
        (400, r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#, Overflow),
        (
            400,
            r#"{"object":"error","message":"please reduce the length of the messages","code":400}"#,
            Overflow,
        ),
        (
            400,
            r#"[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum (8)"}}]"#,
            Overflow,
        ),
        (400, r#"{"error":{"type":"exceed_context_size_error","message":"x"}}"#, Overflow),
        (400, r#"{"detail":"the prompt exceeds the context window"}"#, Overflow),
        (400, "maximum context length is 4", Overflow),
        // Only for 400 and 413, and not when the text is about a rate.
        (500, r#"{"error":{"message":"maximum context length"}}"#, Unavailable),
        (
            429,
            r#"{"error":{"code":"rate_limit_exceeded","message":"maximum context length of tokens per minute"}}"#,
            RateLimited,
        ),
        (400, r#"{"error":{"message":"Rate limit: reduce the length of the messages"}}"#, Invalid),
        (
            429,
            r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}}"#,
            Billing,
        ),
        (429, r#"{"error":{"code":"project_spend_limit_exceeded","message":"x"}}"#, Billing),
        (429, r#"{"error":{"code":"credit_balance_exhausted","message":"x"}}"#, Billing),
        (429, r#"{"error":{"code":"organization_usage_limit_exceeded","message":"x"}}"#, Billing),
        (
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
            Billing,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            Billing,
        ),
        (429, r#"{"error":{"code":"slow_down","message":"x"}}"#, RateLimited),
    ];
    for (status, body, expected) in table {
        assert_eq!(kind_of(status, body), expected, "{status} {body}");
    }
}

#[test]
fn error_events_are_classified_by_their_status() {
    let table = [
        (json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}), Unavailable),
        (json!({"type":"error","error":{"type":"rate_limit_error","message":"x"}}), RateLimited),
        (json!({"error":{"type":"invalid_request_error","message":"prompt is too long"}}), Overflow),
        (json!({"error":{"code":"context_length_exceeded","message":"x"}}), Overflow),
        (json!({"response":{"error":{"code":"context_length_exceeded","message":"x"}}}), Overflow),
        (json!({"code":429,"message":"x"}), RateLimited),
        (json!({"code":502,"message":"x"}), Unavailable),
        (json!({"type":"insufficient_quota","code":"429"}), Billing),
        (json!({"message":"what"}), Unavailable),
        (json!("just text"), Unavailable),
    ];
    for (error, expected) in table {
        assert_eq!(event(&error).kind, expected, "{error}");
    }
}

#[test]
fn binding_errors_are_classified_by_code() {
    let table = [
        ("AiError: 3036: daily free allocation used up", Billing),
        ("3040: No more data centers to forward the request to", Unavailable),
        ("AiError: 3007: timeout", Unavailable),
        ("AiError: 3008: aborted", Unavailable),
        ("AiError: 3006: Request is too large", Overflow),
        (
            "AiError: 5021: The estimated number of tokens is above the model context window limit (8192).",
            Overflow,
        ),
        ("AiError: 413: maximum context length is 4096", Overflow),
        ("AiError: 5007: No such model", Invalid),
        ("Network connection lost.", Network),
    ];
    for (message, expected) in table {
        assert_eq!(binding_error(message).kind, expected, "{message}");
    }
}

#[test]
fn retry_headers_are_parsed() {
    let now = Timestamp::parse("2026-11-20T12:00:00Z").unwrap();
    let ask = |pairs: &[(&str, &str)]| {
        let headers: Vec<_> = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let error = http(429, &headers, b"", now);
        (error.retry_after.map(millis), error.should_retry)
    };
    assert_eq!(ask(&[]), (None, None));
    assert_eq!(ask(&[("retry-after-ms", "1500.5"), ("retry-after", "9")]), (Some(1501), None));
    assert_eq!(ask(&[("retry-after", "2")]), (Some(2_000), None));
    assert_eq!(ask(&[("retry-after", "Fri, 20 Nov 2026 12:00:07 GMT")]), (Some(7_000), None));
    assert_eq!(ask(&[("retry-after", "Fri, 20 Nov 2026 11:00:00 GMT")]), (Some(0), None));
    assert_eq!(ask(&[("retry-after", "soon"), ("x-should-retry", "false")]), (None, Some(false)));
    assert_eq!(ask(&[("retry-after", "-1"), ("x-should-retry", "true")]), (None, Some(true)));
}

#[test]
fn the_message_is_found_in_every_shape() {
    let bodies = [
        r#"{"error":{"message":"why","details":"more"}}"#,
        r#"{"error":"why"}"#,
        r#"{"message":"why","error":"Bad Request"}"#,
        r#"{"detail":"why"}"#,
        r#"{"detail":[{"message":"why"}]}"#,
        r#"[{"error":{"code":400,"message":"why"}}]"#,
        "why",
    ];
    for body in bodies {
        assert_eq!(http(400, &[], body.as_bytes(), Timestamp(0)).cause.as_deref(), Some("why"), "{body}");
    }
    assert_eq!(http(400, &[], b"", Timestamp(0)).cause.as_deref(), Some("no error message"));
    assert_eq!(http(400, &[], b"{\"x\":1}", Timestamp(0)).cause.as_deref(), Some("{\"x\":1}"));
}
