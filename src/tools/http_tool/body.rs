//! JSON bodies whose strings are templates.

use crate::ports::outbound::{Budget, PLAIN, Template, Unfilled, Values};
use crate::types::{FieldError, json::escaped};
use serde_json::{Map, Value};

/// A JSON value whose strings are templates.
#[derive(Clone, Debug)]
pub(super) enum BodyTemplate {
    /// A value without placeholders.
    Fixed(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl BodyTemplate {
    /// Parses a value. Adds the faults of its templates with their pointers, which start at `at`.
    pub(super) fn parse(value: &Value, at: &str, faults: &mut Vec<FieldError>) -> Self {
        match value {
            Value::String(text) => match Template::parse(text) {
                Ok(template) => Self::Text(template),
                Err(invalid) => {
                    faults.push(FieldError { pointer: at.to_owned(), detail: invalid.0 });
                    Self::Fixed(Value::Null)
                }
            },
            Value::Array(items) => {
                let parse =
                    |(index, item): (usize, &Value)| Self::parse(item, &format!("{at}/{index}"), faults);
                Self::List(items.iter().enumerate().map(parse).collect())
            }
            Value::Object(members) => {
                let parse = |(name, member): (&String, &Value)| {
                    let at = format!("{at}/{}", escaped(name));
                    if name.contains("{{") || name.contains("${secret:") {
                        let detail = "the name of a member cannot contain placeholders".to_owned();
                        faults.push(FieldError { pointer: at.clone(), detail });
                    }
                    (name.clone(), Self::parse(member, &at, faults))
                };
                Self::Object(members.iter().map(parse).collect())
            }
            fixed => Self::Fixed(fixed.clone()),
        }
    }

    /// Returns the templates with their pointers, which start at `at`.
    pub(super) fn templates<'a>(&'a self, at: &str, found: &mut Vec<(String, &'a Template)>) {
        match self {
            Self::Fixed(_) => {}
            Self::Text(template) => found.push((at.to_owned(), template)),
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.templates(&format!("{at}/{index}"), found);
                }
            }
            Self::Object(members) => {
                for (name, member) in members {
                    member.templates(&format!("{at}/{}", escaped(name)), found);
                }
            }
        }
    }

    /// Inserts the values of a call. A string that is one placeholder becomes the argument itself. A member or an item
    /// without its argument is left out; `None` if the whole value is.
    ///
    /// # Errors
    /// The body would exceed the budget.
    pub(super) fn fill(&self, values: &Values<'_>, budget: &Budget) -> Result<Option<Value>, Unfilled> {
        match self {
            Self::Fixed(value) => Ok(Some(value.clone())),
            Self::Text(template) => match template.only_arg() {
                Some(arg) => {
                    let Some(value) = values.args.get(arg) else { return Ok(None) };
                    budget.spend(value.to_string().len())?;
                    Ok(Some(value.clone()))
                }
                None => match template.fill(values, PLAIN, budget) {
                    Ok(text) => Ok(Some(text.into())),
                    Err(Unfilled::Missing(_)) => Ok(None),
                    Err(too_large) => Err(too_large),
                },
            },
            Self::List(items) => {
                let items = items.iter().filter_map(|item| item.fill(values, budget).transpose());
                Ok(Some(Value::Array(items.collect::<Result<_, _>>()?)))
            }
            Self::Object(members) => {
                let member = |(name, member): &(String, Self)| {
                    let value = member.fill(values, budget).transpose()?;
                    Some(value.map(|value| (name.clone(), value)))
                };
                let members = members.iter().filter_map(member).collect::<Result<Map<_, _>, _>>()?;
                Ok(Some(Value::Object(members)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn filled(body: Value, args: Value) -> Option<Value> {
        let mut faults = Vec::new();
        let template = BodyTemplate::parse(&body, "/body", &mut faults);
        assert_eq!(faults, []);
        let secrets = BTreeMap::from([("T".to_owned(), "\"t\"".to_owned())]);
        let values = Values { args: args.as_object().expect("arguments"), secrets: &secrets };
        template.fill(&values, &Budget::new(1_000)).expect("a small body")
    }

    #[test]
    fn a_string_that_is_a_placeholder_becomes_the_argument() {
        let body = json!({"n": "{{n}}", "list": ["{{a}}", {"deep": "{{o}}"}], "text": "n={{n}}, {{s}}", "fixed": [1, null]});
        let args = json!({"n": 7, "a": [1], "o": {"x": "{{n}}"}, "s": "\"quoted\"\n"});
        let expected = json!({"n": 7, "list": [[1], {"deep": {"x": "{{n}}"}}], "text": "n=7, \"quoted\"\n", "fixed": [1, null]});
        assert_eq!(filled(body, args), Some(expected));
        let secrets = json!({"token": "${secret:T}", "mixed": "{{s}}"});
        let args = json!({"s": "${secret:T}"});
        assert_eq!(filled(secrets, args), Some(json!({"token": "\"t\"", "mixed": "${secret:T}"})));
    }

    #[test]
    fn members_without_their_argument_are_left_out() {
        let body = json!({"a": "{{a}}", "b": "x {{b}}", "c": {"d": "{{d}}"}, "e": ["{{a}}", 1]});
        assert_eq!(filled(body, json!({})), Some(json!({"c": {}, "e": [1]})));
        assert_eq!(filled(json!("{{a}}"), json!({})), None);
        assert_eq!(filled(json!({"a": "{{a}}"}), json!({"a": null})), Some(json!({"a": null})));
    }

    #[test]
    fn faults_have_pointers() {
        let mut faults = Vec::new();
        BodyTemplate::parse(&json!({"a": [0, "{{x"], "b/c": {"{{n}}": "${secret:}"}}), "/body", &mut faults);
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/body/a/1", "/body/b~1c/{{n}}", "/body/b~1c/{{n}}"]);
    }
}
