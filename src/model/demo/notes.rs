//! The demo model's responses to requests to take or rewrite notes.

use super::memory::section;
use crate::types::ModelRequest;

/// How the system prompts of the two requests begin; see `context::observation`.
const OBSERVE: &str = "You take notes so that an assistant can remember";
const REFLECT: &str = "You maintain the notes that an assistant uses";
/// Maximum length of a note, in characters.
const MAX_NOTE: usize = 200;

/// Returns the response if the request is one of the two.
pub(super) fn respond(request: &ModelRequest) -> Option<String> {
    let text = || request.messages.first().map(|message| message.text()).unwrap_or_default();
    let notes = match &request.system {
        system if system.starts_with(OBSERVE) => observe(section(&text(), "Messages")),
        system if system.starts_with(REFLECT) => reflect(section(&text(), "Notes")),
        _ => return None,
    };
    Some(format!("<observations>\n{notes}</observations>"))
}

/// Takes the start of each message as a note.
fn observe(messages: &str) -> String {
    let (mut notes, mut day) = (String::new(), "");
    for line in messages.lines() {
        let Some((at, line_text)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
            continue;
        };
        let Some((date, minute)) = at.split_once('T') else { continue };
        if date != day {
            day = date;
            notes.push_str(&format!("Date: {date}\n"));
        }
        let mark = if line_text.starts_with("user: ") { "🔴" } else { "🟡" };
        let line_text: String = line_text.chars().take(MAX_NOTE).collect();
        notes.push_str(&format!("* {mark} ({minute}) {line_text}\n"));
    }
    notes
}

/// Keeps the dates, the notes on user messages, and the newest quarter of the rest.
fn reflect(notes: &str) -> String {
    let newest = notes.lines().count() * 3 / 4;
    let is_kept =
        |(at, line): &(usize, &str)| *at >= newest || line.starts_with("Date:") || line.contains("🔴");
    notes.lines().enumerate().filter(is_kept).map(|(_, line)| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn notes_are_the_starts_of_messages() {
        let line_text = "[2026-11-20T12:00] user: Hi\nthere\n[2026-11-20T12:01] assistant: Hello\n[2026-11-21T09:00] user: Bye";
        let notes = "Date: 2026-11-20\n* 🔴 (12:00) user: Hi\n* 🟡 (12:01) assistant: Hello\nDate: 2026-11-21\n\
                     * 🔴 (09:00) user: Bye\n";
        assert_eq!(observe(line_text), notes);
        assert_eq!(reflect(notes), notes.replace("* 🟡 (12:01) assistant: Hello\n", ""));
    }
}
