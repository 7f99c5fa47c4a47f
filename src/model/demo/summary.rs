//! The demo model's response to a request for a summary. The same request always gets the same response.

use super::memory::section;
use crate::types::ModelRequest;

/// How the system prompt of the request begins; see `context::compaction`.
const SUMMARIZE: &str = "You summarize the earlier part of a conversation";
/// Sections of a summary, and how many lines each keeps: the newest ones.
const SECTIONS: [(&str, usize); 4] =
    [("## Intent", 24), ("## Decisions", 12), ("## Artifacts", 12), ("## Next steps", 1)];
/// Maximum length of a line, in characters.
const MAX_LINE: usize = 160;

/// Returns the response if the request asks for a summary.
pub(super) fn respond(request: &ModelRequest) -> Option<String> {
    let text = || request.messages.first().map(|message| message.text()).unwrap_or_default();
    request.system.starts_with(SUMMARIZE).then(|| summarize(&text()))
}

/// Extends the earlier summary with the first sentence of each user and assistant message and with the tool
/// calls.
fn summarize(text: &str) -> String {
    let earlier = section(text, "Summary so far");
    let mut sections = SECTIONS.map(|(title, _)| {
        let below = earlier.lines().skip_while(|line| *line != title).skip(1);
        below.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect::<Vec<_>>()
    });
    let line_text =
        section(text, "Messages").lines().filter_map(|line| line.strip_prefix('[')?.split_once("] "));
    for (_, line_text) in line_text {
        let (place, line_text) =
            match (line_text.strip_prefix("user: "), line_text.strip_prefix("assistant: ")) {
                (Some(line_text), _) => (0, line_text),
                (_, Some(line_text)) => (1, line_text),
                _ if line_text.starts_with("assistant calls ") => (2, line_text),
                _ => continue,
            };
        let first = line_text.split_inclusive(['.', '!', '?']).next().unwrap_or_default();
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
    fn a_summary_contains_the_earlier_summary_and_the_new_messages() {
        let run = |earlier: &str, line_text: &str| {
            summarize(&format!(
                "Summary so far:\n{}\n\nMessages:\n{}",
                untrusted(earlier),
                untrusted(line_text)
            ))
        };
        let line_text = "[t] user: Plan a trip. Soon!\n[t] assistant: Where to?\n[t] assistant calls look: {}\n[t] look gives: x";
        let one = run("", line_text);
        let expected = "## Intent\n- Plan a trip.\n## Decisions\n- Where to?\n## Artifacts\n\
                        - assistant calls look: {}\n## Next steps\n- Plan a trip.\n";
        assert_eq!(one, expected);
        let two = run(&one, "[t] user: To Oslo.");
        assert!(
            two.contains("- Plan a trip.\n- To Oslo.\n") && two.ends_with("## Next steps\n- To Oslo.\n"),
            "{two}"
        );
        let many: String = (0..99).map(|n| format!("[t] user: number {n}\n")).collect();
        assert!(run(&two, &many).lines().count() < 60);
    }
}
