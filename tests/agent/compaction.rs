//! Compaction in a session: the prompt, the events, and that failures lose no message.

use crate::stage::{NOW, Stage, check, ms};
use edge_harness::agent::{
    FollowUp, OnBusy,
    follow_up::{FollowUpContext, Progress},
};
use edge_harness::context::compaction::CompactionSettings;
use edge_harness::memory::MemorySettings;
use edge_harness::platform::in_memory::{
    ManualClock, ScriptedModels,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::{Model, Models, memory::CollectionKind};
use edge_harness::session::tokens;
use edge_harness::standard::ContextSettings;
use edge_harness::types::{
    BoxError, ModelError, ModelErrorKind, ModelEvent, ModelLimits, ModelRequest, Owner, Part, Role,
    TurnStatus, Usage,
};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Models with test-specific windows; the small one has 4,000 tokens.
struct Windows(Rc<ScriptedModels>, Rc<Cell<u64>>);

impl Models for Windows {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.0.resolve(id)
    }
    fn limits(&self, id: &str) -> ModelLimits {
        let window = if id.ends_with("/small") { 4_000 } else { self.1.get() };
        ModelLimits { window, percent: 100 }
    }
    fn default_model(&self) -> String {
        self.0.default_model()
    }
}

/// A follow-up that must process messages before they leave the window.
#[derive(Clone, Default)]
struct Diary {
    said: Rc<RefCell<Vec<String>>>,
    fails: Rc<Cell<bool>>,
    takes: Rc<Cell<Duration>>,
}

#[async_trait::async_trait(?Send)]
impl FollowUp for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }
    fn before_drop(&self) -> bool {
        true
    }
    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        if !cx.urgent {
            return Ok(Progress::NotBefore(cx.clock.now() + ms(1_000_000_000)));
        }
        cx.unless_canceled(cx.clock.sleep(self.takes.get())).await?;
        if self.fails.get() {
            return Err("not now".into());
        }
        for record in cx.oldest(cx.seen, &["turn.started"], 100)?.0 {
            self.said.borrow_mut().push(format!("{:?}", record.seq));
        }
        Ok(Progress::Done(Vec::new()))
    }
}

/// A stage, the requests to the models, and switches.
struct Set {
    stage: Stage,
    models: Rc<ScriptedModels>,
    diary: Diary,
    window: Rc<Cell<u64>>,
    /// Whether the summarizer fails.
    mute: Rc<Cell<bool>>,
}

fn is_summary(request: &ModelRequest) -> bool {
    request.system.starts_with("You summarize")
}

fn text(request: &ModelRequest) -> String {
    request.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n")
}

/// A response without token counts.
fn uncounted(parts: Vec<Part>) -> ScriptedResponse {
    let mut events = answer(parts);
    if let Some(Ok(ModelEvent::Done(response))) = events.last_mut() {
        response.usage = Usage::default();
    }
    events
}

fn failure(kind: ModelErrorKind) -> ScriptedResponse {
    vec![Err(ModelError::new(kind, "requested by the test"))]
}

fn set(settings: CompactionSettings, script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static) -> Set {
    let (diary, window, mute) = (Diary::default(), Rc::new(Cell::new(128_000)), Rc::new(Cell::new(false)));
    let silent = Rc::clone(&mute);
    let count = Cell::new(0);
    let models = Rc::new(ScriptedModels::new(move |request| {
        if !is_summary(request) {
            return script(request);
        }
        if silent.get() {
            return failure(ModelErrorKind::Auth);
        }
        count.set(count.get() + 1);
        uncounted(vec![Part::text(format!("Summary {}.", count.get()))])
    }));
    let own = diary.clone();
    let windows = Rc::new(Windows(Rc::clone(&models), Rc::clone(&window)));
    let stage = Stage::with(ManualClock::at(NOW), windows, move |builder| builder.follow_up(own.clone()));
    stage.context_messages.set(2_000);
    *stage.context.borrow_mut() = ContextSettings::Compaction(settings);
    stage.crash();
    Set { stage, models, diary, window, mute }
}

fn at(messages: usize, keep: usize) -> CompactionSettings {
    CompactionSettings { at_messages: messages, keep_messages: keep, ..CompactionSettings::default() }
}

fn chat(settings: CompactionSettings) -> Set {
    set(settings, |request| {
        let said = request.messages.iter().rfind(|message| message.role == Role::User).map(|m| m.text());
        uncounted(vec![Part::text(format!("re: {}", said.unwrap_or_default()))])
    })
}

