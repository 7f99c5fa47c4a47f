//! What the demo model answers when it is asked to take notes, or to rewrite them: by rules.

use super::memory::section;
use crate::types::ModelRequest;

/// How the two questions begin; see `memory::observation`.
const OBSERVE: &str = "You take the notes by which an assistant remembers";
const REFLECT: &str = "You keep the notes by which an assistant remembers";
/// Longest note, in characters.
const MAX_NOTE: usize = 200;

/// The answer, if it is one of these questions.
pub(super) fn answer(request: &ModelRequest) -> Option<String> {
    let text = || request.messages.first().map(|message| message.text()).unwrap_or_default();
    let notes = match &request.system {
        system if system.starts_with(OBSERVE) => observed(section(&text(), "Messages")),
        system if system.starts_with(REFLECT) => reflected(section(&text(), "Notes")),
        _ => return None,
    };
    Some(format!("<observations>\n{notes}</observations>"))
}

/// How each message begins.
fn observed(messages: &str) -> String {
    let (mut notes, mut day) = (String::new(), "");
    for line in messages.lines() {
        let Some((at, said)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
            continue;
        };
        let Some((date, minute)) = at.split_once('T') else { continue };
        if date != day {
            day = date;
            notes.push_str(&format!("Date: {date}\n"));
        }
        let mark = if said.starts_with("user: ") { "🔴" } else { "🟡" };
        let said: String = said.chars().take(MAX_NOTE).collect();
        notes.push_str(&format!("* {mark} ({minute}) {said}\n"));
    }
    notes
}

/// The dates, what the user said, and the newest quarter of the rest.
fn reflected(notes: &str) -> String {
    let newest = notes.lines().count() * 3 / 4;
    let stays =
        |(at, line): &(usize, &str)| *at >= newest || line.starts_with("Date:") || line.contains("🔴");
    notes.lines().enumerate().filter(stays).map(|(_, line)| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn notes_are_how_messages_begin() {
        let said = "[2026-11-20T12:00] user: Hi\nthere\n[2026-11-20T12:01] assistant: Hello\n[2026-11-21T09:00] user: Bye";
        let notes = "Date: 2026-11-20\n* 🔴 (12:00) user: Hi\n* 🟡 (12:01) assistant: Hello\nDate: 2026-11-21\n\
                     * 🔴 (09:00) user: Bye\n";
        assert_eq!(observed(said), notes);
        assert_eq!(reflected(notes), notes.replace("* 🟡 (12:01) assistant: Hello\n", ""));
    }
}
