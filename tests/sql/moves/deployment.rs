//! A deployment with two databases, at whose calls a run can stop.

use crate::sqlite::{JsonRows, Sqlite};
use async_trait::async_trait;
use edge_harness::http::placement::user_shard;
use edge_harness::memory::terms::{index_terms, length};
use edge_harness::platform::in_memory::ManualClock;
use edge_harness::platform::sql::{
    Databases, Sql, SqlError, SqlMemory, SqlMoves, SqlSpaces, Statement,
    storage::{put_file, set_limits},
};
use edge_harness::ports::directory::DirectoryError;
use edge_harness::ports::filesystem::{Content, Entry, Precondition, Row, Tree};
use edge_harness::ports::memory::*;
use edge_harness::ports::memory_spaces::{Claim, Intent, MemorySpaces, Space};
use edge_harness::ports::moves::{Move, MovePhase};
use edge_harness::ports::{MemoryIndex, Moves};
use edge_harness::types::{FilePath, StorageLimits, TenantId, Timestamp, UserId};
use futures::FutureExt;
use pretty_assertions::assert_eq;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

pub const NAMES: [&str; 2] = ["DB", "DB_1"];
pub const START: Timestamp = Timestamp(1_000_000);
pub const CACHED: Duration = Duration::from_mins(11);
/// The numbers of `t` on a shard, as [`Deployment::rows`] has them.
pub const STORAGE: &str = "SELECT * FROM tenant_storage WHERE tenant = 't'";
pub const WORDS: [&str; 4] = ["apple", "bicycle", "cello", "dragon"];

/// What happens at a call of a database.
pub enum Event {
    /// The run stops before the call.
    StopBefore,
    /// The run stops when the database has committed.
    StopAfter,
    /// Something else runs first.
    Run(Box<dyn FnOnce()>),
}

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mover {
    /// The tenant `t` with all of its rows.
    Tenant,
    /// The tenant `t`, whose users are spread and stay on `DB`.
    Spread,
    /// The user `bob` of `t`.
    Bob,
}

pub const MOVERS: [Mover; 3] = [Mover::Tenant, Mover::Spread, Mover::Bob];

/// A deployment with two databases. At one of their calls an event can happen.
#[derive(Clone)]
pub struct Deployment {
    pub mover: Mover,
    pub shards: Rc<[Sqlite; 2]>,
    pub calls: Rc<Cell<usize>>,
    pub event: Rc<RefCell<Option<(usize, Event)>>>,
}

pub struct Database {
    pub sqlite: Sqlite,
    pub deployment: Deployment,
}

#[async_trait(?Send)]
impl Sql for Database {
    type Rows = JsonRows;

    async fn batch(&self, statements: &[Statement<'_>]) -> Result<Vec<JsonRows>, SqlError> {
        let Deployment { calls, event, .. } = &self.deployment;
        calls.set(calls.get() + 1);
        let is_due = event.borrow().as_ref().is_some_and(|(call, _)| *call == calls.get());
        let event = if is_due { event.borrow_mut().take() } else { None };
        let stopped = Err(SqlError::new("the run stops"));
        match event.map(|(_, event)| event) {
            Some(Event::StopBefore) => return stopped,
            Some(Event::StopAfter) => {
                self.sqlite.batch(statements).await?;
                return stopped;
            }
            Some(Event::Run(run)) => run(),
            None => {}
        }
        self.sqlite.batch(statements).await
    }
}

#[async_trait(?Send)]
impl Databases for Deployment {
    type Database = Database;

    async fn locate(&self, tenant: &TenantId) -> Result<(), SqlError> {
        self.all_of(tenant).await.map(drop)
    }

    async fn of(&self, tenant: &TenantId, user: &UserId) -> Result<Database, SqlError> {
        self.named(&self.shard_of_user(tenant, user)).ok_or_else(|| SqlError::new("no such shard"))
    }

    async fn all_of(&self, tenant: &TenantId) -> Result<Vec<Database>, SqlError> {
        Ok(self.all().into_iter().filter(|_| !tenant.is_empty()).collect())
    }

