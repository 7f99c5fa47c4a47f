//! The demo model's responses to memory requests, so that memory can be tried without an account.

use crate::types::ModelRequest;

/// How the system prompts of the two requests begin; see `memory::flush` and `memory::consolidation`.
const EXTRACT: &str = "You maintain the long-term memory of an assistant.";
const CONSOLIDATE: &str = "You maintain MEMORY.md,";
/// Maximum length of the consolidated file, in characters.
const MAX_FILE: usize = 14_000;

/// Start of a sentence that states a fact, and its replacement in the fact.
const RULES: &[(&str, &str)] = &[
    ("remember that ", ""),
    ("remember ", ""),
    ("my name is ", "The user's name is "),
    ("i prefer ", "The user prefers "),
    ("i like ", "The user likes "),
    ("i live in ", "The user lives in "),
];

/// Returns the response if the request is one of the two.
pub(super) fn respond(request: &ModelRequest) -> Option<String> {
    let text = || request.messages.first().map(|message| message.text()).unwrap_or_default();
    if request.system.starts_with(EXTRACT) {
        return Some(extract(&text()));
    }
    request.system.starts_with(CONSOLIDATE).then(|| consolidate(&text()))
}

/// Returns the marked text below a title.
pub(super) fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let below = text.split_once(&format!("{title}:\n<untrusted_output>\n")).map_or("", |(_, below)| below);
    below.split_once("\n</untrusted_output>").map_or("", |(inner, _)| inner)
}

fn extract(text: &str) -> String {
    let known = format!("{}\n{}", section(text, "Memory"), section(text, "Today's log")).to_lowercase();
    let mut is_user = false;
    let mut facts: Vec<String> = Vec::new();
    for line in section(text, "Conversation").lines() {
        let line_text = line.strip_prefix('[').and_then(|line| line.split_once("] "));
        let line = match line_text
            .map(|(_, line_text)| (line_text.strip_prefix("user: "), line_text.starts_with("assistant: ")))
        {
            Some((Some(line_text), _)) => {
                is_user = true;
                line_text
            }
            Some((None, true)) => {
                is_user = false;
                continue;
            }
            _ => line,
        };
        if is_user && !line.trim_start().starts_with('/') {
            facts.extend(line.split_inclusive(['.', '!', '?']).filter_map(fact));
        }
    }
    facts.retain(|fact| !known.contains(&fact.to_lowercase()));
    facts.dedup();
    match facts.is_empty() {
        true => "NO_REPLY".to_owned(),
        false => facts.iter().map(|fact| format!("- {fact}\n")).collect(),
    }
}

/// Returns the fact that a sentence states.
fn fact(sentence: &str) -> Option<String> {
    let sentence = sentence.trim();
    let lower = sentence.to_ascii_lowercase();
    let (rule, instead) = RULES.iter().find(|(rule, _)| lower.starts_with(rule))?;
    let rest = sentence.get(rule.len()..)?.trim();
    (!rest.is_empty()).then(|| format!("{instead}{rest}"))
}

fn consolidate(text: &str) -> String {
    let old = section(text, "MEMORY.md");
    let known = old.to_lowercase();
    let mut lines: Vec<String> = match old.trim().is_empty() {
        true => vec!["# Memory".to_owned(), String::new()],
        false => old.trim_end().lines().map(str::to_owned).collect(),
    };
    for fact in section(text, "New facts").lines().filter_map(|line| line.strip_prefix("- ")) {
        let (day, fact) = fact.split_once(' ').unwrap_or(("", fact));
        let line = format!("- {fact} ({day})");
        if !known.contains(&fact.to_lowercase()) && !lines.contains(&line) {
            lines.push(line);
        }
    }
    let chars = |lines: &[String]| lines.iter().map(|line| line.chars().count() + 1).sum::<usize>();
    while chars(&lines) > MAX_FILE {
        // The oldest facts are removed first.
        let Some(oldest) = lines.iter().position(|line| line.starts_with("- ")) else { break };
        lines.remove(oldest);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::call::untrusted;
    use pretty_assertions::assert_eq;

    #[test]
    fn facts_are_extracted_once() {
        let run = |memory: &str, line_text: &str| {
            let parts =
                [("Memory", memory), ("Today's log", "- 10:00 likes cats"), ("Conversation", line_text)];
            let text: Vec<_> = parts.iter().map(|(t, text)| format!("{t}:\n{}", untrusted(text))).collect();
            extract(&text.join("\n\n"))
        };
        let line_text = "[2026-11-20T12:00:00.000Z] user: Hi! My name is Ann. I prefer tea.\nRemember that cats purr\n\
                    /tool x {\"text\": \"remember y\"}\n[2026-11-20T12:00:01.000Z] assistant: I prefer milk.";
        assert_eq!(run("", line_text), "- The user's name is Ann.\n- The user prefers tea.\n- cats purr\n");
        assert_eq!(run("the user's name is ann.", line_text), "- The user prefers tea.\n- cats purr\n");
        assert_eq!(run("", "[t] user: what is my name?"), "NO_REPLY");
    }

    #[test]
    fn new_facts_are_appended_and_the_oldest_removed() {
        let run = |memory: &str, facts: &str| {
            consolidate(&format!("MEMORY.md:\n{}\n\nNew facts:\n{}", untrusted(memory), untrusted(facts)))
        };
        let one = run("", "- 2026-11-20 The user likes tea.\n- 2026-11-20 The user likes tea.");
        assert_eq!(one, "# Memory\n\n- The user likes tea. (2026-11-20)\n");
        assert_eq!(run(&one, "- 2026-11-21 The user likes tea."), one);
        let long: String = (0..2_000).map(|n| format!("- 2026-11-20 fact {n} x\n")).collect();
        let file = run(&one, &long);
        assert!(
            file.len() <= MAX_FILE && file.starts_with("# Memory\n\n- fact ") && file.contains("fact 1999")
        );
    }
}
