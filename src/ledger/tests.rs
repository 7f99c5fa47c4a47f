use super::*;
use crate::platform::in_memory::MemorySessionStore;
use crate::types::{NanoUsd, Quota, Usage};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_795_176_000_000);
const BIRTH: Timestamp = Timestamp(1_795_000_000_000);

fn ledger() -> TenantLedger {
    TenantLedger::open(Rc::<MemorySessionStore>::default()).unwrap()
}

fn standing(sent_at: Timestamp, open_turns: u32) -> Standing {
    let slot = (open_turns > 0).then_some(SlotUse::Running);
    Standing { sent_at, slot, open_turns, hold: NanoUsd(0) }
}

fn admission(session: &str, standing: Standing, quota: Quota) -> Admission {
    let (session, started) = (session.into(), Vec::new());
    let hold = standing.hold;
    Admission { session, created_at: BIRTH, standing, started, hold, continues: false, quota }
}

fn admit(ledger: &TenantLedger, session: &str, quota: Quota, at: Timestamp) -> Option<Reached> {
    let admission = admission(session, standing(at, 1), quota);
    match ledger.admit(&admission, at).unwrap() {
        Admitted::Until(_) => None,
        Admitted::Refused(reached) => Some(reached),
    }
}

fn row(day: Day, user: &str, turns: u64, tokens: u64) -> UsageRow {
    let tokens = Usage { input_tokens: tokens, total_tokens: tokens, ..Usage::default() };
    let cost = NanoUsd(tokens.total_tokens * 1_000);
    let key = UsageKey { day, agent: "default".into(), model: "demo/echo".into(), user: user.into() };
    UsageRow { key, totals: UsageTotals { turns, steps: turns, tool_calls: 0, tokens, cost } }
}

fn report(session: &str, from: u64, to: u64, rows: Vec<UsageRow>, at: Timestamp) -> Report {
    let (session, standing) = (session.into(), standing(at, 0));
    let mut started = BTreeMap::new();
    rows.iter().for_each(|row| *started.entry(row.key.day).or_default() += row.totals.turns);
    Report { session, created_at: BIRTH, from, to, rows, started, standing, is_last: false }
}

fn total(ledger: &TenantLedger) -> UsageTotals {
    let mut sum = UsageTotals::default();
    let page = ledger.usage(Day::of(NOW).earlier(9), Day::of(NOW).next(), None).unwrap();
    page.rows.into_iter().for_each(|row| sum += row.totals);
    sum
}

const ONE_SLOT: Quota =
    Quota { concurrent_turns: Some(1), turns_per_day: None, tokens_per_day: None, cost_usd_per_day: None };

#[test]
fn a_document_that_was_not_read_does_not_count_as_absent() {
    let ledger = ledger();
    let read = ledger.documents(vec![key::SLOTS.into()]).unwrap();
    assert_eq!(read.get::<u32>(key::SLOTS), Ok(None));
    assert!(read.get::<u32>(key::SCHEMA).is_err());
}

#[test]
fn a_slot_is_free_after_its_session_reports_and_after_its_lease() {
    let (ledger, second) = (ledger(), Duration::from_secs(1));
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW), None);
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW), None, "a session holds one slot");
    let refused = admit(&ledger, "b", ONE_SLOT, NOW + second).unwrap();
    assert_eq!(refused.limit, TimedLimit::ConcurrentTurns);
    ledger.report(&report("a", 0, 4, Vec::new(), NOW + second), NOW + second).unwrap();
    assert_eq!(admit(&ledger, "b", ONE_SLOT, NOW + second), None);
    // The session is lost before it stores its turn.
    assert!(admit(&ledger, "a", ONE_SLOT, NOW + ADMISSION_LEASE).is_some());
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW + second + ADMISSION_LEASE), None);
}

#[test]
fn a_report_after_the_last_one_takes_no_slot() {
    let ledger = ledger();
    let at = |ms: u64| NOW + Duration::from_millis(ms);
    let running = |ms: u64| Report { standing: standing(at(ms), 1), ..report("a", 0, 0, Vec::new(), at(ms)) };
    ledger.report(&running(0), at(0)).unwrap();
    ledger.report(&Report { is_last: true, ..running(1) }, at(1)).unwrap();
    // It was sent by a request that had opened the session again while it was erased.
    let receipt = ledger.report(&running(2), at(2)).unwrap();
    assert_eq!((receipt.slot_until, ledger.slots_held(at(2)).unwrap()), (None, 0));
    // Another session has the id.
    let other = Report { created_at: at(3), ..running(4) };
    assert!(ledger.report(&other, at(4)).unwrap().slot_until.is_some());
}

