//! Splits long texts into parts that are indexed separately, so that a single relevant line of a long reply
//! is not outweighed by the rest.

/// Maximum length of a part, in words. Measured: with parts of up to 100 words, long replies are found as
/// well as short turns.
pub const MAX_WORDS: usize = 100;
/// Maximum length of a part in bytes, for scripts without spaces and for text that is not prose.
pub const MAX_BYTES: usize = 1_000;
/// Maximum number of parts of a text. The rest is not indexed.
pub const MAX_PARTS: usize = 64;

/// Splits `text` at spaces into parts of at most [`MAX_WORDS`] words and about equal length. A short text is
/// returned unchanged, and whitespace inside a part is kept. The result is never empty.
pub fn chunks(text: &str) -> Vec<&str> {
    let words = pieces(text);
    let count = words.len().div_ceil(MAX_WORDS).max(text.len().div_ceil(MAX_BYTES)).max(1);
    if count == 1 {
        return vec![text];
    }
    let words_each = words.len().div_ceil(count).max(1);
    let mut parts = Vec::new();
    let mut part: Option<(usize, usize, usize)> = None;
    for (from, to) in words {
        part = match part {
            Some((start, _, held)) if held < words_each && to - start <= MAX_BYTES => {
                Some((start, to, held + 1))
            }
            Some((start, end, _)) => {
                parts.push(&text[start..end]);
                Some((from, to, 1))
            }
            None => Some((from, to, 1)),
        };
    }
    parts.extend(part.map(|(start, end, _)| &text[start..end]));
    parts.truncate(MAX_PARTS);
    parts
}

/// Returns the start and end of each word. Words longer than a fifth of a part are split between characters.
fn pieces(text: &str) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match start {
            Some(from) if c.is_whitespace() => {
                pieces.push((from, at));
                start = None;
            }
            Some(from) if at + c.len_utf8() - from > MAX_BYTES / 5 => {
                pieces.push((from, at));
                start = Some(at);
            }
            None if !c.is_whitespace() => start = Some(at),
            _ => {}
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_texts_stay_whole() {
        for text in ["", "  ", "one\n two "] {
            assert_eq!(chunks(text), [text]);
        }
    }

    #[test]
    fn parts_are_about_equal() {
        let text = vec!["word"; 101].join(" ");
        let sizes: Vec<usize> = chunks(&text).iter().map(|part| part.split(' ').count()).collect();
        assert_eq!(sizes, [51, 50]);
    }

    #[test]
    fn a_text_without_spaces_is_split_between_characters() {
        let parts = chunks(&"日本語".repeat(400)).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert!(parts.len() > 3 && parts.iter().all(|bytes| *bytes <= MAX_BYTES), "{parts:?}");
    }

    proptest! {
        #[test]
        fn no_text_is_lost_and_parts_are_bounded(text in "(\\PC{0,400}|[a-z \n]{0,3000}|[日本 é]{0,1500})") {
            let parts = chunks(&text);
            prop_assert!(!parts.is_empty());
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&text), parts.iter().map(|part| letters(part)).collect::<String>());
            if parts.len() > 1 {
                for part in parts {
                    prop_assert!(part.len() <= MAX_BYTES && part.split_whitespace().count() <= MAX_WORDS);
                }
            }
        }
    }
}
