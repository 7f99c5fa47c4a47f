//! Sizes of context windows.

use std::collections::BTreeMap;
use thiserror::Error;

/// Tokens of the context window, by prefix of the model id; the first match applies. Source: the providers'
/// documentation, as of November 2025. `MODEL_WINDOWS` overrides it.
const TABLE: &[(&str, u64)] = &[
    ("openai/gpt-5", 400_000),
    ("openai/gpt-4.1", 1_047_576),
    ("openai/gpt-4o", 128_000),
    ("openai/gpt-4", 128_000),
    ("openai/gpt-3.5", 16_385),
    ("openai/o1", 200_000),
    ("openai/o3", 200_000),
    ("openai/o4", 200_000),
    ("anthropic/claude", 200_000),
    ("workers-ai/@cf/openai/gpt-oss", 128_000),
    ("workers-ai/@cf/meta/llama-4", 131_000),
    ("workers-ai/@cf/meta/llama-3.3", 24_000),
    ("workers-ai/@cf/meta/llama-3.1-8b", 7_968),
    ("workers-ai/@cf/meta/llama-3", 60_000),
    ("workers-ai/@cf/mistralai/mistral-small", 128_000),
    ("workers-ai/@cf/qwen/qwq", 24_000),
    ("workers-ai/@cf/qwen/qwen3", 32_768),
    ("workers-ai/", 24_000),
    ("demo/", 128_000),
];
/// Smallest window that a deployment may set: a smaller one holds no conversation.
const MIN_WINDOW: u64 = 2_000;

/// Context windows of models: the overrides of this deployment, then `TABLE`.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    overrides: BTreeMap<String, u64>,
}

/// A context window below `MIN_WINDOW`, with the id of its model.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the window of {0:?} is below {MIN_WINDOW} tokens")]
pub struct SmallWindow(pub String);

impl Windows {
    /// Creates windows that override the built-in ones, in tokens by model id.
    ///
    /// # Errors
    /// Returns an error when a window is below `MIN_WINDOW`.
    pub fn new(overrides: BTreeMap<String, u64>) -> Result<Self, SmallWindow> {
        match overrides.iter().find(|(_, window)| **window < MIN_WINDOW) {
            Some((id, _)) => Err(SmallWindow(id.clone())),
            None => Ok(Self { overrides }),
        }
    }

    /// Returns the window of `provider/model`, or `None` when it is unknown.
    pub(super) fn of(&self, id: &str) -> Option<u64> {
        let listed = || TABLE.iter().find(|(start, _)| id.starts_with(start)).map(|(_, window)| *window);
        self.overrides.get(id).copied().or_else(listed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn windows_are_found_by_id() {
        let one = |id: &str, window| [(id.to_owned(), window)];
        let windows = Windows::new(
            [one("openai/gpt-5", 16_000), one("openai/mine", 2_000)].concat().into_iter().collect(),
        );
        let windows = windows.unwrap();
        let of = |id: &str| windows.of(id);
        assert_eq!((of("openai/gpt-5"), of("openai/gpt-5-mini")), (Some(16_000), Some(400_000)));
        assert_eq!((of("openai/mine"), of("openai/other")), (Some(2_000), None));
        assert_eq!((of("anthropic/claude-sonnet-4-5"), of("demo/echo")), (Some(200_000), Some(128_000)));
        assert_eq!(Windows::new(one("a/b", 1_999).into()).unwrap_err(), SmallWindow("a/b".into()));
    }
}