#[test]
fn an_erased_session_takes_no_slot_and_a_new_one_of_its_id_gives_it_back() {
    let ledger = ledger();
    let at = |ms: u64| NOW + Duration::from_millis(ms);
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW), None);
    ledger.report(&Report { is_last: true, ..report("a", 0, 0, Vec::new(), at(1)) }, at(1)).unwrap();
    // A request that had opened the session before it was erased.
    assert!(ledger.admit(&admission("a", standing(at(2), 1), ONE_SLOT), at(2)).is_err());
    assert_eq!(ledger.slots_held(at(2)).unwrap(), 0);
    // A new session of this id is admitted, and could not be stored.
    let unstored = Admission { created_at: Timestamp(0), ..admission("a", standing(at(3), 1), ONE_SLOT) };
    assert!(matches!(ledger.admit(&unstored, at(3)), Ok(Admitted::Until(_))));
    let release = Report { created_at: Timestamp(0), ..report("a", 0, 0, Vec::new(), at(4)) };
    assert_eq!(ledger.report(&release, at(4)).unwrap().slot_until, None);
    assert_eq!(ledger.slots_held(at(4)).unwrap(), 0);
    assert_eq!(admit(&ledger, "b", ONE_SLOT, at(5)), None);
}

#[test]
fn a_slot_for_a_turn_that_was_never_stored_ends_with_the_lease_of_an_admission() {
    let (ledger, second) = (ledger(), Duration::from_secs(1));
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW), None);
    // One of two turns could not be stored. The session is lost while the other one is about to be.
    let standing = Standing { sent_at: NOW + second, slot: Some(SlotUse::Starting), ..standing(NOW, 1) };
    let release = Report { standing, ..report("a", 0, 0, Vec::new(), NOW + second) };
    ledger.report(&release, NOW + second).unwrap();
    assert!(admit(&ledger, "b", ONE_SLOT, NOW + second).is_some());
    assert_eq!(admit(&ledger, "b", ONE_SLOT, NOW + second + ADMISSION_LEASE), None);
}

#[test]
fn a_late_message_neither_takes_nor_releases_a_slot() {
    let (ledger, second) = (ledger(), Duration::from_secs(1));
    assert_eq!(admit(&ledger, "a", ONE_SLOT, NOW + second), None);
    ledger.report(&report("a", 0, 0, Vec::new(), NOW), NOW + second).unwrap();
    assert!(admit(&ledger, "b", ONE_SLOT, NOW + second).is_some());
    ledger.report(&report("a", 0, 0, Vec::new(), NOW + second * 2), NOW + second * 2).unwrap();
    let late = admission("a", standing(NOW, 1), ONE_SLOT);
    assert!(ledger.admit(&late, NOW + second * 2).is_err());
    assert_eq!(admit(&ledger, "b", ONE_SLOT, NOW + second * 2), None);
}

#[test]
fn each_daily_limit_refuses_until_the_end_of_the_day() {
    let none = Quota::default();
    let at = |tokens: u64| {
        let ledger = ledger();
        let rows = vec![row(Day::of(NOW), "ann", 2, tokens), row(Day::of(NOW).earlier(1), "ann", 90, 900)];
        ledger.report(&report("a", 0, 9, rows, NOW), NOW).unwrap();
        ledger
    };
    let resets_at = Day::of(NOW).next().start();
    for (quota, limit) in [
        (Quota { turns_per_day: Some(2), ..none }, TimedLimit::TurnsPerDay),
        (Quota { tokens_per_day: Some(100), ..none }, TimedLimit::TokensPerDay),
        (Quota { cost_usd_per_day: Some(0.0001), ..none }, TimedLimit::CostUsdPerDay),
    ] {
        let ledger = at(100);
        assert_eq!(admit(&ledger, "a", quota, NOW), Some(Reached { limit, resets_at, held: false }));
        assert_eq!(admit(&ledger, "a", quota, resets_at), None);
    }
    let enough =
        Quota { turns_per_day: Some(3), tokens_per_day: Some(101), cost_usd_per_day: Some(0.1), ..none };
    let ledger = at(100);
    assert_eq!(admit(&ledger, "a", enough, NOW), None);
    let refused = admit(&ledger, "b", enough, NOW).unwrap();
    assert_eq!(refused.limit, TimedLimit::TurnsPerDay, "a turn that runs counts");
}

