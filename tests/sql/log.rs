//! Paging through a log by pages gives the same records as one read of all, in each store.

use crate::sqlite::ObjectSqlite;
use edge_harness::platform::in_memory::MemorySessionStore;
use edge_harness::platform::sql::log;
use edge_harness::ports::session_store::{
    Batch, PAGE_BYTES, PAGE_RECORDS, Page, Select, SessionStore, StoreError, StoredRecord,
};
use proptest::prelude::*;

const KINDS: [&str; 4] = ["turn.started", "message.completed", "tool.started", "turn.completed"];

/// Returns a page of the selection from one store.
type Read<'a> = &'a dyn Fn(Select<'_>) -> Result<Page, StoreError>;

/// Kinds, turns and sizes of the records of each commit.
fn commits() -> impl Strategy<Value = Vec<Vec<(usize, Option<u8>, usize)>>> {
    let size = prop_oneof![
        8 => 20..200_usize,
        3 => 5_000..40_000_usize,
        2 => 200_000..600_000_usize,
        1 => 990_000..2_500_000_usize,
    ];
    let record = (0..KINDS.len(), prop::option::weighted(0.8, 0..3_u8), size);
    prop::collection::vec(prop::collection::vec(record, 1..8), 0..8)
}

fn records(commits: &[Vec<(usize, Option<u8>, usize)>]) -> Vec<Vec<StoredRecord>> {
    let mut seq = 0;
    let mut record = |(kind, turn, size): &(usize, Option<u8>, usize)| {
        seq += 1;
        // Of several bytes, so that pieces end inside a character.
        let json = format!("{{\"seq\":{seq},\"text\":\"{}\"}}", "é".repeat(size / 2));
        let turn = turn.map(|turn| format!("trn_{turn}").into());
        StoredRecord { seq, kind: KINDS[*kind].into(), turn, json }
    };
    commits.iter().map(|commit| commit.iter().map(&mut record).collect()).collect()
}

/// Reads all pages of a selection, and checks the limits of each.
fn paged(read: Read<'_>, select: Select<'_>) -> Vec<StoredRecord> {
    let (mut select, mut all) = (select, Vec::new());
    loop {
        let page = read(select).unwrap();
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
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_are_the_whole_selection_in_order(
        commits in commits(),
        after in 0..40_u64,
        before in prop::option::of(0..60_u64),
        turn in prop::option::of(0..3_u8),
        kinds in prop::sample::subsequence(KINDS.to_vec(), 0..4),
        newest_first: bool,
        limit in prop_oneof![1..4_usize, Just(PAGE_RECORDS)],
    ) {
        let (memory, sqlite) = (MemorySessionStore::default(), ObjectSqlite::new(log::SCHEMA));
        let mut expected = Vec::new();
        for append in records(&commits) {
            log::append(&sqlite, &append).unwrap();
            expected.extend(append.clone());
            memory.commit(Batch { append, ..Batch::default() }).unwrap();
        }
        assert_eq!(log::last_seq(&sqlite).unwrap(), expected.len() as u64);
        let turn = turn.map(|turn| format!("trn_{turn}").into());
        let select = Select { after, before, kinds: &kinds, turn: turn.as_ref(), newest_first, limit };
        expected.retain(|record| {
            record.seq > after
                && before.is_none_or(|before| record.seq < before)
                && turn.as_ref().is_none_or(|turn| record.turn.as_ref() == Some(turn))
                && (kinds.is_empty() || kinds.contains(&record.kind.as_str()))
        });
        if newest_first {
            expected.reverse();
        }
        // Not `assert_eq`, which would print megabytes.
        assert!(paged(&|select| memory.read(select), select) == expected, "in memory");
        assert!(paged(&|select| log::read(&sqlite, select), select) == expected, "in SQLite");
    }
}

#[test]
fn a_page_reads_no_text_that_it_has_no_room_for() {
    let sqlite = ObjectSqlite::new(log::SCHEMA);
    let commits: Vec<Vec<_>> = (0..40).map(|_| vec![(0, Some(1), 400_000)]).collect();
    for append in records(&commits) {
        log::append(&sqlite, &append).unwrap();
    }
    sqlite.take_bytes();
    assert_eq!(log::read(&sqlite, Select::default()).unwrap().records.len(), 2);
    assert!(sqlite.take_bytes() <= PAGE_BYTES + 4_000);
    let none = Select { kinds: &["tool.started"], ..Select::default() };
    assert_eq!(log::read(&sqlite, none).unwrap(), Page::default());
    assert!(sqlite.take_bytes() < 100);
}