    fn all(&self) -> Vec<Database> {
        NAMES.iter().filter_map(|name| self.named(name)).collect()
    }

    fn named(&self, shard: &str) -> Option<Database> {
        let index = NAMES.iter().position(|name| *name == shard)?;
        Some(Database { sqlite: self.shards[index].clone(), deployment: self.clone() })
    }
}

/// Runs a future that never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("SQLite does not wait")
}

impl Deployment {
    /// Creates a deployment with the tenants `t` on `DB`, `on-DB` and `on-DB_1`, all with the same kind of data.
    pub fn new(mover: Mover, facts: usize) -> Self {
        let (calls, event) = (Rc::default(), Rc::default());
        let one = Self { mover, shards: Rc::new([Sqlite::new(), Sqlite::new()]), calls, event };
        for (tenant, shard) in [("on-DB_1", "DB_1"), ("on-DB", "DB"), ("t", "DB")] {
            one.root().run_all(&format!(
                "INSERT INTO tenants (id, name, created_at, shard) VALUES ('{tenant}', 'T', 1, '{shard}')"
            ));
            one.fill(tenant, if tenant == "t" { facts } else { 5 });
        }
        if mover == Mover::Spread {
            one.root().run_all("UPDATE tenants SET spread = 2 WHERE id = 't'");
        }
        one
    }

    /// Returns a separate deployment with the same rows.
    pub fn copy(&self) -> Self {
        let shards = Rc::new([self.shards[0].copy(), self.shards[1].copy()]);
        Self { mover: self.mover, shards, calls: Rc::default(), event: Rc::default() }
    }

    /// Returns a separate deployment with the same rows, in which a move has started.
    pub fn moving(&self) -> Self {
        let one = self.copy();
        assert!(one.start("mov_1", "DB_1"));
        one.calls.set(0);
        one
    }

    pub fn root(&self) -> &Sqlite {
        &self.shards[0]
    }

    pub fn shard(&self, name: &str) -> &Sqlite {
        &self.shards[NAMES.iter().position(|known| *known == name).unwrap()]
    }

    pub fn shard_of(&self, tenant: &str) -> String {
        self.root().dump(&format!("SELECT shard FROM tenants WHERE id = '{tenant}'")).remove(0)
    }

    pub fn shard_of_user(&self, tenant: &str, user: &str) -> String {
        let sql = format!("SELECT shard FROM user_shards WHERE tenant = '{tenant}' AND user = '{user}'");
        let own = self.root().dump(&sql).pop();
        let is_spread = self.mover == Mover::Spread && tenant == "t";
        own.unwrap_or_else(|| if is_spread { "DB".to_owned() } else { self.shard_of(tenant) })
    }

    /// Returns the shard of what moves.
    pub fn shard_of_mover(&self) -> String {
        match self.mover {
            Mover::Tenant | Mover::Spread => self.shard_of("t"),
            Mover::Bob => self.shard_of_user("t", "bob"),
        }
    }

    pub fn moves(&self) -> SqlMoves<Self> {
        SqlMoves::new(self.clone(), index_terms, user_shard, CACHED)
    }

    pub fn memory(&self) -> SqlMemory<Self> {
        SqlMemory::new(self.clone(), StorageLimits::default())
    }

    pub fn spaces(&self) -> SqlSpaces<Self> {
        SqlSpaces::new(self.clone())
    }