#[test]
fn a_turn_that_continues_needs_a_slot_but_is_no_further_turn() {
    let ledger = ledger();
    let quota = Quota { turns_per_day: Some(1), tokens_per_day: Some(1), ..ONE_SLOT };
    let rows = vec![row(Day::of(NOW), "ann", 1, 5)];
    ledger.report(&report("a", 0, 9, rows, NOW), NOW).unwrap();
    assert_eq!(admit(&ledger, "b", ONE_SLOT, NOW), None);
    let at = NOW + Duration::from_secs(1);
    let continues = Admission { continues: true, ..admission("a", standing(at, 0), quota) };
    let Admitted::Refused(refused) = ledger.admit(&continues, at).unwrap() else { panic!("no slot is free") };
    assert_eq!((refused.limit, refused.held), (TimedLimit::ConcurrentTurns, true));
    ledger.report(&report("b", 0, 4, Vec::new(), at), at).unwrap();
    assert!(matches!(ledger.admit(&continues, at), Ok(Admitted::Until(_))));
}

const ONE_DOLLAR: Quota = Quota { cost_usd_per_day: Some(1.0), concurrent_turns: None, ..ONE_SLOT };

/// Asks for a turn with a ceiling, in a session that holds `before` already.
fn hold(ledger: &TenantLedger, session: &str, before: f64, usd: f64, at: Timestamp) -> Option<Reached> {
    let hold = NanoUsd::of_usd(before).plus(NanoUsd::of_usd(usd));
    let asked = admission(session, Standing { hold, ..standing(at, 1) }, ONE_DOLLAR);
    match ledger.admit(&Admission { hold: NanoUsd::of_usd(usd), ..asked }, at).unwrap() {
        Admitted::Until(_) => None,
        Admitted::Refused(reached) => Some(reached),
    }
}

#[test]
fn running_turns_hold_their_ceilings_of_the_cost_of_the_day() {
    let (ledger, second) = (ledger(), Duration::from_secs(1));
    assert_eq!(hold(&ledger, "a", 0.0, 0.6, NOW), None);
    let refused = hold(&ledger, "b", 0.0, 0.5, NOW).unwrap();
    let held = Reached { limit: TimedLimit::CostUsdPerDay, resets_at: NOW + SLOT_RETRY, held: true };
    assert_eq!(refused, held, "0.6 + 0.5");
    assert_eq!(hold(&ledger, "b", 0.0, 0.4, NOW), None);
    assert_eq!(hold(&ledger, "c", 0.0, 0.0, NOW), None, "a turn without a ceiling holds nothing");
    assert!(hold(&ledger, "b", 0.4, 0.1, NOW).is_some(), "a further turn of the same session");
    // The first turn has cost less than its ceiling, and the second one is over, too.
    let rows = |tokens| vec![row(Day::of(NOW), "ann", 1, tokens)];
    ledger.report(&report("a", 0, 4, rows(200_000), NOW + second), NOW + second).unwrap();
    assert_eq!(hold(&ledger, "a", 0.0, 0.4, NOW + second), None, "0.2 + 0.4 + 0.4");
    assert!(hold(&ledger, "d", 0.0, 0.1, NOW + second).is_some());
    let later = NOW + second * 2;
    for session in ["a", "b", "c"] {
        ledger.report(&report(session, 4, 4, Vec::new(), later), later).unwrap();
    }
    // The only turn may exceed the limit, and then none starts or continues until the day ends.
    assert_eq!(hold(&ledger, "d", 0.0, 5.0, later), None);
    assert!(hold(&ledger, "e", 0.0, 0.1, later).is_some_and(|reached| reached.held));
    ledger.report(&report("d", 0, 4, rows(4_000_000), later), later).unwrap();
    let over = Reached { resets_at: Day::of(NOW).next().start(), held: false, ..held };
    assert_eq!(hold(&ledger, "e", 0.0, 0.0, later), Some(over));
    let waits = admission("a", standing(later + second, 0), ONE_DOLLAR);
    let continues = Admission { continues: true, ..waits };
    assert_eq!(ledger.admit(&continues, later + second).unwrap(), Admitted::Refused(over));
}

