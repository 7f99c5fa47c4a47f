//! A tenant whose users are spread over two databases.

use crate::sqlite::Sqlite;
use async_trait::async_trait;
use edge_harness::platform::sql::{Databases, SqlError, SqlMemory};
use edge_harness::ports::MemoryIndex;
use edge_harness::ports::memory::{Collection, CollectionKind, Listing, NewEntry, NewPart, Source};
use edge_harness::types::{StorageLimits, TenantId, Timestamp, UserId};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

/// Users whose names start with `a` are in the first database.
#[derive(Clone)]
struct Spread([Sqlite; 2]);

#[async_trait(?Send)]
impl Databases for Spread {
    type Database = Sqlite;

    async fn locate(&self, _tenant: &TenantId) -> Result<(), SqlError> {
        Ok(())
    }

    async fn of(&self, _tenant: &TenantId, user: &UserId) -> Result<Sqlite, SqlError> {
        Ok(self.0[usize::from(!user.starts_with('a'))].clone())
    }

    async fn all_of(&self, _tenant: &TenantId) -> Result<Vec<Sqlite>, SqlError> {
        Ok(self.0.to_vec())
    }

    fn all(&self) -> Vec<Sqlite> {
        self.0.to_vec()
    }

    fn named(&self, _shard: &str) -> Option<Sqlite> {
        None
    }
}

fn collection(user: &str) -> Collection {
    let kind = CollectionKind::Facts;
    Collection { tenant: "t".into(), agent: "a".into(), user: user.into(), kind }
}

/// Adds a fact of each user, which contains the name.
fn add(memory: &SqlMemory<Spread>, users: &[&str]) {
    for user in users {
        let entry = NewEntry {
            key: "k".into(),
            source: Source::Log,
            group: "g".into(),
            session: None,
            at: Timestamp(1),
            speaker: None,
            parts: vec![NewPart { text: (*user).into(), terms: "fact".into(), length: 1 }],
        };
        assert_eq!(block_on(memory.add(&collection(user), &[entry])), Ok(1));
    }
}

fn erase(memory: &SqlMemory<Spread>, user: Option<UserId>) {
    while block_on(memory.erase(&"t".into(), user.as_ref())).unwrap() {}
}

#[test]
fn each_user_has_one_database_and_erasure_covers_all() {
    let databases = Spread([Sqlite::new(), Sqlite::new()]);
    let memory = SqlMemory::new(databases.clone(), StorageLimits::default());
    add(&memory, &["ann", "bob", "abe"]);
    let users = || {
        let sql = "SELECT user FROM memory_collections ORDER BY user";
        databases.0.each_ref().map(|one| one.dump(sql).join(" "))
    };
    assert_eq!(users(), ["abe ann", "bob"]);
    let listing = Listing { limit: 9, ..Listing::default() };
    for user in ["ann", "bob"] {
        let listed = block_on(memory.list(&collection(user), &listing)).unwrap();
        assert_eq!(listed.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), [user]);
    }
    erase(&memory, Some("bob".into()));
    assert_eq!(users(), ["abe ann", ""]);
    add(&memory, &["bob"]);
    erase(&memory, None);
    assert_eq!(users(), ["", ""]);
    let tables = ["memory_groups", "memory_entries", "memory_spaces"];
    for (database, table) in databases.0.iter().flat_map(|one| tables.map(|table| (one, table))) {
        assert_eq!(database.dump(&format!("SELECT count(*) FROM {table}")), ["0"], "{table}");
    }
}

#[test]
fn the_collections_of_all_databases_are_listed_in_one_order() {
    let memory = SqlMemory::new(Spread([Sqlite::new(), Sqlite::new()]), StorageLimits::default());
    // The second database has users before, between and after those of the first one.
    add(&memory, &["az", "B", "\u{e9}", "a", "_", "ab", "c"]);
    for limit in 1..=8 {
        let (mut users, mut after) = (Vec::new(), None::<Collection>);
        loop {
            let page = block_on(memory.collections(&"t".into(), None, after.as_ref(), limit)).unwrap();
            assert!(page.len() <= limit);
            users.extend(page.iter().map(|one| one.user.to_string()));
            match page.last() {
                Some(last) => after = Some(last.clone()),
                None => break,
            }
        }
        assert_eq!(users, ["B", "_", "a", "ab", "az", "c", "\u{e9}"], "{limit} at once");
    }
    let own = block_on(memory.collections(&"t".into(), Some(&"c".into()), None, 9));
    assert_eq!(own, Ok(vec![collection("c")]));
}
