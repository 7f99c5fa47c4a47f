//! The store of a session in SQLite returns the same as its in-memory twin after any sequence of commits, page by page.

use crate::sqlite::ObjectSqlite;
use edge_harness::platform::{in_memory::MemorySessionStore, sql::SqlSessionStore};
use edge_harness::ports::session_store::{
    ACTIVITY, Batch, PAGE_BYTES, PAGE_RECORDS, Page, Select, SessionStore, StoredRecord,
};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

const KINDS: [&str; 4] = ["turn.started", "message.completed", "tool.started", "turn.completed"];
const KEYS: [&str; 4] = ["state", "state/a", ACTIVITY, "state/activity/b"];

/// The tables of the version before the tail, with a session.
const EARLIER: &[&str] = &[
    "CREATE TABLE log (
        seq INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT, turn TEXT, json TEXT NOT NULL,
        PRIMARY KEY (seq, part)
    ) WITHOUT ROWID;",
    "CREATE TABLE document (
        key TEXT NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL, json TEXT NOT NULL,
        PRIMARY KEY (key, part)
    ) WITHOUT ROWID;",
    "INSERT INTO document VALUES ('state', 0, 1, '{}'), ('state/activity', 0, 1, '{\"turn\":1}')",
    "INSERT INTO log VALUES (1, 0, 'session.created', NULL, '{\"seq\":1}')",
    "INSERT INTO log VALUES (2, 0, 'turn.started turn.completed', 'trn_1', '{\"seq\":2}\n{\"seq\":3}')",
];

/// What one commit changes.
#[derive(Clone, Debug)]
struct Commit {
    /// Kind, turn and size of each record.
    records: Vec<(usize, Option<u8>, usize)>,
    /// For each of [`KEYS`], the size of its new text, or that it is deleted.
    documents: [Option<Option<usize>>; 4],
    /// Whether the transaction fails at its end.
    fails: bool,
}

fn commits() -> impl Strategy<Value = Vec<Commit>> {
    let size = prop_oneof![
        40 => 20..900_usize,
        4 => 5_000..40_000_usize,
        2 => 200_000..600_000_usize,
        1 => 990_000..2_500_000_usize,
    ];
    let record = (0..KINDS.len(), prop::option::weighted(0.8, 0..3_u8), size);
    let text = prop_oneof![12 => (2..2_000_usize).prop_map(Some), 1 => (990_000..2_100_000_usize).prop_map(Some), 1 => Just(None)];
    let rarely = prop::option::weighted(0.1, text.clone());
    let documents =
        (rarely.clone(), rarely.clone(), prop::option::weighted(0.9, text), rarely).prop_map(Into::into);
    let commit = (prop::collection::vec(record, 0..6), documents, prop::bool::weighted(0.1));
    let commit = commit.prop_map(|(records, documents, fails)| Commit { records, documents, fails });
    prop::collection::vec(commit, 0..40)
}

/// Returns the batch of a commit to a log whose last record is `seq`.
fn batch(commit: &Commit, mut seq: u64, number: usize) -> Batch {
    // Of several bytes, so that pieces end inside a character.
    let text = |size: usize| "é".repeat(size / 2);
    let mut record = |(kind, turn, size): &(usize, Option<u8>, usize)| {
        seq += 1;
        let json = format!("{{\"seq\":{seq},\"text\":\"{}\"}}", text(*size));
        let turn = turn.map(|turn| format!("trn_{turn}").into());
        StoredRecord { seq, kind: KINDS[*kind].into(), turn, json }
    };
    let mut batch = Batch { append: commit.records.iter().map(&mut record).collect(), ..Batch::default() };
    for (key, change) in KEYS.iter().zip(commit.documents) {
        match change {
            None => {}
            Some(Some(size)) => batch.put.push(((*key).to_owned(), format!("{number}{}", text(size)))),
            Some(None) => batch.delete.push((*key).to_owned()),
        }
    }
    batch
}

