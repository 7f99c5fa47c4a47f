//! The store of consent.

use crate::sqlite::Sqlite;
use edge_harness::platform::{in_memory::InMemoryConsents, sql::SqlConsents};
use edge_harness::ports::consents::{ConsentKey, ConsentKind, ConsentStore, Sealed};
use edge_harness::types::{ConsentGiven, Timestamp, UserId};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use std::rc::Rc;

/// The same store over SQLite, and in memory.
fn both() -> [Rc<dyn ConsentStore>; 2] {
    [Rc::new(SqlConsents(Sqlite::new())), Rc::<InMemoryConsents>::default()]
}

fn key(tenant: &str, user: &str, kind: ConsentKind, name: &str) -> ConsentKey {
    let user = Some(user.into()).filter(|_| !user.is_empty());
    ConsentKey { tenant: tenant.into(), user, kind, name: name.into() }
}

fn value(store: &dyn ConsentStore, key: &ConsentKey) -> Option<(String, u64)> {
    block_on(store.get(key)).unwrap().map(|Sealed { value, version }| (value, version))
}

fn put(store: &dyn ConsentStore, key: &ConsentKey, value: &str, expires_at: Option<u64>, now: u64) {
    block_on(store.put(key, value, expires_at.map(Timestamp), Timestamp(now))).unwrap();
}

#[test]
fn a_value_changes_only_from_the_version_that_was_read() {
    for store in both() {
        let store = store.as_ref();
        let token = key("acme", "ann", ConsentKind::Token, "https://crm.example.com/");
        assert_eq!(value(store, &token), None);
        put(store, &token, "a", None, 1);
        put(store, &token, "b", None, 2);
        assert_eq!(value(store, &token), Some(("b".into(), 2)));
        let replace = |value, version| block_on(store.replace(&token, value, version)).unwrap();
        assert_eq!((replace("c", 1), replace("c", 2), replace("d", 2)), (false, true, false));
        block_on(store.delete(&token, 2)).unwrap();
        assert_eq!(value(store, &token), Some(("c".into(), 3)));
        block_on(store.delete(&token, 3)).unwrap();
        assert_eq!((value(store, &token), replace("d", 3)), (None, false));
    }
}

#[test]
fn a_request_is_found_by_its_name_until_it_expires() {
    for store in both() {
        let store = store.as_ref();
        let [one, late] = ["one", "late"].map(|name| key("acme", "ann", ConsentKind::Request, name));
        put(store, &one, "a", Some(100), 1);
        put(store, &late, "b", Some(50), 1);
        put(store, &key("acme", "ann", ConsentKind::Token, "token"), "c", None, 1);
        let find = |name: &str, now| block_on(store.request(name, Timestamp(now))).unwrap();
        assert_eq!((find("late", 50), find("token", 50), find("absent", 50)), (None, None, None));
        let sealed = Sealed { value: "a".into(), version: 1 };
        assert_eq!(find("one", 50), Some((one.clone(), sealed)));
        // Another row drops those that have expired.
        put(store, &one, "a", Some(100), 50);
        assert_eq!(value(store, &late), None);
        assert_eq!(value(store, &one), Some(("a".into(), 2)));
    }
}

#[test]
fn a_request_becomes_a_token_once() {
    for store in both() {
        let store = store.as_ref();
        let request = key("acme", "ann", ConsentKind::Request, "one");
        let token = key("acme", "ann", ConsentKind::Token, "https://crm.example.com/");
        let redeem = |version, value| block_on(store.redeem(&request, version, &token, value)).unwrap();
        assert!(!redeem(1, "x"));
        put(store, &request, "a", Some(100), 1);
        assert!(!redeem(2, "x"));
        assert_eq!((value(store, &token), value(store, &request).is_some()), (None, true));
        assert!(redeem(1, "one"));
        assert_eq!((value(store, &token), value(store, &request)), (Some(("one".into(), 1)), None));
        assert!(!redeem(1, "x"));
        put(store, &request, "a", Some(100), 1);
        assert!(redeem(1, "two"));
        assert_eq!(value(store, &token), Some(("two".into(), 2)));
    }
}

#[test]
fn tokens_are_listed_page_by_page() {
    for store in both() {
        let rows = [("acme", "ann", "x"), ("acme", "ann", "y"), ("acme", "bob", "a"), ("other", "ann", "x")];
        for (tenant, user, name) in rows {
            put(store.as_ref(), &key(tenant, user, ConsentKind::Token, name), "a", None, 1);
        }
        put(store.as_ref(), &key("acme", "ann", ConsentKind::Request, "r"), "a", Some(100), 1);
        let list = |user: Option<&str>, after: Option<(&str, &str)>| {
            let user = user.map(UserId::from);
            let after = after.map(|(user, server)| ConsentGiven { user: user.into(), server: server.into() });
            let page = block_on(store.tokens(&"acme".into(), user.as_ref(), after.as_ref(), 2)).unwrap();
            page.into_iter().map(|given| format!("{} {}", &*given.user, given.server)).collect::<Vec<_>>()
        };
        assert_eq!(list(None, None), ["ann x", "ann y"]);
        assert_eq!(list(None, Some(("ann", "y"))), ["bob a"]);
        assert_eq!(list(Some("ann"), Some(("ann", "x"))), ["ann y"]);
        assert_eq!(list(Some("bob"), None), ["bob a"]);
    }
}

#[test]
fn a_user_or_a_tenant_is_erased() {
    for store in both() {
        let store = store.as_ref();
        let keys = [("acme", "ann"), ("acme", "bob"), ("acme", ""), ("other", "ann")]
            .map(|(tenant, user)| key(tenant, user, ConsentKind::Token, "x"));
        let kept = || keys.each_ref().map(|key| value(store, key).is_some());
        keys.iter().for_each(|key| put(store, key, "a", None, 1));
        block_on(store.erase(&"acme".into(), Some(&"ann".into()))).unwrap();
        assert_eq!(kept(), [false, true, true, true]);
        block_on(store.erase(&"acme".into(), None)).unwrap();
        assert_eq!(kept(), [false, false, false, true]);
    }
}
