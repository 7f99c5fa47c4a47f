//! Checks the dependencies between parts: reads the `crate::` paths of each part and fails on every one that
//! is not in the table. ARCHITECTURE.md explains it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Each part and the parts it may depend on. A file belongs to the longest matching entry.
const MAY_USE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("ports", &["types"]),
    ("ledger", &["types", "ports"]),
    ("inbox", &["types", "ports"]),
    ("model", &["types", "ports"]),
    ("session", &["types", "ports"]),
    ("workspace", &["types", "ports"]),
    ("turn", &["types"]),
    ("runs", &["types", "ports"]),
    ("context", &["types", "ports", "model::one_shot", "session"]),
    // The turn loop uses `model::retry` for delays and `model::one_shot` for one-shot calls.
    ("agent", &["types", "ports", "model::retry", "model::one_shot", "session", "turn", "runs", "context"]),
    ("memory", &["types", "ports", "model::one_shot", "workspace"]),
    // A server describes the arguments of its tools by a schema.
    ("mcp", &["types", "ports", "turn::schema", "agent"]),
    ("remote", &["types", "ports"]),
    ("hooks", &["types", "ports", "session", "workspace", "memory", "agent"]),
    ("follow_ups", &["types", "ports", "workspace", "memory", "agent"]),
    // The schema of an external tool comes from its provider.
    ("tools", &["types", "ports", "session", "workspace", "memory", "turn::schema", "runs", "agent"]),
    (
        "standard",
        &[
            "types",
            "ports",
            "model",
            "session",
            "workspace",
            "context",
            "memory",
            // The schemas of a definition are checked when it is stored.
            "turn::schema",
            "agent",
            "mcp",
            "hooks",
            "follow_ups",
            "tools",
        ],
    ),
    // The schema of a caller is checked with the request. Client and server of MCP share the names of the protocol.
    (
        "http",
        &[
            "types",
            "ports",
            "session",
            "workspace",
            "memory",
            "turn::schema",
            "runs",
            "agent",
            "mcp::protocol",
            "standard",
        ],
    ),
    // The ledgers and inboxes in memory have the logic of the real ones.
    ("platform/in_memory", &["types", "ports", "ledger", "inbox"]),
    ("platform/sql", &["types", "ports"]),
    (
        "platform/cloudflare",
        &[
            "types",
            "ports",
            "model",
            "session",
            "workspace",
            "memory",
            "ledger",
            "inbox",
            "turn",
            "agent",
            "mcp",
            "remote",
            "hooks",
            "tools",
            "standard",
            "http",
            "platform::sql",
        ],
    ),
    ("platform", &[]),
    (
        "testkit",
        &[
            "types",
            "ports",
            "model",
            "session",
            "workspace",
            "memory",
            "agent",
            "standard",
            "platform::in_memory",
        ],
    ),
    ("lib", &[]),
];

/// The crates of the platform, allowed below `platform/cloudflare` only.
const PLATFORM: &[&str] = &["worker", "wasm_bindgen", "wasm_bindgen_futures", "js_sys", "web_sys"];

const MAX_LINES: usize = 500;

struct Source {
    /// Path from the folder, without `.rs`.
    name: String,
    /// Code without tests, comments, and empty lines.
    code: String,
}

