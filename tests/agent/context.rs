//! The context window of a long conversation.

use edge_harness::platform::in_memory::MemorySessionStore;
use edge_harness::ports::{
    SessionStore,
    session_store::{Batch, StoredRecord},
};
use edge_harness::session::{
    fold,
    window::{Bounds, ContextWindow},
};
use edge_harness::types::{
    CallId, Effect, EventKind, Message, MessageId, Part, Record, Role, Timestamp, ToolOutcome, TurnEnd,
    TurnStatus,
};
use proptest::prelude::*;
use serde_json::json;
use std::rc::Rc;

/// A conversation: the log, the window, and all messages.
struct Talk {
    store: MemorySessionStore,
    window: ContextWindow,
    whole: Vec<Rc<Message>>,
    max: usize,
}

impl Talk {
    fn new(max: usize) -> Self {
        Self {
            store: MemorySessionStore::default(),
            window: ContextWindow::new(Bounds::messages(max)),
            whole: Vec::new(),
            max,
        }
    }

    fn record(&mut self, turn: usize, kind: EventKind) {
        let seq = self.store.last_seq().unwrap() + 1;
        let record = Record { seq, at: Timestamp(seq), turn: Some(format!("t{turn}").into()), kind };
        let json = serde_json::to_string(&record).unwrap();
        let stored = StoredRecord { seq, kind: record.kind.name().into(), turn: record.turn.clone(), json };
        self.store.commit(Batch { append: vec![stored], ..Batch::default() }).unwrap();
        self.window.push(&record);
        fold::fold(&mut self.whole, &record);
        self.check(turn);
    }

    fn message(&self, turn: usize, role: Role, text: String) -> Rc<Message> {
        let seq = self.store.last_seq().unwrap() + 1;
        let (id, turn) = (format!("m{seq}").into(), format!("t{turn}").into());
        let created_at = Timestamp(seq);
        Rc::new(Message {
            id,
            seq,
            role,
            parts: vec![Part::text(text)],
            created_at,
            turn,
            interrupted: false,
        })
    }

    fn turn(&mut self, turn: usize, steps: &[(bool, usize)]) {
        let message = self.message(turn, Role::User, format!("said {turn}"));
        self.record(turn, EventKind::TurnStarted { message });
        for (step, (text, calls)) in steps.iter().enumerate() {
            let message = self.message(turn, Role::Assistant, format!("step {step}"));
            let id = message.id.clone();
            if *text {
                self.record(turn, EventKind::MessageCompleted { message });
            }
            let calls: Vec<CallId> = (0..*calls).map(|call| format!("{turn}.{step}.{call}").into()).collect();
            for call_id in calls.clone() {
                let (message, name, args) = (id.clone(), "echo".into(), json!({}));
                let effect = Effect::ReadOnly;
                self.record(
                    turn,
                    EventKind::ToolStarted { message, call_id, name, args, invalid: None, effect },
                );
            }
            for call_id in calls {
                let outcome = ToolOutcome::Result { result: "x".into() };
                self.record(turn, EventKind::completed(call_id, "echo".into(), outcome));
            }
        }
        let message = self.message(turn, Role::Assistant, format!("answer {turn}"));
        self.record(turn, EventKind::MessageCompleted { message });
        let end = TurnEnd::ended(TurnStatus::Completed, edge_harness::types::StopReason::End);
        self.record(turn, EventKind::TurnCompleted(end));
    }

    fn check(&self, turn: usize) {
        let loaded = ContextWindow::load(&self.store, Bounds::messages(self.max)).unwrap().messages();
        for seen in [&self.window.messages(), &loaded] {
            assert_eq!(seen.first().map(|m| m.role), Some(Role::User), "starts at the start of a turn");
            assert!(self.whole.ends_with(seen), "is the newest part of the conversation, unchanged");
            let own = self.whole.iter().filter(|m| *m.turn == format!("t{turn}")).count();
            assert!(seen.len() >= own, "contains the whole current turn");
            assert!(seen.len() <= self.max.max(4) + own, "{} messages", seen.len());
        }
        if self.whole.len() <= self.max {
            assert_eq!(loaded, self.window.messages());
            assert_eq!(loaded.len(), self.whole.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_window_is_whole_turns_live_and_reloaded(
        max in 4usize..24,
        turns in prop::collection::vec(prop::collection::vec((any::<bool>(), 0usize..3), 0..8), 1..10),
    ) {
        let mut talk = Talk::new(max);
        for (turn, steps) in turns.iter().enumerate() {
            talk.turn(turn, steps);
        }
    }
}

#[test]
fn the_start_of_the_prompt_is_stable_for_many_turns() {
    let mut talk = Talk::new(40);
    let mut starts: Vec<MessageId> = Vec::new();
    for turn in 0..100 {
        talk.turn(turn, &[]);
        starts.push(talk.window.messages()[0].id.clone());
    }
    starts.dedup();
    // 200 messages through a window of 40 that drops ten at once.
    assert!(starts.len() <= 200 / 10, "the start moved {} times", starts.len());
}
