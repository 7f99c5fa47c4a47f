//! Text helpers: safe embedding in a line, and shortening.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_direction_marks_are_not_safe() {
        let text = "a\r\n\u{85}\0\u{202e}b\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}\u{2029}é 山\u{200d}";
        assert_eq!(text.chars().filter(|c| is_inline(*c)).collect::<String>(), "abé 山\u{200d}");
    }
}
