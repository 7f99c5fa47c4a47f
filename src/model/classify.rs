//! Classifies the errors of providers. One table serves all of them, because compatible servers mix
//! conventions. Error codes come first, then the status. Wording counts only for statuses 400 and 413, where
//! some providers send no code for an overflow.

use crate::types::{
    ModelError,
    ModelErrorKind::{self, *},
    Timestamp,
};
use serde_json::Value;
use std::time::Duration;

/// Codes for input that exceeds the context window.
const OVERFLOW_CODES: [&str; 4] = [
    "context_length_exceeded",
    "request_too_large",
    "exceed_context_size_error",
    "model_context_window_exceeded",
];

/// Wording (in lower case) for input that exceeds the context window.
const OVERFLOW_TEXTS: [&str; 9] = [
    "prompt is too long",
    "exceed context limit",
    "maximum context length",
    "context window limit",
    "exceeds the context window",
    "exceeds the available context size",
    "reduce the length of the messages",
    "context_length_exceeded",
    "exceed_context_size_error",
];

/// Wording of rate limits, which may also mention tokens that exceed a limit.
const RATE_TEXTS: [&str; 5] =
    ["rate limit", "rate_limit", "too many requests", "too many tokens, please wait", "per minute"];

const BILLING_CODES: [&str; 7] = [
    "credit_balance_exhausted",
    "insufficient_quota",
    "organization_usage_limit_exceeded",
    "enforced_spend_limit_reached",
    "contract_spend_limit_reached",
    "billing_error",
    "billing_hard_limit_reached",
];

/// Wording of an exhausted balance: Anthropic sends the generic code for invalid requests with it.
const BILLING_TEXT: &str = "credit balance is too low";

/// Statuses that correspond to the codes of error events, which have no status of their own.
const STATUS_OF_CODE: [(&str, u16); 15] = [
    ("invalid_request_error", 400),
    ("authentication_error", 401),
    ("invalid_api_key", 401),
    ("billing_error", 402),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("request_too_large", 413),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("slow_down", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("server_is_overloaded", 503),
    ("timeout_error", 504),
    ("overloaded_error", 529),
];

/// Classifies an HTTP response that is not a success.
pub(super) fn http(status: u16, headers: &[(String, String)], body: &[u8], now: Timestamp) -> ModelError {
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim());
    let error = match serde_json::from_slice::<Value>(body) {
        Ok(json) => ErrorBody::of(&json),
        Err(_) => {
            ErrorBody { message: String::from_utf8_lossy(body).trim().to_owned(), ..ErrorBody::default() }
        }
    };
    let message = match (error.message.as_str(), status) {
        ("", 300..=399) => "a redirect, which the harness does not follow: check the base URL".to_owned(),
        ("", _) => "no error message".to_owned(),
        (text, _) => text.to_owned(),
    };
    ModelError {
        status: Some(status),
        retry_after: retry_after(header("retry-after-ms"), header("retry-after"), now),
        should_retry: header("x-should-retry").and_then(|v| v.parse().ok()),
        ..ModelError::of_provider(kind(status, &error), message)
    }
}

/// Classifies an error event of a stream like the HTTP status that its code corresponds to.
pub(super) fn event(error: &Value) -> ModelError {
    let error = ErrorBody::of(error);
    let status = error.codes.iter().find_map(|code| {
        let known = STATUS_OF_CODE.iter().find(|(c, _)| c == code).map(|(_, s)| *s);
        known.or_else(|| code.parse().ok().filter(|s| (400..600).contains(s)))
    });
    let kind = match status {
        Some(status) => kind(status, &error),
        // Billing codes are not in the status table.
        None if error.is_out_of_credit() => Billing,
        None => kind(500, &error),
    };
    let message =
        if error.message.is_empty() { "an error without a message".to_owned() } else { error.message };
    ModelError::of_provider(kind, message)
}

