//! The SQL index where it differs from the in-memory twin: limits, bounded calls, and unique numbers.

use crate::sqlite::{Shards, Sqlite};
use edge_harness::platform::sql::SqlMemory;
use edge_harness::ports::{MemoryIndex, memory::*};
use edge_harness::types::{StorageLimits, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

fn index() -> (Sqlite, SqlMemory<Shards>) {
    let database = Sqlite::new();
    (database.clone(), SqlMemory::new(Shards(vec![('t', database)]), StorageLimits::default()))
}

fn turns_of(user: &str) -> Collection {
    let (tenant, agent, kind) = ("t".into(), "a".into(), CollectionKind::Turns);
    Collection { tenant, agent, user: user.into(), kind }
}

/// Creates a turn of one part, whose words are its terms.
fn turn(number: usize, group: &str, text: &str) -> NewEntry {
    NewEntry {
        key: number.to_string(),
        source: Source::Session,
        group: group.into(),
        session: Some(group.into()),
        at: Timestamp(number as u64),
        speaker: None,
        parts: vec![NewPart { text: text.into(), terms: text.into(), length: 1 }],
    }
}

fn all_of(index: &SqlMemory<Shards>, of: &Collection) -> Vec<Entry> {
    let listing = Listing { limit: usize::MAX >> 1, oldest_first: true, ..Listing::default() };
    block_on(index.list(of, &listing)).unwrap()
}

#[test]
fn entries_too_long_for_one_argument_are_split_over_several() {
    let (_, index) = index();
    let ann = turns_of("ann");
    let long = "x".repeat(900_000);
    let turns: Vec<_> = (0..5).map(|n| turn(n, "s", &format!("{long} t{n}"))).collect();
    assert_eq!(block_on(index.add(&ann, &turns)), Ok(5));
    let found = all_of(&index, &ann);
    let places: Vec<_> = found.iter().map(|entry| (entry.key.as_str(), entry.position)).collect();
    assert_eq!(places, [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 4)]);
    assert!(block_on(index.add(&ann, &[turn(9, "s", &"x".repeat(2_100_000))])).is_err());
    assert_eq!(all_of(&index, &ann).len(), 5);
}

#[test]
fn a_thousand_entries_take_as_many_statements_as_one() {
    let (database, index) = index();
    let turns: Vec<_> = (0..1_000).map(|n| turn(n, &format!("s{}", n % 7), "word")).collect();
    // The first time, the collection does not exist yet.
    for (some, statements) in [(&turns[..1], 5 + 8), (&turns, 5)] {
        let before = database.statements();
        block_on(index.add(&turns_of("ann"), some)).unwrap();
        assert_eq!(database.statements() - before, statements);
    }
}

#[test]
fn removal_is_bounded_and_continues() {
    let (database, index) = index();
    let ann = turns_of("ann");
    let turns: Vec<_> = (0..1_200).map(|n| turn(n, "s", "word")).collect();
    let words = ["word".to_owned()];
    for what in [Removal::All, Removal::Group("s".into()), Removal::Session("s".into())] {
        block_on(index.add(&ann, &turns)).unwrap();
        let more: Vec<bool> = (0..3).map(|_| block_on(index.remove(&ann, &what)).unwrap()).collect();
        assert_eq!(more, [true, true, false]);
        assert_eq!(
            block_on(index.statistics(&ann, &words)).unwrap(),
            Statistics { frequency: vec![0], ..Statistics::default() }
        );
    }
    let keys = turns.iter().map(|turn| turn.key.clone()).collect();
    block_on(index.add(&ann, &turns)).unwrap();
    assert_eq!(block_on(index.remove(&ann, &Removal::Keys(keys))), Ok(true));
    assert_eq!(all_of(&index, &ann).len(), 700);

    for user in 0..600 {
        block_on(index.add(&turns_of(&format!("u{user}")), &turns[..1])).unwrap();
    }
    let mut calls = 1;
    while block_on(index.erase(&"t".into(), None)).unwrap() {
        calls += 1;
    }
    assert!((3..=5).contains(&calls), "{calls}");
    for table in ["collections", "groups", "entries", "terms", "spaces"] {
        assert_eq!(database.dump(&format!("SELECT count(*) FROM memory_{table}")), ["0"], "{table}");
    }
}

#[test]
fn terms_of_erased_entries_leave_the_index_within_a_day() {
    let (database, index) = index();
    let holds = |text: &str| {
        let blocks = database.dump("SELECT hex(block) FROM memory_terms_data");
        let hex: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        blocks.iter().any(|block| block.contains(&hex))
    };
    let merge = |hours: u64| {
        let now = Timestamp(1_000 * 3_600 * hours);
        let steps = (0..100).take_while(|_| block_on(index.drop_erased_terms(now)).unwrap());
        assert!(steps.count() < 100, "a merge ends");
    };
    merge(100);
    // Small loads, so that the index has several segments, of which the erased terms are a small part.
    for n in 0..200 {
        let of_user = |user: &str| turn(n, "s", &format!("{user}word{n} common"));
        block_on(index.add(&turns_of("bob"), &[of_user("bob")])).unwrap();
        if n % 20 == 0 {
            block_on(index.add(&turns_of("ann"), &[of_user("ann")])).unwrap();
        }
    }
    assert!(holds("annword") && holds("bobword"));
    while block_on(index.erase(&"t".into(), Some(&"ann".into()))).unwrap() {}
    assert!(holds("annword"), "a deletion only marks the terms");
    merge(101);
    assert!(holds("annword"), "at most one merge a day");
    merge(125);
    assert!(!holds("annword") && holds("bobword"));
    let words = ["bobword7".to_owned(), "common".to_owned()];
    assert_eq!(block_on(index.statistics(&turns_of("bob"), &words)).unwrap().frequency, [1, 200]);

    while block_on(index.remove(&turns_of("bob"), &Removal::Session("s".into()))).unwrap() {}
    merge(150);
    assert!(!holds("bobword"), "also those of an erased session");
    let before = database.statements();
    merge(200);
    assert_eq!(database.statements() - before, 1, "nothing is merged without an erasure");
}

