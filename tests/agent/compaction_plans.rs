//! Compaction of thousands of generated conversations: the shortened conversation is always a valid request.

use crate::stage::{NOW, meta};
use edge_harness::context::compaction::{
    CompactionSettings, Limits,
    reduce::{Reduction, View, reduce},
};
use edge_harness::platform::in_memory::MemorySessionStore;
use edge_harness::session::{
    Session,
    hub::Hub,
    tokens,
    window::{Bounds, shorten},
};
use edge_harness::types::{
    CallId, CompactReason, Cut, Effect, EventKind, Message, Part, Role, SessionState, ToolOutcome,
    session::Background,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

const CASES: u64 = 10_000;
/// Tokens of the text that introduces a summary.
const SUMMARY_OVERHEAD: u64 = 64;

/// A seeded random number generator.
struct Dice(u64);

impl Dice {
    /// A number below `n`.
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 1) % n.max(1)
    }

    fn words(&mut self) -> String {
        let words = match self.roll(32) {
            0 => 1_000,
            1..4 => 120,
            _ => 8,
        };
        let words = 1 + self.roll(words);
        (0..words).map(|_| format!("w{} ", self.roll(1_000))).collect()
    }
}

/// A session in which turns are simulated.
struct Play {
    store: Rc<MemorySessionStore>,
    session: Session,
    dice: Dice,
    calls: u64,
    turns: u64,
    fixed: u64,
}

impl Play {
    fn new(seed: u64) -> Self {
        let background = Rc::new(Background { listed_at: NOW, ..Background::default() });
        let state = SessionState { background, ..SessionState::new(meta(NOW)) };
        let store = Rc::new(MemorySessionStore::default());
        let session = Session::create(store.clone(), state, Bounds::wide(), Hub::new(None));
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let fixed = dice.roll(2_000);
        Self { store, session, dice, calls: 0, turns: 0, fixed }
    }

    fn message(&mut self, role: Role) -> Rc<Message> {
        let id = format!("m{}", self.dice.roll(u64::MAX >> 1)).into();
        let parts = vec![Part::text(self.dice.words())];
        let (turn, created_at) = (format!("t{}", self.turns).into(), NOW);
        Rc::new(Message { id, seq: 0, role, parts, created_at, turn, interrupted: false })
    }

    fn result(&mut self, call_id: CallId) -> EventKind {
        let result = self.dice.words().into();
        EventKind::completed(call_id, "look".into(), ToolOutcome::Result { result })
    }

    /// One turn: steps with concurrent calls, some without a message, some with late results.
    fn turn(&mut self) {
        self.turns += 1;
        let mut records = vec![EventKind::TurnStarted { message: self.message(Role::User) }];
        let mut late = Vec::new();
        for _ in 0..self.dice.roll(4) {
            let message = self.message(Role::Assistant);
            let id = message.id.clone();
            if self.dice.roll(2) == 0 {
                records.push(EventKind::MessageCompleted { message });
            }
            let calls = if self.dice.roll(30) == 0 { 12 } else { self.dice.roll(4) };
            let mut results = Vec::new();
            for _ in 0..calls {
                self.calls += 1;
                let call_id = CallId::from(format!("c{}", self.calls));
                let args = json!({ "text": self.dice.words() });
                records.push(EventKind::ToolStarted {
                    message: id.clone(),
                    call_id: call_id.clone(),
                    name: "look".into(),
                    args,
                    invalid: None,
                    effect: Effect::ReadOnly,
                });
                match self.dice.roll(30) {
                    0 => {}
                    1 => late.push(self.result(call_id)),
                    _ => results.push(self.result(call_id)),
                }
            }
            records.append(&mut results);
        }
        if self.dice.roll(40) == 0 {
            records.push(self.result("orphan".into()));
        }
        if self.dice.roll(5) > 0 {
            records.push(EventKind::MessageCompleted { message: self.message(Role::Assistant) });
        }
        records.append(&mut late);
        let turn = format!("t{}", self.turns).into();
        let commit = self.session.commit(NOW, |draft| {
            records.into_iter().for_each(|kind| draft.record(Some(&turn), kind));
        });
        commit.expect("a store that works");
    }