/// When a compaction after the reply starts.
const AFTER_REPLY: Duration = ms(100);

impl Set {
    fn say(&self, turn: &str, text: &str) {
        self.stage.post(turn, text);
        self.stage.settle();
        self.stage.tick(AFTER_REPLY);
    }

    /// The requests of the conversation, without one-shot calls.
    fn asked(&self) -> Vec<String> {
        self.models.requests().iter().filter(|request| !is_summary(request)).map(text).collect()
    }

    fn summaries(&self) -> Vec<String> {
        self.models.requests().iter().filter(|request| is_summary(request)).map(text).collect()
    }

    fn events(&self) -> Vec<Value> {
        let about = |record: &Value| record["type"].as_str().unwrap().starts_with("compaction.");
        self.stage.records().into_iter().filter(about).collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event["type"].as_str().unwrap()["compaction.".len()..].to_owned())
            .collect()
    }

    fn shown(&self) -> Vec<String> {
        self.stage.session().messages().iter().map(|message| message.text()).collect()
    }
}

#[test]
fn older_messages_are_processed_and_summarized_and_newer_ones_stay() {
    let set = chat(at(3, 2));
    set.say("t1", "one");
    assert_eq!(set.kinds(), [""; 0]);
    set.say("t2", "two");
    // Only the messages that leave were shown to the follow-up and the summarizer.
    assert_eq!(set.diary.said.borrow().len(), 1);
    assert!(set.summaries()[0].contains("user: one") && !set.summaries()[0].contains("two"));
    let asked = set.asked();
    assert!(asked[1].contains("Summary 1.") && asked[1].ends_with("re: one\ntwo"), "{}", asked[1]);
    assert!(!asked[1].starts_with("one"));
    // The next compaction ran after the reply: it contains the first summary, and the window has one.
    assert_eq!(set.kinds(), ["started", "completed", "started", "completed"]);
    assert!(set.summaries()[1].contains("Summary 1.") && set.summaries()[1].contains("assistant: re: one"));
    set.say("t3", "three");
    let last = set.asked()[2].clone();
    assert!(last.contains("Summary 3.") && !last.contains("Summary 2."), "{last}");
    assert!(set.summaries()[2].contains("Summary 2."));
    assert_eq!(set.events()[1]["dropped"], 1);
    assert_eq!(set.events()[1]["reason"], "messages");
    assert_eq!(set.events()[1]["turn"], "t2");
    assert_eq!(set.events()[3]["turn"], Value::Null);
    set.stage.check();
    // The follow-up processed each message once.
    let mut seen = set.diary.said.borrow().clone();
    seen.dedup();
    assert_eq!(seen, *set.diary.said.borrow());
    // The log still has all messages.
    let said: Vec<_> = set.stage.records().into_iter().filter(|r| r["type"] == "turn.started").collect();
    assert_eq!(said.len(), 3);
}

#[test]
fn a_restart_keeps_the_window() {
    let set = chat(at(6, 3));
    for n in 0..12 {
        set.say(&format!("t{n}"), &format!("message {n}"));
        let live = set.shown();
        set.stage.crash();
        assert_eq!(set.shown(), live);
    }
    assert!(set.kinds().iter().filter(|kind| *kind == "completed").count() >= 3);
}

#[test]
fn messages_stay_until_they_were_processed() {
    let set = chat(at(3, 2));
    set.diary.fails.set(true);
    set.say("t1", "one");
    set.say("t2", "two");
    assert_eq!(set.kinds(), ["started", "failed"]);
    assert_eq!(set.events()[1]["reason"], "diary: not now");
    assert_eq!(set.asked()[1], "one\nre: one\ntwo");
    assert_eq!(set.summaries().len(), 0);
    set.stage.check();
}

#[test]
fn messages_that_must_leave_unprocessed_are_processed_later() {
    let set = chat(at(0, 1));
    set.window.set(8_000);
    set.say("t1", "one");
    set.diary.takes.set(ms(50));
    set.stage.post("t2", &"and ".repeat(4_000));
    set.stage.run();
    // The request does not fit, and the progress of the follow-up is not stored.
    set.stage.store.fail_commits(1);
    set.stage.tick(ms(50));
    assert_eq!(set.kinds()[..2], ["started", "completed"]);
    let seen = || set.stage.session().state().activity.follow_ups["diary"].seen;
    assert_eq!((set.diary.said.borrow().join(" ").as_str(), seen()), ("2", 0));
    set.say("t3", &"and ".repeat(4_000));
    assert_eq!(set.diary.said.borrow()[..2], ["2", "2"]);
    assert!(seen() > 2);
    set.stage.check();
}