#[test]
fn a_hold_ends_with_its_lease_and_follows_reports() {
    let ledger = ledger();
    assert_eq!(hold(&ledger, "a", 0.0, 1.0, NOW), None);
    // The turn is over, and a queued one with a lower ceiling runs.
    let at = NOW + Duration::from_secs(1);
    let standing = Standing { hold: NanoUsd::of_usd(0.3), ..standing(at, 1) };
    ledger.report(&Report { standing, ..report("a", 0, 4, Vec::new(), at) }, at).unwrap();
    assert_eq!(hold(&ledger, "b", 0.0, 0.7, at), None);
    assert!(hold(&ledger, "c", 0.0, 0.1, at).is_some());
    assert_eq!(hold(&ledger, "c", 0.0, 0.1, at + SLOT_LEASE), None, "both are lost");
}

#[test]
fn a_slot_of_an_older_version_holds_nothing() {
    let store = Rc::<MemorySessionStore>::default();
    let until = NOW + SLOT_LEASE;
    let slots = serde_json::json!({"a": {"until": until, "open_turns": 1}}).to_string();
    store.commit(Batch { put: vec![(key::SLOTS.to_owned(), slots)], ..Batch::default() }).unwrap();
    let ledger = TenantLedger::open(store).unwrap();
    assert_eq!(hold(&ledger, "b", 0.0, 9.0, NOW), None);
    assert!(admit(&ledger, "c", ONE_SLOT, NOW).is_some(), "the slot counts");
}

#[test]
fn a_turn_whose_report_is_on_its_way_counts_once() {
    let (ledger, at) = (ledger(), |ms| NOW + Duration::from_millis(ms));
    let quota = Quota { turns_per_day: Some(2), ..Quota::default() };
    assert_eq!(admit(&ledger, "a", quota, NOW), None);
    // The turn has started with the record 2. The session asks for another turn before it learns that it is counted.
    let next = |sent_at| Admission { started: vec![2], ..admission("a", standing(sent_at, 1), quota) };
    ledger.report(&report("a", 0, 4, vec![row(Day::of(NOW), "ann", 1, 1)], at(1)), at(1)).unwrap();
    assert!(matches!(ledger.admit(&next(at(2)), at(2)), Ok(Admitted::Until(_))));
    assert!(admit(&ledger, "b", quota, at(3)).is_some(), "both count");
    let third = Admission { started: vec![2, 6], ..admission("a", standing(at(4), 1), quota) };
    assert!(matches!(ledger.admit(&third, at(4)), Ok(Admitted::Refused(_))));
    // Of another session with this id, nothing is counted.
    let other = Admission { created_at: at(5), ..next(at(5)) };
    assert!(matches!(ledger.admit(&other, at(5)), Ok(Admitted::Refused(_))));
}

#[test]
fn a_report_is_counted_once_and_only_after_the_last_one() {
    let ledger = ledger();
    let first = report("a", 0, 4, vec![row(Day::of(NOW), "ann", 1, 10)], NOW);
    for _ in 0..2 {
        assert_eq!(ledger.report(&first, NOW).unwrap().reported, 4);
    }
    let gap = report("a", 6, 8, vec![row(Day::of(NOW), "ann", 1, 10)], NOW);
    assert_eq!(ledger.report(&gap, NOW).unwrap().reported, 4);
    assert_eq!(total(&ledger).turns, 1);
    // A fork begins after the records that it has copied.
    let fork = report("b", 30, 34, vec![row(Day::of(NOW), "bob", 1, 10)], NOW);
    assert_eq!(ledger.report(&fork, NOW).unwrap().reported, 34);
    assert_eq!((total(&ledger).turns, total(&ledger).tokens.total_tokens), (2, 20));
}

