//! How much models take at once.

use std::collections::BTreeMap;
use thiserror::Error;

/// Tokens of the context window, by what the model's id begins with; the first entry that fits holds.
/// Source: what the providers publish, as of November 2025. Override with `MODEL_WINDOWS`.
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

/// Context windows of models: a deployment's own, then the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    own: BTreeMap<String, u64>,
}

/// A model's window is too small.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} has less than {MIN_WINDOW} tokens")]
pub struct SmallWindow(pub String);

impl Windows {
    /// Uses these windows, in tokens by model id, before the built-in ones.
    ///
    /// # Errors
    /// When a window is too small.
    pub fn new(own: BTreeMap<String, u64>) -> Result<Self, SmallWindow> {
        match own.iter().find(|(_, window)| **window < MIN_WINDOW) {
            Some((id, _)) => Err(SmallWindow(id.clone())),
            None => Ok(Self { own }),
        }
    }

    /// The window of `provider/model`; `None` when neither list has it.
    pub(super) fn of(&self, id: &str) -> Option<u64> {
        let listed = || TABLE.iter().find(|(start, _)| id.starts_with(start)).map(|(_, window)| *window);
        self.own.get(id).copied().or_else(listed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn windows_are_found_by_id() {
        let own = |id: &str, window| [(id.to_owned(), window)];
        let windows = Windows::new(
            [own("openai/gpt-5", 16_000), own("openai/mine", 2_000)].concat().into_iter().collect(),
        );
        let windows = windows.unwrap();
        let of = |id: &str| windows.of(id);
        assert_eq!((of("openai/gpt-5"), of("openai/gpt-5-mini")), (Some(16_000), Some(400_000)));
        assert_eq!((of("openai/mine"), of("openai/other")), (Some(2_000), None));
        assert_eq!((of("anthropic/claude-sonnet-4-5"), of("demo/echo")), (Some(200_000), Some(128_000)));
        assert_eq!(Windows::new(own("a/b", 1_999).into()).unwrap_err(), SmallWindow("a/b".into()));
    }
}
