//! `local_repo_map` and `local_symbol_query`: the definitions that parsers find in source files.

use super::{ToolError, parse, walk::walk};
use crate::runner::root::Root;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, path::Path};
use tree_sitter_tags::{TagsConfiguration, TagsContext};

/// Number of definitions that one call returns.
const MAX_SYMBOLS: usize = 400;
/// Length of a definition's line in the result, in characters.
const MAX_LINE: usize = 160;

#[derive(Deserialize)]
struct Map {
    path: Option<String>,
    glob: Option<String>,
}

#[derive(Deserialize)]
struct Query {
    name: String,
    path: Option<String>,
}

/// A definition.
struct Symbol {
    line: usize,
    kind: String,
    name: String,
    /// Its first line.
    text: String,
}

pub(super) fn map(args: Value, root: &Root) -> Result<String, ToolError> {
    let Map { path, glob } = parse(args)?;
    let mut text = String::new();
    let is_cut = collect(
        root,
        path.as_deref(),
        glob.as_deref(),
        |file, symbols| {
            text += &format!("{}\n", file.display());
            for Symbol { line, kind, name, .. } in symbols {
                text += &format!("  {line} {kind} {name}\n");
            }
        },
        |_| true,
    )?;
    Ok(finish(text, is_cut))
}

pub(super) fn query(args: Value, root: &Root) -> Result<String, ToolError> {
    let Query { name, path } = parse(args)?;
    let wanted = name.to_lowercase();
    let mut text = String::new();
    let is_cut = collect(
        root,
        path.as_deref(),
        None,
        |file, symbols| {
            for Symbol { line, kind, name, text: source } in symbols {
                text += &format!("{}:{line} {kind} {name}: {source}\n", file.display());
            }
        },
        |symbol| symbol.name.to_lowercase().contains(&wanted),
    )?;
    Ok(finish(text, is_cut))
}

fn finish(text: String, is_cut: bool) -> String {
    match (text.is_empty(), is_cut) {
        (true, _) => "[no definitions found; local_search finds text in any file]\n".into(),
        (_, true) => text + "[there are more; name a subfolder]\n",
        _ => text,
    }
}

/// Hands over the wanted definitions of each file that has any. Returns whether there are more.
fn collect(
    root: &Root,
    path: Option<&str>,
    glob: Option<&str>,
    mut found: impl FnMut(&Path, &[Symbol]),
    is_wanted: impl Fn(&Symbol) -> bool,
) -> Result<bool, ToolError> {
    let walk = walk(root, path, glob, None)?;
    let mut parsers = Parsers::default();
    let mut left = MAX_SYMBOLS;
    for file in &walk.files {
        let Some(language) = Language::of(file) else { continue };
        // A file that is no text, or leads out by a link, has no definitions.
        let Ok(source) = root.text(file) else { continue };
        let mut symbols = parsers.symbols(language, &source);
        symbols.retain(&is_wanted);
        let is_cut = symbols.len() > left;
        symbols.truncate(left);
        left -= symbols.len();
        if !symbols.is_empty() {
            found(file, &symbols);
        }
        if is_cut {
            return Ok(true);
        }
    }
    Ok(walk.is_cut)
}

/// A programming language.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Language {
    C,
    Go,
    Java,
    JavaScript,
    Python,
    Rust,
    TypeScript,
    Tsx,
}

