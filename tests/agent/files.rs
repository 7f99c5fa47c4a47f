//! The file tools, within turns.

use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::agent::HarnessBuilder;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{Effect, FilePath, ModelRequest, Part, Role};
use edge_harness::workspace::Layer;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A stage whose model makes the calls of the user's message: one `name {json}` per line; an empty line
/// starts the next step. Only the tools access the files.
fn stage() -> Stage {
    let script = |request: &ModelRequest| {
        let said = request.messages.iter().rev().find(|message| message.role == Role::User).unwrap().text();
        let step = step_of(request);
        let lines = said.split("\n\n").nth(step).unwrap_or_default().lines().enumerate();
        let calls: Vec<Part> = lines
            .filter_map(|(index, line)| {
                let (name, args) = line.split_once(' ')?;
                Some(call(&format!("c{step}-{index}"), name, serde_json::from_str(args).ok()?))
            })
            .collect();
        answer(if calls.is_empty() { vec![Part::text("done")] } else { calls })
    };
    let readers = ["workspace_context", "workspace_tools", "skills"];
    Stage::scripted(script, move |builder| readers.into_iter().fold(builder, HarnessBuilder::without_hook)).0
}

/// The records of the outcomes of a turn's calls.
#[track_caller]
fn run(stage: &Stage, turn: &str, said: &str) -> Vec<Value> {
    stage.post(turn, said);
    stage.settle();
    stage.check();
    stage.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn).collect()
}

/// The results of one turn's calls; failures are prefixed with `!`.
#[track_caller]
fn said(stage: &Stage, turn: &str, calls: &[(&str, Value)]) -> Vec<String> {
    let text: Vec<String> = calls.iter().map(|(name, args)| format!("{name} {args}")).collect();
    let outcomes = run(stage, turn, &text.join("\n\n"));
    let words = |record: &Value| match record["outcome"].as_str().unwrap() {
        "result" => record["result"].as_str().unwrap().to_owned(),
        _ => format!("!{}", record["reason"].as_str().unwrap()),
    };
    outcomes.iter().map(words).collect()
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

fn put(stage: &Stage, user: &str, layer: Layer, at: &str, text: &str) {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &user.into(), None);
    let bytes = text.as_bytes().to_vec().into();
    block_on(workspace.layer(layer).write(&path(at), bytes, &Precondition::Any)).unwrap();
}

fn text(stage: &Stage, at: &str) -> Option<String> {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let file = block_on(workspace.read(&path(at))).ok()?.0;
    Some(String::from_utf8(file.bytes.to_vec()).unwrap())
}

#[test]
fn a_file_is_created_and_deleted_in_a_turn() {
    let stage = stage();
    let said = said(
        &stage,
        "t1",
        &[
            ("write_file", json!({"path": "/notes/a.md", "content": "one\ntwo\n"})),
            ("write_file", json!({"path": "notes/a.md", "content": "other"})),
            ("write_file", json!({"path": "notes/a.md", "content": "one\ntwo\nthree\n", "overwrite": true})),
            ("edit_file", json!({"path": "notes/a.md", "old_string": "two", "new_string": "2"})),
            ("read_file", json!({"path": "notes/a.md", "offset": 2})),
            ("grep_files", json!({"pattern": "THREE", "ignore_case": true})),
            ("glob_files", json!({"pattern": "*.md"})),
            ("move_file", json!({"from": "notes/a.md", "to": "b.md"})),
            ("list_files", json!({})),
            ("delete_file", json!({"path": "b.md"})),
            ("list_files", json!({"path": "/"})),
        ],
    );
    assert_eq!(
        said,
        [
            "wrote 8 bytes to notes/a.md",
            "!`notes/a.md` already exists, with 8 bytes; read it and use edit_file, or set overwrite to replace it",
            "wrote 14 bytes to notes/a.md",
            "replaced 1 occurrence in notes/a.md, now 12 bytes",
            "notes/a.md: lines 2-3 of 3\n     2\t2\n     3\tthree\n",
            "notes/a.md:3:three",
            "notes/a.md",
            "moved notes/a.md to b.md",
            "b.md (12 bytes)",
            "deleted b.md",
            "nothing found",
        ]
    );
}