    fn measured(&self) -> (Cut, u64, Vec<(Rc<Message>, u64)>) {
        let context = self.session.context();
        let messages = context.measured();
        let shown: u64 = messages.iter().map(|(_, tokens)| tokens).sum();
        let head = context.tokens() - shown;
        (context.state().cut.clone(), head, messages)
    }

    fn reduce(&self, limits: &Limits, reason: CompactReason, most: Option<u64>) -> Option<Reduction> {
        let (cut, head, messages) = self.measured();
        let open_from = usize::MAX;
        let view = View { cut: &cut, messages: &messages, fixed: self.fixed, head, open_from };
        reduce(&view, limits, reason, most)
    }

    fn total(&self) -> u64 {
        self.fixed + self.session.context().tokens()
    }

    fn compact(&mut self, reduction: Reduction, limits: &Limits) {
        let mut cut = reduction.cut;
        if reduction.dropped > 0 {
            cut.summary = Some("sum ".repeat(limits.summary as usize));
        }
        let completed = EventKind::CompactionCompleted {
            reason: CompactReason::Tokens,
            dropped: reduction.dropped,
            summary_tokens: 0,
            tokens_before: 0,
            tokens_after: reduction.after,
            cut,
        };
        self.session.commit(NOW, |draft| draft.record(None, completed)).expect("a store that works");
    }
}

/// If the log has both, a call is shown if and only if its result is.
fn split_pairs(shown: &[Rc<Message>], whole: &[Rc<Message>]) -> usize {
    let places = |messages: &[Rc<Message>]| {
        let (mut calls, mut results) = (BTreeMap::new(), BTreeMap::new());
        for (index, message) in messages.iter().enumerate() {
            calls.extend(message.calls().map(|call| (call.call_id.clone(), index)));
            results.extend(message.parts.iter().filter_map(|part| match part {
                Part::ToolResult { call_id, .. } => Some((call_id.clone(), index)),
                _ => None,
            }));
        }
        (calls, results)
    };
    let ((calls, results), (all_calls, all_results)) = (places(shown), places(whole));
    let lost_result = calls.keys().filter(|id| all_results.contains_key(*id) && !results.contains_key(*id));
    let lost_call = results.keys().filter(|id| all_calls.contains_key(*id) && !calls.contains_key(*id));
    let wrong_order = results.iter().filter(|(id, at)| calls.get(*id).is_some_and(|call| call >= *at));
    lost_result.count() + lost_call.count() + wrong_order.count()
}

/// The minimum size of a request: the user's last message and the last step, both shortened.
fn least(play: &Play, limits: &Limits, before: &[(Rc<Message>, u64)]) -> u64 {
    let last = before.iter().rposition(|(message, _)| message.role == Role::User);
    let part = |message: &Rc<Message>| {
        let mut part = Rc::clone(message);
        shorten::part(&mut part, 64);
        tokens::of_message(&part).min(tokens::of_message(message))
    };
    // The last turn and everything that a late result binds to it: a superset of the last step.
    let shown = before.iter().skip(last.unwrap_or(0).saturating_sub(40));
    play.fixed + limits.summary + SUMMARY_OVERHEAD + shown.map(|(message, _)| part(message)).sum::<u64>()
}

