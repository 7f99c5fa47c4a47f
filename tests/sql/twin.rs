//! SQLite and the in-memory twin return the same results for any sequence of operations, and the tables stay
//! consistent.

use crate::sqlite::{Shards, Sqlite};
use edge_harness::platform::{
    in_memory::{InMemoryIndex, InMemorySpaces},
    sql::{SqlMemory, SqlSpaces},
};
use edge_harness::ports::{
    MemoryIndex, MemorySpaces,
    memory::*,
    memory_spaces::{Claim, Intent, Lease, Space},
};
use edge_harness::types::{SessionId, StorageLimits, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::rc::Rc;
use std::time::Duration;

const WORDS: &[&str] = &["a", "b", "and", "or", "not", "near", "日本", "häß", "_", "c1_a", "0"];

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<NewEntry>),
    Remove(Removal),
    Erase { all: bool },
    Flush { gap: u64 },
    Request,
    Due { since: u64, limit: usize, lasts: u64 },
    Claim { lasts: u64 },
    Note { lease: usize, facts: usize },
    Finish { lease: usize, facts: usize },
    GiveBack { lease: usize, after: u64 },
}

#[derive(Clone, Debug)]
struct Look {
    queries: Vec<TermQuery>,
    places: Vec<Place>,
    listing: Listing,
    groups: (Option<String>, usize),
}

fn words(most: usize) -> impl Strategy<Value = Vec<String>> {
    vec(select(WORDS).prop_map(str::to_owned), 0..=most)
}

fn group() -> impl Strategy<Value = String> {
    select(&["g", "h", "2024-01-01", ""][..]).prop_map(str::to_owned)
}

fn source() -> impl Strategy<Value = Source> {
    select(&[Source::Log, Source::Log, Source::Memory, Source::Session][..])
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0_u64..30).prop_map(Timestamp)
}

fn part() -> impl Strategy<Value = NewPart> {
    words(4).prop_map(|words| NewPart {
        text: words.join(" \"é\0 "),
        length: words.len() as u32,
        terms: words.join(" "),
    })
}

fn key() -> impl Strategy<Value = String> {
    (0..12).prop_map(|n| format!("k{n}"))
}

/// A key of an entry from `MEMORY.md`.
fn line() -> impl Strategy<Value = String> {
    (0..4).prop_map(|n| format!("{LONG_TERM}#{n}"))
}

fn entry() -> impl Strategy<Value = NewEntry> {
    let speaker = option::of(Just("Ann \"x\"".to_owned()));
    let place = prop_oneof![
        4 => (key(), select(&[Source::Log, Source::Session][..]), group(), option::of(group().prop_map(SessionId::from))),
        1 => (line(), Just(Source::Memory), Just(LONG_TERM.to_owned()), Just(None)),
    ];
    (place, time(), speaker, vec(part(), 1..4)).prop_map(
        |((key, source, group, session), at, speaker, parts)| NewEntry {
            key,
            source,
            group,
            session,
            at,
            speaker,
            parts,
        },
    )
}

