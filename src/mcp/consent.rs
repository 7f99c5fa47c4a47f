//! What a user sees who is asked for consent at a server, and the user's answer.

use super::connection::Connection;
use super::elicitation;
use serde_json::{Value, json};
use url::Url;

/// Why a user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The server needs consent.
    New,
    /// The user has entered a code that does not confirm the request.
    WrongCode,
}

/// Returns what the user sees.
pub(super) fn question(connection: &Connection, url: &str, occasion: Occasion) -> Value {
    let server = Url::parse(&connection.server().url).ok();
    let host = server.as_ref().and_then(Url::host_str).unwrap_or_default();
    let before = match occasion {
        Occasion::New => "",
        Occasion::WrongCode => "That code is wrong or has expired. ",
    };
    let text = format!(
        "{before}Connect your account at {host}: open the page, give consent, and enter the code that you then see."
    );
    let code = json!({"type": "string", "title": "Code", "maxLength": 100});
    json!({
        "question": text, "server": connection.name(), "url": url,
        "schema": {"type": "object", "properties": {"code": code}, "required": ["code"]},
    })
}

/// Returns what the user sees whose account could not be connected for a reason that may pass.
pub(super) fn again(shown: &Value) -> Value {
    let mut shown = shown.clone();
    shown["question"] =
        "The account could not be connected at the moment. Enter the code again in a while.".into();
    shown
}

/// Returns the code of an answer; `None` if the user declines.
pub(super) fn code(shown: &Value, answer: &Value) -> Option<String> {
    let response = elicitation::response(shown, answer).ok()?;
    response.pointer("/content/code").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn an_answer_has_a_code_or_declines() {
        let schema =
            json!({"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]});
        let shown = json!({"question": "Connect.", "url": "https://as.example.com/", "schema": schema});
        for answer in [
            json!("K7QM-2XPD"),
            json!({"code": "K7QM-2XPD"}),
            json!({"action": "accept", "content": {"code": "K7QM-2XPD"}}),
        ] {
            assert!(elicitation::response(&shown, &answer).is_ok());
            assert_eq!(code(&shown, &answer).as_deref(), Some("K7QM-2XPD"));
        }
        for answer in [json!({"action": "decline"}), json!({"action": "cancel"})] {
            assert_eq!(code(&shown, &answer), None);
        }
        for answer in [json!({"action": "accept"}), json!({})] {
            assert!(elicitation::response(&shown, &answer).is_err(), "{answer}");
        }
    }
}
