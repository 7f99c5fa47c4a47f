//! How much models take at once.

use std::collections::BTreeMap;

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
/// The least that a window may be said to be: less holds no conversation.
const LEAST: u64 = 2_000;

/// The windows that this deployment goes by: its own before the table's.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    own: BTreeMap<String, u64>,
}

impl Windows {
    /// Reads `MODEL_WINDOWS`: `{"provider/model": 32000}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let own: BTreeMap<String, u64> = crate::types::json::read(text.as_bytes())
            .map_err(|error| format!("MODEL_WINDOWS is not a JSON object of tokens by model id: {error}"))?;
        match own.iter().find(|(_, window)| **window < LEAST) {
            Some((id, _)) => Err(format!("MODEL_WINDOWS has less than {LEAST} tokens for {id:?}")),
            None => Ok(Self { own }),
        }
    }

    /// The window of `provider/model`; none when nobody said.
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
        let windows = Windows::read(r#"{"openai/gpt-5": 16000, "openai/mine": 2000}"#).unwrap();
        let of = |id: &str| windows.of(id);
        assert_eq!((of("openai/gpt-5"), of("openai/gpt-5-mini")), (Some(16_000), Some(400_000)));
        assert_eq!((of("openai/mine"), of("openai/other")), (Some(2_000), None));
        assert_eq!((of("anthropic/claude-sonnet-4-5"), of("demo/echo")), (Some(200_000), Some(128_000)));
        for bad in ["5", "{", r#"{"a/b": -1}"#, r#"{"a/b": 1999}"#, r#"{"a/b": "2k"}"#] {
            let error = Windows::read(bad).unwrap_err();
            assert!(error.starts_with("MODEL_WINDOWS "), "{error}");
        }
    }
}
