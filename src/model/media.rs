//! Which models take images, PDFs and audio.

use crate::types::MediaKind::{self, Audio, Image, Pdf};
use std::collections::BTreeMap;

/// What models take besides text, by prefix of the model id; the first match applies. Source: the providers'
/// documentation, as of November 2025. `MODEL_MEDIA` overrides it.
const TABLE: &[(&str, &[MediaKind])] = &[
    ("openai/gpt-5", &[Image, Pdf]),
    ("openai/gpt-4.1", &[Image, Pdf]),
    ("openai/gpt-4o-audio", &[Audio]),
    ("openai/gpt-audio", &[Audio]),
    ("openai/gpt-4o", &[Image, Pdf]),
    ("openai/o1-mini", &[]),
    ("openai/o3-mini", &[]),
    ("openai/o1", &[Image, Pdf]),
    ("openai/o3", &[Image, Pdf]),
    ("openai/o4", &[Image, Pdf]),
    ("anthropic/claude", &[Image, Pdf]),
    ("workers-ai/@cf/meta/llama-4", &[Image]),
    ("workers-ai/@cf/meta/llama-3.2-11b-vision", &[Image]),
    ("workers-ai/@cf/google/gemma-3", &[Image]),
    ("workers-ai/@cf/mistralai/mistral-small-3.1", &[Image]),
];

/// What models take besides text: the overrides of this deployment, then `TABLE`.
#[derive(Clone, Debug, Default)]
pub struct AcceptedMedia(pub BTreeMap<String, Vec<MediaKind>>);

impl AcceptedMedia {
    /// Returns whether the model `provider/model` takes files of this kind.
    pub(super) fn takes(&self, id: &str, kind: MediaKind) -> bool {
        let listed = || TABLE.iter().find(|(start, _)| id.starts_with(start)).map(|(_, kinds)| *kinds);
        let kinds = self.0.get(id).map(Vec::as_slice).or_else(listed);
        kinds.is_some_and(|kinds| kinds.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_settings_take_precedence_over_the_table() {
        let media = AcceptedMedia([("openai/gpt-5".to_owned(), vec![Audio])].into());
        let of = |id: &str| [Image, Pdf, Audio].map(|kind| media.takes(id, kind));
        assert_eq!(of("openai/gpt-5"), [false, false, true]);
        assert_eq!(of("openai/gpt-5-mini"), [true, true, false]);
        assert_eq!(of("openai/o3-mini"), [false; 3]);
        assert_eq!(of("mine/any"), [false; 3]);
    }
}
