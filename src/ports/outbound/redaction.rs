//! Removes secrets from what a server returns: some servers echo the request.

use super::url::{encoded, in_segment};
use serde_json::Value;

/// The texts to remove.
#[derive(Clone, Debug, Default)]
pub struct Redaction(Vec<Form>);

/// A form in which a secret is sent, and what replaces it.
#[derive(Clone, Debug)]
struct Form {
    text: String,
    mark: String,
}

impl Redaction {
    /// Creates the redaction of these secrets: names and values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut forms = Vec::new();
        for (name, secret) in secrets {
            let json = Value::from(secret.as_str()).to_string();
            let json = json.trim_start_matches('"').trim_end_matches('"').to_owned();
            let (path, query) = (in_segment(secret), encoded(secret));
            let form = query.replace("%20", "+");
            let lower = [&path, &query].map(|text| lower_case_escapes(text));
            let ascii = in_ascii(&json);
            // Some servers escape slashes.
            let slashes = [&json, &ascii].map(|text| text.replace('/', "\\/"));
            let forms_of = [secret.clone(), json, ascii, path, query, form].into_iter().chain(slashes);
            for text in forms_of.chain(lower) {
                if !text.is_empty() {
                    forms.push(Form { text, mark: format!("[secret {name}]") });
                }
            }
        }
        // A form that contains another one comes first.
        forms.sort_by(|one, other| (other.text.len(), &other.text).cmp(&(one.text.len(), &one.text)));
        forms.dedup_by(|one, other| one.text == other.text);
        Self(forms)
    }

    /// Returns the size of the longest text to remove, in bytes. Of a text that arrives in pieces, as many bytes less one can be
    /// the start of a secret.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, |form| form.text.len())
    }

    /// Removes the secrets from a text.
    pub fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, form| match text.contains(&form.text) {
            true => text.replace(&form.text, &form.mark),
            false => text,
        })
    }

    /// Returns whether there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether bytes contain a secret.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        // A replaced byte is never part of a secret, which is valid UTF-8.
        let text = String::from_utf8_lossy(bytes);
        self.0.iter().any(|form| text.contains(&form.text))
    }

    /// Removes the secrets from a JSON value, its names included.
    pub fn value(&self, value: Value) -> Value {
        match value {
            _ if self.0.is_empty() => value,
            Value::String(text) => Value::String(self.text(text)),
            Value::Number(number) => {
                let (plain, redacted) = (number.to_string(), self.text(number.to_string()));
                if plain == redacted { Value::Number(number) } else { Value::String(redacted) }
            }
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, member)| (self.text(name), self.value(member))).collect()
            }
            value @ (Value::Null | Value::Bool(_)) => value,
        }
    }
}

/// Escapes all characters of the content of a JSON string that are not ASCII.
fn in_ascii(json: &str) -> String {
    let mut units = [0; 2];
    json.chars().fold(String::new(), |mut text, c| {
        match c.is_ascii() {
            true => text.push(c),
            false => {
                c.encode_utf16(&mut units).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")))
            }
        }
        text
    })
}

/// Writes the hexadecimal digits of percent-encoded bytes in lower case.
fn lower_case_escapes(text: &str) -> String {
    let mut digits = 0;
    let lower = |c: char| {
        digits = if c == '%' { 3 } else { usize::saturating_sub(digits, 1) };
        if digits > 0 { c.to_ascii_lowercase() } else { c }
    };
    text.chars().map(lower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn each_form_of_a_secret_is_removed() {
        let secrets = [("A", "to\"ken/ü A"), ("LONG", "12345678"), ("SHORT", "1234")]
            .map(|(name, value)| (name.into(), value.into()));
        let redaction = Redaction::new(&BTreeMap::from(secrets));
        let echo = json!({
            "raw": "x to\"ken/ü A", "nested": json!({"body": "to\"ken/ü A"}).to_string(),
            "url": "https://a/to%22ken%2F%C3%BC%20A?x=to%22ken%2f%c3%bc%20A", "form": "to%22ken%2F%C3%BC+A",
            "php": r#""to\"ken\/ü A""#, "python": r#""to\"ken/\u00fc A""#, "both": r#"to\"ken\/\u00fc A"#,
            "to\"ken/ü A": 12345678, "list": ["-1234-", 1234, true, null, 5],
        });
        let expected = json!({
            "raw": "x [secret A]", "nested": "{\"body\":\"[secret A]\"}",
            "url": "https://a/[secret A]?x=[secret A]", "form": "[secret A]",
            "php": "\"[secret A]\"", "python": "\"[secret A]\"", "both": "[secret A]",
            "[secret A]": "[secret LONG]", "list": ["-[secret SHORT]-", "[secret SHORT]", true, null, 5],
        });
        assert_eq!(redaction.value(echo), expected);
        assert_eq!(Redaction::default().text("a".into()), "a");
    }
}
