//! Texts with placeholders: `{{argument}}` and `${secret:NAME}`. A template is split into pieces once, before anything is
//! inserted. So neither an argument nor a secret is searched for placeholders.

use crate::types::{Invalid, secret::check_name};
use serde_json::{Map, Value};
use std::{cell::Cell, collections::BTreeMap};

const ARG: &str = "{{";
const ARG_END: &str = "}}";
const SECRET: &str = "${secret:";
const SECRET_END: &str = "}";

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Arg(String),
    Secret(String),
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

/// Why a template cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfilled {
    /// The call does not have this argument, which the template needs.
    Missing(String),
    /// The text would exceed the budget.
    TooLarge,
}

/// The bytes that filled templates may have together. One argument can be in many places, so the limit applies before a
/// text is built.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Budget {
    /// Creates a budget.
    pub fn new(bytes: usize) -> Self {
        Self(Cell::new(bytes))
    }

    /// Subtracts bytes.
    ///
    /// # Errors
    /// There are fewer left.
    pub fn spend(&self, bytes: usize) -> Result<(), Unfilled> {
        self.0.set(self.0.get().checked_sub(bytes).ok_or(Unfilled::TooLarge)?);
        Ok(())
    }
}

/// What a call inserts.
pub struct Values<'a> {
    pub args: &'a Map<String, Value>,
    pub secrets: &'a BTreeMap<String, String>,
}

impl Values<'_> {
    /// Returns an argument as text. `null` is no text.
    fn text(&self, arg: &str) -> Result<String, Unfilled> {
        match self.args.get(arg) {
            None | Some(Value::Null) => Err(Unfilled::Missing(arg.to_owned())),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value) => Ok(value.to_string()),
        }
    }
}

/// How arguments and secrets are encoded for their place.
#[derive(Clone, Copy)]
pub struct Encoding {
    pub arg: fn(&str) -> String,
    pub secret: fn(&str) -> String,
}

/// Inserts texts unchanged.
pub const PLAIN: Encoding = Encoding { arg: str::to_owned, secret: str::to_owned };

