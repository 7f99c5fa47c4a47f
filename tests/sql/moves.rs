//! Moves of tenants and users between shards: nothing is lost or changed, wherever a run stops and whatever runs beside it.

use crate::sqlite::{JsonRows, Sqlite};
use async_trait::async_trait;
use edge_harness::http::placement::user_shard;
use edge_harness::memory::terms::{index_terms, length};
use edge_harness::platform::in_memory::ManualClock;
use edge_harness::platform::sql::{
    Databases, Sql, SqlError, SqlMemory, SqlMoves, SqlSpaces, Statement,
    moves::is_refusal,
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

const NAMES: [&str; 2] = ["DB", "DB_1"];
const START: Timestamp = Timestamp(1_000_000);
const CACHED: Duration = Duration::from_mins(11);
/// The numbers of `t` on a shard, as [`Deployment::rows`] has them.
const STORAGE: &str = "SELECT * FROM tenant_storage WHERE tenant = 't'";
const WORDS: [&str; 4] = ["apple", "bicycle", "cello", "dragon"];

/// What happens at a call of a database.
enum Event {
    /// The run stops before the call.
    StopBefore,
    /// The run stops when the database has committed.
    StopAfter,
    /// Something else runs first.
    Meanwhile(Box<dyn FnOnce()>),
}

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mover {
    /// The tenant `t` with all of its rows.
    Tenant,
    /// The tenant `t`, whose users are spread and stay on `DB`.
    Spread,
    /// The user `bob` of `t`.
    Bob,
}

const MOVERS: [Mover; 3] = [Mover::Tenant, Mover::Spread, Mover::Bob];

/// A deployment with two databases. At one of their calls an event can happen.
#[derive(Clone)]
struct Deployment {
    mover: Mover,
    shards: Rc<[Sqlite; 2]>,
    calls: Rc<Cell<usize>>,
    event: Rc<RefCell<Option<(usize, Event)>>>,
}

struct Database {
    sqlite: Sqlite,
    deployment: Deployment,
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
            Some(Event::Meanwhile(run)) => run(),
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
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("SQLite does not wait")
}

impl Deployment {
    /// Creates a deployment with the tenants `t` on `DB`, `on-DB` and `on-DB_1`, all with the same kind of data.
    fn new(mover: Mover, facts: usize) -> Self {
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
    fn copy(&self) -> Self {
        let shards = Rc::new([self.shards[0].copy(), self.shards[1].copy()]);
        Self { mover: self.mover, shards, calls: Rc::default(), event: Rc::default() }
    }

    /// Returns a separate deployment with the same rows, in which a move has started.
    fn moving(&self) -> Self {
        let one = self.copy();
        assert!(one.start("mov_1", "DB_1"));
        one.calls.set(0);
        one
    }

    fn root(&self) -> &Sqlite {
        &self.shards[0]
    }

    fn shard(&self, name: &str) -> &Sqlite {
        &self.shards[NAMES.iter().position(|known| *known == name).unwrap()]
    }

    fn shard_of(&self, tenant: &str) -> String {
        self.root().dump(&format!("SELECT shard FROM tenants WHERE id = '{tenant}'")).remove(0)
    }

    fn shard_of_user(&self, tenant: &str, user: &str) -> String {
        let sql = format!("SELECT shard FROM user_shards WHERE tenant = '{tenant}' AND user = '{user}'");
        let own = self.root().dump(&sql).pop();
        let is_spread = self.mover == Mover::Spread && tenant == "t";
        own.unwrap_or_else(|| if is_spread { "DB".to_owned() } else { self.shard_of(tenant) })
    }

    /// Returns the shard of what moves.
    fn shard_of_mover(&self) -> String {
        match self.mover {
            Mover::Tenant | Mover::Spread => self.shard_of("t"),
            Mover::Bob => self.shard_of_user("t", "bob"),
        }
    }

    fn moves(&self) -> SqlMoves<Self> {
        SqlMoves::new(self.clone(), index_terms, user_shard, CACHED)
    }

    fn memory(&self) -> SqlMemory<Self> {
        SqlMemory::new(self.clone(), StorageLimits::default())
    }

    fn spaces(&self) -> SqlSpaces<Self> {
        SqlSpaces::new(self.clone())
    }

    fn fill(&self, tenant: &str, facts: usize) {
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

    fn put(
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
    fn all_rows(&self) -> Vec<String> {
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
    fn rows(&self, tenant: &str, shard: &str) -> Vec<String> {
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
    fn searches(&self, tenant: &str) -> Vec<(Statistics, Vec<edge_harness::ports::memory::Entry>)> {
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

    fn start(&self, id: &str, to: &str) -> bool {
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

    fn phase(&self) -> MovePhase {
        now(self.moves().latest(&"t".into())).unwrap().unwrap().phase
    }

    /// Carries on the open moves at this time.
    fn advance(&self, at: Timestamp) -> Result<(), DirectoryError> {
        now(self.moves().advance(None, &ManualClock::at(at)))
    }

    /// Carries on the move until it has ended. Runs may stop.
    fn finish(&self) {
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
    fn is_whole(&self, before: &[String], others: &[Vec<String>]) {
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

    fn others(&self) -> Vec<Vec<String>> {
        NAMES.iter().map(|name| self.rows(&format!("on-{name}"), name)).collect()
    }
}

fn collection(tenant: &str, user: &str, kind: CollectionKind) -> Collection {
    Collection { tenant: tenant.into(), agent: "a".into(), user: user.into(), kind }
}

fn space(tenant: &str, user: &str) -> Space {
    Space { tenant: tenant.into(), agent: "a".into(), user: user.into() }
}

fn entry(n: usize, kind: CollectionKind) -> NewEntry {
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

#[test]
fn a_move_copies_every_row_and_searches_find_the_same() {
    // Several pages of each collection, and of files.
    let one = Deployment::new(Mover::Tenant, 700);
    for n in 0..9 {
        let content = Content::Inline("\u{1}".repeat(250_000).into());
        one.put(one.shard("DB"), "t", "agents/a/shared", &format!("file-{n}"), content).unwrap();
    }
    let (before, searches, others) = (one.all_rows(), one.searches("t"), one.others());
    assert!(one.start("mov_1", "DB_1"));
    assert!(!one.start("mov_2", "DB_1"), "one move at a time");
    one.advance(START + Duration::from_mins(10)).unwrap();
    assert_eq!((one.phase(), one.shard_of("t").as_str()), (MovePhase::Draining, "DB"));
    one.finish();
    assert_eq!((one.phase(), one.shard_of("t").as_str()), (MovePhase::Done, "DB_1"));
    assert_eq!(one.searches("t"), searches);
    let copied = now(one.moves().latest(&"t".into())).unwrap().unwrap().copied;
    let entries = before.iter().filter(|row| row.starts_with("ann|") || row.starts_with("bob|")).count();
    assert!((entries as u64 - 20..entries as u64 + 20).contains(&copied), "{copied} of {entries}");
    one.is_whole(&before, &others);

    // And back.
    let (before, searches) = (one.all_rows(), one.searches("t"));
    assert!(one.start("mov_3", "DB"));
    one.finish();
    assert_eq!((one.shard_of("t").as_str(), one.searches("t")), ("DB", searches));
    one.is_whole(&before, &others);
}

#[test]
fn a_run_may_stop_at_every_call() {
    for mover in MOVERS {
        a_run_may_stop(mover);
    }
}

fn a_run_may_stop(mover: Mover) {
    let reference = Deployment::new(mover, 6);
    let (before, others) = (reference.all_rows(), reference.others());
    for call in 1.. {
        let one = reference.moving();
        *one.event.borrow_mut() = Some((call, Event::StopAfter));
        let at = START + Duration::from_mins(12);
        let _ = one.advance(at);
        let _ = one.advance(at + Duration::from_mins(1));
        let is_past = one.event.borrow_mut().take().is_some();
        one.finish();
        let ended = (one.phase(), one.shard_of_mover());
        assert_eq!(ended, (MovePhase::Done, "DB_1".to_owned()), "{mover:?}, call {call}");
        one.is_whole(&before, &others);
        if is_past {
            assert!(call > 15, "the calls of a move: {call}");
            break;
        }
    }
}

/// While a run waits for any of its calls, another run finishes the move, or the operator cancels it, or deletes the
/// tenant.
#[test]
fn a_late_run_changes_nothing() {
    for mover in MOVERS {
        a_late_run(mover);
    }
}

fn a_late_run(mover: Mover) {
    let reference = Deployment::new(mover, 6);
    let (before, others) = (reference.all_rows(), reference.others());
    let others_work: [fn(&Deployment); 3] = [
        |one| one.finish(),
        |one| {
            now(one.moves().cancel(&"t".into(), START)).unwrap();
            one.finish();
        },
        |one| {
            one.root().run_all("UPDATE tenants SET deleted_at = 5 WHERE id = 't'");
            one.finish();
        },
    ];
    for work in others_work {
        for call in 1.. {
            let one = reference.moving();
            let also = one.clone();
            *one.event.borrow_mut() = Some((call, Event::Meanwhile(Box::new(move || work(&also)))));
            let at = START + Duration::from_mins(12);
            let _ = one.advance(at);
            let is_past = one.event.borrow_mut().take().is_some();
            one.finish();
            let moved = one.shard_of_mover() == "DB_1";
            let phase = if moved { MovePhase::Done } else { MovePhase::Canceled };
            assert_eq!(one.phase(), phase, "{mover:?}, call {call}");
            one.is_whole(&before, &others);
            if is_past {
                break;
            }
        }
    }
}

#[test]
fn a_fenced_tenant_cannot_write_and_others_can() {
    let one = Deployment::new(Mover::Tenant, 6);
    let whole = one.all_rows();
    assert!(one.start("mov_1", "DB_1"));
    // The run stops when it has copied some rows.
    one.calls.set(0);
    *one.event.borrow_mut() = Some((12, Event::StopBefore));
    one.advance(START + Duration::from_mins(12)).unwrap_err();
    assert_eq!(one.phase(), MovePhase::Copying);
    let (before, copied) = (one.rows("t", "DB"), one.rows("t", "DB_1"));
    assert!(!copied.is_empty());

    let writes = [
        "INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at) VALUES ('T', 's3', 'u', 'a', 1, 1)",
        "UPDATE sessions SET title = 'x' WHERE tenant = 'T'",
        "DELETE FROM sessions WHERE tenant = 'T'",
        "UPDATE files SET path = path || 'x' WHERE tenant = 'T'",
        "DELETE FROM files WHERE tenant = 'T'",
        "INSERT INTO free_blobs (tenant, blob, since) VALUES ('T', 'k', 1)",
        "UPDATE memory_spaces SET requested_at = 1 WHERE tenant = 'T'",
        "DELETE FROM memory_spaces WHERE tenant = 'T'",
    ];
    let run = |shard: &Sqlite, sql: &str| now(shard.batch(&[Statement::new(sql, [])])).map(drop);
    for write in writes {
        let refused = run(one.shard("DB"), &write.replace("'T'", "'t'"));
        assert!(refused.as_ref().is_err_and(is_refusal), "{write}: {refused:?}");
    }
    let facts = |tenant: &str| collection(tenant, "ann", CollectionKind::Facts);
    let added = now(one.memory().add(&facts("t"), &[entry(99, CollectionKind::Facts)]));
    let removed = now(one.memory().remove(&facts("t"), &Removal::All)).map(|_| 0);
    for refused in [added, removed] {
        assert!(matches!(refused, Err(MemoryError::Unavailable(_))), "{refused:?}");
    }
    let tenant = TenantId::from("t");
    let limits = set_limits(&tenant, &StorageLimits::default(), 10);
    assert!(now(one.shard("DB").batch(&[limits])).is_err_and(|error| is_refusal(&error)));
    for name in NAMES {
        let put = one.put(one.shard(name), "t", "agents/a/shared", "new", Content::Inline("x".into()));
        assert!(put.is_err_and(|error| is_refusal(&error)), "{name}");
    }
    assert_eq!((one.rows("t", "DB"), one.rows("t", "DB_1")), (before, copied));

    // Reads continue, and other tenants write and are consolidated.
    one.searches("t");
    let claim = Claim { holder: "lea_2".into(), now: START, until: Timestamp(2_000_000) };
    let leases = now(one.spaces().claim_due(&claim, Timestamp(u64::MAX >> 12), 10)).unwrap();
    let leased: Vec<_> =
        leases.iter().map(|lease| (lease.space.tenant.as_str(), lease.space.user.as_str())).collect();
    assert_eq!(leased, [("on-DB", "ann"), ("on-DB_1", "ann")]);
    assert_eq!(now(one.memory().add(&facts("on-DB"), &[entry(99, CollectionKind::Facts)])), Ok(1));
    for write in writes {
        assert_eq!(run(one.shard("DB"), &write.replace("'T'", "'on-DB'")), Ok(()), "{write}");
    }
    let others = one.others();
    one.finish();
    one.is_whole(&whole, &others);
}

#[test]
fn a_canceled_move_leaves_everything_where_it_was() {
    for mover in MOVERS {
        a_canceled_move(mover);
    }
}

fn a_canceled_move(mover: Mover) {
    let one = Deployment::new(mover, 6);
    let (before, others) = (one.all_rows(), one.others());
    assert!(one.start("mov_1", "DB_1"));
    one.calls.set(0);
    *one.event.borrow_mut() = Some((12, Event::StopAfter));
    one.advance(START + Duration::from_mins(12)).unwrap_err();
    assert_eq!(now(one.moves().cancel(&"t".into(), START)), Ok(true));
    one.finish();
    assert_eq!((one.phase(), one.shard_of_mover().as_str()), (MovePhase::Canceled, "DB"));
    one.is_whole(&before, &others);
    // It can move later, and then no longer be canceled.
    assert!(one.start("mov_2", "DB_1"));
    one.finish();
    assert_eq!((one.phase(), one.shard_of_mover().as_str()), (MovePhase::Done, "DB_1"));
    assert_eq!(now(one.moves().cancel(&"t".into(), START)), Ok(false));
}

/// A run stops when it has stored the new shard. The next one opens it, although the pages are for another move.
#[test]
fn a_tenant_can_soon_write_on_its_new_shard() {
    let reference = Deployment::new(Mover::Tenant, 6);
    let at = START + Duration::from_mins(12);
    let is_closed = |one: &Deployment| {
        let closed = "SELECT count(*) FROM fences WHERE tenant = 't' AND open = 0";
        one.phase() == MovePhase::Cleaning && one.shard("DB_1").dump(closed) == ["1"]
    };
    let stopped = (1..60).map(|call| {
        let one = reference.moving();
        *one.event.borrow_mut() = Some((call, Event::StopBefore));
        let _ = one.advance(at);
        one
    });
    let one = stopped.into_iter().find(is_closed).expect("the run stops after the switch");
    for n in 0..45 {
        let content = Content::Inline("\u{1}".repeat(250_000).into());
        one.put(one.shard("DB"), "on-DB", "agents/a/shared", &format!("file-{n}"), content).unwrap();
    }
    let large = "INSERT INTO moves (tenant, id, source, target, phase, since, copied, started_at) \
                 VALUES ('on-DB', 'mov_2', 'DB', 'DB_1', 'copying', 1, 0, 1)";
    one.root().run_all(large);
    one.advance(at + Duration::from_mins(1)).unwrap();
    assert_eq!(one.root().dump("SELECT phase FROM moves WHERE tenant = 'on-DB'"), ["copying"]);
    let put = one.put(one.shard("DB_1"), "t", "agents/a/shared", "new", Content::Inline("x".into()));
    assert_eq!(put, Ok(()));
}

#[test]
fn moves_that_fail_do_not_block_others() {
    let one = Deployment::new(Mover::Tenant, 6);
    assert!(one.start("mov_1", "DB_1"));
    for n in 0..25 {
        one.root().run_all(&format!(
            "INSERT INTO tenants (id, name, created_at, shard) VALUES ('x{n}', 'T', 1, 'DB');
             INSERT INTO moves (tenant, id, source, target, phase, since, copied, started_at)
               VALUES ('x{n}', 'mov_0', 'DB', 'DB_7', 'copying', 1, 0, 1)"
        ));
    }
    let error = one.advance(START + Duration::from_mins(12)).unwrap_err();
    assert!(error.0.contains("the shard DB_7 is not bound"), "{error:?}");
    one.finish();
    assert_eq!(one.phase(), MovePhase::Done);
}

/// A run of any length leaves time for reads that have begun, and a later write of the old shard is refused.
#[test]
fn nothing_is_written_to_the_shard_that_was_left() {
    for mover in MOVERS {
        let one = Deployment::new(mover, 6);
        let others = one.others();
        assert!(one.start("mov_1", "DB_1"));
        // The pages of the run take half a minute.
        let begun = START + Duration::from_mins(12);
        let clock = ManualClock::at(begun);
        one.calls.set(0);
        let slow = clock.clone();
        let pass = move || slow.advance(Duration::from_secs(31));
        *one.event.borrow_mut() = Some((12, Event::Meanwhile(Box::new(pass))));
        now(one.moves().advance(None, &clock)).unwrap();
        let latest = now(one.moves().latest(&"t".into())).unwrap().unwrap();
        assert_eq!((latest.phase, latest.since), (MovePhase::Cleaning, begun + Duration::from_secs(31)));
        now(one.moves().advance(None, &clock)).unwrap();
        assert_eq!(one.phase(), MovePhase::Cleaning, "{mover:?}");
        one.finish();
        assert_eq!(one.phase(), MovePhase::Done);

        let before = one.all_rows();
        let scope = if mover == Mover::Bob { "agents/a/users/bob" } else { "agents/a/shared" };
        let put = one.put(one.shard("DB"), "t", scope, "late", Content::Inline("x".into()));
        assert!(put.is_err_and(|error| is_refusal(&error)), "{mover:?}");
        if mover != Mover::Tenant {
            // The rest of the tenant is there, and so are its limits.
            let put = one.put(one.shard("DB"), "t", "agents/a/users/ann", "new", Content::Inline("x".into()));
            assert_eq!(put, Ok(()), "{mover:?}");
            one.shard("DB").run_all("DELETE FROM files WHERE tenant = 't' AND path = 'new'");
            let (tenant, limits) = (TenantId::from("t"), StorageLimits::default());
            now(one.shard("DB").batch(&[set_limits(&tenant, &limits, 9)])).unwrap();
        }
        assert!(one.start("mov_2", "DB"), "it can move back");
        one.finish();
        assert_eq!(one.shard_of_mover(), "DB");
        let after = one.all_rows();
        assert_eq!(after, before, "{mover:?}");
        one.is_whole(&after, &others);
    }
}

/// The objects of a moved tenant's files stay, whichever shard is cleared.
#[test]
fn no_object_of_a_file_becomes_free() {
    let one = Deployment::new(Mover::Tenant, 6);
    // A request has reserved a key and stores its file after the move.
    one.shard("DB")
        .run_all("INSERT INTO free_blobs (tenant, blob, since) VALUES ('t', 't/files/reserved', 8)");
    assert!(one.start("mov_1", "DB_1"));
    one.finish();
    let file = Content::Blob("t/files/reserved".into());
    one.put(one.shard("DB_1"), "t", "agents/a/users/bob", "late", file).unwrap();
    for (shard, free) in [("DB", vec![]), ("DB_1", vec!["t/files/free"])] {
        let found = one.shard(shard).dump("SELECT blob FROM free_blobs WHERE tenant = 't'");
        assert_eq!(found, free, "{shard}");
    }
    assert_eq!(
        one.shard("DB_1")
            .dump("SELECT content FROM files WHERE tenant = 't' AND kind = 'blob' ORDER BY content"),
        ["t/files/reserved", "t/files/used"]
    );
}

/// Runs a move of `bob` until some rows are copied.
fn bob_is_copied() -> Deployment {
    let one = Deployment::new(Mover::Bob, 6);
    // A request of each user has reserved a key, and stores its file after the move.
    for user in ["ann", "bob"] {
        one.shard("DB").run_all(&format!(
            "INSERT INTO free_blobs (tenant, blob, since, scope) VALUES ('t', 't/files/of-{user}', 8, 'agents/a/users/{user}')"
        ));
    }
    assert!(one.start("mov_1", "DB_1"));
    one.calls.set(0);
    *one.event.borrow_mut() = Some((12, Event::StopBefore));
    one.advance(START + Duration::from_mins(12)).unwrap_err();
    assert_eq!(one.phase(), MovePhase::Copying);
    one
}

#[test]
fn while_a_user_moves_the_others_write() {
    let one = bob_is_copied();
    let facts = |user: &str| collection("t", user, CollectionKind::Facts);
    let add = |user: &str| now(one.memory().add(&facts(user), &[entry(99, CollectionKind::Facts)]));
    assert!(matches!(add("bob"), Err(MemoryError::Unavailable(_))), "{:?}", add("bob"));
    assert_eq!(add("ann"), Ok(1));
    for (shard, scope, is_refused) in [
        ("DB", "agents/a/users/bob", true),
        ("DB_1", "agents/a/users/bob", true),
        ("DB", "agents/b/users/bob", true),
        ("DB", "agents/a/users/ann", false),
        ("DB", "agents/a/users/bobby", false),
        ("DB", "agents/a/shared", false),
        ("DB", "global", false),
        // The first row of the tenant on this shard that is not of the user.
        ("DB_1", "agents/a/users/cy", false),
    ] {
        let put = one.put(one.shard(shard), "t", scope, "new", Content::Inline("x".into()));
        assert_eq!(put.is_err(), is_refused, "{scope} on {shard}: {put:?}");
        assert!(put.is_ok() || put.is_err_and(|error| is_refusal(&error)));
    }
    one.shard("DB").run_all("UPDATE sessions SET title = 'new' WHERE tenant = 't'");
    let claim = Claim { holder: "lea_2".into(), now: START, until: Timestamp(2_000_000) };
    let due = now(one.spaces().claim_due(&claim, Timestamp(u64::MAX >> 12), 10)).unwrap();
    assert!(due.iter().any(|lease| lease.space.tenant == *"t" && lease.space.user == *"ann"));
    for shard in NAMES {
        let tenant = TenantId::from("t");
        let limits = set_limits(&tenant, &StorageLimits::default(), 10);
        assert!(now(one.shard(shard).batch(&[limits])).is_err_and(|error| is_refusal(&error)), "{shard}");
    }
}

#[test]
fn the_keys_that_a_user_has_reserved_move_too() {
    let one = bob_is_copied();
    one.finish();
    let free =
        |shard: &str| one.shard(shard).dump("SELECT blob FROM free_blobs WHERE tenant = 't' ORDER BY 1");
    assert_eq!(
        (free("DB"), free("DB_1")),
        (vec!["t/files/free".into(), "t/files/of-ann".into()], vec!["t/files/of-bob".to_owned()])
    );
    let file = Content::Blob("t/files/of-bob".into());
    one.put(one.shard("DB_1"), "t", "agents/a/users/bob", "late", file).unwrap();
    assert_eq!(free("DB_1"), Vec::<String>::new());
    // Its limits moved too.
    let limits = "SELECT max_files, limits_version FROM tenant_storage WHERE tenant = 't'";
    assert_eq!(one.shard("DB_1").dump(limits), ["50|9"]);
}

#[test]
fn a_tenant_moves_only_when_no_user_is_elsewhere() {
    let one = Deployment::new(Mover::Bob, 6);
    let before = one.all_rows();
    let others = one.others();
    assert!(one.start("mov_1", "DB_1"));
    one.finish();
    let tenant = Deployment { mover: Mover::Tenant, ..one.clone() };
    assert!(!tenant.start("mov_2", "DB_1"), "a user is elsewhere");
    assert!(one.start("mov_3", "DB"));
    assert!(!tenant.start("mov_4", "DB_1"), "one move at a time");
    one.finish();
    one.is_whole(&before, &others);
    let (before, shards) = (one.all_rows(), || now(one.moves().user_shards(&"t".into())).unwrap());
    assert!(shards().is_empty(), "the user is where the tenant is");
    // So it moves with the tenant.
    assert!(tenant.start("mov_5", "DB_1"));
    tenant.finish();
    assert!(shards().is_empty());
    assert_eq!((one.shard_of_mover().as_str(), one.all_rows()), ("DB_1", before));
}

/// As after a restore of the root, which then has an earlier state than the shards.
#[test]
fn a_run_ends_if_the_target_has_ended_the_move() {
    let one = Deployment::new(Mover::Tenant, 6);
    assert!(one.start("mov_1", "DB_1"));
    one.finish();
    one.root().run_all("UPDATE moves SET phase = 'copying'");
    one.calls.set(0);
    let endless = Event::Meanwhile(Box::new(|| panic!("the run does not end")));
    *one.event.borrow_mut() = Some((100, endless));
    one.advance(START + Duration::from_mins(50)).unwrap();
    assert_eq!(one.phase(), MovePhase::Copying);
}

#[test]
fn a_user_that_returns_is_forgotten() {
    let one = Deployment::new(Mover::Bob, 6);
    let shards = || now(one.moves().user_shards(&"t".into())).unwrap().into_values().collect::<Vec<_>>();
    one.root().run_all("UPDATE tenants SET spread = 2 WHERE id = 't'");
    let names = NAMES.map(str::to_owned);
    let home = user_shard(&"t".into(), &"bob".into(), &names).unwrap();
    let other = NAMES.into_iter().find(|name| *name != home).unwrap();
    // From where the rows are, by way of the other shards.
    let mut source = "DB";
    for (n, target) in ["DB_1", "DB", "DB_1", "DB"].into_iter().enumerate() {
        let new = Move {
            id: format!("mov_{n}").into(),
            tenant: "t".into(),
            user: Some("bob".into()),
            source: source.into(),
            target: target.into(),
            phase: MovePhase::Draining,
            since: START,
            copied: 0,
            started_at: START,
        };
        assert!(now(one.moves().start(&new)).unwrap());
        one.finish();
        let stored = if target == other { vec![other] } else { vec![] };
        assert_eq!(shards(), stored, "{target}");
        source = target;
    }
}

/// A new table with rows of a tenant must either be moved, fenced and cleared, or be in the root.
#[test]
fn every_table_with_rows_of_a_tenant_is_known() {
    let tables = Sqlite::new().dump(
        "SELECT s.name FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c \
         WHERE s.type = 'table' AND c.name = 'tenant' ORDER BY 1",
    );
    let root = ["api_keys", "audit", "moves", "user_shards"];
    // Triggers fill the trees, and the move itself writes the fences.
    let moved =
        ["fences", "file_trees", "files", "free_blobs", "memory_collections", "memory_spaces", "sessions"];
    let mut known: Vec<&str> = root.into_iter().chain(moved).chain(["tenant_storage"]).collect();
    known.sort_unstable();
    assert_eq!(tables, known);
}