#[test]
fn a_failed_summary_neither_loses_messages_nor_fails_the_turn() {
    let set = set(at(3, 2), |request| {
        let own = request.messages.iter().rev().take_while(|message| message.role != Role::User).count();
        match own {
            0 | 2 => uncounted(vec![call(
                &format!("c{own}{}", request.messages.len()),
                "read_it",
                json!({"key": "k"}),
            )]),
            _ => uncounted(vec![Part::text("done")]),
        }
    });
    set.mute.set(true);
    set.say("t1", "one");
    // Three calls of the model over the limit, but only one attempt to compact.
    assert_eq!(set.asked().len(), 3);
    assert_eq!(set.kinds(), ["started", "failed"]);
    assert_eq!(set.stage.end("t1").status, TurnStatus::Completed);
    assert!(set.shown().first().is_some_and(|first| first == "one"));
    set.mute.set(false);
    for n in 2..8 {
        set.say(&format!("t{n}"), "more");
    }
    assert!(set.kinds().ends_with(&["started".to_owned(), "completed".to_owned()]), "{:?}", set.kinds());
    set.stage.check();
}

#[test]
fn an_abort_ends_compaction_before_the_model_is_called() {
    let set = chat(at(3, 2));
    set.say("t1", "one");
    set.diary.takes.set(ms(5_000));
    set.stage.post("t2", "two");
    set.stage.run();
    let session = set.stage.session();
    assert!(set.stage.host().abort(&session, Vec::new()).expect("aborted"));
    set.stage.tick(ms(10_000));
    assert_eq!((set.asked().len(), set.summaries().len()), (1, 0));
    assert_eq!(set.stage.end("t2").status, TurnStatus::Canceled);
    assert_eq!(set.kinds()[0], "started");
    set.stage.check();
}

#[test]
fn a_failure_of_the_model_is_not_a_failure_of_compaction() {
    let set = set(at(3, 2), |request| match request.messages.len() {
        1 => uncounted(vec![Part::text("hm")]),
        _ => failure(ModelErrorKind::Auth),
    });
    set.say("t1", "one");
    set.say("t2", "two");
    assert_eq!(set.kinds(), ["started", "completed"]);
    assert_eq!(set.stage.end("t2").error.map(|error| error.code), Some("provider_auth".into()));
    assert_eq!(set.asked().len(), 2);
}

/// Rejects requests over this many tokens as too long.
fn narrow(most: u64) -> impl Fn(&ModelRequest) -> ScriptedResponse {
    move |request| match request.messages.iter().map(|message| tokens::of_message(message)).sum::<u64>() {
        found if found > most => failure(ModelErrorKind::Overflow),
        _ => uncounted(vec![Part::text("word ".repeat(300))]),
    }
}

#[test]
fn a_rejected_request_is_shortened_and_sent_again() {
    let set = set(at(0, 20), narrow(4_000));
    for n in 0..20 {
        set.say(&format!("t{n}"), &format!("{n} {}", "and ".repeat(200)));
        assert_eq!(set.stage.end(&format!("t{n}")).status, TurnStatus::Completed, "t{n}");
    }
    assert!(set.events().iter().any(|event| event["reason"] == "overflow"), "{:?}", set.kinds());
    // The limit is remembered: most later requests are shortened before they are sent.
    let overflows = set.events().iter().filter(|event| event["reason"] == "overflow").count();
    assert!(overflows <= 4, "{overflows}");
    set.stage.check();
}

#[test]
fn huge_messages_are_shown_in_part() {
    for mute in [false, true] {
        let set = set(at(0, 20), narrow(4_000));
        set.mute.set(mute);
        set.say("t1", &format!("first {} last", "word ".repeat(6_000)));
        assert_eq!(set.stage.end("t1").status, TurnStatus::Completed);
        let shown = set.shown()[0].clone();
        assert!(shown.starts_with("first ") && shown.trim_end().ends_with("last"));
        assert!(shown.contains("use recall with message 2"), "{shown}");
        set.say("t2", &"more ".repeat(3_500));
        assert_eq!(set.stage.end("t2").status, TurnStatus::Completed);
        set.stage.check();
    }
}

