//! Text of others in a line of ours.

/// Whether a character may stand in a line: it neither ends one, nor changes where others stand.
pub fn in_line(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_or_turns_a_line_has_no_place_in_it() {
        let text = "a\r\n\u{85}\0\u{202e}b\u{2066}\u{2069}\u{200f}\u{61c}\u{2028}\u{2029}é 山\u{200d}";
        assert_eq!(text.chars().filter(|c| in_line(*c)).collect::<String>(), "abé 山\u{200d}");
    }
}