#[test]
fn a_session_with_the_id_of_an_erased_one_is_counted_from_its_start() {
    let ledger = ledger();
    let last = Report { is_last: true, ..report("a", 0, 4, vec![row(Day::of(NOW), "ann", 1, 10)], NOW) };
    ledger.report(&last, NOW).unwrap();
    let next = Report { created_at: NOW, ..report("a", 0, 2, vec![row(Day::of(NOW), "ann", 1, 5)], NOW) };
    assert_eq!(ledger.report(&next, NOW).unwrap().reported, 2);
    ledger.report(&last, NOW).unwrap();
    assert_eq!(total(&ledger).tokens.total_tokens, 15, "the late report was counted before");
}

#[test]
fn old_usage_and_erased_sessions_are_deleted() {
    let store = Rc::<MemorySessionStore>::default();
    let ledger = TenantLedger::open(store.clone()).unwrap();
    let last = Report { is_last: true, ..report("a", 0, 4, vec![row(Day::of(NOW), "ann", 1, 10)], NOW) };
    ledger.report(&last, NOW).unwrap();
    let later = NOW + Duration::from_hours(24 * (RETENTION_DAYS + 1));
    let last = Report { is_last: true, ..report("b", 0, 4, vec![row(Day::of(later), "ann", 1, 10)], later) };
    ledger.report(&last, later).unwrap();
    let keys: Vec<String> = store.list("").unwrap().into_iter().map(|(key, _)| key).collect();
    let day = Day::of(later);
    let row = format!("usage/{day}/[\"default\",\"demo/echo\",\"ann\"]");
    let erased = [format!("erased/{day}"), format!("erased/{day}/b")];
    assert_eq!(keys, [&[format!("day/{day}")][..], &erased, &["session/b".into(), row]].concat());
}

#[test]
fn many_sessions_are_erased_on_a_day() {
    let store = Rc::<MemorySessionStore>::default();
    let ledger = TenantLedger::open(store.clone()).unwrap();
    // A list from before each session had its own key.
    let day = Day::of(NOW);
    let old = (key::erased(day), "[\"old\"]".to_owned());
    store.commit(Batch { put: vec![old], ..Batch::default() }).unwrap();
    ledger.report(&report("old", 0, 4, Vec::new(), NOW), NOW).unwrap();
    let last = |n: u64| Report { is_last: true, ..report(&format!("ses_{n}"), 0, 4, Vec::new(), NOW) };
    for n in 0..200 {
        ledger.report(&last(n), NOW).unwrap();
    }
    let size = |prefix| store.list(prefix).unwrap().iter().map(|(_, json)| json.len()).max();
    assert!(size(key::ERASED) < Some(10), "no key grows with the number of sessions");
    for (days, left) in [(1, 202), (2, 1)] {
        let later = NOW + Duration::from_hours(24 * days);
        let one = Report { is_last: true, ..report(&format!("later-{days}"), 0, 4, Vec::new(), later) };
        ledger.report(&one, later).unwrap();
        // Also that of the day before.
        let before = usize::from(days == 2);
        assert_eq!(store.list("session/").unwrap().len(), left + before, "{days} days later");
    }
}

#[test]
fn requests_are_granted_in_blocks_until_the_minute_ends() {
    let ledger = ledger();
    let take = |wanted, at| ledger.take_requests(wanted, 5, at).unwrap();
    let ends_at = Timestamp(NOW.0 + 60_000);
    assert_eq!(take(2, NOW), RequestBlock { granted: 2, ends_at });
    assert_eq!([take(2, NOW), take(2, NOW), take(2, NOW)].map(|block| block.granted), [2, 1, 0]);
    assert_eq!(take(2, ends_at).granted, 2);
}

/// A session as the ledger sees it, with a log that survives.
#[derive(Default)]
struct Sender {
    /// The tokens of each record.
    log: Vec<u64>,
    reported: u64,
    runs: bool,
    /// Messages on their way, which may arrive late or twice.
    sent: Vec<Report>,
}

#[derive(Clone, Debug)]
enum Action {
    Start(usize),
    /// Appends a record, and ends the turn.
    End(usize, u64),
    Send(usize),
    /// Delivers a message, and its response if the second is set. The message stays on its way if the third is.
    Deliver(usize, bool, bool),
    Crash(usize),
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let session = 0..4_usize;
    prop_oneof![
        3 => session.clone().prop_map(Action::Start),
        3 => (session.clone(), 1..50_u64).prop_map(|(at, tokens)| Action::End(at, tokens)),
        4 => session.clone().prop_map(Action::Send),
        4 => (session.clone(), any::<bool>(), any::<bool>()).prop_map(|(at, a, b)| Action::Deliver(at, a, b)),
        1 => session.prop_map(Action::Crash),
        1 => (1..30_u64).prop_map(Action::Wait),
    ]
}