    pub fn fill(&self, tenant: &str, facts: usize) {
        let shard = self.shard(&self.shard_of(tenant)).clone();
        shard.run_all(&format!(
            "INSERT INTO sessions (tenant, id, user, agent, title, created_at, updated_at, parent) VALUES
               ('{tenant}', 's1', 'ann', 'a', 'A \"title\"', 1, 2, NULL), ('{tenant}', 's2', 'ann', 'a', NULL, 3, 4, 's1');
             INSERT INTO free_blobs (tenant, blob, since, scope) VALUES ('{tenant}', '{tenant}/files/free', 7, 'agents/a/shared');"
        ));
        now(shard.batch(&[set_limits(
            &tenant.into(),
            &StorageLimits { files: Some(50), ..StorageLimits::default() },
            9,
        )]))
        .unwrap();
        for (scope, path, content) in [
            ("agents/a/users/ann", "notes/x.md", Content::Inline("línes\n\"x\"".into())),
            ("agents/a/users/ann", "raw", Content::Inline((&b"\0\xff\x01"[..]).into())),
            ("agents/a/users/bob", "large", Content::Blob(format!("{tenant}/files/used"))),
            ("agents/a/shared", "long", Content::Inline("x".repeat(20 * facts).into())),
        ] {
            self.put(&shard, tenant, scope, path, content).unwrap();
        }
        let memory = self.memory();
        for user in ["ann", "bob"] {
            for kind in [CollectionKind::Facts, CollectionKind::Turns] {
                let all: Vec<_> = (0..facts).map(|n| entry(n, kind)).collect();
                now(memory.add(&collection(tenant, user, kind), &all)).unwrap();
                let removed: Vec<_> = [0, 3].iter().map(|n| format!("k{n}")).collect();
                now(memory.remove(&collection(tenant, user, kind), &Removal::Keys(removed))).unwrap();
            }
        }
        // Half of Ann's facts are consolidated, and Bob's are being consolidated.
        let claim = Claim { holder: "lea_1".into(), now: START, until: Timestamp(u64::MAX >> 12) };
        let listing = Listing { limit: facts, oldest_first: true, ..Listing::default() };
        for (user, ends) in [("ann", true), ("bob", false)] {
            let listed =
                now(memory.list(&collection(tenant, user, CollectionKind::Facts), &listing)).unwrap();
            let half = listed[listed.len() / 2].serial;
            let lease = now(self.spaces().claim(&claim, &space(tenant, user))).unwrap().unwrap();
            let intent = Intent { etag: "e".into(), watermark: half };
            let noted = match ends {
                true => now(self.spaces().finish(&lease, half, START)),
                false => now(self.spaces().note(&lease, 0, Some(&intent))),
            };
            assert_eq!(noted, Ok(true));
        }
    }

    pub fn put(
        &self,
        shard: &Sqlite,
        tenant: &str,
        scope: &str,
        path: &str,
        content: Content,
    ) -> Result<(), SqlError> {
        let tree = Tree { tenant: tenant.into(), scope: scope.into() };
        let bytes = match &content {
            Content::Inline(bytes) => bytes.len() as u64,
            Content::Blob(_) => 4_000_000,
        };
        let path = FilePath::parse(path).unwrap();
        let entry = Entry { path, bytes, etag: "e".into(), updated_at: Timestamp(5) };
        let row = Row { entry, content };
        let [put, _] = put_file(&StorageLimits::default(), &tree, &row, &Precondition::Any);
        now(shard.batch(&[put])).map(drop)
    }

    /// Returns all that `t` has on any shard. The numbers of a part that has moved are counted on its shard.
    pub fn all_rows(&self) -> Vec<String> {
        let mut rows: Vec<_> = NAMES.iter().flat_map(|name| self.rows("t", name)).collect();
        let numbers: Vec<_> = NAMES.iter().flat_map(|name| self.shard(name).dump(STORAGE)).collect();
        rows.retain(|row| !numbers.contains(row));
        let sums = numbers.iter().fold([0; 5], |mut sums, row| {
            let numbers = row.split('|').skip(1).map(|number| number.parse::<u64>().unwrap_or_default());
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            sums
        });
        rows.push(format!("{sums:?}"));
        rows.sort();
        rows
    }