/// Classifies an error thrown by the Workers AI binding: text that contains the provider's code, such as
/// `AiError: 3040: no capacity`.
pub(super) fn binding_error(message: &str) -> ModelError {
    let code = message
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| matches!(digits.len(), 3..=5))
        .find_map(|digits| digits.parse::<u32>().ok());
    let lower = message.to_lowercase();
    let kind = match code {
        Some(3036) => Billing,
        Some(3006) => Overflow,
        Some(3007 | 3008 | 3040) => Unavailable,
        _ if is_overflow_text(&lower) => Overflow,
        Some(429) => RateLimited,
        Some(500..=599) => Unavailable,
        Some(401 | 403 | 10_000) => Auth,
        Some(_) => Invalid,
        None => Network,
    };
    ModelError::of_provider(kind, message)
}

fn kind(status: u16, error: &ErrorBody) -> ModelErrorKind {
    let has = |list: &[&str]| error.codes.iter().any(|code| list.contains(&code.as_str()));
    let lower = error.message.to_lowercase();
    if error.is_out_of_credit() && (400..500).contains(&status) {
        return Billing;
    }
    if has(&OVERFLOW_CODES) || (matches!(status, 400 | 413) && is_overflow_text(&lower)) {
        return Overflow;
    }
    match status {
        429 => RateLimited,
        402 => Billing,
        401 | 403 => Auth,
        408 | 409 | 500 | 502..=599 => Unavailable,
        _ => Invalid,
    }
}

fn is_overflow_text(lower: &str) -> bool {
    if RATE_TEXTS.iter().any(|text| lower.contains(text)) {
        return false;
    }
    let counted = lower.find("input token count").is_some_and(|at| lower.split_at(at).1.contains("exceeds"));
    counted || OVERFLOW_TEXTS.iter().any(|text| lower.contains(text))
}

/// Codes and message of an error body, whatever its shape.
#[derive(Default)]
struct ErrorBody {
    codes: Vec<String>,
    message: String,
}

impl ErrorBody {
    fn of(json: &Value) -> Self {
        let mut error = Self::default();
        error.read(json, 0);
        if error.message.is_empty() && !json.is_null() {
            error.message = json.to_string();
        }
        error
    }

    /// Returns whether the error reports exhausted credit or a spending limit.
    fn is_out_of_credit(&self) -> bool {
        let is_word =
            |code: &String| BILLING_CODES.contains(&code.as_str()) || code.ends_with("_spend_limit_exceeded");
        self.codes.iter().any(is_word) || self.message.to_lowercase().contains(BILLING_TEXT)
    }

    /// Collects codes and message. Providers put them at the top level, under `error` or `response`, or in a
    /// list.
    fn read(&mut self, json: &Value, depth: usize) {
        if depth > 4 {
            return;
        }
        match json {
            Value::String(text) if self.message.is_empty() => self.message.clone_from(text),
            Value::Array(items) => items.iter().take(4).for_each(|item| self.read(item, depth + 1)),
            Value::Object(map) => {
                if let (true, Some(Value::String(text))) = (self.message.is_empty(), map.get("message")) {
                    self.message.clone_from(text);
                }
                for key in ["error", "response", "errors", "details", "detail"] {
                    map.get(key).into_iter().for_each(|inner| self.read(inner, depth + 1));
                }
                for key in ["code", "type", "error_code"] {
                    match map.get(key) {
                        Some(Value::String(code)) => self.codes.push(code.clone()),
                        Some(Value::Number(code)) => self.codes.push(code.to_string()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn retry_after(ms: Option<&str>, after: Option<&str>, now: Timestamp) -> Option<Duration> {
    // `as` saturates: an absurd number becomes a delay that no retry policy accepts, or zero.
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    if let Some(ms) = ms.and_then(number) {
        return Some(Duration::from_millis(ms.ceil() as u64));
    }
    let after = after?;
    if let Some(seconds) = number(after) {
        return Some(Duration::from_millis((seconds * 1000.0).ceil() as u64));
    }
    http_date(after).map(|date| date.since(now))
}

/// Parses an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    Timestamp::parse(&format!("{year}-{month:02}-{day:0>2}T{time}Z"))
}

#[cfg(test)]
mod tests;