fn removal() -> impl Strategy<Value = Removal> {
    prop_oneof![
        vec(key(), 0..6).prop_map(Removal::Keys),
        vec(line(), 0..4).prop_map(Removal::Keys),
        Just(Removal::Group(LONG_TERM.to_owned())),
        group().prop_map(Removal::Group),
        group().prop_map(|session| Removal::Session(session.into())),
        Just(Removal::All),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let lease = 0_usize..4;
    prop_oneof![
        6 => vec(entry(), 0..6).prop_map(Step::Add),
        3 => removal().prop_map(Step::Remove),
        1 => any::<bool>().prop_map(|all| Step::Erase { all }),
        1 => (0_u64..5).prop_map(|gap| Step::Flush { gap }),
        2 => Just(Step::Request),
        3 => (0_u64..8, 0_usize..4, 0_u64..9).prop_map(|(since, limit, lasts)| Step::Due { since, limit, lasts }),
        2 => (0_u64..9).prop_map(|lasts| Step::Claim { lasts }),
        1 => (lease.clone(), 0_usize..9).prop_map(|(lease, facts)| Step::Note { lease, facts }),
        2 => (lease.clone(), 0_usize..9).prop_map(|(lease, facts)| Step::Finish { lease, facts }),
        1 => (lease, 0_u64..9).prop_map(|(lease, after)| Step::GiveBack { lease, after }),
    ]
}

fn look() -> impl Strategy<Value = Look> {
    let all = vec(select(WORDS).prop_map(str::to_owned), 1..3);
    let query = (vec(all, 1..4), words(2), 0_usize..6);
    let query = query.prop_map(|(any_of, none_of, limit)| TermQuery { any_of, none_of, limit });
    let place = (group(), 0_u32..4, 0_u32..9);
    let place = place.prop_map(|(group, from, to)| Place { group, positions: from..to });
    let serial = || option::of(0_u64..40);
    let listing = (
        (
            option::of(group()),
            option::of(group().prop_map(SessionId::from)),
            option::of(time()),
            option::of(time()),
        ),
        (option::of(source()), serial(), serial(), any::<(bool, bool)>(), 0_usize..9),
    );
    let listing =
        listing.prop_map(|((group, session, from, until), (source, before, after, flags, limit))| {
            let (oldest_first, first_parts) = flags;
            Listing { group, session, from, until, source, before, after, oldest_first, first_parts, limit }
        });
    (vec(query, 0..3), vec(place, 0..3), listing, (option::of(group()), 0_usize..4))
        .prop_map(|(queries, places, listing, groups)| Look { queries, places, listing, groups })
}

fn limits() -> impl Strategy<Value = StorageLimits> {
    (option::of(0_u64..30), option::of(0_u64..200)).prop_map(|(memory_rows, storage_bytes)| StorageLimits {
        memory_rows,
        storage_bytes,
        ..StorageLimits::default()
    })
}

fn collection() -> impl Strategy<Value = Collection> {
    let kind = select(&[CollectionKind::Facts, CollectionKind::Facts, CollectionKind::Turns][..]);
    (select(&["ann", "bob"][..]), select(&["a", "b"][..]), kind).prop_map(|(user, agent, kind)| Collection {
        tenant: "t".into(),
        agent: agent.into(),
        user: user.into(),
        kind,
    })
}

/// One of the two implementations, with the leases it granted.
struct Side {
    index: Rc<dyn MemoryIndex>,
    spaces: Rc<dyn MemorySpaces>,
    leases: Vec<Lease>,
}

impl Side {
    fn lease(&self, number: usize) -> Option<&Lease> {
        self.leases.iter().rev().nth(number)
    }

    /// The watermark after the next `facts` facts of the lease's space.
    async fn watermark(&self, lease: &Lease, facts: usize) -> u64 {
        let Space { tenant, agent, user } = lease.space.clone();
        let of = Collection { tenant, agent, user, kind: CollectionKind::Facts };
        let after = Some(lease.watermark);
        let listing = Listing { after, limit: facts, oldest_first: true, ..Listing::default() };
        let read = self.index.list(&of, &listing).await.unwrap();
        read.last().map_or(lease.watermark, |fact| fact.serial)
    }

    /// Runs step number `now` and describes the result.
    async fn step(&mut self, of: &Collection, step: &Step, now: u64) -> String {
        let Collection { tenant, agent, user, .. } = of.clone();
        let space = Space { tenant, agent, user };
        let now = Timestamp(now);
        let claim = |lasts| Claim {
            holder: format!("claim {}", now.0).into(),
            now,
            until: now + Duration::from_millis(lasts),
        };
        match step {
            Step::Add(entries) => format!("{:?}", self.index.add(of, entries).await),
            Step::Remove(what) => format!("{:?}", self.index.remove(of, what).await),
            Step::Erase { all } => {
                format!("{:?}", self.index.erase(&of.tenant, (!all).then_some(&of.user)).await)
            }
            Step::Flush { gap } => {
                format!("{:?}", self.spaces.claim_flush(&space, now, Duration::from_millis(*gap)).await)
            }
            Step::Request => format!("{:?}", self.spaces.request(&space, now).await),
            Step::Due { since, limit, lasts } => {
                let since = now - Duration::from_millis(*since);
                let leases = self.spaces.claim_due(&claim(*lasts), since, *limit).await;
                self.leases.extend(leases.iter().flatten().cloned());
                format!("{leases:?}")
            }
            Step::Claim { lasts } => {
                let lease = self.spaces.claim(&claim(*lasts), &space).await;
                self.leases.extend(lease.iter().flatten().cloned());
                format!("{lease:?}")
            }
            Step::Note { lease, facts } => {
                let Some(lease) = self.lease(*lease) else { return String::new() };
                let intent = Intent { etag: format!("etag {}", now.0), watermark: now.0 };
                let some = Some(&intent).filter(|_| !now.0.is_multiple_of(3));
                let watermark = self.watermark(lease, *facts).await;
                format!("{:?}", self.spaces.note(lease, watermark, some).await)
            }
            Step::Finish { lease, facts } => {
                let Some(lease) = self.lease(*lease) else { return String::new() };
                let watermark = self.watermark(lease, *facts).await;
                format!("{:?}", self.spaces.finish(lease, watermark, now).await)
            }
            Step::GiveBack { lease, after } => {
                let Some(lease) = self.lease(*lease) else { return String::new() };
                format!("{:?}", self.spaces.give_back(lease, now + Duration::from_millis(*after)).await)
            }
        }
    }

    async fn look(&self, of: &Collection, look: &Look) -> String {
        let words: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
        let Look { queries, places, listing, groups: (after, limit) } = look;
        format!(
            "{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
            self.index.statistics(of, &words).await,
            self.index.find(of, queries).await,
            self.index.around(of, places).await,
            self.index.list(of, listing).await,
            self.index.groups(of, after.as_deref(), *limit).await,
        )
    }
}

/// Consistency checks between redundant data. Each query must return no rows.
const AT_ODDS: &[&str] = &[
    "SELECT serial FROM memory_entries EXCEPT SELECT rowid FROM memory_terms",
    "SELECT rowid FROM memory_terms EXCEPT SELECT serial FROM memory_entries",
    "SELECT id, documents, length, groups, bytes FROM memory_collections EXCEPT SELECT c.id, \
     (SELECT count(*) FROM memory_entries WHERE collection = c.id), \
     (SELECT coalesce(sum(length), 0) FROM memory_entries WHERE collection = c.id), \
     (SELECT count(*) FROM memory_groups WHERE collection = c.id), \
     (SELECT coalesce(sum(octet_length(text)), 0) FROM memory_entries WHERE collection = c.id) \
     FROM memory_collections AS c",
    "SELECT coalesce(sum(memory_rows), 0), coalesce(sum(memory_bytes), 0) FROM tenant_storage EXCEPT \
     SELECT count(*), coalesce(sum(octet_length(text)), 0) FROM memory_entries",
    "SELECT collection, name, entries, bytes, last FROM memory_groups EXCEPT SELECT collection, grp, \
     sum(part = 0), sum(octet_length(text)), max(serial) FROM memory_entries GROUP BY collection, grp",
    "SELECT collection, grp FROM memory_entries EXCEPT SELECT collection, name FROM memory_groups",
    "SELECT collection FROM memory_entries EXCEPT SELECT id FROM memory_collections",
    "SELECT max(serial) FROM memory_entries HAVING max(serial) > (SELECT last FROM memory_serial)",
    "SELECT tenant, agent, user, dirty_since FROM memory_spaces WHERE dirty_since IS NOT NULL EXCEPT \
     SELECT tenant, agent, user, (SELECT at FROM memory_entries WHERE collection = c.id \
     AND source = 'log' AND serial > watermark ORDER BY serial LIMIT 1) \
     FROM memory_collections AS c JOIN memory_spaces USING (tenant, agent, user) WHERE kind = 'facts'",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_return_the_same_results(limits in limits(), steps in vec((collection(), step(), look()), 1..40)) {
        let database = Sqlite::new();
        let shards = Shards(vec![('t', database.clone())]);
        let twin = Rc::new(InMemoryIndex::default());
        twin.limits.set(limits);
        let mut sqlite = Side {
            index: Rc::new(SqlMemory::new(shards.clone(), limits)),
            spaces: Rc::new(SqlSpaces::new(shards)),
            leases: Vec::new(),
        };
        let mut twin = Side {
            index: Rc::<InMemoryIndex>::clone(&twin),
            spaces: Rc::new(InMemorySpaces::new(twin)),
            leases: Vec::new(),
        };
        for (now, (of, step, look)) in steps.iter().enumerate() {
            let now = now as u64;
            prop_assert_eq!(
                block_on(sqlite.step(of, step, now)), block_on(twin.step(of, step, now)), "{} {:?}", now, step
            );
            prop_assert_eq!(block_on(sqlite.look(of, look)), block_on(twin.look(of, look)), "{} {:?}", now, look);
            for question in AT_ODDS {
                assert_eq!(database.dump(question), Vec::<String>::new(), "{question} after {step:?}");
            }
        }
    }
}
