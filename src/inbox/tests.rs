use super::*;
use crate::platform::in_memory::{ManualClock, MemorySessionStore};
use crate::types::{Category, Decider, InboxKind, Pending, SessionId};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::ops::Range;

fn call(session: &str, user: &str, id: &str, kind: InboxKind) -> InboxCall {
    let (asked_at, expires_at) = (Timestamp(0), Timestamp(1_000));
    InboxCall {
        session: session.into(),
        run: None,
        step: None,
        title: None,
        user: user.into(),
        agent: "default".into(),
        parent: None,
        truncated: false,
        call: Pending {
            call_id: id.into(),
            turn: "trn_1".into(),
            epoch: 1,
            kind,
            name: "counter".into(),
            category: Category::Other,
            args: json!({}),
            args_hash: "h".into(),
            payload: json!(null),
            by: Decider::User,
            asked_at,
            expires_at,
            claim: None,
        },
    }
}

fn approval(session: &str, id: &str) -> InboxCall {
    call(session, "ann", id, InboxKind::Approval)
}

struct Stage {
    inbox: TenantInbox,
}

impl Stage {
    fn new() -> Self {
        Self { inbox: TenantInbox::new(Rc::<MemorySessionStore>::default()) }
    }

    fn notify(&self, session: &str, sent_at: u64, calls: Vec<InboxCall>) -> Option<Timestamp> {
        let notice =
            InboxNotice { session: session.into(), sent_at: Timestamp(sent_at), calls, erased: false };
        self.inbox.notify(&notice, Timestamp(sent_at)).unwrap()
    }

    fn listed(&self, filter: &InboxFilter) -> Vec<String> {
        let found = self.inbox.list(filter, 0, 100).unwrap();
        found.into_iter().map(|(_, own)| format!("{}/{}", own.session, own.call.call_id)).collect()
    }

    fn all(&self) -> Vec<String> {
        self.listed(&InboxFilter::default())
    }

    /// Returns the changes as text: `+` for an added call, `-` for a removed one, `!` for a reset.
    fn changes(&self, position: InboxPosition) -> (Vec<String>, InboxPosition) {
        let found = self.inbox.changes(&InboxFilter::default(), position).unwrap();
        let text = found.changes.into_iter().map(|(_, change)| match change {
            InboxChange::Added(own) => format!("+{}", own.call.call_id),
            InboxChange::Removed(own) => format!("-{}", own.call_id),
        });
        (found.reset.then(|| "!".to_owned()).into_iter().chain(text).collect(), found.next)
    }
}

#[test]
fn a_notice_replaces_the_calls_of_its_session() {
    let stage = Stage::new();
    stage.notify("s", 1, vec![approval("s", "a"), approval("s", "b/c")]);
    stage.notify("t", 1, vec![approval("t", "a")]);
    assert_eq!(stage.all(), ["s/a", "s/b/c", "t/a"]);
    stage.notify("s", 2, vec![approval("s", "b/c")]);
    assert_eq!(stage.all(), ["s/b/c", "t/a"], "a call that stays keeps its place");
    stage.notify("t", 2, Vec::new());
    assert_eq!(stage.all(), ["s/b/c"]);
}

#[test]
fn a_late_notice_is_ignored() {
    let stage = Stage::new();
    stage.notify("s", 5, Vec::new());
    assert_eq!(stage.notify("s", 4, vec![approval("s", "a")]), Some(Timestamp(5)));
    assert_eq!(stage.notify("s", 5, vec![approval("s", "a")]), Some(Timestamp(5)), "of another process");
    assert!(stage.all().is_empty());
}

#[test]
fn filters_select() {
    let stage = Stage::new();
    stage.notify("s", 1, vec![call("s", "ann", "a", InboxKind::External), approval("s", "b")]);
    stage.notify("t", 1, vec![call("t", "ben", "a", InboxKind::Question)]);
    stage.notify("u", 1, vec![call("u", "ann", "c", InboxKind::Step)]);
    let by = |filter: InboxFilter| stage.listed(&filter);
    assert_eq!(by(InboxFilter { user: Some("ben".into()), ..InboxFilter::default() }), ["t/a"]);
    assert_eq!(by(InboxFilter { kind: Some(InboxKind::Approval), ..InboxFilter::default() }), ["s/b"]);
    assert_eq!(by(InboxFilter { kind: Some(InboxKind::Step), ..InboxFilter::default() }), ["u/c"]);
    assert_eq!(by(InboxFilter { session: Some("s".into()), ..InboxFilter::default() }), ["s/a", "s/b"]);
    assert_eq!(by(InboxFilter { call: Some("a".into()), ..InboxFilter::default() }), ["s/a", "t/a"]);
    assert!(by(InboxFilter { agent: Some("other".into()), ..InboxFilter::default() }).is_empty());
}

#[test]
fn a_reader_that_returns_misses_nothing() {
    let stage = Stage::new();
    stage.notify("s", 1, vec![approval("s", "a")]);
    let (first, last) = stage.changes(InboxPosition::Start);
    assert_eq!(first, ["!", "+a"]);
    stage.notify("s", 2, vec![approval("s", "b")]);
    stage.notify("t", 2, vec![approval("t", "c")]);
    stage.notify("t", 3, Vec::new());
    let (second, last) = stage.changes(last);
    assert_eq!((second, last), (vec!["+b".into(), "-a".into(), "-c".into()], InboxPosition::After(5)));
    assert_eq!(stage.changes(last).0, Vec::<String>::new());
    assert_eq!(stage.changes(InboxPosition::After(6)).0, ["!", "+b"], "an unknown number");
}

