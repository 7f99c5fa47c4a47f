//! The erasure of deleted tenants and of users.

use crate::stage::{ADMIN, Answer, Stage, delete, get, post};
use edge_harness::http::erasure::sweep;
use edge_harness::ports::Inbox as _;
use edge_harness::ports::consents::{ConsentKey, ConsentKind, ConsentStore};
use edge_harness::types::{InboxCall, InboxFilter, InboxNotice, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

impl Stage {
    /// Runs cron; returns whether work is left for the next run.
    fn cron(&self) -> bool {
        block_on(sweep(&self.gateway)).unwrap()
    }

    fn delete_tenant(&self, id: &str) {
        assert_eq!(self.answer(delete(&format!("/v1/admin/tenants/{id}")).bearer(ADMIN)).status, 204);
    }

    fn shown(&self, id: &str) -> Answer {
        self.answer(get(&format!("/v1/admin/tenants/{id}")).bearer(ADMIN))
    }

    fn create(&self, id: &str) -> Answer {
        self.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({ "id": id })))
    }

    fn sessions(&self, tenant: &str, user: &str, count: u64) {
        for n in 0..count {
            self.session(tenant, &format!("{user}-{n:04}"), user, n);
        }
    }

    fn erased(&self) -> usize {
        self.objects.erased.borrow().len()
    }
}

#[test]
fn a_deleted_tenant_is_closed_at_once_and_its_erasure_is_shown() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.tenant("other", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    stage.sessions("acme", "u", 300);
    stage.session("other", "kept", "u", 0);
    let call: InboxCall = serde_json::from_value(json!({
        "session": "u-0000", "user": "u", "agent": "default", "call_id": "c", "turn": "trn_1", "epoch": 1,
        "kind": "approval", "name": "write_file", "category": "edit", "args": {}, "args_hash": "h",
        "asked_at": "2026-11-20T12:00:00.000Z", "expires_at": "2026-11-27T12:00:00.000Z",
    }))
    .unwrap();
    let notice =
        InboxNotice { session: "u-0000".into(), sent_at: Timestamp(1), calls: vec![call], erased: false };
    block_on(stage.inbox.notify(&"acme".into(), &notice)).unwrap();
    assert_eq!(stage.status_of(&key), 200);
    *stage.objects.stuck.borrow_mut() = vec!["u-0005".into()];

    stage.delete_tenant("acme");
    assert_eq!(stage.status_of(&key), 401);
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme").bearer(ADMIN)).status, 404);
    let erased = stage.erased() as u64;
    assert!((50..150).contains(&erased), "a request erases some: {erased}");
    let shown = stage.shown("acme");
    assert_eq!((shown.status, shown.text("deleted_at")), (200, "2026-11-20T12:00:00.000Z".into()));
    assert_eq!(shown.body["sessions_left"], 300 - erased);
    assert_eq!(shown.body["storage"]["sessions"], 300 - erased);
    let listed = || block_on(stage.inbox.list(&"acme".into(), &InboxFilter::default(), 0, 10)).unwrap().len();
    assert_eq!(listed(), 1);

    assert_eq!(stage.cron(), false);
    assert_eq!((stage.erased(), stage.shown("acme").body["sessions_left"].as_u64()), (299, Some(1)));
    stage.clock.advance(Duration::from_mins(20));
    stage.cron();
    assert_eq!(stage.create("acme").status, 409, "refused until everything is erased");

    stage.objects.stuck.borrow_mut().clear();
    stage.cron();
    assert_eq!((stage.erased(), listed()), (300, 0));
    assert!(!stage.objects.erased.borrow().contains(&"other/kept".into()));
    assert_eq!(stage.shown("acme").status, 404);
    assert_eq!(stage.create("acme").status, 201);
}