#[test]
fn ten_thousand_compacted_conversations_are_valid_requests() {
    let (mut cuts, mut parted, mut brief, mut tight) = (0, 0, 0, 0);
    for seed in 1..=CASES {
        let mut play = Play::new(seed);
        for _ in 0..1 + play.dice.roll(2) {
            for _ in 0..1 + play.dice.roll(3) {
                play.turn();
            }
            let settings = CompactionSettings {
                at_messages: play.dice.roll(40) as usize,
                at_tokens: 0,
                keep_messages: play.dice.roll(30) as usize,
                keep_tokens: play.dice.roll(3) * 500,
                reserve: play.dice.roll(4) * 1_000,
                model: None,
            };
            let window = 2_000 + play.dice.roll(6_000);
            let limits = settings.limits(window, window - (window / 8).min(4_096), play.fixed);
            let (_, _, before) = play.measured();
            let (reason, most) = match play.dice.roll(4) {
                0 => (CompactReason::Request, None),
                1 => (CompactReason::Tokens, None),
                2 => (CompactReason::Tokens, Some(window - window / 8)),
                _ => (CompactReason::Overflow, Some(play.total() / 2)),
            };
            let last_user =
                before.iter().rfind(|(message, _)| message.role == Role::User).map(|(m, _)| m.seq);
            let possible = most.map_or(0, |_| least(&play, &limits, &before));
            if reason == CompactReason::Tokens && most.is_some_and(|most| play.total() <= most) {
                continue;
            }
            let planned = play.reduce(&limits, reason, most);
            if let Some(reduction) = planned {
                cuts += usize::from(reduction.dropped > 0);
                parted += usize::from(!reduction.cut.parted.is_empty());
                brief += usize::from(reduction.before == 0 && reduction.cut.brief_before > 0);
                let (dropped, after) = (reduction.dropped, reduction.after);
                let kept_from = reduction.cut.kept_from;
                play.compact(reduction, &limits);
                let (_, _, shown) = play.measured();
                let gone = before.iter().filter(|(m, _)| !shown.iter().any(|(s, _)| s.seq == m.seq));
                let gone: Vec<u64> = gone.map(|(message, _)| message.seq).collect();
                assert_eq!(gone.len(), dropped, "seed {seed}: the reported messages are dropped");
                assert!(gone.iter().all(|seq| *seq < kept_from), "seed {seed}");
                let said: u64 = shown.iter().map(|(_, tokens)| tokens).sum();
                assert!(said <= after + after / 10 + 40, "seed {seed}: {said} instead of {after}");
            }
            let (_, _, shown) = play.measured();
            let whole: Vec<_> = before.iter().map(|(message, _)| Rc::clone(message)).collect();
            let seen: Vec<_> = shown.iter().map(|(message, _)| Rc::clone(message)).collect();
            assert_eq!(split_pairs(&seen, &whole), split_pairs(&whole, &whole), "seed {seed}");
            let still = shown.iter().any(|(message, _)| Some(message.seq) == last_user);
            assert!(still || last_user.is_none(), "seed {seed}: the user's last message");
            if let Some(most) = most.filter(|most| possible <= *most) {
                tight += 1;
                assert!(play.total() <= most, "seed {seed}: {} of {most}, {possible} possible", play.total());
            }
            // Compacting again without a new reason changes nothing.
            let over = most.is_none_or(|most| play.total() > most);
            let due = reason == CompactReason::Request || play.total() >= limits.at_tokens;
            let again = (over && due).then(|| play.reduce(&limits, reason, most)).flatten();
            assert_eq!(again, None, "seed {seed}: {reason:?} {most:?}");
            let numbers: BTreeSet<u64> = shown.iter().map(|(message, _)| message.seq).collect();
            assert_eq!(numbers.len(), shown.len(), "seed {seed}: no message is repeated");
            // A restart loads the same window.
            if seed % 8 > 0 {
                continue;
            }
            let opened = Session::open(play.store.clone(), Bounds::wide(), Hub::new(None));
            let opened = opened.expect("a store that works").expect("a session");
            assert_eq!(opened.messages(), play.session.messages(), "seed {seed}");
        }
    }
    for (count, what) in [(cuts, "cuts"), (parted, "parted"), (brief, "brief"), (tight, "tight")] {
        assert!(count > 300, "only {count} {what}");
    }
}