#[test]
fn failures_explain_what_to_do() {
    let stage = stage();
    put(&stage, "u", Layer::User, "a", "x x");
    put(&stage, "u", Layer::Shared, "SHARED.md", "be kind");
    let said = said(
        &stage,
        "t1",
        &[
            ("read_file", json!({"path": "none"})),
            ("read_file", json!({"path": "../other/a"})),
            ("read_file", json!({"path": "a", "offset": 9})),
            ("read_file", json!({"path": "a", "limit": 0})),
            ("grep_files", json!({"pattern": "x("})),
            ("grep_files", json!({"pattern": "x(", "literal": true})),
            ("grep_files", json!({"pattern": "^x.[xy]$"})),
            ("glob_files", json!({"pattern": "*.{md,txt"})),
            ("grep_files", json!({"pattern": "x", "glob": "{,,,}".repeat(9)})),
            ("edit_file", json!({"path": "a", "old_string": "", "new_string": "y"})),
            ("edit_file", json!({"path": "a", "old_string": "x", "new_string": "y"})),
            ("move_file", json!({"from": "SHARED.md", "to": "b"})),
            ("move_file", json!({"from": "a", "to": "SHARED.md"})),
            ("delete_file", json!({"path": "SHARED.md"})),
            ("delete_file", json!({"path": "none"})),
            ("read_file", json!({"path": "SHARED.md"})),
            ("edit_file", json!({"path": "SHARED.md", "old_string": "kind", "new_string": "short"})),
            ("delete_file", json!({"path": "SHARED.md"})),
        ],
    );
    let words = [
        "!no such file: `none`; use list_files",
        "!`../other/a` is not a valid path: `.` and `..` are not allowed",
        "!`a` has 1 lines; line 9 does not exist",
        "a: lines 1-1 of 1\n     1\tx x",
        "!`x(` is not a regular expression: unclosed group; set literal to search for it as plain text",
        "nothing found",
        "a:1:x x",
        "!invalid pattern `*.{md,txt`: unclosed brace expansion at byte 2; missing '}'",
        "!invalid pattern `{,,,}{,,,}{,,,}{,,,}{,,,}{,,,}{,,,}{,,,}{,,,}`: its braces expand to more than 1000",
        "!`a`: old_string is empty",
        "!`a`: old_string occurs 2 times",
        "!`SHARED.md` is shared by all users and read-only",
        "!`SHARED.md` already exists",
        "!`SHARED.md` is shared by all users and cannot be deleted",
        "no such file: none; nothing to delete",
        "SHARED.md: lines 1-1 of 1, shared by all users\n     1\tbe kind",
        "replaced 1 occurrence in SHARED.md, now 8 bytes",
        "deleted SHARED.md; the version shared by all users is visible again",
    ];
    for (said, start) in said.iter().zip(words) {
        assert!(said.starts_with(start), "{said}");
    }
    assert_eq!((said.len(), text(&stage, "a").as_deref()), (words.len(), Some("x x")));
}

#[test]
fn a_search_of_one_file_reads_no_other() {
    let stage = stage();
    put(&stage, "u", Layer::User, "notes", "a needle");
    put(&stage, "u", Layer::User, "notes/inside.md", "a needle");
    // More files than one search lists or reads.
    for n in 0..600 {
        put(&stage, "u", Layer::User, &format!("notes-archive/{n:03}"), "a needle");
    }
    let said = said(
        &stage,
        "t1",
        &[
            ("grep_files", json!({"pattern": "needle", "path": "notes"})),
            ("grep_files", json!({"pattern": "needle", "path": "/notes", "glob": "n*s"})),
            ("grep_files", json!({"pattern": "needle", "path": "notes", "glob": "*.md"})),
            ("grep_files", json!({"pattern": "needle", "path": "notes/"})),
        ],
    );
    assert_eq!(said, ["notes:1:a needle", "notes:1:a needle", "nothing found", "notes/inside.md:1:a needle"]);
}

