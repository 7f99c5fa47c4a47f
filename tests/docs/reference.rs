//! Compares docs/reference.md with the shapes, tools and codes of the library. The examples of JSON come from a session in
//! memory, and are compared by their shape: the names and types of all fields.

use super::{generate, page, rows, section, source_of};
use edge_harness::agent::{DynTool, MediaModels, settings::SkillSettings};
use edge_harness::platform::in_memory::{
    ManualClock, MemoryBlobs, MemoryFiles, MemoryLog, ScriptedHttp, ScriptedModels, SeededEntropy,
    models::answer,
};
use edge_harness::ports::{Log, Models};
use edge_harness::session::view::TurnAnswer;
use edge_harness::testkit::TestSession;
use edge_harness::tools::{Subagent, WebFetch, media, skills, subagent};
use edge_harness::types::{Category, ErrorCode, ModelErrorKind, ModelRequest, Part, Policy, Rules, ToolSpec};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use pretty_assertions::assert_eq;
use serde::Serialize;
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeSet, fmt::Write, rc::Rc, time::Duration};

const PAGE: &str = "docs/reference.md";
/// Longest line of an example, in bytes.
const WIDTH: usize = 110;
/// The time of the examples, in milliseconds since 1970.
const NOW: u64 = 1_795_176_000_000;

/// A page of a list.
#[derive(Serialize)]
struct Page<T> {
    data: T,
    next_cursor: Option<String>,
}

#[test]
fn the_examples_of_json_have_the_real_shapes() {
    let session = TestSession::new(|agent| agent);
    session.clock.advance(Duration::from_millis(NOW));
    let end = session.turn("/tool echo {\"text\": \"hi\"}\n/then /say Done.");
    let view = session.session();
    let (messages, _) = view.conversation(0, 50).unwrap();
    let turn = messages[0].turn.clone();
    example("session", &view.view().unwrap());
    example("response", &TurnAnswer::new(&turn, end));
    example("turn", &view.turn(&turn).unwrap().unwrap());
    example("messages", &Page { data: messages, next_cursor: None });

    session.permit(Rules { categories: [(Category::Edit, Policy::Ask)].into(), ..Rules::default() });
    let write = "/tool write_file {\"path\": \"a.txt\", \"content\": \"hi\"}";
    let pending = session.send(write).waiting();
    example("pending", &pending[0]);
    let mut view = session.session().display(|_| false).unwrap();
    // They are shown above.
    view["session"] = json!({});
    view["pending"] = json!([{}]);
    example("view", &view);
}

/// Compares an example with the shape of `value`, or writes it.
#[track_caller]
fn example(name: &str, value: &impl Serialize) {
    let json = serde_json::to_string(value).unwrap();
    let found = section(PAGE, name, &format!("\n```json\n{}\n```\n\n", pretty(&json, 0)));
    let found = found.trim().trim_start_matches("```json").trim_end_matches("```");
    let found: Value = serde_json::from_str(found).expect("JSON");
    let known: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        shape(&found),
        shape(&known),
        "the example {name:?} is stale; run: UPDATE_DOCS=1 cargo test --test docs"
    );
}

/// Replaces each string, number and boolean by the name of its type.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
    }
}

/// Formats JSON with its fields in their order. A value is on one line if it fits.
fn pretty(json: &str, indent: usize) -> String {
    let spaced = split(json, ',', true).join(", ");
    let spaced = split(&spaced, ':', true).join(": ");
    let is_object = json.starts_with('{');
    if indent + spaced.len() <= WIDTH || !(is_object || json.starts_with('[')) {
        return spaced;
    }
    let member = |member: &str| match split(member, ':', false).as_slice() {
        [name, value] if is_object => format!("{name}: {}", pretty(value, indent + 2)),
        _ => pretty(member, indent + 2),
    };
    let members: Vec<_> = split(&json[1..json.len() - 1], ',', false).into_iter().map(member).collect();
    let (open, close) = if is_object { ('{', '}') } else { ('[', ']') };
    let pad = " ".repeat(indent);
    format!("{open}\n{pad}  {}\n{pad}{close}", members.join(&format!(",\n{pad}  ")))
}

