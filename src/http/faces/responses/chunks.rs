//! Cuts text into pieces that depend on the text only, so that a replay numbers its events as the live stream did.

/// Longest piece, in characters.
const MAX_PIECE: usize = 32;

/// Cuts text as it arrives: before the white space that precedes each word, and in long words.
#[derive(Default)]
pub(super) struct Chunks {
    waiting: String,
    length: usize,
    is_in_word: bool,
}

impl Chunks {
    /// Adds text and returns the pieces that are complete.
    pub fn add(&mut self, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        for c in text.chars() {
            if self.length == MAX_PIECE || self.is_in_word && c.is_whitespace() {
                pieces.extend(self.end());
            }
            self.is_in_word = !c.is_whitespace();
            self.length += 1;
            self.waiting.push(c);
        }
        pieces
    }

    /// Returns the last piece, unless it is empty.
    pub fn end(&mut self) -> Option<String> {
        let Self { waiting, .. } = std::mem::take(self);
        Some(waiting).filter(|piece| !piece.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn cut<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut chunks = Chunks::default();
        let mut pieces: Vec<_> = parts.into_iter().flat_map(|part| chunks.add(part)).collect();
        pieces.extend(chunks.end());
        pieces
    }

    #[test]
    fn words_keep_the_space_before_them() {
        assert_eq!(cut(["Hel", "lo  wor", "ld\n"]), ["Hello", "  world", "\n"]);
        assert_eq!(cut(["x".repeat(40).as_str()]).iter().map(String::len).collect::<Vec<_>>(), [32, 8]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_depend_on_how_the_text_arrives(parts in prop::collection::vec("[a-z é\n]{0,9}", 0..20)) {
            let whole = parts.concat();
            let pieces = cut(parts.iter().map(String::as_str));
            prop_assert_eq!(pieces.concat(), whole.clone());
            prop_assert_eq!(pieces, cut([whole.as_str()]));
        }
    }
}