#[test]
fn the_searches_of_a_turn_share_a_work_limit() {
    let stage = stage();
    for n in 0..8 {
        put(&stage, "u", Layer::User, &format!("{}{n}", "a".repeat(500)), "x");
    }
    // Counts as a thousand patterns, but the first byte excludes all of them, so that the test is fast.
    let costly = "{b,,,,,,,,,}{b,,,,,,,,,}{b,,,,,,,,,}";
    let glob = |n: usize| ("glob_files", json!({"pattern": format!("b{costly}{n}")}));
    let calls: Vec<_> = (0..9).map(glob).collect();
    let results = said(&stage, "t1", &calls);
    assert_eq!(results[0], "nothing found");
    let last = results.last().unwrap();
    assert!(last.contains("at the work limit for all searches of this turn"), "{last}");
    assert_eq!(said(&stage, "t2", &[glob(0)]), ["nothing found"]);
}

#[test]
fn every_result_fits_in_the_conversation() {
    let stage = stage();
    put(&stage, "u", Layer::User, "giant.json", &format!("{{{}}}", "\"é\",".repeat(100_000)));
    put(&stage, "u", Layer::User, "long.txt", &"a line of words\n".repeat(50_000));
    for n in 0..300 {
        put(&stage, "u", Layer::User, &format!("{}/{n:03}.md", "folder".repeat(20)), "x");
    }
    let outcomes = run(
        &stage,
        "t1",
        &[
            "read_file {\"path\": \"giant.json\"}",
            "read_file {\"path\": \"giant.json\", \"byte_offset\": 100001, \"byte_length\": 99999}",
            "read_file {\"path\": \"long.txt\", \"offset\": 40000}",
            "grep_files {\"pattern\": \"line\"}",
            "grep_files {\"pattern\": \"é\"}",
            "glob_files {\"pattern\": \"**/*.md\"}",
            "list_files {}",
        ]
        .join("\n\n"),
    );
    assert_eq!(outcomes.len(), 7);
    for outcome in outcomes {
        let text = outcome["result"].as_str().unwrap_or_else(|| panic!("{outcome}"));
        assert!(text.chars().count() <= 10_000 && text.len() > 300, "{} {}", text.len(), &text[..200]);
    }
}

#[test]
fn each_user_has_their_own_files() {
    let stage = stage();
    put(&stage, "other", Layer::User, "secret", "of another user");
    let said = said(
        &stage,
        "t1",
        &[
            ("list_files", json!({})),
            ("grep_files", json!({"pattern": "another"})),
            ("read_file", json!({"path": "secret"})),
            ("write_file", json!({"path": "secret", "content": "mine"})),
        ],
    );
    assert_eq!((said[0].as_str(), said[1].as_str()), ("nothing found", "nothing found"));
    assert!(said[2].starts_with('!') && said[3].starts_with("wrote"), "{said:?}");
    let other = stage.workspaces().open(&"t".into(), &"default".into(), &"other".into(), None);
    let file = block_on(other.layer(Layer::User).read(&path("secret"))).unwrap();
    assert_eq!(&file.bytes[..], b"of another user");
}

#[test]
fn a_failing_store_is_reported_and_logged() {
    let stage = stage();
    stage.files.down.set(true);
    let said = said(&stage, "t1", &[("read_file", json!({"path": "a"}))]);
    assert_eq!(said, ["!the file store is unavailable; try again"]);
    let lines = stage.log.lines();
    let line = lines.iter().find(|line| line["event"] == "files.unavailable").expect("a line");
    assert_eq!((&line["tenant"], &line["cause"]), (&json!("t"), &json!("switched off")));
}

#[test]
fn a_repeatedly_contested_write_fails() {
    let stage = stage();
    put(&stage, "u", Layer::User, "a", "x");
    stage.files.contested.set(true);
    let before = stage.files.calls.get();
    let said =
        said(&stage, "t1", &[("edit_file", json!({"path": "a", "old_string": "x", "new_string": "y"}))]);
    assert_eq!(said, ["!`a` is being changed concurrently; try again"]);
    assert!(stage.files.calls.get() - before < 40, "a few attempts");
    assert_eq!(text(&stage, "a").as_deref(), Some("x"));
}