#[test]
fn a_session_continues_without_a_summarizer() {
    let set = set(at(0, 20), narrow(3_000));
    set.mute.set(true);
    for n in 0..30 {
        set.say(&format!("t{n}"), &format!("{n} {}", "and ".repeat(200)));
        assert_eq!(set.stage.end(&format!("t{n}")).status, TurnStatus::Completed, "t{n}");
    }
    let head = set.shown()[0].clone();
    assert_eq!(head.matches("earlier messages are left out here").count(), 1, "{head}");
    set.stage.check();
}

#[test]
fn a_request_over_the_window_is_never_sent() {
    let set = set(at(0, 20), narrow(3_500));
    set.window.set(4_000);
    for n in 0..30 {
        set.say(&format!("t{n}"), &format!("{n} {}", "and ".repeat(400)));
    }
    assert!(set.events().iter().all(|event| event["reason"] != "overflow"));
    assert!(set.kinds().contains(&"completed".to_owned()));
    set.stage.check();
}

#[test]
fn each_model_has_its_own_window() {
    let set = set(at(0, 20), narrow(100_000));
    for n in 0..10 {
        set.say(&format!("t{n}"), &format!("{n} {}", "and ".repeat(400)));
    }
    assert_eq!(set.kinds(), [""; 0]);
    set.stage.follow_up();
    let session = set.stage.session();
    session.commit(NOW, |draft| draft.set_model(Some("scripted/small".into()))).unwrap();
    set.say("t10", "now");
    assert_eq!(set.kinds(), ["started", "completed"]);
    let last = set.models.requests().into_iter().rfind(|request| !is_summary(request)).unwrap();
    assert_eq!(last.model, "small");
    assert!(last.messages.iter().map(|message| tokens::of_message(message)).sum::<u64>() < 4_000);
}

#[test]
fn compaction_runs_in_the_background_during_a_turn() {
    let set = chat(at(10, 2));
    for n in 0..3 {
        set.say(&format!("t{n}"), "x");
    }
    set.diary.takes.set(ms(5_000));
    set.say("t3", "the last one");
    assert_eq!(set.kinds(), ["started"]);
    // A turn runs while the summary is made.
    set.say("t4", "in between");
    assert_eq!(set.stage.end("t4").status, TurnStatus::Completed);
    assert_eq!(set.kinds(), ["started"]);
    assert_eq!(set.asked()[4].matches('\n').count(), 8, "{}", set.asked()[4]);
    set.diary.takes.set(Duration::ZERO);
    set.stage.tick(ms(5_000));
    set.stage.run();
    assert_eq!(set.kinds(), ["started", "completed"]);
    let shown = set.shown();
    assert_eq!(shown[1..], ["the last one", "re: the last one", "in between", "re: in between"]);
    set.stage.check();
}

#[test]
fn a_compaction_during_a_streamed_message_applies_after_it() {
    let stage = Stage::demo();
    let diary = Diary::default();
    stage.context_messages.set(2_000);
    *stage.context.borrow_mut() = ContextSettings::Compaction(at(5, 2));
    stage.crash();
    stage.flush.set(Default::default());
    stage.crash();
    for n in 0..2 {
        stage.post(&format!("t{n}"), "hello");
        stage.settle();
    }
    stage.post("t2", "/slow 100 50");
    for _ in 0..120 {
        stage.tick(ms(100));
    }
    stage.settle();
    stage.check();
    let done = stage.records().into_iter().filter(|record| record["type"] == "compaction.completed").count();
    assert!(done >= 1, "{:?}", stage.kinds());
    let live: Vec<_> = stage.session().messages();
    stage.crash();
    assert_eq!(stage.session().messages(), live);
    assert!(live.iter().any(|message| message.text().contains("word50")));
    drop(diary);
}

#[test]
fn of_two_concurrent_compactions_one_applies() {
    let set = chat(at(0, 2));
    for n in 0..4 {
        set.say(&format!("t{n}"), &n.to_string());
    }
    set.diary.takes.set(ms(1_000));
    let (host, session) = (set.stage.host(), set.stage.session());
    let both = futures::future::join(host.compact(&session), host.compact(&session));
    let mut both = Box::pin(both);
    assert!(both.as_mut().now_or_never().is_none());
    set.stage.clock.advance(ms(1_000));
    let (one, two) = block_on(both);
    assert_eq!(one.unwrap()["compacted"], true);
    assert_eq!(two.unwrap()["compacted"], true);
    assert_eq!(set.kinds(), ["started", "started", "completed", "failed"]);
    assert_eq!(set.shown().len(), 3);
    check(&set.stage.store.log());
}

