//! Moves of tenants and users between shards: nothing is lost or changed, wherever a run stops and whatever runs beside it.

mod deployment;

use self::deployment::*;
use crate::sqlite::Sqlite;
use edge_harness::http::placement::user_shard;
use edge_harness::platform::in_memory::ManualClock;
use edge_harness::platform::sql::{Sql, Statement, moves::is_refusal, storage::set_limits};
use edge_harness::ports::filesystem::Content;
use edge_harness::ports::memory::*;
use edge_harness::ports::memory_spaces::{Claim, MemorySpaces};
use edge_harness::ports::moves::{Move, MovePhase};
use edge_harness::ports::{MemoryIndex, Moves};
use edge_harness::types::{StorageLimits, TenantId, Timestamp};
use pretty_assertions::assert_eq;
use std::time::Duration;

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
            *one.event.borrow_mut() = Some((call, Event::Run(Box::new(move || work(&also)))));
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
        *one.event.borrow_mut() = Some((12, Event::Run(Box::new(pass))));
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
    let endless = Event::Run(Box::new(|| panic!("the run does not end")));
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
    let root = [
        "agent_versions",
        "agents",
        "api_keys",
        "audit",
        "consents",
        "moves",
        "storage_days",
        "tenant_secrets",
        "user_shards",
    ];
    // Triggers fill the trees, and the move itself writes the fences.
    let moved =
        ["fences", "file_trees", "files", "free_blobs", "memory_collections", "memory_spaces", "sessions"];
    let mut known: Vec<&str> = root.into_iter().chain(moved).chain(["tenant_storage"]).collect();
    known.sort_unstable();
    assert_eq!(tables, known);
}