#[test]
fn collections_are_listed_in_pages() {
    let (_, index) = index();
    for user in ["bob", "ann"] {
        block_on(index.add(&turns_of(user), &[turn(1, "s", "a")])).unwrap();
        let facts = Collection { kind: CollectionKind::Facts, ..turns_of(user) };
        block_on(index.add(&facts, &[turn(1, "s", "a")])).unwrap();
    }
    let list = |user: Option<&str>, after: Option<&Collection>, limit| {
        let user = user.map(Into::into);
        block_on(index.collections(&"t".into(), user.as_ref(), after, limit)).unwrap()
    };
    let all = list(None, None, 9);
    let names: Vec<_> = all.iter().map(|of| (of.user.as_str(), of.kind)).collect();
    let [facts, turns] = [CollectionKind::Facts, CollectionKind::Turns];
    assert_eq!(names, [("ann", facts), ("ann", turns), ("bob", facts), ("bob", turns)]);
    assert_eq!(list(None, Some(&all[0]), 2), all[1..3]);
    assert_eq!(list(Some("bob"), None, 9), all[2..]);
    assert_eq!(block_on(index.collections(&"t2".into(), None, None, 9)), Ok(vec![]));
}

#[test]
fn the_last_turns_of_a_session_are_read_in_order_without_their_further_parts() {
    let (database, index) = index();
    let ann = turns_of("ann");
    let mut turns: Vec<_> = (0..9).map(|n| turn(n, ["s", "t"][n % 2], "word")).collect();
    turns[6].parts.push(NewPart { text: "more".into(), terms: "more".into(), length: 1 });
    block_on(index.add(&ann, &turns)).unwrap();
    let listing = Listing { group: Some("s".into()), first_parts: true, limit: 3, ..Listing::default() };
    let keys = |listing: &Listing| -> Vec<String> {
        block_on(index.list(&ann, listing)).unwrap().into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(keys(&listing), ["8", "6", "4"]);
    assert_eq!(keys(&Listing { oldest_first: true, ..listing }), ["0", "2", "4"]);
    // The query stops as soon as it has enough rows.
    let plan = database.dump(
        "EXPLAIN QUERY PLAN SELECT text FROM memory_entries INDEXED BY memory_entries_by_place \
         WHERE collection = 1 AND part = 0 AND grp = 's' ORDER BY position DESC LIMIT 3",
    );
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(plan[0].ends_with("memory_entries_by_place (collection=? AND grp=? AND part=?)"), "{plan:?}");
}

#[test]
fn serial_numbers_and_positions_are_never_reused() {
    let (database, index) = index();
    let (ann, bob) = (turns_of("ann"), turns_of("bob"));
    block_on(index.add(&ann, &[turn(1, "s", "a"), turn(2, "s", "a")])).unwrap();
    block_on(index.remove(&ann, &Removal::Keys(vec!["2".into()]))).unwrap();
    block_on(index.add(&ann, &[turn(3, "s", "a")])).unwrap();
    let numbers: Vec<_> = all_of(&index, &ann).iter().map(|entry| (entry.serial, entry.position)).collect();
    assert_eq!(numbers, [(1, 0), (3, 2)]);
    let collection = || database.dump("SELECT id FROM memory_collections");
    assert_eq!(collection(), ["1"]);
    block_on(index.erase(&"t".into(), Some(&"ann".into()))).unwrap();
    block_on(index.add(&bob, &[turn(1, "s", "a")])).unwrap();
    assert_eq!(collection(), ["4"]);
}

#[test]
fn many_terms_are_counted_and_invalid_ones_are_refused() {
    let (_, index) = index();
    let ann = turns_of("ann");
    let turns: Vec<_> = (0..150).map(|n| turn(n, "s", &format!("all t{n}"))).collect();
    block_on(index.add(&ann, &turns)).unwrap();
    let terms: Vec<_> = (0..200).map(|n| format!("t{n}")).chain(["all".to_owned()]).collect();
    let statistics = block_on(index.statistics(&ann, &terms)).unwrap();
    let frequency = [vec![1; 150], vec![0; 50], vec![150]].concat();
    assert_eq!(statistics, Statistics { documents: 150, length: 150, groups: 1, frequency });
    // The separators of the index, and the syntax of FTS5.
    for term in ["", "@", "a@b", "A", "a b", "a\"b", "a*", "(a", "a\0", "a-b"] {
        let query = TermQuery { any_of: vec![vec![term.into()]], none_of: vec![], limit: 1 };
        assert!(block_on(index.find(&ann, &[query])).is_err(), "{term:?}");
        assert!(block_on(index.statistics(&ann, &[term.into()])).is_err(), "{term:?}");
        if !["", "a b"].contains(&term) {
            assert!(block_on(index.add(&ann, &[turn(999, "s", term)])).is_err(), "{term:?}");
        }
    }
    assert_eq!(all_of(&index, &ann).len(), 150);
}