    /// Returns all that a tenant has on a shard, without the numbers that the shard assigns.
    pub fn rows(&self, tenant: &str, shard: &str) -> Vec<String> {
        let own = format!("c.tenant = '{tenant}'");
        let seen = |watermark: &str| {
            format!(
                "(SELECT count(*) FROM memory_entries WHERE serial <= c.{watermark} AND collection = \
                 (SELECT id FROM memory_collections AS o WHERE o.tenant = c.tenant AND o.user = c.user \
                 AND o.agent = c.agent AND o.kind = 'facts'))"
            )
        };
        let queries = [
            format!("SELECT * FROM sessions AS c WHERE {own} ORDER BY id"),
            format!("SELECT * FROM files AS c WHERE {own} ORDER BY scope, path"),
            format!("SELECT * FROM free_blobs AS c WHERE {own} ORDER BY blob"),
            format!("SELECT * FROM file_trees AS c WHERE {own} ORDER BY scope"),
            format!("SELECT * FROM tenant_storage AS c WHERE {own}"),
            format!(
                "SELECT user, agent, kind, documents, length, groups, bytes FROM memory_collections AS c \
                 WHERE {own} ORDER BY user, agent, kind"
            ),
            format!(
                "SELECT user, agent, kind, key, part, source, grp, position, session, at, speaker, e.length, text \
                 FROM memory_collections AS c JOIN memory_entries AS e ON collection = id WHERE {own} \
                 ORDER BY user, agent, kind, serial"
            ),
            format!(
                "SELECT user, agent, kind, g.name, g.entries, g.bytes, updated_at, key, part \
                 FROM memory_collections AS c JOIN memory_groups AS g ON g.collection = id \
                 JOIN memory_entries AS e ON e.collection = id AND e.serial = g.last WHERE {own} \
                 ORDER BY user, agent, kind, g.name"
            ),
            format!(
                "SELECT user, agent, {}, {}, dirty_since, requested_at, consolidated_at, flushed_at, intent_etag \
                 FROM memory_spaces AS c WHERE {own} ORDER BY user, agent",
                seen("watermark"),
                seen("intent_watermark"),
            ),
        ];
        queries.iter().flat_map(|sql| self.shard(shard).dump(sql)).collect()
    }

    /// Returns what searches find, without serial numbers.
    pub fn searches(&self, tenant: &str) -> Vec<(Statistics, Vec<edge_harness::ports::memory::Entry>)> {
        let search = |user, kind| {
            let memory = self.memory();
            let collection = collection(tenant, user, kind);
            let terms = WORDS.map(|word| index_terms(word, Timestamp(0), None));
            let terms: Vec<String> =
                terms.iter().map(|terms| terms.split(' ').next_back().unwrap().to_owned()).collect();
            let statistics = now(memory.statistics(&collection, &terms)).unwrap();
            assert!(statistics.frequency.iter().all(|count| *count > 0), "{statistics:?}");
            let query = TermQuery { any_of: vec![terms[..2].to_vec()], none_of: vec![], limit: 10 };
            let mut found = now(memory.find(&collection, &[query])).unwrap();
            found.iter_mut().for_each(|entry| entry.serial = 0);
            (statistics, found)
        };
        let kinds = [CollectionKind::Facts, CollectionKind::Turns];
        ["ann", "bob"].iter().flat_map(|user| kinds.map(|kind| search(user, kind))).collect()
    }

    pub fn start(&self, id: &str, to: &str) -> bool {
        let new = Move {
            id: id.into(),
            tenant: "t".into(),
            user: (self.mover == Mover::Bob).then(|| "bob".into()),
            source: self.shard_of_mover(),
            target: to.into(),
            phase: MovePhase::Draining,
            since: START,
            copied: 0,
            started_at: START,
        };
        now(self.moves().start(&new)).unwrap()
    }

    pub fn phase(&self) -> MovePhase {
        now(self.moves().latest(&"t".into())).unwrap().unwrap().phase
    }

    /// Carries on the open moves at this time.
    pub fn advance(&self, at: Timestamp) -> Result<(), DirectoryError> {
        now(self.moves().advance(None, &ManualClock::at(at)))
    }

    /// Carries on the move until it has ended. Runs may stop.
    pub fn finish(&self) {
        for minute in 12..40 {
            if self.phase().is_final() {
                return;
            }
            let at = START + Duration::from_mins(minute);
            let _ = self.advance(at);
        }
        panic!("the move does not end: {:?}", self.phase());
    }