#[test]
fn thousands_of_sessions_are_erased_in_bounded_runs() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.sessions("acme", "u", 5_000);
    // More than one step tries, and newer than all others.
    *stage.objects.stuck.borrow_mut() = (0..250).map(|n| format!("u-{n:04}")).collect();
    stage.delete_tenant("acme");
    let mut runs = 0;
    loop {
        let (erased, calls) = (stage.erased(), stage.directory.calls.get());
        let left = stage.cron();
        runs += 1;
        let (erased, calls) = (stage.erased() - erased, stage.directory.calls.get() - calls);
        // Each erasure costs the directory one call here, which the session's object makes.
        assert!((140..=450).contains(&erased) || !left, "{erased} sessions in a run");
        assert!(calls - erased <= 20, "{} calls of the directory in a run", calls - erased);
        if !left {
            break;
        }
    }
    assert_eq!(stage.objects.most.get(), 8);
    assert_eq!(stage.erased(), 4_750, "sessions that fail do not block others");
    assert!(runs <= 34, "{runs} runs");
    // They are not forgotten either.
    stage.objects.stuck.borrow_mut().clear();
    assert_eq!((stage.cron(), stage.erased()), (false, 5_000));
}

#[test]
fn a_large_tenant_does_not_delay_others() {
    let stage = Stage::new();
    for (id, sessions) in [("large", 3_000), ("small", 300)] {
        stage.tenant(id, Value::Null);
        stage.sessions(id, "u", sessions);
        stage.delete_tenant(id);
        stage.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(stage.cron(), true);
    assert_eq!(stage.shown("small").body["sessions_left"], 0);
    assert_ne!(stage.shown("large").body["sessions_left"], 0);
}

#[test]
fn a_run_ends_in_time() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.sessions("acme", "u", 300);
    stage.delete_tenant("acme");
    // As if each erasure took a second, and eight ran at the same time.
    *stage.objects.takes.borrow_mut() = Some((stage.clock.clone(), Duration::from_millis(125)));
    assert_eq!(stage.cron(), false, "300 sessions take less than 45 seconds");
    assert_eq!(stage.erased(), 300);

    stage.tenant("slow", Value::Null);
    stage.sessions("slow", "u", 700);
    stage.delete_tenant("slow");
    assert_eq!(stage.cron(), true);
    let left = stage.shown("slow").body["sessions_left"].as_u64().unwrap();
    assert!((200..300).contains(&left), "{left} are left after 10 and 45 seconds");
    while stage.cron() {}
    assert_eq!(stage.shown("slow").body["sessions_left"], 0, "none was skipped for good");
}

#[test]
fn a_tenant_that_cannot_be_erased_does_not_block_others() {
    let stage = Stage::new();
    *stage.objects.stuck.borrow_mut() = vec!["s".into()];
    for id in ["acme", "other"] {
        stage.tenant(id, Value::Null);
        stage.session(id, "s", "u", 0);
        stage.delete_tenant(id);
    }
    stage.objects.stuck.borrow_mut().clear();
    stage.files.down.set(true);
    assert!(block_on(sweep(&stage.gateway)).is_err(), "the files still fail");
    assert_eq!(*stage.objects.erased.borrow(), ["acme/s", "other/s"]);
    assert_eq!(stage.log.lines().iter().filter(|line| line["event"] == "erasure.failed").count(), 2);
}

#[test]
fn an_id_is_not_reused_while_isolates_may_cache_its_keys() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.delete_tenant("acme");
    stage.cron();
    assert_eq!(stage.create("acme").status, 409);
    stage.clock.advance(Duration::from_mins(20));
    stage.cron();
    assert_eq!(stage.create("acme").status, 201);
}