#[test]
fn a_reader_that_was_away_too_long_starts_again() {
    let stage = Stage::new();
    let day = crate::types::time::millis(REMOVALS_KEPT);
    stage.notify("s", 1, vec![approval("s", "a")]);
    stage.notify("s", 2, Vec::new());
    stage.notify("t", day + 2, vec![approval("t", "b")]);
    assert_eq!(stage.changes(InboxPosition::After(1)).0, ["!", "+b"]);
    assert_eq!(stage.changes(InboxPosition::After(2)).0, ["+b"], "it has the removal");
    let documents: Vec<_> = stage.inbox.store.keys("", "~", 100).unwrap();
    assert_eq!(documents.iter().filter(|key| key.starts_with("session/")).count(), 2, "not older than a day");
    stage.notify("t", 3 * day, vec![approval("t", "b")]);
    let documents: Vec<_> = stage.inbox.store.keys("", "~", 100).unwrap();
    let left: Vec<_> = documents.iter().filter(|key| !key.starts_with("call/")).collect();
    assert_eq!(left, [key::NUMBERS, &key::session(&"t".into())]);
}

#[test]
fn a_session_that_was_quiet_for_long_is_listed_and_leaves_again() {
    let stage = Stage::new();
    let day = crate::types::time::millis(NOTICES_KEPT);
    stage.notify("s", 1, Vec::new());
    stage.notify("s", 2 * day, vec![approval("s", "a")]);
    assert_eq!(stage.all(), ["s/a"]);
    stage.notify("s", 2 * day + 1, Vec::new());
    assert_eq!(stage.all(), Vec::<String>::new());
    assert_eq!(stage.inbox.list(&InboxFilter::default(), u64::MAX, 10).unwrap(), []);
}

#[test]
fn nothing_is_left_of_an_erased_session() {
    let stage = Stage::new();
    stage.notify("secret", 1, vec![approval("secret", "a"), approval("secret", "b")]);
    stage.notify("t", 1, vec![approval("t", "c")]);
    stage.notify("secret", 2, vec![approval("secret", "b")]);
    let (_, here) = stage.changes(InboxPosition::Start);
    let notice =
        InboxNotice { session: "secret".into(), sent_at: Timestamp(3), calls: Vec::new(), erased: true };
    stage.inbox.notify(&notice, Timestamp(3)).unwrap();
    let documents = stage.inbox.store.keys("", "~", 100).unwrap();
    assert!(documents.iter().all(|key| !key.contains("secret")), "{documents:?}");
    assert_eq!(stage.notify("secret", 2, vec![approval("secret", "a")]), Some(Timestamp(3)), "a late notice");
    assert_eq!(stage.changes(here).0, ["!", "+c"], "readers learn it");
}

#[test]
fn many_changes_are_read_in_pages() {
    let stage = Stage::new();
    let calls = |session: &str| (0..150).map(|n| approval(session, &format!("{n:03}"))).collect::<Vec<_>>();
    stage.notify("s", 1, calls("s"));
    let mut seen = Vec::new();
    let mut position = InboxPosition::Start;
    loop {
        let found = stage.inbox.changes(&InboxFilter::default(), position).unwrap();
        seen.extend(found.changes.iter().map(|(number, _)| *number));
        position = found.next;
        if !found.more {
            break;
        }
    }
    assert_eq!(seen, (1..=150).collect::<Vec<_>>());
}

#[test]
fn a_call_that_ends_while_the_list_is_read_is_removed() {
    let stage = Stage::new();
    let calls = |left: Range<u32>| left.map(|n| approval("s", &format!("{n:03}"))).collect::<Vec<_>>();
    stage.notify("s", 1, calls(0..150));
    let (first, position) = stage.changes(InboxPosition::Start);
    assert_eq!((first.len(), position), (101, InboxPosition::Listing { after: 100, since: 150 }));
    stage.notify("s", 2, calls(1..150));
    let (second, position) = stage.changes(position);
    assert_eq!((second.len(), second[50].as_str(), position), (51, "-000", InboxPosition::After(151)));
}

#[test]
fn a_reader_waits_for_a_change_that_concerns_it() {
    let (stage, clock) = (Stage::new(), ManualClock::default());
    stage.notify("s", 1, Vec::new());
    let filter = InboxFilter { user: Some("ann".into()), ..InboxFilter::default() };
    let after = InboxPosition::After(0);
    let mut reading =
        stage.inbox.await_changes(&filter, after, Duration::from_secs(15), &clock).boxed_local();
    assert!((&mut reading).now_or_never().is_none());
    stage.notify("t", 1, vec![call("t", "ben", "a", InboxKind::Question)]);
    assert!((&mut reading).now_or_never().is_none(), "a change of another user");
    stage.notify("s", 2, vec![approval("s", "a")]);
    let found = block_on(reading).unwrap();
    assert_eq!((found.changes.len(), found.next, found.more), (1, InboxPosition::After(2), false));
}

#[test]
fn long_arguments_are_cut() {
    let mut long = approval("s", "a");
    long.call.args = json!({ "text": "é".repeat(5_000) });
    long.shorten();
    assert!(long.truncated);
    let text = long.call.args.as_str().unwrap();
    assert!(text.starts_with("{\"text\":\"éé") && text.len() <= 4_000);
    let id: SessionId = long.session;
    assert_eq!(id, "s");
}