    /// Checks that the tenant has exactly these rows, each on its shard, and that it can write there.
    #[track_caller]
    pub fn is_whole(&self, before: &[String], others: &[Vec<String>]) {
        assert_eq!(self.all_rows(), before);
        assert_eq!(self.others(), others);
        let home = self.shard_of("t");
        let other = NAMES.iter().find(|name| **name != home).unwrap();
        if self.mover == Mover::Tenant {
            assert_eq!(self.rows("t", other), Vec::<String>::new());
        }
        for name in NAMES {
            let is_here = |user: &&str| self.shard_of_user("t", user) == name;
            let users = ["ann", "bob"].iter().copied().filter(is_here).collect::<Vec<_>>();
            for table in ["memory_collections", "memory_spaces"] {
                let found = format!("SELECT DISTINCT user FROM {table} WHERE tenant = 't' ORDER BY user");
                assert_eq!(self.shard(name).dump(&found), users, "{table} on {name}");
            }
            let owners = users.iter().map(|user| format!("users/{user}"));
            let owners: Vec<_> =
                (home == name).then(|| "shared".to_owned()).into_iter().chain(owners).collect();
            let found = "SELECT owner FROM file_trees WHERE tenant = 't' ORDER BY owner";
            assert_eq!(self.shard(name).dump(found), owners, "files on {name}");
            let apart = "SELECT (SELECT count(*) FROM sessions WHERE tenant = 't'), \
                         (SELECT count(*) FROM free_blobs WHERE tenant = 't')";
            assert_eq!(self.shard(name).dump(apart), [if home == name { "2|1" } else { "0|0" }], "{name}");
        }
        for name in NAMES {
            // Every entry has its terms, and nothing else has.
            let counts = "SELECT (SELECT count(*) FROM memory_entries), (SELECT count(*) FROM memory_terms), \
                          (SELECT count(*) FROM memory_groups WHERE collection NOT IN (SELECT id FROM memory_collections))";
            let counts = self.shard(name).dump(counts).remove(0);
            let [entries, terms, groups] = counts.split('|').collect::<Vec<_>>()[..] else { panic!() };
            assert_eq!((terms, groups), (entries, "0"), "{name}");
        }
        for (scope, shard) in [
            ("agents/a/shared", home),
            ("agents/a/users/ann", self.shard_of_user("t", "ann")),
            ("agents/a/users/bob", self.shard_of_user("t", "bob")),
        ] {
            let put = self.put(self.shard(&shard), "t", scope, "new", Content::Inline("x".into()));
            assert_eq!(put, Ok(()), "{scope}");
        }
    }

    pub fn others(&self) -> Vec<Vec<String>> {
        NAMES.iter().map(|name| self.rows(&format!("on-{name}"), name)).collect()
    }
}

pub fn collection(tenant: &str, user: &str, kind: CollectionKind) -> Collection {
    Collection { tenant: tenant.into(), agent: "a".into(), user: user.into(), kind }
}

pub fn space(tenant: &str, user: &str) -> Space {
    Space { tenant: tenant.into(), agent: "a".into(), user: user.into() }
}

pub fn entry(n: usize, kind: CollectionKind) -> NewEntry {
    let (at, speaker) = (Timestamp(n as u64 * 1_000), n.is_multiple_of(2).then(|| "Ann Lúz".to_owned()));
    let part = |n: usize| {
        let text = format!("{} and {} \"{n}\"\0", WORDS[n % 4], WORDS[(n + 1) % 4]);
        NewPart { terms: index_terms(&text, at, speaker.as_deref()), length: length(&text), text }
    };
    let source = if kind == CollectionKind::Facts { Source::Log } else { Source::Session };
    NewEntry {
        key: format!("k{n}"),
        source,
        group: format!("g{}", n % 3),
        session: n.is_multiple_of(5).then(|| "s1".into()),
        at,
        speaker: speaker.clone(),
        parts: (0..n % 3 + 1).map(|p| part(n + p)).collect(),
    }
}
