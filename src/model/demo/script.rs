//! What the demo model does next, read from what the user said.

use crate::types::{Message, ModelRequest, Part, Role};
use serde_json::{Value, json};
use std::rc::Rc;

/// Most words that one `/slow` streams.
const MAX_WORDS: u64 = 10_000;

/// Longest quotation, in characters.
const QUOTE: usize = 500;

/// One thing that a step does.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    Think(String),
    Say(String),
    Slow { ms: u64, n: u64 },
    Call { name: String, args: String },
    Fail(String),
}

/// One answer of the model.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) acts: Vec<Act>,
    /// Whether another step was asked for.
    pub(super) goes_on: bool,
}

/// What the model is asked aside, known by words of the question, and the directive that says what
/// to answer then.
const ASIDES: &[(&str, &str, &str)] = &[
    (
        "Look back at the last step",
        "/reflect",
        "CONTINUE. The last step did what it was meant to, as far as I can tell.",
    ),
    ("\"score\"", "/judge", r#"{"score": 1, "reason": "demo/echo likes every reply"}"#),
];

/// Words with which a turn asks for an answer that fits a schema. A step without calls ends such a
/// turn: what follows `/then` is for when the answer did not fit.
const WANTS_JSON: &str = "must fit this JSON Schema";

/// The step that is due: as many are done as assistant messages stand behind the user's last one.
pub(super) fn step(request: &ModelRequest) -> Step {
    if let Some(answer) = aside(request) {
        return Step { acts: vec![Act::Say(answer)], goes_on: false };
    }
    let messages = &request.messages;
    let last_user = messages.iter().rposition(|m| m.role == Role::User);
    let (before, now) = messages.split_at(last_user.unwrap_or(0));
    let said = now.first().filter(|m| m.role == Role::User).map(|m| m.prompt_text()).unwrap_or_default();
    let done = now.iter().filter(|m| m.role == Role::Assistant).count();

    let steps = steps(&said);
    let lines = steps.get(done).map_or(&[][..], Vec::as_slice);
    let mut acts: Vec<_> = lines.iter().filter_map(|line| act(line, request)).collect();
    if request.tools_off {
        acts.retain(|act| !matches!(act, Act::Call { .. }));
        if acts.is_empty() {
            acts.push(Act::Say(summary(now).unwrap_or_else(|| "Done.".to_owned())));
        }
    } else if acts.is_empty() {
        // Words beside directives are for people; words of a later step are to be said.
        let plain = lines.join("\n");
        acts.push(Act::Say(match summary(now) {
            _ if done > 0 && !plain.trim().is_empty() => plain,
            Some(summary) => summary,
            None if done > 0 => "Done.".to_owned(),
            None => echo(&said, before, messages.len()),
        }));
    } else if done > 0 {
        acts = lines.iter().filter(|l| !l.trim().is_empty()).map(|l| act_or_say(l, request)).collect();
    }
    let may_go_on = !request.tools_off && !request.tail.contains(WANTS_JSON);
    Step { acts, goes_on: may_go_on && done + 1 < steps.len() }
}

/// The answer to a question that is not the user's.
fn aside(request: &ModelRequest) -> Option<String> {
    let kept = || {
        let noted = || super::notes::answer(request);
        super::memory::answer(request).or_else(|| super::summary::answer(request)).or_else(noted)
    };
    if let Some(answer) = request.tools_off.then(kept).flatten() {
        return Some(answer);
    }
    let asked = |words: &str| request.tail.contains(words) || request.system.contains(words);
    let (_, name, answer) = ASIDES.iter().find(|(words, ..)| request.tools_off && asked(words))?;
    let said =
        request.messages.iter().rev().find(|m| m.role == Role::User).map(|m| m.text()).unwrap_or_default();
    let given = said.lines().find_map(|line| directive(line, name));
    Some(given.unwrap_or(answer).to_owned())
}

/// The lines of each step.
fn steps(said: &str) -> Vec<Vec<&str>> {
    let mut steps = vec![Vec::new()];
    let is_aside = |line: &&str| ASIDES.iter().any(|(_, name, _)| directive(line, name).is_some());
    for line in said.lines().filter(|line| !is_aside(line)) {
        match directive(line, "/then") {
            Some(rest) => steps.push(vec![rest]),
            None => steps.last_mut().into_iter().for_each(|step| step.push(line)),
        }
    }
    steps
}

fn act_or_say(line: &str, request: &ModelRequest) -> Act {
    act(line, request).unwrap_or_else(|| Act::Say(line.trim().to_owned()))
}

fn act(line: &str, request: &ModelRequest) -> Option<Act> {
    if let Some(rest) = directive(line, "/tool") {
        let (name, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        return Some(Act::Call { name: name.to_owned(), args: args.trim().to_owned() });
    }
    if let Some(text) = directive(line, "/say") {
        return Some(Act::Say(text.to_owned()));
    }
    if let Some(text) = directive(line, "/think") {
        return Some(Act::Think(text.to_owned()));
    }
    if let Some(kind) = directive(line, "/fail") {
        return Some(Act::Fail(kind.to_lowercase()));
    }
    if let Some(rest) = directive(line, "/slow") {
        let mut numbers = rest.split_whitespace().map(str::parse::<u64>);
        return Some(match (numbers.next(), numbers.next()) {
            (Some(Ok(ms)), Some(Ok(n))) => Act::Slow { ms, n: n.min(MAX_WORDS) },
            _ => Act::Say("/slow needs two numbers: /slow MS N".to_owned()),
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

/// What follows the word `name` at the start of the line.
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

/// A call of a memory tool with one argument: the first that its schema requires.
fn memory(request: &ModelRequest, tool: &str, usual: &str, text: &str) -> Act {
    let Some(spec) = request.tools.iter().find(|spec| spec.name == tool) else {
        let message =
            format!("I cannot do that here: memory tools are not available ({tool} is not offered to me).");
        return Act::Say(message);
    };
    let argument = spec.parameters.pointer("/required/0").and_then(Value::as_str).unwrap_or(usual);
    Act::Call { name: tool.to_owned(), args: json!({ argument: text }).to_string() }
}

/// A line for each result of this turn.
fn summary(turn: &[Rc<Message>]) -> Option<String> {
    let results = turn.iter().flat_map(|m| &m.parts).filter_map(|part| match part {
        Part::ToolResult { name, outcome, .. } => Some(format!("{name} → {}", quote(&outcome.model_text()))),
        _ => None,
    });
    let lines: Vec<_> = results.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn echo(said: &str, before: &[Rc<Message>], count: usize) -> String {
    let mut text = "I am demo/echo, a rule-based stand-in for a language model. ".to_owned();
    text.push_str(&format!("You said: \"{}\". ", quote(said.trim())));
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
