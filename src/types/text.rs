//! Safe embedding of untrusted text in a line.

/// Returns whether a character is safe within a line: it neither ends the line nor changes the text
/// direction.
pub fn in_line(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_direction_marks_are_not_safe() {
        let text = "a\r\n\u{85}\0\u{202e}b\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}\u{2029}é 山\u{200d}";
        assert_eq!(text.chars().filter(|c| in_line(*c)).collect::<String>(), "abé 山\u{200d}");
    }
}
