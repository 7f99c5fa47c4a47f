//! Compares the docs with the tables that they describe. `UPDATE_DOCS=1 cargo test --test docs` writes
//! the generated parts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use edge_harness::http::{route::Handler, routes};
use edge_harness::standard::settings::{Kind, SETTINGS, Setting};
use pretty_assertions::assert_eq;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

#[path = "docs/openapi.rs"]
mod openapi;
#[path = "docs/reference.rs"]
mod reference;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns the text between the markers of a section, after it has been replaced by `generated` if `UPDATE_DOCS` is set.
#[track_caller]
fn section(file: &str, name: &str, generated: &str) -> String {
    // Tests run concurrently, and several sections are in the same file.
    static FILES: Mutex<()> = Mutex::new(());
    let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let text = fs::read_to_string(path(file)).unwrap();
    let (before, rest) = text.split_once(&begin).expect("a begin marker");
    let (found, after) = rest.split_once(&end).expect("an end marker");
    if std::env::var_os("UPDATE_DOCS").is_none() {
        return found.to_owned();
    }
    fs::write(path(file), format!("{before}{begin}{generated}{end}{after}")).unwrap();
    generated.to_owned()
}

/// Compares the text between the markers of a section with `generated`, or replaces it.
#[track_caller]
fn generate(file: &str, name: &str, generated: &str) {
    let found = section(file, name, generated);
    assert_eq!(found, generated, "{file} is stale; run: UPDATE_DOCS=1 cargo test --test docs");
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().flat_map(|topic| topic.settings)
}

#[test]
fn configuration_lists_every_setting() {
    let mut text = String::from("\n| topic | settings |\n|---|---|\n");
    for topic in SETTINGS {
        // The second heading with the same text gets a suffix.
        let is_topic = |name: &str| SETTINGS.iter().any(|topic| anchor(topic.title) == anchor(name));
        let suffix = |name: &str| if is_topic(name) { "-1" } else { "" };
        let link = |row: &Setting| format!("[{}](#{}{})", row.name, anchor(row.name), suffix(row.name));
        let links: Vec<_> = topic.settings.iter().map(link).collect();
        writeln!(text, "| {} | {} |", topic.title, links.join(", ")).unwrap();
    }
    for topic in SETTINGS {
        writeln!(text, "\n## {}\n\n{}", topic.title, topic.about).unwrap();
        for Setting { name, kind, default, expects, doc, example } in topic.settings {
            let kind = match kind {
                Kind::Secret(_) => "Secret",
                Kind::Variable(_) => "Variable",
                Kind::Binding => "Binding",
            };
            writeln!(text, "\n### {name}\n\n{doc}\n").unwrap();
            write!(text, "{kind}: {expects}.").unwrap();
            if !default.is_empty() {
                write!(text, " Default: `{default}`.").unwrap();
            }
            text.push('\n');
            if !example.is_empty() {
                writeln!(text, "\n```json\n{example}\n```").unwrap();
            }
        }
    }
    generate("docs/configuration.md", "generated", &format!("{text}\n"));
}

#[test]
fn wrangler_toml_sets_variables_of_the_table() {
    let text = fs::read_to_string(path("wrangler.toml")).unwrap();
    let (_, vars) = text.split_once("\n[vars]\n").unwrap();
    let vars = vars.split("\n[").next().unwrap();
    let names: Vec<_> = vars.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(!names.is_empty());
    for name in names {
        let known = settings().any(|row| row.name == name && matches!(row.kind, Kind::Variable(_)));
        assert!(known, "{name} is not a variable of SETTINGS");
    }
}

