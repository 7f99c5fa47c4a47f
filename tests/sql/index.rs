//! The index: what is added, found, listed and removed, and what the tables then hold.

use crate::sqlite::{Shards, Sqlite};
use edge_harness::platform::sql::SqlMemory;
use edge_harness::ports::{MemoryIndex, memory::*};
use edge_harness::types::Timestamp;
use futures::executor::block_on;
use pretty_assertions::assert_eq;

fn index() -> (Sqlite, SqlMemory<Shards>) {
    let database = Sqlite::new();
    (database.clone(), SqlMemory::new(Shards(vec![('t', database)])))
}

fn of(user: &str, kind: CollectionKind) -> Collection {
    Collection { tenant: "t".into(), agent: "a".into(), user: user.into(), kind }
}

fn turn(key: &str, group: &str, texts: &[&str]) -> NewEntry {
    let part = |text: &&str| NewPart {
        text: (*text).to_owned(),
        terms: text.to_lowercase(),
        length: text.split(' ').count() as u32,
    };
    NewEntry {
        key: key.into(),
        source: Source::Session,
        group: group.into(),
        session: Some(group.into()),
        at: Timestamp(1_000),
        speaker: Some("user".into()),
        parts: texts.iter().map(part).collect(),
    }
}

fn any(words: &[&str], limit: usize) -> TermQuery {
    TermQuery {
        any_of: words.iter().map(|word| vec![(*word).to_owned()]).collect(),
        none_of: Vec::new(),
        limit,
    }
}

fn keys(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|e| format!("{}.{} {}@{}", e.key, e.part, e.group, e.position)).collect()
}

#[test]
fn what_was_added_is_found() {
    let (database, index) = index();
    let ann = of("ann", CollectionKind::Turns);
    let entries = [
        turn("1", "s1", &["the cat sat", "on the mat"]),
        turn("2", "s1", &["日本語 häß"]),
        turn("3", "s2", &["a dog"]),
    ];
    assert_eq!(block_on(index.add(&ann, &entries)), Ok(3));
    assert_eq!(block_on(index.add(&ann, &entries)), Ok(0));
    assert_eq!(block_on(index.add(&of("bob", CollectionKind::Turns), &[turn("1", "s1", &["cat"])])), Ok(1));
    let words: Vec<String> = ["the", "cat", "日本語", "no"].map(String::from).into();
    assert_eq!(
        block_on(index.statistics(&ann, &words)),
        Ok(Statistics { documents: 4, length: 10, groups: 2, frequency: vec![2, 1, 1, 0] })
    );
    assert_eq!(
        keys(&block_on(index.find(&ann, &[any(&["the", "häß"], 9)])).unwrap()),
        ["2.0 s1@1", "1.1 s1@0", "1.0 s1@0"]
    );
    let places = [Place { group: "s1".into(), positions: 0..5 }];
    assert_eq!(keys(&block_on(index.around(&ann, &places)).unwrap()), ["1.0 s1@0", "2.0 s1@1"]);
    let listing = Listing { session: Some("s1".into()), limit: 9, ..Listing::default() };
    assert_eq!(keys(&block_on(index.list(&ann, &listing)).unwrap()), ["2.0 s1@1", "1.1 s1@0", "1.0 s1@0"]);
    println!("{:?}", block_on(index.groups(&ann, None, 9)));
    assert_eq!(block_on(index.remove(&ann, &Removal::Group("s1".into()))), Ok(false));
    assert_eq!(
        block_on(index.statistics(&ann, &words)),
        Ok(Statistics { documents: 1, length: 2, groups: 1, frequency: vec![0, 0, 0, 0] })
    );
    assert_eq!(block_on(index.erase("t", Some("ann"))), Ok(false));
    assert_eq!(database.dump("SELECT id, user FROM memory_collections"), ["5|bob"]);
}