#[test]
fn a_late_tool_writes_no_file() {
    let calls = [
        ("write_file", json!({"path": "new", "content": "x"})),
        ("write_file", json!({"path": "old", "content": "x", "overwrite": true})),
        ("edit_file", json!({"path": "old", "old_string": "was", "new_string": "is"})),
        ("move_file", json!({"from": "old", "to": "new"})),
        ("delete_file", json!({"path": "old"})),
    ];
    for (unplaced, (name, args)) in
        [false, true].into_iter().flat_map(|un| calls.clone().map(|call| (un, call)))
    {
        let stage = stage();
        put(&stage, "u", Layer::User, "old", "as it was");
        stage.files.hold();
        stage.files.unplaced.set(unplaced);
        stage.post("t1", &format!("{name} {args}"));
        stage.run();
        assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
        stage.files.release();
        stage.settle();
        stage.check();
        // A write that had reached the store when the turn ended took effect, as it would outside. A write
        // that was still looking up the store did not.
        let on_its_way = args["overwrite"] == true && !unplaced;
        let expected = if on_its_way { "x" } else { "as it was" };
        let found = (text(&stage, "old"), text(&stage, "new"));
        assert_eq!((found.0.as_deref(), found.1), (Some(expected), None), "{name}, unplaced: {unplaced}");
    }
}

#[test]
fn tools_declare_their_effects() {
    let stage = stage();
    let host = stage.host();
    let agent = host.agent();
    let tools = agent.toolkit();
    for (name, effect, idempotent, category) in [
        ("read_file", Effect::ReadOnly, true, "read"),
        ("list_files", Effect::ReadOnly, true, "read"),
        ("glob_files", Effect::ReadOnly, true, "read"),
        ("grep_files", Effect::ReadOnly, true, "read"),
        ("write_file", Effect::LocalWrite, true, "edit"),
        ("edit_file", Effect::LocalWrite, false, "edit"),
        ("move_file", Effect::LocalWrite, false, "edit"),
        ("delete_file", Effect::LocalWrite, true, "edit"),
    ] {
        let (spec, tool) = tools.get(name).expect(name);
        assert_eq!((spec.effect, spec.idempotent, spec.category.name()), (effect, idempotent, category));
        if matches!(name, "read_file" | "delete_file") {
            let keys = |path: &str| tool.check(&json!({ "path": path })).unwrap();
            assert_eq!(keys("/a/b"), keys("a/b"), "the same file has the same key");
        }
    }
}

#[test]
fn a_spec_that_the_model_writes_is_checked() {
    let stage = stage();
    let first = "# Goal\n# Constraints\n";
    let results = said(
        &stage,
        "t1",
        &[
            ("write_file", json!({"path": "specs/tea.md", "content": first})),
            ("write_file", json!({"path": "specs/tea.md", "content": first, "overwrite": false})),
            (
                "edit_file",
                json!({"path": "specs/tea.md", "old_string": "# Con", "new_string": "# Acceptance\n# Con"}),
            ),
            ("edit_file", json!({"path": "specs/tea.md", "old_string": "# Goal\n", "new_string": ""})),
            ("write_file", json!({"path": "notes/tea.md", "content": first})),
        ],
    );
    assert_eq!(
        results,
        [
            "wrote 21 bytes to specs/tea.md; the spec is not valid: no heading contains \"acceptance\"",
            "specs/tea.md already has exactly this content; the spec is not valid: no heading contains \"acceptance\"",
            "replaced 1 occurrence in specs/tea.md, now 34 bytes; the spec is valid",
            "replaced 1 occurrence in specs/tea.md, now 27 bytes; the spec is not valid: no heading starts with \"goal\"",
            "wrote 21 bytes to notes/tea.md",
        ]
    );
}
