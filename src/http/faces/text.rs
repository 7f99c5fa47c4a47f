//! Text of a turn for a protocol that cannot withdraw what it has sent.

/// Joins the messages of a turn into one text. Text that a restart of the turn has voided is not repeated if the new
/// text begins with it.
#[derive(Default)]
pub(super) struct TextOut {
    /// The text of the current message that was sent.
    sent: String,
    /// Sent text that was voided, and the new text as far as it equals it.
    voided: Option<(String, String)>,
    /// Whether an earlier message has text.
    is_later: bool,
    /// Whether the next text is the first of its message, and follows that of an earlier one.
    follows: bool,
}

/// Between the texts of two messages.
const BREAK: &str = "\n\n";

impl TextOut {
    /// Adds a piece of text and returns what to send.
    pub fn add(&mut self, delta: &str) -> String {
        let Some((old, new)) = &mut self.voided else {
            let start = if std::mem::take(&mut self.follows) { BREAK } else { "" };
            self.sent.push_str(delta);
            return format!("{start}{delta}");
        };
        new.push_str(delta);
        if old.starts_with(new.as_str()) && old != new {
            return String::new();
        }
        let rest = match new.strip_prefix(old.as_str()) {
            Some(rest) => rest.to_owned(),
            None => format!("{BREAK}{new}"),
        };
        self.sent = std::mem::take(new);
        self.voided = None;
        rest
    }

    /// Ends the current message.
    pub fn end_message(&mut self) {
        self.is_later |= !self.sent.is_empty() || self.voided.is_some();
        self.follows = self.is_later;
        self.sent.clear();
        self.voided = None;
    }

    /// Voids the current message: its text will be written anew.
    pub fn restart(&mut self) {
        if let Some((_, new)) = &mut self.voided {
            return new.clear();
        }
        let sent = std::mem::take(&mut self.sent);
        if !sent.is_empty() {
            self.voided = Some((sent, String::new()));
        }
    }

    /// Voids the current message, of which nothing was sent.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.follows = self.is_later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_messages_are_separated() {
        let mut text = TextOut::default();
        assert_eq!([text.add("a"), text.add("b")], ["a", "b"]);
        text.end_message();
        text.end_message();
        assert_eq!([text.add("c"), text.add("d")], ["\n\nc", "d"]);
    }

    #[test]
    fn voided_text_is_not_repeated() {
        let mut text = TextOut::default();
        assert_eq!(text.add("Hello wo"), "Hello wo");
        text.restart();
        assert_eq!([text.add("Hel"), text.add("lo wor"), text.add("ld")], ["", "r", "ld"]);
        text.restart();
        assert_eq!([text.add("Hel"), text.add("p!")], ["", "\n\nHelp!"]);
        text.end_message();
        assert_eq!(text.add("x"), "\n\nx");
    }

    #[test]
    fn text_that_is_voided_twice_is_not_repeated() {
        let mut text = TextOut::default();
        assert_eq!(text.add("Hel"), "Hel");
        text.restart();
        assert_eq!(text.add("He"), "");
        text.restart();
        assert_eq!([text.add("Hel"), text.add("lo")], ["", "lo"]);
    }

    #[test]
    fn a_message_that_is_forgotten_is_written_anew() {
        let mut text = TextOut::default();
        text.add("a");
        text.end_message();
        assert_eq!(text.add("b"), "\n\nb");
        text.forget();
        assert_eq!(text.add("c"), "\n\nc");
    }
}