#[test]
fn a_caller_can_request_compaction() {
    let set = chat(at(0, 2));
    let compact = || {
        let (host, session) = (set.stage.host(), set.stage.session());
        block_on(host.compact(&session)).map_err(|problem| problem.code.as_str())
    };
    set.say("t0", "zero");
    assert_eq!(compact().unwrap()["compacted"], false);
    for n in 1..5 {
        set.say(&format!("t{n}"), &"word ".repeat(100));
    }
    let before = set.stage.session().context().tokens();
    let answer = compact().unwrap();
    assert_eq!((&answer["compacted"], &answer["dropped"]), (&json!(true), &json!(8)));
    assert_eq!(answer["tokens_before"], before);
    assert_eq!(answer["tokens_after"], set.stage.session().context().tokens());
    let event = set.events().pop().unwrap();
    for field in ["dropped", "summary_tokens", "tokens_before", "tokens_after"] {
        assert_eq!(event[field], answer[field], "{field}");
    }
    assert_eq!(compact().unwrap()["compacted"], false);
    set.say("t6", "x");
    set.mute.set(true);
    assert_eq!(compact().unwrap_err(), "unavailable");
    set.stage.post("t7", "running");
    assert_eq!(compact().unwrap_err(), "session_busy");
    set.stage.settle();
    *set.stage.context.borrow_mut() = ContextSettings::None;
    set.stage.crash();
    assert_eq!(compact().unwrap_err(), "not_configured");
}

#[test]
fn no_message_is_lost_wherever_the_session_is_evicted() {
    let play = || {
        let set = chat(at(5, 2));
        set.say("t0", "zero");
        set.say("t1", "one");
        set.stage.store.die_after(None);
        set
    };
    let whole = play();
    let first = whole.stage.store.commits();
    whole.say("t2", "two");
    let commits = whole.stage.store.commits() - first;
    assert!(whole.kinds().contains(&"completed".to_owned()));
    for last in 1..=commits {
        let set = play();
        set.stage.store.die_after(Some(last));
        let posted = set.stage.try_post("t2", "two", OnBusy::Queue, Default::default());
        set.stage.run();
        set.stage.crash();
        set.stage.store.die_after(None);
        set.stage.wake();
        set.stage.settle();
        set.stage.live(ms(60_000));
        if posted.is_ok() {
            assert_eq!(set.stage.end("t2").status, TurnStatus::Completed, "after {last}");
        }
        let live = set.shown();
        assert!(live.ends_with(&["two".to_owned(), "re: two".to_owned()]), "after {last}: {live:?}");
        set.stage.crash();
        assert_eq!(set.shown(), live);
        set.stage.check();
    }
}

#[test]
fn an_erased_session_is_not_compacted() {
    let set = chat(at(5, 2));
    set.diary.takes.set(ms(5_000));
    for n in 0..2 {
        set.say(&format!("t{n}"), "x");
    }
    assert_eq!(set.kinds(), ["started"]);
    let host = set.stage.host();
    block_on(host.erase(&"t".into(), &"s".into())).expect("erased");
    set.stage.tick(ms(10_000));
    assert_eq!(set.stage.store.log().len(), 0);
}

#[test]
fn a_search_finds_messages_that_left_the_window() {
    let set = chat(at(20, 4));
    let word = |n: u64| format!("{}{}", ["ba", "ko", "ri", "tu", "me"][n as usize % 5], n * 7_919 % 1_009);
    let text = |n: u64| (0..30).map(|w| word(n * 31 + w * w)).collect::<Vec<_>>().join(" ");
    for n in 0..150 {
        set.say(&format!("t{n}"), &text(n));
    }
    let shown = set.shown().join("\n");
    let memories = set.stage.memories(MemorySettings::default());
    let owner = Owner { tenant: "t".into(), agent: "default".into(), user: "u".into() };
    let (mut found, mut asked) = (0, 0);
    for n in (0..150).filter(|n| !shown.contains(&text(*n))) {
        let text = text(n);
        let words: Vec<&str> = text.split(' ').collect();
        for start in [0, 11, 22] {
            let query = words[start..start + 8].join(" ");
            let hits = memories.search(&owner, CollectionKind::Turns, &query, 5);
            let hits = block_on(hits).expect("an index");
            asked += 1;
            found += usize::from(hits.iter().any(|hit| hit.entry.text.contains(&query)));
        }
    }
    assert!(asked > 300 && found * 100 >= asked * 98, "{found} of {asked}");
}