impl Language {
    fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "c" | "h" => Self::C,
            "go" => Self::Go,
            "java" => Self::Java,
            "cjs" | "js" | "jsx" | "mjs" => Self::JavaScript,
            "py" => Self::Python,
            "rs" => Self::Rust,
            "cts" | "mts" | "ts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            _ => return None,
        })
    }

    fn configuration(self) -> Option<TagsConfiguration> {
        // The definitions of TypeScript extend those of JavaScript.
        let typescript =
            format!("{}{}", tree_sitter_javascript::TAGS_QUERY, tree_sitter_typescript::TAGS_QUERY);
        let (language, query) = match self {
            Self::C => (tree_sitter_c::LANGUAGE, tree_sitter_c::TAGS_QUERY),
            Self::Go => (tree_sitter_go::LANGUAGE, tree_sitter_go::TAGS_QUERY),
            Self::Java => (tree_sitter_java::LANGUAGE, tree_sitter_java::TAGS_QUERY),
            Self::JavaScript => (tree_sitter_javascript::LANGUAGE, tree_sitter_javascript::TAGS_QUERY),
            Self::Python => (tree_sitter_python::LANGUAGE, tree_sitter_python::TAGS_QUERY),
            Self::Rust => (tree_sitter_rust::LANGUAGE, tree_sitter_rust::TAGS_QUERY),
            Self::TypeScript => (tree_sitter_typescript::LANGUAGE_TYPESCRIPT, typescript.as_str()),
            Self::Tsx => (tree_sitter_typescript::LANGUAGE_TSX, typescript.as_str()),
        };
        TagsConfiguration::new(language.into(), query, "").ok()
    }
}

/// The parsers that a call has needed so far.
#[derive(Default)]
struct Parsers {
    context: Option<TagsContext>,
    configurations: HashMap<Language, Option<TagsConfiguration>>,
}

impl Parsers {
    /// Returns the definitions in a source text; none for one that cannot be parsed.
    fn symbols(&mut self, language: Language, source: &str) -> Vec<Symbol> {
        let configuration = self.configurations.entry(language).or_insert_with(|| language.configuration());
        let Some(configuration) = configuration else { return Vec::new() };
        let context = self.context.get_or_insert_with(TagsContext::new);
        let Ok((tags, _)) = context.generate_tags(configuration, source.as_bytes(), None) else {
            return Vec::new();
        };
        let definitions = tags.flatten().filter(|tag| tag.is_definition);
        let mut symbols: Vec<_> = definitions
            .filter_map(|tag| {
                Some(Symbol {
                    line: tag.span.start.row + 1,
                    kind: configuration.syntax_type_name(tag.syntax_type_id).to_owned(),
                    name: source.get(tag.name_range)?.to_owned(),
                    text: source.get(tag.line_range)?.trim().chars().take(MAX_LINE).collect(),
                })
            })
            .collect();
        symbols.sort_by_key(|symbol| symbol.line);
        symbols
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn each_language_has_its_definitions() {
        for (language, source, name) in [
            (Language::C, "int add(int a) { return a; }", "add"),
            (Language::Go, "package p\nfunc Add() {}\n", "Add"),
            (Language::Java, "class Sum { int add() { return 1; } }", "Sum"),
            (Language::JavaScript, "function add() {}", "add"),
            (Language::Python, "def add():\n  pass\n", "add"),
            (Language::Rust, "pub fn add() {}\n", "add"),
            (Language::TypeScript, "function add(a: number): number { return a; }", "add"),
            (Language::TypeScript, "interface Sum { a: number }", "Sum"),
            (Language::Tsx, "function App() { return <p/>; }", "App"),
        ] {
            let symbols = Parsers::default().symbols(language, source);
            assert!(symbols.iter().any(|symbol| symbol.name == name), "{language:?}");
        }
    }

    #[test]
    fn definitions_are_listed_and_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(
            folder.path().join("src/lib.rs"),
            "struct Shop;\n\nimpl Shop {\n    fn open(&self) {}\n}\n",
        )
        .unwrap();
        fs::write(folder.path().join("main.py"), "def open_shop():\n    pass\n").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let map = map(json!({"glob": "*.rs"}), &root).unwrap();
        assert_eq!(map, "src/lib.rs\n  1 class Shop\n  4 method open\n");
        let found = query(json!({"name": "OPEN"}), &root).unwrap();
        assert_eq!(
            found,
            "main.py:1 function open_shop: def open_shop():\nsrc/lib.rs:4 method open: fn open(&self) {}\n"
        );
        assert!(query(json!({"name": "close"}), &root).unwrap().starts_with("[no definitions found"));
    }
}
