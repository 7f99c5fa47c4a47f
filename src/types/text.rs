//! Text helpers: safe embedding in a line or between tags, and shortening.

/// Returns whether a character is safe within a line: it neither ends the line nor changes the text
/// direction.
pub fn is_inline(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Shortens a text to `chars` characters, half from its start and half from its end.
pub fn ends(text: &str, chars: usize) -> String {
    ends_around(text, chars, |_, _| "…".to_owned()).unwrap_or_else(|| text.to_owned())
}

/// Like [`ends`], with a note in between, made from the number of characters left out and the total. Returns
/// `None` if the text is short enough.
pub fn ends_around(text: &str, chars: usize, note: impl FnOnce(usize, usize) -> String) -> Option<String> {
    if !is_longer(text, chars) {
        return None;
    }
    let total = text.chars().count();
    let head: String = text.chars().take(chars.div_ceil(2)).collect();
    let tail: String = text.chars().skip(total - chars / 2).collect();
    Some(format!("{head}\n[{}]\n{tail}", note(total - chars, total)))
}

/// Returns whether a text has more than `chars` characters.
pub fn is_longer(text: &str, chars: usize) -> bool {
    text.len() > chars && text.char_indices().nth(chars).is_some()
}

/// Replaces the opening bracket of each of these tags, and of lookalikes, by a harmless character. The
/// number of characters does not change.
pub fn without_tags(text: &str, tags: &[String]) -> String {
    let mut harmless = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, bracket) in text.match_indices(['<', '＜']) {
        let remaining = text.get(at + bracket.len()..).unwrap_or_default();
        let name = remaining.trim_start_matches(|c: char| {
            matches!(c, '/' | '／') || c.is_whitespace() || c.is_control() || is_unseen(c)
        });
        let is = |tag: &String| {
            let mut name = name.chars().filter(|c| !is_unseen(*c));
            tag.chars().all(|expected| name.next().is_some_and(|c| c.eq_ignore_ascii_case(&expected)))
        };
        if tags.iter().any(is) {
            harmless.push_str(text.get(copied..at).unwrap_or_default());
            harmless.push('‹');
            copied = at + bracket.len();
        }
    }
    harmless.push_str(text.get(copied..).unwrap_or_default());
    harmless
}

/// Returns whether a character is invisible.
pub fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_direction_marks_are_not_safe() {
        let text = "a\r\n\u{85}\0\u{202e}b\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}\u{2029}é 山\u{200d}";
        assert_eq!(text.chars().filter(|c| is_inline(*c)).collect::<String>(), "abé 山\u{200d}");
    }
}
