//! The query of a glance returns the same as the table in memory, for any trees, and searches by keys only.

use crate::sqlite::Sqlite;
use bytes::Bytes;
use edge_harness::platform::in_memory::MemoryFiles;
use edge_harness::platform::sql::{
    Sql,
    glance::{glance, read_glance},
    storage::put_file,
};
use edge_harness::ports::{
    FileTable,
    filesystem::{Content, Entry, Glance, GlanceResult, Heads, Precondition, Row, Tree},
};
use edge_harness::types::{FilePath, PathPrefix, StorageLimits, TenantId, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use proptest::{collection::vec, prelude::*, sample::select};

const PATHS: &[&str] = &[
    "AGENTS.md",
    "knowledge/a.md",
    "knowledge/b.md",
    "skills",
    "skills.md",
    "skills/README.md",
    "skills/SKILL.md",
    "skills/_drafts/a/SKILL.md",
    "skills/a/SKILL.md",
    "skills/a/a.md",
    "skills/a/b/SKILL.md",
    "skills/a",
    "skills/a-b/SKILL.md",
    "skills/a-b/z.md",
    "skills/a0/SKILL.md",
    "skills/b/skill.md",
    "skills/c/SKILL.md/x",
    "skills/é/SKILL.md",
    "skills/z/SKILL.md",
    "skills0/z/SKILL.md",
];
const TEXTS: &[&str] = &["", "x", "---\nname: a\n---\né山", "with a \0", "a long text with many words"];

fn tree(tenant: &str, scope: &str) -> Tree {
    Tree { tenant: tenant.into(), scope: scope.to_owned() }
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

/// Writes a file to both tables. Its etag is that of its content.
fn put(memory: &MemoryFiles, database: &Sqlite, tree: &Tree, at: &str, content: Content) {
    let (bytes, etag) = match &content {
        Content::Inline(bytes) => (bytes.len() as u64, format!("etag {bytes:?}")),
        Content::Blob(key) => (1 << 20, format!("etag {key}")),
    };
    let entry = Entry { path: path(at), bytes, etag, updated_at: Timestamp(7) };
    let row = Row { entry, content };
    assert!(block_on(memory.put(tree, &row, &Precondition::Any)).unwrap());
    let [statement, _] = put_file(&StorageLimits::default(), tree, &row, &Precondition::Any);
    block_on(database.batch(&[statement])).unwrap();
}

fn query(database: &Sqlite, tenant: &TenantId, scopes: &[&str], asked: &Glance<'_>) -> Vec<GlanceResult> {
    let numbered: Vec<(usize, &str)> = scopes.iter().copied().enumerate().collect();
    let statement = glance(tenant, &numbered, asked).unwrap();
    let rows = block_on(database.batch(&[statement])).unwrap().remove(0);
    let mut seen: Vec<_> = scopes.iter().map(|_| GlanceResult::default()).collect();
    read_glance(&rows, asked.wanted, &mut seen).unwrap();
    seen
}

/// A content; `None` for one in the object store.
fn content() -> impl Strategy<Value = Option<Bytes>> {
    prop_oneof![
        8 => select(TEXTS).prop_map(|text| Some(text.into())),
        1 => Just(Some(vec![0xff, 0xfe].into())),
        1 => Just(None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn sqlite_and_memory_return_the_same(
        files in vec((0..3_usize, select(PATHS), content()), 0..40),
        (heads, folders, limit, max_chars) in (prop::bool::ANY, 1..8_usize, 1..4_usize, 1..20_usize),
        known in vec(select(TEXTS), 0..3),
        known_heads in vec(select(TEXTS), 0..3),
        wanted in vec(select(PATHS), 0..4),
    ) {
        let (memory, database) = (MemoryFiles::default(), Sqlite::new());
        let trees = [tree("t", "agents/a/users/u"), tree("t", "agents/a/shared"), tree("t", "agents/a/users/v")];
        for (number, (at, name, content)) in files.into_iter().enumerate() {
            let content = content.map_or_else(|| Content::Blob(format!("t/files/{number}")), Content::Inline);
            put(&memory, &database, &trees[at], name, content);
        }
        let etags = |texts: Vec<&str>| -> Vec<String> {
            texts.into_iter().map(|text| format!("etag {:?}", Bytes::from(text.to_owned()))).collect()
        };
        let (known, known_heads) = (etags(known), etags(known_heads));
        let mut wanted: Vec<FilePath> = wanted.into_iter().map(path).collect();
        wanted.sort();
        wanted.dedup();
        let (folder, skills) = (PathPrefix::parse("knowledge/").unwrap(), PathPrefix::parse("skills/").unwrap());
        let heads = heads.then_some(Heads { folder: &skills, file: "SKILL.md", known: &known_heads, max_chars: 6, folders, limit });
        let asked = Glance { wanted: &wanted, known: &known, max_chars, folder: &folder, limit: 1, heads };
        let scopes = ["agents/a/users/u", "agents/a/shared"];
        let expected = block_on(memory.glance(&"t".into(), &scopes, &asked)).unwrap();
        prop_assert_eq!(query(&database, &"t".into(), &scopes, &asked), expected);
    }
}

#[test]
fn the_number_of_files_of_a_skill_does_not_matter() {
    let (memory, database, own) = (MemoryFiles::default(), Sqlite::new(), tree("t", "agents/a/users/u"));
    let text = || Content::Inline("text".into());
    for name in ["a", "b", "c"] {
        put(&memory, &database, &own, &format!("skills/{name}/SKILL.md"), text());
        for n in 0..200 {
            put(&memory, &database, &own, &format!("skills/{name}/files/{n}"), text());
        }
    }
    let (folder, skills) = (PathPrefix::parse("knowledge/").unwrap(), PathPrefix::parse("skills/").unwrap());
    let heads = Heads { folder: &skills, file: "SKILL.md", known: &[], max_chars: 2, folders: 2, limit: 9 };
    let asked =
        Glance { wanted: &[], known: &[], max_chars: 0, folder: &folder, limit: 1, heads: Some(heads) };
    let tenant = "t".into();
    let scopes = ["agents/a/users/u", "agents/a/shared"];
    let seen = query(&database, &tenant, &scopes, &asked);
    let found: Vec<_> =
        seen[0].heads.iter().map(|(entry, start)| (entry.path.as_str(), start.as_deref())).collect();
    let start = Some(&b"te"[..]);
    assert_eq!(found, [("skills/a/SKILL.md", start), ("skills/b/SKILL.md", start)]);
    assert_eq!(seen[1], GlanceResult::default());

    // Each step to the next folder is a search for one key, and so is each file.
    let numbered: Vec<(usize, &str)> = scopes.into_iter().enumerate().collect();
    let statement = glance(&tenant, &numbered, &asked).unwrap();
    let sql =
        (1..=statement.args.len()).rev().fold(statement.sql, |sql, n| sql.replace(&format!("?{n}"), "'x'"));
    let plan = database.dump(&format!("EXPLAIN QUERY PLAN {sql}"));
    let steps: Vec<&str> = plan.iter().filter_map(|step| step.rsplit('|').next()).collect();
    let of_files: Vec<_> = steps.iter().filter(|step| step.contains(" files")).collect();
    assert!(
        of_files.len() >= 8 && of_files.iter().all(|step| step.starts_with("SEARCH files USING PRIMARY KEY")),
        "{steps:#?}"
    );
    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
}
