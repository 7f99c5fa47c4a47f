//! What the demo model answers when it is asked to sum up a conversation: by rules, and the same each time.

use super::memory::section;
use crate::types::ModelRequest;

/// How the question begins; see `memory::compaction`.
const SUM_UP: &str = "You sum up the earlier part of a conversation";
/// The sections of a summary, and most lines of each: the newest.
const SECTIONS: [(&str, usize); 4] =
    [("## Intent", 24), ("## Decisions", 12), ("## Artifacts", 12), ("## Next steps", 1)];
/// Longest line, in characters.
const MAX_LINE: usize = 160;

/// The answer, if it is this question.
pub(super) fn answer(request: &ModelRequest) -> Option<String> {
    let text = || request.messages.first().map(|message| message.text()).unwrap_or_default();
    request.system.starts_with(SUM_UP).then(|| summed_up(&text()))
}

/// What the user said first in each message, what the assistant answered, and which tools it called, behind what
/// the summary so far has.
fn summed_up(text: &str) -> String {
    let earlier = section(text, "Summary so far");
    let mut sections = SECTIONS.map(|(title, _)| {
        let below = earlier.lines().skip_while(|line| *line != title).skip(1);
        below.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect::<Vec<_>>()
    });
    let said = section(text, "Messages").lines().filter_map(|line| line.strip_prefix('[')?.split_once("] "));
    for (_, said) in said {
        let (place, said) = match (said.strip_prefix("user: "), said.strip_prefix("assistant: ")) {
            (Some(said), _) => (0, said),
            (_, Some(said)) => (1, said),
            _ if said.starts_with("assistant calls ") => (2, said),
            _ => continue,
        };
        let first = said.split_inclusive(['.', '!', '?']).next().unwrap_or_default();
        let line: String = first.trim().chars().take(MAX_LINE).collect();
        if let Some(lines) = sections.get_mut(place) {
            lines.push(format!("- {line}"));
        }
        if let (0, Some(next)) = (place, sections.get_mut(3)) {
            next.push(format!("- {line}"));
        }
    }
    let mut out = String::new();
    for ((title, most), lines) in SECTIONS.iter().zip(&mut sections) {
        lines.retain(|line| line.starts_with("- "));
        lines.dedup();
        let older = lines.len().saturating_sub(*most);
        out.push_str(title);
        out.push('\n');
        lines.drain(..older);
        lines.iter().for_each(|line| out.extend([line, "\n"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::call::untrusted;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_summary_has_what_was_said_and_what_was_known() {
        let ask = |earlier: &str, said: &str| {
            summed_up(&format!("Summary so far:\n{}\n\nMessages:\n{}", untrusted(earlier), untrusted(said)))
        };
        let said = "[t] user: Plan a trip. Soon!\n[t] assistant: Where to?\n[t] assistant calls look: {}\n[t] look gives: x";
        let one = ask("", said);
        let expected = "## Intent\n- Plan a trip.\n## Decisions\n- Where to?\n## Artifacts\n\
                        - assistant calls look: {}\n## Next steps\n- Plan a trip.\n";
        assert_eq!(one, expected);
        let two = ask(&one, "[t] user: To Oslo.");
        assert!(
            two.contains("- Plan a trip.\n- To Oslo.\n") && two.ends_with("## Next steps\n- To Oslo.\n"),
            "{two}"
        );
        let many: String = (0..99).map(|n| format!("[t] user: number {n}\n")).collect();
        assert!(ask(&two, &many).lines().count() < 60);
    }
}
