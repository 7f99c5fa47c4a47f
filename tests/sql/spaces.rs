//! Memory spaces on several databases.

use crate::sqlite::{Shards, Sqlite};
use edge_harness::platform::sql::{SqlMemory, SqlSpaces};
use edge_harness::ports::{
    MemoryIndex, MemorySpaces,
    memory::*,
    memory_spaces::{Claim, Lease, Space},
};
use edge_harness::types::{StorageLimits, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

fn space(tenant: &str) -> Space {
    Space { tenant: tenant.into(), agent: "a".into(), user: "u".into() }
}

/// Adds a fact for a tenant's user at this time.
fn learn(index: &SqlMemory<Shards>, tenant: &str, at: u64) {
    let Space { tenant, agent, user } = space(tenant);
    let fact = NewEntry {
        key: at.to_string(),
        source: Source::Log,
        group: "2024-01-01".into(),
        session: None,
        at: Timestamp(at),
        speaker: None,
        parts: vec![NewPart { text: "x".into(), terms: "x".into(), length: 1 }],
    };
    let facts = Collection { tenant, agent, user, kind: CollectionKind::Facts };
    block_on(index.add(&facts, &[fact])).unwrap();
}

fn claim(holder: &str) -> Claim {
    Claim { holder: holder.into(), now: Timestamp(100), until: Timestamp(200) }
}

fn tenants(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(|lease| lease.space.tenant.as_str()).collect()
}

#[test]
fn due_spaces_are_leased_in_order_across_databases_and_once() {
    let shards = Shards(vec![('s', Sqlite::new()), ('t', Sqlite::new())]);
    let (index, spaces) = (SqlMemory::new(shards.clone(), StorageLimits::default()), SqlSpaces::new(shards));
    for (tenant, at) in [("s1", 5), ("s2", 2), ("t1", 4), ("t2", 1), ("t3", 9)] {
        learn(&index, tenant, at);
    }
    block_on(spaces.request(&space("t3"), Timestamp(50))).unwrap();
    let due = |holder, limit| block_on(spaces.claim_due(&claim(holder), Timestamp(100), limit)).unwrap();
    let first = due("first", 3);
    assert_eq!(tenants(&first), ["t3", "s2", "s1"], "each database contributes");
    assert_eq!(first[0].holder, "first/t3/a/u");
    assert_eq!(tenants(&due("second", 9)), ["t2", "t1"]);
    assert_eq!(due("third", 9), []);
    assert_eq!(block_on(spaces.claim(&claim("fourth"), &space("t3"))), Ok(None));
}

#[test]
fn removed_facts_are_not_due_and_later_ones_are() {
    let shards = Shards(vec![('t', Sqlite::new())]);
    let (index, spaces) = (SqlMemory::new(shards.clone(), StorageLimits::default()), SqlSpaces::new(shards));
    let Space { tenant, agent, user } = space("t");
    let facts = Collection { tenant, agent, user, kind: CollectionKind::Facts };
    let due = |holder| block_on(spaces.claim_due(&claim(holder), Timestamp(100), 9)).unwrap();
    learn(&index, "t", 1);
    learn(&index, "t", 2);
    block_on(index.remove(&facts, &Removal::All)).unwrap();
    assert_eq!(due("first"), []);
    learn(&index, "t", 3);
    let leases = due("second");
    assert_eq!(tenants(&leases), ["t"]);
    // During the lease a fact is added, and the newest one that was read is removed.
    learn(&index, "t", 4);
    block_on(index.remove(&facts, &Removal::Keys(vec!["3".into()]))).unwrap();
    assert_eq!(block_on(spaces.finish(&leases[0], 3, Timestamp(90))), Ok(true));
    let leases = due("third");
    assert_eq!((tenants(&leases), leases[0].watermark), (vec!["t"], 3));
    assert_eq!(block_on(spaces.finish(&leases[0], 4, Timestamp(95))), Ok(true));
    assert_eq!(block_on(spaces.finish(&leases[0], 4, Timestamp(95))), Ok(false));
    assert_eq!(due("fourth"), []);
}
