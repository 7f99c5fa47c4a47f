//! Compares the docs with the tables that they describe. `UPDATE_DOCS=1 cargo test --test docs` writes
//! the generated parts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use edge_harness::standard::settings::{Kind, SETTINGS, Setting};
use pretty_assertions::assert_eq;
use std::{fmt::Write, fs, path::PathBuf};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compares what is between the markers of a file with `generated`, or writes it there.
#[track_caller]
fn generate(file: &str, generated: &str) {
    const BEGIN: &str = "<!-- generated -->\n";
    const END: &str = "<!-- end of generated -->\n";
    let text = fs::read_to_string(path(file)).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("a begin marker");
    let (found, after) = rest.split_once(END).expect("an end marker");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path(file), format!("{before}{BEGIN}{generated}{END}{after}")).unwrap();
    } else {
        assert_eq!(found, generated, "{file} is stale; run: UPDATE_DOCS=1 cargo test --test docs");
    }
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().flat_map(|topic| topic.settings)
}

#[test]
fn configuration_lists_every_setting() {
    let mut text = String::from("\n| topic | settings |\n|---|---|\n");
    for topic in SETTINGS {
        let link = |row: &Setting| format!("[{}](#{})", row.name, row.name.to_lowercase());
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
    generate("docs/configuration.md", &format!("{text}\n"));
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
        assert!(known, "{name} is no variable of SETTINGS");
    }
}
