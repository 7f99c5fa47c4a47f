//! Lists of models.

use super::{FieldError, Invalid, ModelError, ModelErrorKind};
use serde::{Deserialize, Serialize};

/// Maximum number of patterns. A tenant's list travels with each request.
const MAX_PATTERNS: usize = 50;
/// Maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 200;

/// Models that may be used: ids, and patterns such as `openai/*`, in which `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct ModelList(pub Vec<String>);

impl ModelList {
    /// Returns what is wrong with the list, if anything. The pointer is relative to the list.
    pub fn fault(&self) -> Option<FieldError> {
        if !(1..=MAX_PATTERNS).contains(&self.0.len()) {
            let detail = format!("expected 1 to {MAX_PATTERNS} models");
            return Some(FieldError { pointer: String::new(), detail });
        }
        let faults = self.0.iter().map(|pattern| check_pattern(pattern));
        let (index, fault) = faults.enumerate().find_map(|(index, checked)| Some((index, checked.err()?)))?;
        Some(FieldError { pointer: format!("/{index}"), detail: fault.0 })
    }

    /// Returns whether a model is in the list.
    pub fn contains(&self, id: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, id))
    }

    /// Checks that a model is in the list.
    ///
    /// # Errors
    /// It is not. The message names those that are.
    pub fn check(&self, id: &str) -> Result<(), ModelError> {
        if self.contains(id) {
            return Ok(());
        }
        let message = format!("the model {id:?} is not available here; available: {}", self.0.join(", "));
        Err(ModelError::new(ModelErrorKind::Invalid, message))
    }
}

/// Checks a pattern.
///
/// # Errors
/// It cannot match the id of a model.
pub fn check_pattern(pattern: &str) -> Result<(), Invalid> {
    let parts = pattern.split_once('/');
    let is_id = parts.is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty());
    match is_id && pattern.len() <= MAX_PATTERN {
        true => Ok(()),
        false => Err(Invalid(format!(
            "expected `provider/model` or a pattern like it, of at most {MAX_PATTERN} bytes"
        ))),
    }
}

/// Returns whether a pattern matches a text. `*` matches any characters, also none.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        // The first occurrence leaves the most text for the other parts.
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn patterns_match_whole_ids() {
        for (pattern, id, expected) in [
            ("openai/gpt-5", "openai/gpt-5", true),
            ("openai/gpt-5", "openai/gpt-5-mini", false),
            ("openai/gpt-5", "xopenai/gpt-5", false),
            ("openai/*", "openai/gpt-5", true),
            ("openai/*", "openai/org/model:free", true),
            ("openai/*", "openai2/gpt-5", false),
            ("openai/gpt-*-mini", "openai/gpt-5-mini", true),
            ("openai/gpt-*-mini", "openai/gpt-mini", false),
            ("openai/gpt-*-mini", "openai/gpt-5-mini-x", false),
            ("*/a*b*c", "x/a-b-b-c", true),
            ("*/a*b*c", "x/a-c-b", false),
            ("*/aa", "x/a", false),
            ("*/**", "x/y", true),
            ("workers-ai/@cf/*", "workers-ai/@cf/meta/llama", true),
            ("openai/gpt.5", "openai/gpt-5", false),
        ] {
            assert_eq!(matches(pattern, id), expected, "{pattern} {id}");
        }
    }

    #[test]
    fn faults_name_the_pattern() {
        let fault = |patterns: &[&str]| {
            let list = ModelList(patterns.iter().map(|&pattern| pattern.to_owned()).collect());
            list.fault().map(|fault| fault.pointer)
        };
        assert_eq!(fault(&["openai/*", "a/b"]), None);
        assert_eq!(fault(&[]).as_deref(), Some(""));
        assert_eq!(fault(&["a/b"; 51]).as_deref(), Some(""));
        for bad in ["", "*", "gpt-5", "/x", "x/", &format!("a/{}", "x".repeat(199))] {
            assert_eq!(fault(&["a/b", bad]).as_deref(), Some("/1"), "{bad}");
        }
    }
}