fn page(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Returns the cells of each table row of a page whose first cell is code.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Returns the wire name and the fields of each variant of an enum with `serde(rename)`. Fields of tuple
/// variants are not included.
fn variants(source: &str) -> Vec<(String, Option<Vec<String>>)> {
    let mut found = Vec::new();
    let mut lines = source.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("#[serde(rename = \"") else { continue };
        let name = name.split('"').next().unwrap().to_owned();
        if !lines.next().unwrap().ends_with('{') {
            found.push((name, None));
            continue;
        }
        let (mut fields, mut optional) = (Vec::new(), false);
        for line in lines.by_ref().take_while(|line| *line != "},") {
            optional |= line.contains("skip_serializing_if");
            let Some((field, kind)) = line.strip_suffix(',').and_then(|line| line.split_once(": ")) else {
                continue;
            };
            if line.starts_with(['/', '#']) {
                continue;
            }
            let mark = if optional || kind.starts_with("Option<") { "?" } else { "" };
            fields.push(format!("{}{mark}", field.trim_start_matches("r#")));
            optional = false;
        }
        found.push((name, Some(fields)));
    }
    found
}

#[test]
fn events_lists_every_event_and_its_fields() {
    let events = page("docs/events.md");
    let (_, events) = events.split_once("\n## Event types\n").unwrap();
    let mut listed: Vec<_> = rows(events)
        .into_iter()
        .map(|cells| {
            let fields: Vec<_> = cells[1].split(", ").map(str::to_owned).collect();
            (cells[0].trim_matches('`').to_owned(), fields)
        })
        .collect();
    listed.sort();
    let sources = ["src/types/event.rs", "src/types/delta.rs"].map(page);
    let mut known: Vec<_> = sources.iter().flat_map(|source| variants(source)).collect();
    known.sort();
    let names = |all: &[(String, Vec<String>)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&listed), known.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    for ((name, listed), (_, fields)) in listed.iter().zip(&known) {
        if let Some(fields) = fields {
            assert_eq!(listed, fields, "the fields of {name}");
        }
    }
}

/// Returns the Rust sources of a folder, joined.
fn source_of(folder: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(path("").join(folder)).unwrap().flatten().map(|entry| entry.path()) {
        if entry.is_dir() && !entry.ends_with("target") && !entry.ends_with("node_modules") {
            text.push_str(&source_of(entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(entry).unwrap());
        }
    }
    text
}

#[test]
fn rust_in_the_docs_is_from_the_examples() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let examples = words(&format!("{}{}", source_of("examples"), page("src/http/faces/ask.rs")));
    let text = page("docs/extending.md");
    let blocks: Vec<_> =
        text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert!(examples.contains(&words(block)), "not in examples/:\n{block}");
    }
}

#[test]
fn code_of_clients_in_the_docs_is_from_the_examples() {
    let folder = fs::read_dir(path("examples/clients")).unwrap().flatten().map(|entry| entry.path());
    let programs = folder.filter(|file| file.extension().is_some_and(|kind| kind == "mjs" || kind == "py"));
    let programs: Vec<_> = programs.map(|file| fs::read_to_string(file).unwrap()).collect();
    let text = page("docs/clients.md");
    let fences = ["```js\n", "```python\n"];
    let blocks: Vec<_> = fences.iter().flat_map(|fence| text.split(fence).skip(1)).collect();
    assert!(!blocks.is_empty());
    for block in blocks.iter().filter_map(|rest| rest.split("```").next()) {
        let is_shown = programs.iter().any(|program| program.contains(block));
        assert!(is_shown, "not in examples/clients/:\n{block}");
    }
}

#[test]
fn examples_and_tests_use_the_same_versions_of_clients() {
    let dependencies = |name: &str| {
        let package: serde_json::Value = serde_json::from_str(&page(name)).unwrap();
        package["dependencies"].as_object().unwrap().clone()
    };
    let tested = dependencies("tests/clients/package.json");
    let shown = dependencies("examples/clients/package.json");
    assert!(!shown.is_empty());
    for (name, version) in shown.iter().filter(|(name, _)| *name != "@edge-harness/client") {
        assert_eq!(tested.get(name), Some(version), "{name}");
    }
}