impl Sender {
    fn report(&mut self, name: usize, at: Timestamp) -> Report {
        let from = usize::try_from(self.reported).unwrap();
        let rows = self.log[from..].iter().map(|tokens| row(Day::of(NOW), "ann", 1, *tokens)).collect();
        let open = u32::from(self.runs);
        let sent = report(&name.to_string(), self.reported, self.log.len() as u64, rows, at);
        let sent = Report { standing: standing(at, open), ..sent };
        self.sent.push(sent.clone());
        sent
    }
}

proptest! {
    /// Whatever is lost, repeated or late: usage is what the logs say, slots are within the limit, and none leaks.
    #[test]
    fn usage_and_slots_do_not_drift(actions in prop::collection::vec(action(), 1..120)) {
        let (ledger, mut now) = (ledger(), NOW);
        let quota = Quota { concurrent_turns: Some(2), ..Quota::default() };
        let mut senders: Vec<Sender> = (0..4).map(|_| Sender::default()).collect();
        for action in actions {
            now = now + Duration::from_millis(1);
            match action {
                Action::Start(at) if !senders[at].runs => {
                    senders[at].runs = admit(&ledger, &at.to_string(), quota, now).is_none();
                }
                Action::End(at, tokens) if senders[at].runs => {
                    senders[at].log.push(tokens);
                    senders[at].runs = false;
                }
                Action::Send(at) => drop(senders[at].report(at, now)),
                Action::Deliver(at, answered, repeated) if !senders[at].sent.is_empty() => {
                    let message = senders[at].sent[0].clone();
                    if !repeated {
                        senders[at].sent.remove(0);
                    }
                    let receipt = ledger.report(&message, now).unwrap();
                    if answered && receipt.reported <= senders[at].log.len() as u64 {
                        senders[at].reported = receipt.reported;
                    }
                }
                // An admitted turn that was not stored, and what the process was sending, are lost.
                Action::Crash(at) => senders[at].runs = false,
                // A running session renews its slot in time. A message arrives within seconds, or never.
                Action::Wait(seconds) => {
                    for (at, sender) in senders.iter_mut().enumerate() {
                        if sender.runs {
                            ledger.report(&sender.report(at, now), now).unwrap();
                        }
                        sender.sent.clear();
                    }
                    now = now + Duration::from_secs(seconds);
                }
                _ => {}
            }
            let slots = ledger.documents(vec![key::SLOTS.into()]).unwrap().slots(now).unwrap();
            prop_assert!(slots.len() <= 2, "{slots:?}");
        }
        // Each session reports until the ledger has counted its log.
        for (at, sender) in senders.iter_mut().enumerate() {
            sender.runs = false;
            loop {
                now = now + Duration::from_millis(1);
                let receipt = ledger.report(&sender.report(at, now), now).unwrap();
                sender.reported = receipt.reported;
                if receipt.reported == sender.log.len() as u64 {
                    break;
                }
            }
        }
        prop_assert_eq!(ledger.slots_held(now), Ok(0));
        let turns: usize = senders.iter().map(|sender| sender.log.len()).sum();
        let tokens: u64 = senders.iter().flat_map(|sender| &sender.log).sum();
        let sum = total(&ledger);
        prop_assert_eq!((sum.turns, sum.tokens.total_tokens), (turns as u64, tokens));
        prop_assert_eq!(sum.cost, NanoUsd(tokens * 1_000));
    }
}

#[test]
fn a_ledger_of_a_newer_version_is_left_alone() {
    let store = Rc::<MemorySessionStore>::default();
    let newer = Batch { put: vec![(key::SCHEMA.to_owned(), "2".to_owned())], ..Batch::default() };
    store.commit(newer).unwrap();
    let refused = TenantLedger::open(store).err().unwrap();
    assert!(refused.0.contains("a newer version has written the ledger"), "{refused}");
    assert!(TenantLedger::open(Rc::<MemorySessionStore>::default()).is_ok());
}
