//! Reads the directives in the user's message.

use crate::types::{Message, ModelRequest, Part, Role};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of words that one `/slow` streams.
const MAX_WORDS: u64 = 10_000;

/// Maximum length of a quotation, in characters.
const QUOTE: usize = 500;

/// One action of a step.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Think(String),
    Say(String),
    Slow { delay: Duration, n: u64 },
    Call { name: String, args: String },
    Fail(String),
}

/// One response of the model.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
    /// Whether the script has another step.
    pub(super) has_more: bool,
}

/// One-shot requests with a scripted response: a phrase that identifies the request, the directive that sets
/// the response, and the default response.
const ONE_SHOT_RESPONSES: &[(&str, &str, &str)] = &[
    ("Plan how to reach this goal in steps.", "/plan", PLAN),
    (
        "The project's checks fail after the steps below.",
        "/repair",
        "I am demo/echo, so I cannot repair this. A line `/repair {json}` in the goal is the repair.",
    ),
    (
        "Look back at the last step",
        "/reflect",
        "CONTINUE. As far as I can tell, the last step did what it was supposed to do.",
    ),
    (
        "You write the spec of a job",
        "/spec",
        "## Goal\nDo what was asked.\n\n## Constraints\n- Change nothing else.\n\n## Acceptance criteria\n- The tests pass.",
    ),
    ("\"score\"", "/judge", r#"{"score": 1, "reason": "demo/echo likes every reply"}"#),
];

/// The plan of a run whose goal has no line `/plan`. Every agent can do it.
const PLAN: &str = r#"{"steps": [{"id": "note", "title": "Say who planned this", "type": "note", "content": "demo/echo is a rule-based stand-in for a language model, so this note is its whole plan. A line `/plan {json}` in the goal is the plan."}]}"#;

/// Phrase in the prompt of a turn that requires structured output. A step without calls ends such a turn, so
/// the text after `/then` is for the attempt after a schema violation.
const SCHEMA_PHRASE: &str = "must conform to this JSON Schema";

/// Returns the step to run: the number of assistant messages after the last user message is the number of
/// completed steps.
pub(super) fn step(request: &ModelRequest) -> Step {
    if let Some(response) = one_shot_response(request) {
        return Step { actions: vec![Action::Say(response)], has_more: false };
    }
    let messages = &request.messages;
    let last_user = messages.iter().rposition(|m| m.role == Role::User);
    let (before, now) = messages.split_at(last_user.unwrap_or(0));
    let script = now.first().filter(|m| m.role == Role::User).map(|m| m.prompt_text()).unwrap_or_default();
    let done = now.iter().filter(|m| m.role == Role::Assistant).count();

    let steps = steps(&script);
    let lines = steps.get(done).map_or(&[][..], Vec::as_slice);
    let mut actions: Vec<_> = lines.iter().filter_map(|line| action(line, request)).collect();
    if request.tools_off {
        actions.retain(|action| !matches!(action, Action::Call { .. }));
        if actions.is_empty() {
            actions.push(Action::Say(summary(now).unwrap_or_else(|| "Done.".to_owned())));
        }
    } else if actions.is_empty() {
        // In the first step, lines that are not directives are ignored; in later steps they are part of the
        // reply.
        let plain = lines.join("\n");
        actions.push(Action::Say(match summary(now) {
            _ if done > 0 && !plain.trim().is_empty() => plain,
            Some(summary) => summary,
            None if done > 0 => "Done.".to_owned(),
            None => echo(&script, before, messages.len()),
        }));
    } else if done > 0 {
        actions = lines.iter().filter(|l| !l.trim().is_empty()).map(|l| action_or_say(l, request)).collect();
    }
    let may_go_on = !request.tools_off && !request.tail.contains(SCHEMA_PHRASE);
    Step { actions, has_more: may_go_on && done + 1 < steps.len() }
}

/// Returns the response to a one-shot request of the harness.
fn one_shot_response(request: &ModelRequest) -> Option<String> {
    if !request.tools_off {
        return None;
    }
    let by_rule = super::memory::respond(request)
        .or_else(|| super::summary::respond(request))
        .or_else(|| super::notes::respond(request));
    if by_rule.is_some() {
        return by_rule;
    }
    let script =
        request.messages.iter().rev().find(|m| m.role == Role::User).map(|m| m.text()).unwrap_or_default();
    // The requests of a run are messages. What they quote comes later.
    let asked = |words: &str| {
        request.tail.contains(words) || request.system.contains(words) || script.starts_with(words)
    };
    let (_, name, response) = ONE_SHOT_RESPONSES.iter().find(|(words, ..)| asked(words))?;
    let given = script.lines().find_map(|line| directive(line, name));
    Some(given.unwrap_or(response).to_owned())
}

/// Splits the script into the lines of each step.
fn steps(script: &str) -> Vec<Vec<&str>> {
    let mut steps = vec![Vec::new()];
    let is_one_shot_directive =
        |line: &&str| ONE_SHOT_RESPONSES.iter().any(|(_, name, _)| directive(line, name).is_some());
    for line in script.lines().filter(|line| !is_one_shot_directive(line)) {
        match directive(line, "/then") {
            Some(rest) => steps.push(vec![rest]),
            None => steps.last_mut().into_iter().for_each(|step| step.push(line)),
        }
    }
    steps
}

fn action_or_say(line: &str, request: &ModelRequest) -> Action {
    action(line, request).unwrap_or_else(|| Action::Say(line.trim().to_owned()))
}

fn action(line: &str, request: &ModelRequest) -> Option<Action> {
    if let Some(rest) = directive(line, "/tool") {
        let (name, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        return Some(Action::Call { name: name.to_owned(), args: args.trim().to_owned() });
    }
    if let Some(text) = directive(line, "/say") {
        return Some(Action::Say(text.to_owned()));
    }
    if let Some(text) = directive(line, "/think") {
        return Some(Action::Think(text.to_owned()));
    }
    if let Some(kind) = directive(line, "/fail") {
        return Some(Action::Fail(kind.to_lowercase()));
    }
    if let Some(rest) = directive(line, "/slow") {
        let mut numbers = rest.split_whitespace().map(str::parse::<u64>);
        return Some(match (numbers.next(), numbers.next()) {
            (Some(Ok(ms)), Some(Ok(n))) => {
                Action::Slow { delay: Duration::from_millis(ms), n: n.min(MAX_WORDS) }
            }
            _ => Action::Say("/slow needs two numbers: /slow MS N".to_owned()),
        });
    }
    let lower = line.trim_start().to_ascii_lowercase();
    if lower.starts_with("remember ") {
        let fact = after_word(line);
        return Some(memory(request, "memory_save", "text", after_that(fact)));
    }
    if lower.starts_with("recall ") {
        return Some(memory(request, "memory_search", "query", after_word(line)));
    }
    None
}

/// Returns what follows the directive `name` at the start of a line.
fn directive<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.trim().strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

fn after_word(line: &str) -> &str {
    line.trim().split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim())
}

fn after_that(fact: &str) -> &str {
    fact.strip_prefix("that ").unwrap_or(fact)
}

/// Creates a call of a memory tool. Its only argument is the first one that the tool's schema requires.
fn memory(request: &ModelRequest, tool: &str, usual: &str, text: &str) -> Action {
    let Some(spec) = request.tools.iter().find(|spec| spec.name == tool) else {
        let message = format!(
            "I cannot do that here: memory tools are not available (the request does not offer {tool})."
        );
        return Action::Say(message);
    };
    let argument = spec.parameters.pointer("/required/0").and_then(Value::as_str).unwrap_or(usual);
    Action::Call { name: tool.to_owned(), args: json!({ argument: text }).to_string() }
}

/// Lists the tool results of this turn, one per line.
fn summary(turn: &[Rc<Message>]) -> Option<String> {
    let results = turn.iter().flat_map(|m| &m.parts).filter_map(|part| match part {
        Part::ToolResult { name, outcome, .. } => Some(format!("{name} → {}", quote(&outcome.model_text()))),
        _ => None,
    });
    let lines: Vec<_> = results.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn echo(script: &str, before: &[Rc<Message>], count: usize) -> String {
    let mut text = "I am demo/echo, a rule-based stand-in for a language model. ".to_owned();
    text.push_str(&format!("You said: \"{}\". ", quote(script.trim())));
    if let Some(earlier) = before.iter().rev().find(|m| m.role == Role::User) {
        text.push_str(&format!("Before that you said: \"{}\". ", quote(earlier.prompt_text().trim())));
    }
    let messages = if count == 1 { "1 message".to_owned() } else { format!("{count} messages") };
    text.push_str(&format!("I see {messages} of this conversation. "));
    text.push_str("For a real model, set the secret OPENAI_API_KEY or ANTHROPIC_API_KEY, or DEFAULT_MODEL.");
    text
}

fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.to_owned(),
    }
}