/// Splits JSON at each `mark` that is not in a string, and unless `nested`, not in an array or object either.
fn split(json: &str, mark: char, nested: bool) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in json.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if c == mark && (nested || depth == 0) => {
                parts.push(&json[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&json[start..]);
    parts
}

#[test]
fn the_table_of_tools_has_every_built_in_tool() {
    let offered: Rc<RefCell<Vec<ToolSpec>>> = Rc::default();
    let seen = Rc::clone(&offered);
    let script = move |request: &ModelRequest| {
        seen.replace(request.tools.iter().map(|tool| ToolSpec::clone(tool)).collect());
        answer(vec![Part::text("ok")])
    };
    // The tools that need a setting.
    let web_fetch = WebFetch::new(Rc::new(ScriptedHttp::default()), "*").unwrap();
    let session = TestSession::scripted(script, |agent| {
        let agent = agent.tool(web_fetch).dyn_tool(Rc::new(Subagent::new(&[])));
        let in_background = subagent::in_background(&[]);
        let model = Some("scripted/model".to_owned());
        let settings = MediaModels { image: model.clone(), transcription: model.clone(), speech: model };
        let models: Rc<dyn Models> = Rc::new(ScriptedModels::new(|_| answer(Vec::new())));
        let log: Rc<dyn Log> = Rc::new(MemoryLog::default());
        let media = media::family(&models, &log, &settings);
        proposer()
            .into_iter()
            .chain(in_background)
            .chain(media)
            .fold(agent, |agent, tool| agent.dyn_tool(tool))
    });
    session.ask("Hello");

    let own = "const NAME: &'static str = \"";
    let names = source_of("src/tools").replace("const NAME: &str = \"", own);
    let names: BTreeSet<_> = names.split(own).skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let fixtures = source_of("src/tools/fixtures");
    let names: Vec<_> =
        names.into_iter().filter(|name| !fixtures.contains(&format!("{own}{name}\""))).collect();
    let mut table = String::from("\n| tool | category | effect | what it does |\n|---|---|---|---|\n");
    for name in names {
        let tool = offered.borrow().iter().find(|tool| tool.name == name).cloned();
        let ToolSpec { description, category, effect, control, .. } = tool.expect(name);
        let sentence =
            description.split_once(". ").map_or(description.trim_end_matches('.'), |(first, _)| first);
        let (category, effect) = (category.name(), json!(effect));
        let effect = effect.as_str().unwrap();
        let control = if control { ", control" } else { "" };
        writeln!(table, "| `{name}` | {category}{control} | {effect} | {sentence} |").unwrap();
    }
    generate(PAGE, "tools", &format!("{table}\n"));
}

/// Returns the tool `propose_skill`.
fn proposer() -> Option<Rc<dyn DynTool>> {
    let settings = SkillSettings { drafts: true, ..SkillSettings::default() };
    let (clock, entropy) = (Rc::new(ManualClock::default()), Rc::new(SeededEntropy::default()));
    let stores =
        Stores::new(Rc::new(MemoryFiles::default()), Rc::new(MemoryBlobs::default()), clock, entropy);
    let workspaces = Rc::new(Workspaces::new(stores, Bundle::default()));
    skills::family(workspaces, Rc::new(MemoryLog::default()), &settings).pop()
}

/// Returns the first two cells of each row below a heading of the page, sorted.
fn listed(heading: &str) -> BTreeSet<(String, String)> {
    let text = page(PAGE);
    let (_, rest) = text.split_once(&format!("\n### {heading}\n")).expect(heading);
    let below = rest.split("\n##").next().unwrap();
    let cells =
        rows(below).into_iter().map(|cells| (cells[0].trim_matches('`').to_owned(), cells[1].to_owned()));
    cells.collect()
}

#[test]
fn every_problem_is_listed_with_its_status() {
    let known = ErrorCode::ALL.iter().map(|code| (code.as_str().to_owned(), code.status().to_string()));
    assert_eq!(listed("Problems"), known.collect());
}

#[test]
fn every_error_of_a_turn_is_listed() {
    use ModelErrorKind::{Auth, Billing, Cut, Invalid, Network, Overflow, RateLimited, Stalled, Unavailable};
    let yes_or_no = |retryable: bool| if retryable { "yes" } else { "no" }.to_owned();
    let kinds = [Auth, Billing, Cut, Invalid, Network, Overflow, RateLimited, Stalled, Unavailable];
    let mut known: BTreeSet<_> =
        kinds.iter().map(|kind| (kind.code().to_owned(), yes_or_no(kind.is_retryable()))).collect();
    let source = page("src/types/model.rs");
    let (_, codes) = source.split_once("pub fn code(self)").unwrap();
    let codes = codes.split("\n    }").next().unwrap();
    assert_eq!(codes.matches("Self::").count(), kinds.len());
    // The errors of the agent itself.
    for made in source_of("src").split("TurnError::new(").skip(1) {
        let Some(made) = made.trim_start().strip_prefix('"') else { continue };
        let (code, rest) = made.split_once('"').unwrap();
        let (no, yes) = (rest.find(" false)"), rest.find(" true"));
        let retryable = yes.is_some_and(|yes| no.is_none_or(|no| yes < no));
        known.insert((code.to_owned(), yes_or_no(retryable)));
    }
    assert_eq!(listed("Errors of failed turns"), known);
}

#[test]
fn every_stop_reason_is_listed() {
    let source = page("src/types/turn.rs");
    let (_, variants) = source.split_once("pub enum StopReason {").unwrap();
    let variants = variants.split('}').next().unwrap().lines();
    let names = variants.filter_map(|line| line.trim().strip_suffix(','));
    let snake = |name: &str| {
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    };
    let known: BTreeSet<_> = names.filter(|line| !line.starts_with('/')).map(snake).collect();
    let listed: BTreeSet<_> = listed("Stop reasons").into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, known);
}