/// Returns GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the anchors of a page. Duplicates get the suffix `-1`.
fn anchors(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut code = false;
    for line in page.lines() {
        code ^= line.starts_with("```");
        let Some((_, heading)) =
            line.split_once("# ").filter(|(marks, _)| marks.trim_matches('#').is_empty())
        else {
            continue;
        };
        if !code {
            let anchor = anchor(heading);
            let twins = found.iter().filter(|other| **other == anchor).count();
            found.push(if twins == 0 { anchor } else { format!("{anchor}-{twins}") });
        }
    }
    found
}

#[test]
fn links_between_pages_have_targets() {
    let docs = fs::read_dir(path("docs")).unwrap().flatten();
    let mut pages: Vec<String> =
        docs.map(|entry| format!("docs/{}", entry.file_name().to_str().unwrap())).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned));
    let mut broken = Vec::new();
    for name in pages {
        let text = page(&name);
        let folder = path(&name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path(&name) } else { folder.join(file) };
            let there = match fs::read_to_string(&target) {
                Ok(text) => fragment.is_empty() || anchors(&text).iter().any(|anchor| anchor == fragment),
                Err(_) => target.is_dir(),
            };
            if !there {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_http_api_lists_every_route_and_its_scope() {
    let text = page("docs/http-api.md");
    let methods = ["GET ", "POST ", "PUT ", "PATCH ", "DELETE "];
    let listed = rows(&text).into_iter().filter_map(|cells| {
        let route = cells[0].trim_matches('`');
        methods.iter().any(|method| route.starts_with(method)).then(|| format!("{route}: {}", cells[1]))
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    let known = routes::all().map(|route| {
        let needs = match route.handler {
            Handler::Public(_) | Handler::Socket(_) => "public",
            Handler::Operator(_) => "operator",
            Handler::Tenant(scope, _)
            | Handler::NewSession(scope, _)
            | Handler::Session(scope, _)
            | Handler::Face(scope, ..)
            | Handler::Split(scope, ..)
            | Handler::Unread(scope, _) => scope.name(),
        };
        let ticket = if route.accepts_ticket { " or ticket" } else { "" };
        format!("{} {}: {needs}{ticket}", route.method, route.path)
    });
    let mut known: Vec<_> = known.collect();
    known.sort();
    assert_eq!(listed, known);
}

#[test]
fn the_example_pins_the_tools_of_the_repository() {
    // The lines of the files that give a version, without indentation and a comma at the end.
    let lines = |name: &str, mark: &str| {
        let text = page(name);
        let lines = text.lines().filter(|line| line.contains(mark));
        lines.map(|line| line.trim().trim_end_matches(',').to_owned()).collect::<Vec<_>>()
    };
    for tool in ["\"node\": \"", "\"wrangler\": \""] {
        assert_eq!(lines("examples/my-agent/package.json", tool), lines("package.json", tool));
    }
    let of = |name, mark: &str| lines(name, mark).concat().replace(mark, "");
    assert_eq!(of("examples/my-agent/build.sh", "version="), of("scripts/setup.sh", "WORKER_BUILD="));
}

#[test]
fn the_readme_stays_short() {
    assert!(page("README.md").lines().count() <= 150);
}

#[test]
fn named_files_exist() {
    let folders =
        ["src/", "tests/", "docs/", "sim/", "bench/", "worker/", "examples/", "scripts/", "migrations/"];
    let docs = fs::read_dir(path("docs")).unwrap().flatten();
    let mut pages: Vec<String> =
        docs.map(|entry| format!("docs/{}", entry.file_name().to_str().unwrap())).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned));
    let mut missing = Vec::new();
    for name in pages {
        let text = page(&name);
        for code in text.split('`').skip(1).step_by(2) {
            let is_path = folders.iter().any(|folder| code.starts_with(folder));
            if is_path && !code.contains(['<', ' ', '*']) && !path(code).exists() {
                missing.push(format!("{name}: {code}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
