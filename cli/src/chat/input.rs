//! The line in which the user writes.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Style;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};

/// Maximum number of lines that are shown.
const MAX_LINES: usize = 8;

/// The text that is being written, and the earlier messages.
pub(super) struct Input {
    area: TextArea<'static>,
    /// How far back in the earlier messages; 0 is the own text.
    back: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { area: area(""), back: 0 }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Returns whether there is no text.
    pub(super) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Returns the text, and removes it.
    pub(super) fn take(&mut self) -> String {
        let text = self.text();
        *self = Self::new();
        text
    }

    /// Returns the widget.
    pub(super) fn widget(&self) -> &TextArea<'static> {
        &self.area
    }

    /// Returns the number of lines to show.
    pub(super) fn height(&self) -> u16 {
        u16::try_from(self.area.lines().len().clamp(1, MAX_LINES)).unwrap_or(1)
    }

    /// Inserts a text that was pasted.
    pub(super) fn paste(&mut self, text: &str) {
        self.area.insert_str(text.replace("\r\n", "\n").replace('\r', "\n"));
    }

    /// Puts a text back that was taken, before what was written since then.
    pub(super) fn restore(&mut self, text: &str) {
        let newer = self.take();
        let separator = if newer.is_empty() { "" } else { "\n" };
        self.area = area(&format!("{text}{separator}{newer}"));
    }

    /// Begins a new line.
    pub(super) fn new_line(&mut self) {
        self.area.insert_newline();
    }

    /// Handles a key of writing. `said` has the earlier messages, oldest first.
    pub(super) fn key(&mut self, key: KeyEvent, said: &[&str]) {
        let last = self.area.lines().len() - 1;
        match key.code {
            KeyCode::Up if self.area.cursor().0 == 0 && self.back < said.len() => {
                self.recall(self.back + 1, said)
            }
            KeyCode::Down if self.area.cursor().0 == last && self.back > 0 => {
                self.recall(self.back - 1, said)
            }
            _ => {
                self.area.input(key);
            }
        }
    }

    fn recall(&mut self, back: usize, said: &[&str]) {
        self.back = back;
        self.area = area(if back == 0 { "" } else { said[said.len() - back] });
    }
}

fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.lines().map(str::to_owned).collect());
    area.set_cursor_line_style(Style::new());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_placeholder_text("Write a message");
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyModifiers;

    #[test]
    fn earlier_messages_return() {
        let mut input = Input::new();
        let mut press = |code| {
            input.key(KeyEvent::new(code, KeyModifiers::NONE), &["first", "second"]);
            input.text()
        };
        let texts = [KeyCode::Up, KeyCode::Up, KeyCode::Up, KeyCode::Down, KeyCode::Down].map(&mut press);
        assert_eq!(texts, ["second", "first", "first", "second", ""]);
    }
}