/// Reads all pages of a selection, and checks the limits of each.
fn paged(store: &dyn SessionStore, select: Select<'_>) -> Vec<StoredRecord> {
    let (mut select, mut all) = (select, Vec::new());
    loop {
        let page = store.read(select).unwrap();
        let bytes: usize = page.records.iter().map(|record| record.json.len()).sum();
        assert!(page.records.len() <= select.limit && (bytes <= PAGE_BYTES || page.records.len() == 1));
        assert!(!page.more || !page.records.is_empty());
        let last = page.records.last().map(|last| last.seq);
        all.extend(page.records);
        let Some(last) = last.filter(|_| page.more) else { return all };
        match select.newest_first {
            true => select.before = Some(last),
            false => select.after = last,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sqlite_and_memory_agree(
        commits in commits(),
        after in 0..120_u64,
        before in prop::option::of(0..160_u64),
        turn in prop::option::of(0..3_u8),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 0..4),
        newest_first: bool,
        limit in prop_oneof![1..4_usize, Just(PAGE_RECORDS)],
    ) {
        let (memory, sqlite) = (MemorySessionStore::default(), SqlSessionStore::new(ObjectSqlite::new()));
        let turn = turn.map(|turn| format!("trn_{turn}").into());
        let some = Select { after, before, kinds: &kinds, turn: turn.as_ref(), newest_first, limit };
        for (number, commit) in commits.iter().enumerate() {
            let batch = batch(commit, memory.last_seq().unwrap(), number);
            sqlite.database().fail_transactions(commit.fails);
            assert_eq!(sqlite.commit(batch.clone()).is_err(), commit.fails);
            if !commit.fails {
                memory.commit(batch).unwrap();
            }
            assert_eq!(sqlite.last_seq(), memory.last_seq());
            // Not `assert_eq`, which would print megabytes.
            assert!(sqlite.list("state").unwrap() == memory.list("state").unwrap(), "documents");
            assert_eq!(sqlite.keys("state", "state/b", 2), memory.keys("state", "state/b", 2));
            assert!(sqlite.get(ACTIVITY).unwrap() == memory.get(ACTIVITY).unwrap(), "document");
            let keys = [KEYS[2], "none", KEYS[0]].map(str::to_owned);
            assert!(sqlite.get_all(&keys).unwrap() == memory.get_all(&keys).unwrap(), "some documents");
            if number % 8 == 0 {
                assert!(paged(&sqlite, some) == paged(&memory, some), "records");
            }
        }
        sqlite.database().fail_transactions(false);
        if sqlite.exists().unwrap() {
            assert!(paged(&sqlite, some) == paged(&memory, some), "records");
            assert!(paged(&sqlite, Select::default()) == paged(&memory, Select::default()), "all records");
            sqlite.erase().unwrap();
            assert!(!sqlite.exists().unwrap());
        }
    }
}

#[test]
fn many_documents_take_several_statements() {
    let sqlite = SqlSessionStore::new(ObjectSqlite::new());
    let put: Vec<_> = (0..130).map(|n| (format!("hook/{n:03}"), format!("{{\"n\":{n}}}"))).collect();
    let keys: Vec<_> = put.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(sqlite.get_all(&keys), Ok(vec![None; 130]));
    sqlite.commit(Batch { put: put.clone(), ..Batch::default() }).unwrap();
    let json: Vec<_> = put.into_iter().map(|(_, json)| Some(json)).collect();
    assert_eq!(sqlite.get_all(&keys), Ok(json));
}

/// A store after these commits, each of which writes [`ACTIVITY`] and has records of the turn and the size.
fn stored(commits: &[(u8, &[usize])]) -> SqlSessionStore<ObjectSqlite> {
    let sqlite = SqlSessionStore::new(ObjectSqlite::new());
    let (mut seq, documents) = (0, [None, None, Some(Some(20)), None]);
    for (turn, sizes) in commits {
        let records = sizes.iter().map(|size| (0, Some(*turn), *size)).collect();
        sqlite.commit(batch(&Commit { records, documents, fails: false }, seq, 0)).unwrap();
        seq += sizes.len() as u64;
    }
    sqlite
}

fn rows_written(sqlite: &SqlSessionStore<ObjectSqlite>, sizes: &[usize]) -> usize {
    let before = sqlite.database().rows_written();
    let commit = Commit {
        records: sizes.iter().map(|size| (0, Some(9), *size)).collect(),
        documents: [None, None, Some(Some(20)), None],
        fails: false,
    };
    sqlite.commit(batch(&commit, sqlite.last_seq().unwrap(), 0)).unwrap();
    sqlite.database().rows_written() - before
}

#[test]
fn a_commit_of_small_records_writes_one_row() {
    let sqlite = stored(&[(1, &[100])]);
    let rows: usize = (0..100).map(|_| rows_written(&sqlite, &[400, 400])).sum();
    // 850 bytes a commit: a row of the log for about every 32,000 bytes.
    assert_eq!(rows, 100 + 2);
}

#[test]
fn a_large_record_is_written_once() {
    let sqlite = stored(&[(1, &[100])]);
    // The tail, the record, and the document.
    assert_eq!(rows_written(&sqlite, &[40_000]), 3);
    let bytes = sqlite.database().bytes_bound();
    assert_eq!(rows_written(&sqlite, &[100]), 1);
    assert!(sqlite.database().bytes_bound() - bytes < 400);
}

#[test]
fn a_page_reads_no_text_that_it_has_no_room_for() {
    let sqlite = stored(&vec![(1, &[400_000][..]); 40]);
    sqlite.database().take_bytes();
    assert_eq!(sqlite.read(Select::default()).unwrap().records.len(), 2);
    assert!(sqlite.database().take_bytes() <= PAGE_BYTES + 4_000);
    let none = Select { kinds: &["tool.started"], ..Select::default() };
    assert_eq!(sqlite.read(none).unwrap(), Page::default());
    assert!(sqlite.database().take_bytes() < 100);
}

#[test]
fn rows_without_a_selected_record_are_skipped() {
    let sqlite = SqlSessionStore::new(ObjectSqlite::new());
    let documents = [None; 4];
    let commit = |records: &[(usize, Option<u8>, usize)]| {
        let commit = Commit { records: records.to_vec(), documents, fails: false };
        sqlite.commit(batch(&commit, sqlite.last_seq().unwrap_or(0), 0)).unwrap();
    };
    commit(&[(1, Some(1), 100)]);
    // Each row has a record of the turn and another one of the type.
    (0..100).for_each(|_| commit(&[(0, Some(1), 10_000), (1, Some(2), 10_000)]));
    commit(&[(1, Some(1), 100)]);
    let turn = "trn_1".into();
    for (newest_first, limit) in [(false, 1), (true, 1), (false, PAGE_RECORDS), (true, PAGE_RECORDS)] {
        let select =
            Select { turn: Some(&turn), kinds: &[KINDS[1]], newest_first, limit, ..Select::default() };
        let mut found: Vec<u64> = paged(&sqlite, select).iter().map(|record| record.seq).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 202]);
        sqlite.database().take_bytes();
        sqlite.read(select).unwrap();
        assert!(sqlite.database().take_bytes() <= PAGE_BYTES + 40_000);
    }
}