/// Splits off the first placeholder: returns the text before it, the opening and closing marks, and the rest after the
/// opening one.
fn first_placeholder(text: &str) -> Option<(&str, &'static str, &'static str, &str)> {
    let marks = [(ARG, ARG_END), (SECRET, SECRET_END)];
    let found = marks.into_iter().filter_map(|(open, close)| Some((text.find(open)?, open, close)));
    let (at, open, close) = found.min_by_key(|(at, ..)| *at)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, open, close, rest.strip_prefix(open)?))
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// A placeholder that is not complete or has an invalid name.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, open, close, after)) = first_placeholder(rest) {
            let (name, after) =
                after.split_once(close).ok_or_else(|| format!("`{open}` is not closed by `{close}`"))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(match open {
                ARG => Piece::Arg(arg_name(name)?),
                _ => {
                    check_name(name).map_err(|error| error.detail)?;
                    Piece::Secret(name.to_owned())
                }
            });
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Returns the names of the arguments.
    pub fn args(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Arg(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::Secret(_) => None,
        })
    }

    /// Returns the names of the secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::Arg(_) => None,
        })
    }

    /// Returns the argument of a template that consists of nothing else.
    pub fn only_arg(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Arg(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns whether nothing is inserted.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Returns the text outside of the placeholders.
    pub fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Arg(_) | Piece::Secret(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Inserts the values of a call.
    ///
    /// # Errors
    /// An argument is missing, or the text would exceed the budget.
    pub fn fill(&self, values: &Values<'_>, encoding: Encoding, budget: &Budget) -> Result<String, Unfilled> {
        self.0.iter().try_fold(String::new(), |mut whole, piece| {
            let text = match piece {
                Piece::Text(text) => text.clone(),
                Piece::Arg(name) => (encoding.arg)(&values.text(name)?),
                // All secrets of a request are read before a template is filled.
                Piece::Secret(name) => {
                    (encoding.secret)(values.secrets.get(name).map(String::as_str).unwrap_or_default())
                }
            };
            budget.spend(text.len())?;
            whole.push_str(&text);
            Ok(whole)
        })
    }
}

fn arg_name(name: &str) -> Result<String, Invalid> {
    let name = name.trim();
    match name.is_empty() || name.contains(['{', '}']) {
        true => Err(Invalid(format!("{{{{{name}}}}} does not name an argument"))),
        false => Ok(name.to_owned()),
    }
}

/// Splits a text at a character, except within placeholders. An incomplete placeholder reaches to the end.
pub fn split_outside(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut start, mut position) = (Vec::new(), 0, 0);
    let part = |start: usize, end: usize| text.get(start..end).unwrap_or_default();
    loop {
        let rest = text.get(position..).unwrap_or_default();
        let placeholder = first_placeholder(rest);
        let plain_end = position + placeholder.map_or(rest.len(), |(before, ..)| before.len());
        for (index, found) in part(position, plain_end).match_indices(at) {
            parts.push(part(start, position + index));
            start = position + index + found.len();
        }
        let Some((_, open, close, after)) = placeholder else { break };
        let inner = after.find(close).map_or(after.len(), |length| length + close.len());
        position = plain_end + open.len() + inner;
    }
    parts.push(part(start, text.len()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn filled(text: &str, args: Value) -> Result<String, Unfilled> {
        let secrets = BTreeMap::from([("A".to_owned(), "{{x}} ${secret:B}".to_owned())]);
        let args = args.as_object().cloned().unwrap_or_default();
        let values = Values { args: &args, secrets: &secrets };
        Template::parse(text).expect("a template").fill(&values, PLAIN, &Budget::new(100))
    }

    #[test]
    fn placeholders_are_replaced_once() {
        let text = "{{ x }}-${secret:A}-{{y}}, {z} $x ${env:X}";
        let whole = filled(text, json!({"x": "${secret:A}", "y": "{{x}}"}));
        assert_eq!(whole.as_deref(), Ok("${secret:A}-{{x}} ${secret:B}-{{x}}, {z} $x ${env:X}"));
        assert_eq!(filled("{{a}}{{b}}", json!({"a": 1.5, "b": [true]})).as_deref(), Ok("1.5[true]"));
        // Two arguments that form a reference together.
        let joined = filled("{{x}}{{y}}", json!({"x": "${secret:", "y": "A}"}));
        assert_eq!(joined.as_deref(), Ok("${secret:A}"));
        assert_eq!(filled("{{a}}", json!({"a": null})), Err(Unfilled::Missing("a".into())));
        assert_eq!(filled("{{a}}", json!({})), Err(Unfilled::Missing("a".into())));
        assert_eq!(filled("{{a}}{{a}}", json!({"a": "x".repeat(51)})), Err(Unfilled::TooLarge));
    }

    #[test]
    fn incomplete_placeholders_are_faults() {
        for bad in [
            "{{a",
            "${secret:A",
            "{{}}",
            "{{ }}",
            "${secret:}",
            "${secret:A-B}",
            "{{a{b}}",
            "{{${secret:A}}}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        let template = Template::parse("a{{b}}${secret:C}").expect("a template");
        assert_eq!(
            (template.args().collect::<Vec<_>>(), template.secrets().collect::<Vec<_>>()),
            (vec!["b"], vec!["C"])
        );
        assert_eq!(Template::parse("{{b}}").expect("a template").only_arg(), Some("b"));
        assert!(Template::parse("b").expect("a template").is_fixed() && !template.is_fixed());
    }

    #[test]
    fn separators_within_placeholders_do_not_split() {
        assert_eq!(split_outside("a/{{b/c}}/d", '/'), ["a", "{{b/c}}", "d"]);
        assert_eq!(split_outside("${secret:A/B}x/", '/'), ["${secret:A/B}x", ""]);
        assert_eq!(split_outside("a{{b/c", '/'), ["a{{b/c"]);
        assert_eq!(split_outside("", '/'), [""]);
    }
}