#[test]
fn every_dependency_is_allowed() {
    let mut wrong = Vec::new();
    for source in sources() {
        let (part, allowed) = part_of(&source.name);
        for path in paths(&source.code) {
            let own = path == part || path.starts_with(&format!("{part}::"));
            let fits = |allowed: &&str| path == **allowed || path.starts_with(&format!("{allowed}::"));
            let own_adapter = part.starts_with("platform/") && path.starts_with(&part.replace('/', "::"));
            if !(own || own_adapter || allowed.iter().any(fits)) {
                wrong.push(format!("{} names crate::{path}", source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "dependencies in the wrong direction:\n{}", wrong.join("\n"));
}

#[test]
fn built_ins_do_not_depend_on_each_other() {
    let mut wrong = Vec::new();
    for source in sources() {
        let Some((family @ ("hooks" | "follow_ups" | "tools"), name)) = source.name.split_once('/') else {
            continue;
        };
        // Files of one family in a folder may depend on each other.
        let own = name.split('/').next().unwrap_or_default();
        let sideways = paths(&source.code).into_iter().filter(|path| {
            let inner =
                ["hooks::", "follow_ups::", "tools::"].iter().find_map(|room| path.strip_prefix(room));
            inner.is_some_and(|inner| inner.split("::").next() != Some(own))
        });
        wrong.extend(sideways.map(|path| format!("{} names crate::{path}", source.name)));
        if !name.contains('/') && source.code.contains("super::") {
            wrong.push(format!("{family}/{name} reaches its siblings with super::"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_platform_is_named_in_its_own_folder_only() {
    let mut wrong = Vec::new();
    for source in sources().into_iter().filter(|s| !s.name.starts_with("platform/cloudflare")) {
        for name in PLATFORM {
            let named = |before: &str| source.code.contains(&format!("{before}{name}::"));
            if named(" ")
                || named("(")
                || named("<")
                || named("&")
                || source.code.contains(&format!("use {name}"))
            {
                wrong.push(format!("{} names {name}", source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_no_circles_of_files() {
    for folder in ["src", "sim", "cli/src"] {
        let sources = sources_of(folder);
        let circles = circles(&arrows(&sources));
        assert!(circles.is_empty(), "circles of files in {folder}/: {circles:#?}");
    }
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = ["src", "cli/src"]
        .into_iter()
        .flat_map(sources_of)
        .map(|source| (source.code.lines().count(), source.name))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines of code: {long:?}");
}

#[test]
fn this_test_parses_paths() {
    let code = "use crate::types::{Budget, id};\nlet x = crate::session::view::reply(m);\nuse crate::{\n    ports::{Http, Log},\n    types::ModelError,\n};\nuse crate::model;";
    let found: Vec<String> = paths(code).into_iter().collect();
    assert_eq!(
        found,
        [
            "model",
            "ports::Http",
            "ports::Log",
            "session::view::reply",
            "types::Budget",
            "types::ModelError",
            "types::id"
        ]
    );
}

#[test]
fn arrows_follow_re_exports_and_ignore_the_files_of_a_folder() {
    let source = |name: &str, code: &str| Source { name: name.into(), code: code.into() };
    let sources = [
        source("a", "pub use b::{self, Thing};\nuse self::c::Other;"),
        source("a/b", "use super::c::Other;\npub struct Thing;"),
        source("a/c", "use crate::a::Thing;\nlet x = super::super::d::run();"),
        source("d", "use crate::a;"),
    ];
    let arrows = arrows(&sources);
    let to = |name: &str| arrows[name].iter().copied().collect::<Vec<_>>();
    assert_eq!([to("a"), to("a/b"), to("a/c"), to("d")], [vec![], vec!["a/c"], vec!["a/b", "d"], vec!["a"]]);
    assert_eq!(circles(&arrows), [["a/b", "a/c"]]);
}

fn part_of(name: &str) -> (&'static str, &'static [&'static str]) {
    let inside = |part: &str| name == part || name.starts_with(&format!("{part}/"));
    let found = MAY_USE.iter().filter(|(part, _)| inside(part)).max_by_key(|(part, _)| part.len());
    found.copied().unwrap_or_else(|| panic!("src/{name}.rs belongs to no part; add it to the table"))
}

/// Returns all files of `src` except those that contain only tests.
fn sources() -> Vec<Source> {
    sources_of("src")
}

/// Returns all files of a folder except those that contain only tests.
fn sources_of(folder: &str) -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    walk(&folder, &mut files);
    let mut sources: Vec<Source> = files
        .into_iter()
        .filter_map(|file| {
            let name = file.strip_prefix(&folder).unwrap().with_extension("");
            let name = name.to_str().unwrap().to_owned();
            let only_tests = name.ends_with("/tests") || name.ends_with("/testkit");
            (!only_tests).then(|| Source { code: without_tests(&fs::read_to_string(&file).unwrap()), name })
        })
        .collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(sources.len() > 20, "no sources found");
    sources
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Removes the tests at the end of a file.
fn without_tests(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\n#[allow").next().unwrap_or_default();
    let code = code.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The files that each file names. Names are followed through `pub use` to the file that defines them. A file
/// does not point to the files of its own folder: it is their table of contents.
fn arrows(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut modules =
        Modules { files: sources.iter().map(|source| source.name.as_str()).collect(), ..Modules::default() };
    for source in sources {
        for path in uses(&source.code).iter().filter(|(public, _)| *public).flat_map(|(_, paths)| paths) {
            if let Some(path) = modules.absolute(&source.name, path)
                && let Some(name) = path.last().cloned()
            {
                modules.re_exports.insert((source.name.clone(), name), path);
            }
        }
    }
    let named = |source: &Source| {
        let used = uses(&source.code).into_iter().flat_map(|(_, paths)| paths);
        let inline = ["crate::", "self::", "super::"].map(|start| paths_from(&source.code, start));
        used.chain(inline.into_iter().flatten()).collect::<BTreeSet<_>>()
    };
    let targets = |source: &Source| {
        let paths = named(source).into_iter().filter_map(|path| modules.absolute(&source.name, &path));
        let files = paths.map(|path| modules.file_of(&path, 0));
        let is_other = |file: &&str| *file != source.name && !file.starts_with(&format!("{}/", source.name));
        files.filter(is_other).collect()
    };
    sources.iter().map(|source| (source.name.as_str(), targets(source))).collect()
}

#[derive(Default)]
struct Modules<'a> {
    files: BTreeSet<&'a str>,
    /// By file and name: the path that a `pub use` gives that name.
    re_exports: BTreeMap<(String, String), Vec<String>>,
}

impl<'a> Modules<'a> {
    /// A path from the root of the crate; `None` for a path of another crate.
    fn absolute(&self, file: &str, path: &str) -> Option<Vec<String>> {
        let mut module: Vec<&str> = if file == "lib" { Vec::new() } else { file.split('/').collect() };
        let mut rest: Vec<&str> = path.split("::").filter(|name| !name.is_empty()).collect();
        match *rest.first()? {
            "crate" => module.clear(),
            "self" | "super" => {}
            child if self.files.contains([file, child].join("/").as_str()) => {}
            _ => return None,
        }
        while let Some(first @ ("crate" | "self" | "super")) = rest.first().copied() {
            if first == "super" {
                module.pop();
            }
            rest.remove(0);
        }
        rest.retain(|name| *name != "self");
        Some(module.into_iter().chain(rest).map(str::to_owned).collect())
    }

    /// Returns the file that defines the item at an absolute path.
    fn file_of(&self, path: &[String], depth: usize) -> &'a str {
        for end in (1..=path.len()).rev() {
            let Some(file) = self.files.get(path[..end].join("/").as_str()) else { continue };
            let re_export =
                path.get(end).and_then(|name| self.re_exports.get(&((*file).to_owned(), name.clone())));
            return match re_export {
                Some(target) if depth < 9 => self.file_of(&[target, &path[end + 1..]].concat(), depth + 1),
                _ => file,
            };
        }
        "lib"
    }
}

/// The paths of each `use`, and whether it is public.
fn uses(code: &str) -> Vec<(bool, BTreeSet<String>)> {
    let statement = |line: &str| {
        let (before, _) = line.split_once("use ")?;
        let public = before.trim_start().starts_with("pub");
        (before.trim().is_empty() || public && !before.contains("fn ")).then_some((public, before.len() + 4))
    };
    let mut found = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        if let Some((public, start)) = statement(line) {
            let mut paths = BTreeSet::new();
            read("", &code[at + start..], &mut paths);
            found.push((public, paths));
        }
        at += line.len();
    }
    found
}

/// Sets of files that all reach each other.
fn circles<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reach = |from: &'a str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(arrows.get(file).into_iter().flatten().filter(|next| seen.insert(**next)));
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|file| (*file, reach(file))).collect();
    let circle_of = |file: &&'a str| -> Vec<&'a str> {
        reached[file]
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(file)))
            .copied()
            .collect()
    };
    let circles: BTreeSet<Vec<&str>> =
        arrows.keys().map(circle_of).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

/// Returns every path after `crate::`, with groups expanded.
fn paths(code: &str) -> BTreeSet<String> {
    let found = paths_from(code, "crate::").into_iter();
    found.filter_map(|path| path.strip_prefix("crate::").map(str::to_owned)).collect()
}

/// Returns every path that begins with `start`, with groups expanded.
fn paths_from(code: &str, start: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(start) {
        let before = code[..at].chars().next_back();
        if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
            read("", &code[at..], &mut found);
        }
    }
    found
}

/// Parses one path, or each path of a group. Returns the rest of the text.
fn read<'a>(prefix: &str, text: &'a str, found: &mut BTreeSet<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = read(prefix, rest, found).trim_start().trim_start_matches(',').trim_start();
            match rest.strip_prefix('}') {
                Some(after) => return after,
                None if rest.is_empty() => return rest,
                None => {}
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    if let Some(after) = rest.strip_prefix("::")
        && after.starts_with(|c: char| c.is_alphabetic() || c == '{' || c == '_')
    {
        return read(&path, after, found);
    }
    if name.is_empty() {
        // `*` or no path: skip it, so that parsing always terminates.
        rest = rest.get(1..).unwrap_or_default();
    }
    if let Some(after) = rest.trim_start().strip_prefix("as ") {
        rest = after.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    }
    found.insert(path);
    rest
}