#[test]
fn nothing_follows_a_page_that_ends_with_the_log() {
    let sqlite = SqlSessionStore::new(ObjectSqlite::new());
    // As many rows as one query reads for a page of one record. Only the last one has a selected record.
    for last in [false, false, false, true] {
        let (turn, other) = (Some(1), Some(2));
        let records = vec![(0, turn, 20_000), (1, if last { turn } else { other }, 20_000)];
        let commit = Commit { records, documents: [None; 4], fails: false };
        sqlite.commit(batch(&commit, sqlite.last_seq().unwrap_or(0), 0)).unwrap();
    }
    let turn = "trn_1".into();
    let page = sqlite.read(Select { turn: Some(&turn), kinds: &[KINDS[1]], limit: 1, ..Select::default() });
    let page = page.unwrap();
    assert_eq!((page.records.len(), page.records[0].seq, page.more), (1, 8, false));
}

#[test]
fn reads_neither_scan_nor_sort_the_log() {
    let sqlite = stored(&[(1, &[40_000]), (1, &[100])]);
    let turn = "trn_1".into();
    for newest_first in [false, true] {
        let select =
            Select { after: 1, before: Some(9), kinds: &KINDS, turn: Some(&turn), newest_first, limit: 3 };
        sqlite.read(select).unwrap();
        sqlite.read(Select { newest_first, ..Select::default() }).unwrap();
    }
    let plans = sqlite.database().take_plans();
    assert!(plans.iter().any(|step| step.starts_with("SEARCH log USING PRIMARY KEY")), "{plans:?}");
    let costly =
        |step: &&String| step.contains("CO-ROUTINE") || step.contains("TEMP B-TREE") || *step == "SCAN log";
    assert_eq!(plans.iter().find(costly), None);
}

#[test]
fn a_session_of_an_earlier_version_continues() {
    let sqlite = SqlSessionStore::new(ObjectSqlite::new());
    EARLIER.iter().for_each(|sql| sqlite.database().run(sql));
    assert!(sqlite.exists().unwrap());
    let record = |seq: u64, kind: &str, turn: Option<&str>| StoredRecord {
        seq,
        kind: kind.into(),
        turn: turn.map(Into::into),
        json: format!("{{\"seq\":{seq}}}"),
    };
    let mut log = vec![
        record(1, "session.created", None),
        record(2, "turn.started", Some("trn_1")),
        record(3, "turn.completed", Some("trn_1")),
    ];
    assert_eq!(paged(&sqlite, Select::default()), log);
    for seq in 4..8 {
        let append = vec![record(seq, "turn.started", Some("trn_2"))];
        log.extend(append.clone());
        let put = vec![(ACTIVITY.to_owned(), format!("{{\"turn\":{seq}}}"))];
        sqlite.commit(Batch { append, put, ..Batch::default() }).unwrap();
    }
    assert_eq!(paged(&sqlite, Select::default()), log);
    let documents = [("state", "{}"), (ACTIVITY, "{\"turn\":7}")];
    assert_eq!(sqlite.list("").unwrap(), documents.map(|(key, json)| (key.to_owned(), json.to_owned())));
    let turn = "trn_1".into();
    assert_eq!(paged(&sqlite, Select { turn: Some(&turn), ..Select::default() }), log[1..3]);
}