#[test]
fn a_user_is_erased_by_repeated_requests() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.sessions("acme", "ann", 250);
    stage.sessions("acme", "bob", 2);
    *stage.objects.stuck.borrow_mut() = vec!["ann-0007".into()];
    let erase = || stage.answer(delete("/v1/admin/tenants/acme/users/ann").bearer(ADMIN));
    let mut left = 250;
    let last = loop {
        let answer = erase();
        if answer.status != 202 {
            break answer;
        }
        let now = answer.body["left"].as_u64().unwrap();
        assert!(now < left, "{now} of {left} are left");
        left = now;
    };
    assert_eq!(last.code(), (503, "unavailable"), "one session cannot be erased");
    assert_eq!(stage.erased(), 249);
    stage.objects.stuck.borrow_mut().clear();
    assert_eq!((erase().status, erase().status), (204, 204), "repeatable");
    assert!(!stage.objects.erased.borrow().iter().any(|session| session.contains("bob")));
    for (path, status) in [("acme/users/a%2Fb", 404), ("none/users/ann", 404)] {
        let answer = stage.answer(delete(&format!("/v1/admin/tenants/{path}")).bearer(ADMIN));
        assert_eq!(answer.status, status, "{path}");
    }
    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let foreign = stage.answer(delete("/v1/admin/tenants/acme/users/bob").bearer(&key));
    assert_eq!(foreign.status, 403, "of the operator only");
}

/// A step queries all shards of a tenant, and the platform limits the queries of a run.
#[test]
fn a_run_takes_fewer_steps_of_tenants_on_many_shards() {
    for (shards, purged) in [(1, 12..18), (20, 2..3), (60, 1..2)] {
        let stage = Stage::new();
        stage.directory.shard_count.set(shards);
        for n in 0..40 {
            let tenant = format!("tenant-{n:02}");
            stage.tenant(&tenant, Value::Null);
            stage.delete_tenant(&tenant);
        }
        stage.clock.advance(Duration::from_mins(20));
        assert!(stage.cron());
        let gone = (0..40).filter(|n| stage.shown(&format!("tenant-{n:02}")).status == 404).count();
        assert!(purged.contains(&gone), "{gone} tenants on {shards} shards");
    }
}

#[test]
fn any_number_of_shards_leaves_time_for_erasures() {
    for (count, of_tenant) in [(1, 1), (40, 1), (100, 1), (40, 40), (100, 100)] {
        let mut config = crate::stage::config();
        config.shards = (0..count).map(|n| format!("DB_{n}")).collect();
        let stage = Stage::with(config);
        stage.directory.shard_count.set(of_tenant);
        stage.tenant("acme", Value::Null);
        stage.sessions("acme", "u", 300);
        stage.delete_tenant("acme");
        for _ in 0..3 {
            stage.cron();
        }
        assert_eq!(stage.erased(), 300, "{count} shards");
        stage.clock.advance(Duration::from_mins(20));
        stage.cron();
        assert_eq!(stage.shown("acme").status, 404, "{count} shards");
    }
}

#[test]
fn a_tenant_that_cannot_be_erased_leaves_room_for_others_on_many_shards() {
    let stage = Stage::new();
    stage.directory.shard_count.set(40);
    for (tenant, session) in [("acme", "stuck"), ("other", "s")] {
        stage.tenant(tenant, Value::Null);
        stage.session(tenant, session, "u", 0);
    }
    *stage.objects.stuck.borrow_mut() = vec!["stuck".into()];
    stage.delete_tenant("acme");
    stage.delete_tenant("other");
    // A run has room for the step of one of them, and the first one is never done.
    for _ in 0..25 {
        stage.clock.advance(Duration::from_mins(1));
        stage.cron();
    }
    assert_eq!((stage.shown("acme").status, stage.shown("other").status), (200, 404));
}

#[test]
fn the_consent_of_a_user_or_a_tenant_is_erased() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let key = |user: &str| ConsentKey {
        tenant: "acme".into(),
        user: Some(user.into()),
        kind: ConsentKind::Token,
        name: "https://crm.example.com/mcp".into(),
    };
    for user in ["ann", "bob"] {
        block_on(stage.consents.put(&key(user), "sealed", None, Timestamp(1))).unwrap();
    }
    let has = |user: &str| block_on(stage.consents.get(&key(user))).unwrap().is_some();
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme/users/ann").bearer(ADMIN)).status, 204);
    assert_eq!((has("ann"), has("bob")), (false, true));
    stage.delete_tenant("acme");
    stage.clock.advance(Duration::from_mins(20));
    stage.cron();
    assert!(!has("bob"));
}
