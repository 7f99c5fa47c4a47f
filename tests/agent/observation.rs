//! Observation: notes replace messages. Despite failures and crashes each message is covered exactly once.

use crate::scripts::step_of;
use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::OnBusy;
use edge_harness::context::observation::{NoteTaker, ObservationSettings};
use edge_harness::platform::in_memory::{
    ManualClock, ScriptedModels, SeededEntropy,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::{Clock, Model, Models};
use edge_harness::session::window::ContextState;
use edge_harness::standard::ContextSettings;
use edge_harness::types::{
    BoxError, BudgetPatch, Chunk, CompactReason, Cut, EventKind, ModelError, ModelErrorKind, ModelEvent,
    ModelLimits, ModelRequest, Part, TurnStatus,
};
use futures::{
    FutureExt, StreamExt,
    executor::block_on,
    future,
    stream::{self, LocalBoxStream},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

/// A model that takes time to respond, and reports the size of requests.
struct Slow {
    inner: Rc<ScriptedModels>,
    clock: ManualClock,
    window: Rc<Cell<u64>>,
    /// The duration of a request for notes.
    slow: Rc<Cell<Duration>>,
}

struct SlowModel(Rc<dyn Model>, ManualClock, Duration);

impl Model for SlowModel {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let delay = if is_observer(&request) { self.2 } else { ms(100) };
        let (events, clock) = (self.0.stream(request), self.1.clone());
        let later = async move {
            clock.sleep(delay).await;
            events
        };
        stream::once(later.boxed_local()).flatten().boxed_local()
    }
}

impl Models for Slow {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        let (model, name) = self.inner.resolve(id)?;
        Ok((Rc::new(SlowModel(model, self.clock.clone(), self.slow.get())), name))
    }

    fn limits(&self, _id: &str) -> ModelLimits {
        ModelLimits { window: self.window.get(), ..ModelLimits::default() }
    }

    fn default_model(&self) -> String {
        self.inner.default_model()
    }
}

/// One-shot calls are answered from the queue first.
type Queue = Rc<RefCell<VecDeque<ScriptedResponse>>>;

struct Talk {
    stage: Stage,
    models: Rc<ScriptedModels>,
    notes: Queue,
    window: Rc<Cell<u64>>,
    slow: Rc<Cell<Duration>>,
}

fn is_observer(request: &ModelRequest) -> bool {
    request.system.starts_with("You take notes")
}

fn is_reflector(request: &ModelRequest) -> bool {
    request.system.starts_with("You maintain the notes")
}

fn say(text: &str) -> ScriptedResponse {
    answer(vec![Part::text(text)])
}

fn noted(notes: &str) -> ScriptedResponse {
    say(&format!(
        "<observations>\nDate: 2026-11-20\n{notes}\n</observations>\n<current-task>talking</current-task>"
    ))
}

/// All words `fact…` of a text.
fn facts(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("fact")).map(str::to_owned).collect()
}

fn below<'a>(text: &'a str, title: &str) -> &'a str {
    text.split_once(title).expect("a section").1
}

impl Talk {
    /// A model that notes the facts of messages, and responds to others as `script` says.
    fn new(
        settings: ObservationSettings,
        script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static,
    ) -> Self {
        let notes = Queue::default();
        let queue = Rc::clone(&notes);
        let models = Rc::new(ScriptedModels::new(move |request| {
            let aside = is_observer(request) || is_reflector(request);
            if let Some(next) = aside.then(|| queue.borrow_mut().pop_front()).flatten() {
                return next;
            }
            let text = || request.messages[0].text();
            if is_observer(request) {
                let facts = facts(below(&text(), "\nMessages:\n"));
                noted(&facts.iter().map(|fact| format!("* 🟡 (12:00) -> {fact}\n")).collect::<String>())
            } else if is_reflector(request) {
                noted(&format!("* 🔴 {}", facts(&text()).join(" ")))
            } else {
                script(request)
            }
        }));
        let (clock, window) = (ManualClock::at(NOW), Rc::new(Cell::new(128_000)));
        let slow = Rc::new(Cell::new(ms(100)));
        let (inner, own) = (models.clone(), clock.clone());
        let model = Slow { inner, clock: own, window: window.clone(), slow: slow.clone() };
        let stage = Stage::with(clock, Rc::new(model), |builder| builder);
        stage.context.replace(ContextSettings::Observation(settings));
        stage.crash();
        Self { stage, models, notes, window, slow }
    }

    /// Runs a turn and its follow-ups.
    fn turn(&self, turn: &str, said: &str) {
        self.stage.post(turn, said);
        self.stage.settle();
        self.stage.check();
        for _ in 0..100 {
            self.stage.tick(ms(100));
        }
    }

    fn kinds(&self, prefix: &str) -> Vec<String> {
        self.stage.kinds().into_iter().filter(|kind| kind.starts_with(prefix)).collect()
    }

    fn of(&self, kind: &str) -> Vec<Value> {
        self.stage.records().into_iter().filter(|record| record["type"] == kind).collect()
    }

    /// The last request of the conversation.
    fn asked(&self) -> ModelRequest {
        let own = |request: &ModelRequest| !is_observer(request) && !is_reflector(request);
        self.models.requests().into_iter().rfind(own).expect("a request")
    }

    fn one_shots(&self) -> usize {
        self.models.requests().iter().filter(|request| is_observer(request) || is_reflector(request)).count()
    }

    fn state(&self) -> ContextState {
        self.stage.session().context().state().clone()
    }
}

/// The parts of the message that replaces earlier messages; empty if there is none.
fn head(request: &ModelRequest) -> Vec<String> {
    let first = &request.messages[0];
    let texts = first.parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        other => panic!("{other:?}"),
    });
    if first.id.starts_with("summary") { texts.collect() } else { Vec::new() }
}

fn all_text(request: &ModelRequest) -> String {
    request.messages.iter().map(|message| format!("{:?}\n", message.parts)).collect()
}

/// A fact, followed by this many words.
fn words(fact: usize, count: usize) -> String {
    format!("fact{fact} {}", "word ".repeat(count))
}

fn usual() -> ObservationSettings {
    ObservationSettings::default()
}

fn small() -> ObservationSettings {
    ObservationSettings { observe_at: 1_000, reflect_at: 400, ..usual() }
}

#[test]
fn a_message_over_the_threshold_is_observed_in_its_turn() {
    let talk = Talk::new(usual(), |_| say("Read."));
    talk.turn("t1", &words(1, 40_000));
    assert_eq!(talk.kinds("observation"), ["observation.started", "observation.completed"]);
    let kinds = talk.stage.kinds();
    let place = |kind: &str| kinds.iter().position(|found| found == kind);
    assert!(place("observation.completed") < place("turn.completed"));
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    let asked = talk.asked();
    assert!(head(&asked).iter().any(|part| part.contains("fact1")));
    let prompt = asked.messages.last().expect("a prompt").text();
    assert!(prompt.starts_with("fact1 word") && prompt.len() > 200_000, "still complete");
    talk.turn("t2", "and now?");
    let text = all_text(&talk.asked());
    assert!(text.contains("fact1") && text.len() < 5_000 && !text.contains("word word"));
    assert_eq!(talk.kinds("observation").len(), 2);
}

#[test]
fn unread_results_are_not_observed() {
    let talk = Talk::new(small(), |request| match step_of(request) {
        0 if request.messages.last().is_some_and(|m| m.text().contains("fact1")) => {
            answer(vec![call("c1", "read_it", json!({ "key": "word ".repeat(2_000) }))])
        }
        _ => say("Done."),
    });
    talk.stage.post("t1", "fact1");
    talk.stage.settle();
    assert!(all_text(&talk.asked()).contains("read word word"), "the model sees the result");
    let kinds = talk.stage.kinds();
    assert!(kinds.iter().take_while(|kind| *kind != "turn.completed").all(|kind| !kind.starts_with("obs")));
    for _ in 0..100 {
        talk.stage.tick(ms(100));
    }
    assert_eq!(talk.kinds("observation"), ["observation.started", "observation.buffered"]);
    talk.turn("t2", "fact2");
    assert!(!all_text(&talk.asked()).contains("word word"));
    assert_eq!(talk.of("observation.activated")[0]["triggered_by"], "threshold");
    talk.stage.check();
}

#[test]
fn buffered_chunks_are_activated_without_a_model_call() {
    let talk = Talk::new(usual(), |_| say("Hm."));
    for turn in 1..=5 {
        // 6,000 tokens with the response.
        talk.turn(&format!("t{turn}"), &words(turn, 5_988));
    }
    assert_eq!((talk.of("observation.buffered").len(), talk.one_shots()), (5, 5));
    assert_eq!(talk.of("observation.activated").len(), 0);
    talk.stage.post("t6", "and now?");
    talk.stage.settle();
    let activated = talk.of("observation.activated");
    let (chunks, trigger) = (&activated[0]["chunks"], &activated[0]["triggered_by"]);
    assert_eq!((activated.len(), chunks, trigger), (1, &json!(4), &json!("threshold")));
    assert_eq!(talk.one_shots(), 5);
    let text = all_text(&talk.asked());
    assert!((1..=5).all(|fact| text.contains(&format!("fact{fact}"))));
    assert!(text.contains("fact5 word") && !text.contains("fact4 word"));
    assert!(!text.contains('🟡') && !text.contains("->"), "the marks are removed: {text:.300}");
}

#[test]
fn added_notes_keep_the_prefix_of_the_prompt() {
    let talk = Talk::new(ObservationSettings { reflect_at: 100_000, ..small() }, |_| say("Hm."));
    let mut last: Vec<String> = Vec::new();
    let mut grew = 0;
    for turn in 1..=12 {
        talk.turn(&format!("t{turn}"), &words(turn, 300));
        let head = head(&talk.asked());
        // The hints come after the notes.
        let notes = last.len().saturating_sub(1);
        assert_eq!(head.get(..notes), last.get(..notes));
        grew += usize::from(head.len() > last.len());
        last = head;
    }
    assert!(grew >= 3, "{grew}");
    assert!(last.last().is_some_and(|hints| hints.contains("talking")));
    let text = all_text(&talk.asked());
    let mut found = facts(&text);
    found.sort_by_key(|fact| fact[4..].parse::<u32>().expect("a number"));
    assert_eq!(found, (1..=12).map(|fact| format!("fact{fact}")).collect::<Vec<_>>());
}

#[test]
fn a_failed_observation_neither_fails_the_turn_nor_loses_messages() {
    let down = || vec![Err(ModelError::new(ModelErrorKind::Billing, "no credit"))];
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.notes.borrow_mut().extend([down(), down()]);
    talk.turn("t1", &words(1, 1_500));
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    let failed = talk.of("observation.failed");
    assert_eq!(failed[0]["reason"], "no credit");
    assert!(all_text(&talk.asked()).contains("fact1 word") && talk.state().observed.active.is_empty());
    // Once the model works again, notes are taken after the next reply, and the following turn is small.
    talk.turn("t2", "fact2");
    talk.turn("t3", "fact3");
    assert!(!all_text(&talk.asked()).contains("fact1 word") && all_text(&talk.asked()).contains("fact1"));
    talk.stage.check();
}

#[test]
fn a_turn_waits_for_notes_for_at_most_half_of_its_time() {
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.slow.set(ms(50_000));
    let budget = BudgetPatch { timeout_s: Some(20), ..BudgetPatch::default() };
    talk.stage.try_post("t1", &words(1, 1_500), OnBusy::Queue, budget).expect("accepted");
    talk.stage.settle();
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    assert!(talk.kinds("observation").contains(&"observation.failed".to_owned()));
}

#[test]
fn all_attempts_of_a_step_share_one_deadline() {
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.slow.set(ms(45_000));
    // The first response is unusable; the second would be too late.
    talk.notes.borrow_mut().push_back(noted(&"* 🔴 (12:00) the user said word and word\n".repeat(100)));
    talk.stage.post("t1", &words(1, 1_500));
    talk.stage.settle();
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    let waited = talk.stage.host().now().since(NOW);
    assert!((ms(60_000)..ms(62_000)).contains(&waited), "{waited:?}");
}

#[test]
fn after_an_overflow_at_most_half_of_the_messages_is_shown() {
    let over = Rc::new(Cell::new(false));
    let next = Rc::clone(&over);
    let down = || vec![Err(ModelError::new(ModelErrorKind::Billing, "no credit"))];
    let talk = Talk::new(usual(), move |_| match next.take() {
        true => vec![Err(ModelError::new(ModelErrorKind::Overflow, "too long"))],
        false => say("Hm."),
    });
    talk.notes.borrow_mut().extend((0..40).map(|_| down()));
    for turn in 1..=16 {
        talk.turn(&format!("t{turn}"), &words(turn, 1_000));
    }
    let before = talk.stage.session().context().tokens();
    over.set(true);
    talk.turn("t17", "and now?");
    assert_eq!(talk.stage.end("t17").status, TurnStatus::Completed);
    let after = talk.stage.session().context().tokens();
    assert!(after <= before / 2 + 50 && after > before / 8, "{before} {after}");
}

#[test]
fn summarized_messages_are_not_observed_again() {
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.turn("t1", "fact1");
    talk.turn("t2", "fact2");
    let session = talk.stage.session();
    let kept_from = session.last_seq() + 1;
    let cut = Cut { number: 1, kept_from, summary: Some("They spoke.".into()), ..Cut::default() };
    let kind = EventKind::CompactionCompleted {
        reason: CompactReason::Tokens,
        dropped: 4,
        summary_tokens: 3,
        tokens_before: 20,
        tokens_after: 3,
        cut,
    };
    session.commit(talk.stage.host().now(), |draft| draft.record(None, kind)).expect("a store that works");
    drop(session);
    talk.turn("t3", &words(3, 1_500));
    talk.turn("t4", "fact4");
    let text = all_text(&talk.asked());
    assert!(text.contains("They spoke.") && text.contains("fact3"), "{text:.600}");
    assert!(
        !text.contains("fact1") && !text.contains("fact2") && !text.contains("fact3 word"),
        "{text:.600}"
    );
    assert!(talk.state().observed.active[0].from >= kept_from);
}

#[test]
fn a_repetitive_response_is_requested_again() {
    let circles = || noted(&"* 🔴 (12:00) the user said word and word\n".repeat(100));
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.notes.borrow_mut().push_back(circles());
    talk.turn("t1", &words(1, 1_500));
    assert_eq!(talk.kinds("observation"), ["observation.started", "observation.completed"]);
    assert_eq!(talk.one_shots(), 2);
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.notes.borrow_mut().extend([circles(), circles(), circles(), circles()]);
    talk.turn("t1", &words(1, 1_500));
    assert!(talk.kinds("observation").contains(&"observation.failed".to_owned()));
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    assert!(talk.state().observed.active.is_empty());
}

#[test]
fn as_a_last_resort_messages_are_shortened() {
    let talk = Talk::new(usual(), |_| say("Hm."));
    talk.window.set(4_000);
    let down = || vec![Err(ModelError::new(ModelErrorKind::Billing, "no credit"))];
    talk.notes.borrow_mut().extend((0..20).map(|_| down()));
    talk.turn("t1", &words(1, 9_000));
    assert_eq!(talk.stage.end("t1").status, TurnStatus::Completed);
    assert!(!talk.kinds("compaction.completed").is_empty());
    let text = all_text(&talk.asked());
    assert!(text.len() < 12_000 && text.contains("fact1") && text.contains("use recall with message 2"));
    // Shortened messages are observed later, once that is possible.
    talk.notes.borrow_mut().clear();
    talk.turn("t2", &words(2, 2_000));
    talk.turn("t3", "fact3");
    assert!(all_text(&talk.asked()).contains("fact1"));
}

#[test]
fn switching_the_model_or_a_long_pause_activates_buffered_notes() {
    for (idle, trigger) in [(false, "provider_change"), (true, "idle")] {
        let settings = ObservationSettings { idle_after: idle.then_some(ms(300_000)), ..small() };
        let talk = Talk::new(settings, |_| say("Hm."));
        talk.turn("t1", &words(1, 300));
        talk.turn("t2", &words(2, 250));
        assert_eq!((talk.of("observation.buffered").len(), talk.of("observation.activated").len()), (2, 0));
        if idle {
            talk.stage.tick(ms(300_000));
        } else {
            let session = talk.stage.session();
            let other = |draft: &mut edge_harness::session::Draft| {
                draft.set_model(Some("scripted/other".into()));
            };
            session.commit(talk.stage.host().now(), other).expect("a store that works");
        }
        talk.stage.post("t3", "fact3");
        talk.stage.settle();
        let activated = talk.of("observation.activated");
        assert_eq!((activated.len(), &activated[0]["triggered_by"]), (1, &json!(trigger)));
        assert!(!all_text(&talk.asked()).contains("fact1 word"));
        talk.stage.check();
    }
}

#[test]
fn a_caller_can_request_observation() {
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.turn("t1", &words(1, 400));
    talk.turn("t2", &words(2, 250));
    let asked = {
        let (host, session) = (talk.stage.host(), talk.stage.session());
        block_on(async { host.compact(&session).await }).expect("smaller")
    };
    assert_eq!(asked["compacted"], true);
    assert!(asked["tokens_after"].as_u64() < asked["tokens_before"].as_u64(), "{asked}");
    assert_eq!(talk.of("observation.activated")[0]["triggered_by"], "request");
    talk.turn("t3", "fact3");
    assert!(!all_text(&talk.asked()).contains("fact1 word") && all_text(&talk.asked()).contains("fact1"));
}

#[test]
fn a_reflection_is_attempted_four_times_and_the_shortest_is_kept() {
    let lengths = Rc::new(RefCell::new(VecDeque::from([45_000, 41_500, 44_000, 43_000])));
    let queue = Rc::clone(&lengths);
    let notes = |count: usize| {
        (0..count / 10).map(|n| format!("* 🔴 note {n} of the whole day\n")).collect::<String>()
    };
    let models = Rc::new(ScriptedModels::new(move |_| {
        noted(&notes(queue.borrow_mut().pop_front().expect("at most four attempts")))
    }));
    let taker = NoteTaker::new(
        models.clone(),
        Rc::new(ManualClock::at(NOW)),
        Rc::new(SeededEntropy::default()),
        usual(),
    );
    let chunk = |from: u64, to: u64| {
        let task = Some(format!("task {to}"));
        Rc::new(Chunk { from, to, tokens: 30_000, of: 90_000, text: "* a".into(), task, ..Chunk::default() })
    };
    let chunks = [chunk(1, 10), chunk(11, 30)];
    let best = block_on(taker.reflect("scripted/model", &chunks, 20_000, ms(60_000), &Default::default()))
        .expect("notes");
    assert_eq!((models.requests().len(), lengths.borrow().len()), (4, 0));
    let shortest = best.text.lines().count();
    assert_eq!(shortest, 4_151);
    assert_eq!((best.from, best.to, best.of, best.task.as_deref()), (1, 30, 180_000, Some("task 30")));
    let levels: Vec<String> = models.requests().iter().map(|asked| asked.messages[0].text()).collect();
    assert!(levels.windows(2).all(|pair| pair[0] != pair[1]), "more compressed each time");
    // A reflection that omits nearly everything is rejected, however short it is.
    lengths.borrow_mut().extend([1_000, 43_000, 40, 44_000]);
    let best = block_on(taker.reflect("scripted/model", &chunks, 20_000, ms(60_000), &Default::default()))
        .expect("notes");
    assert_eq!(best.text.lines().count(), 4_301);
    // A reflection that is not shorter is rejected.
    lengths.borrow_mut().extend([90_000, 90_000, 90_000, 90_000]);
    let failed = block_on(taker.reflect("scripted/model", &chunks, 20_000, ms(60_000), &Default::default()));
    assert!(failed.is_err(), "{failed:?}");
}

/// Plays turns with one fact each until `until` holds.
fn play(talk: &Talk, until: usize) {
    for turn in 1..=until {
        talk.turn(&format!("t{turn}"), &words(turn, 260));
    }
}

#[test]
fn notes_are_rewritten_after_replies_without_loss() {
    let talk = Talk::new(small(), |_| say("Hm."));
    for fact in 1..=40 {
        talk.turn(&format!("t{fact}"), &words(fact, 260));
    }
    let generation = talk.state().observed.generation;
    assert!(generation >= 1, "{:?}", talk.kinds("reflection"));
    talk.stage.post("last", "and now?");
    talk.stage.settle();
    let mut found = facts(&all_text(&talk.asked()));
    found.sort_by_key(|fact| fact[4..].parse::<u32>().expect("a number"));
    assert_eq!(found, (1..=40).map(|fact| format!("fact{fact}")).collect::<Vec<_>>());
    let shown = talk.stage.session().view().expect("a store that works");
    let context = serde_json::to_value(shown).expect("JSON")["context"].clone();
    assert_eq!(context["generation"], generation);
    assert!(
        context["pending_tokens"].as_u64() < Some(1_400) && context["observed_tokens"].as_u64() > Some(50)
    );
}

#[test]
fn each_message_is_covered_once_whichever_commit_fails() {
    let turns = 8;
    let reference = Talk::new(small(), |_| say("Hm."));
    play(&reference, turns);
    let commits = reference.stage.store.commits();
    assert!(reference.of("observation.activated").len() >= 2 && commits > 40);
    for last in 1..=commits {
        let talk = Talk::new(small(), |_| say("Hm."));
        talk.stage.store.die_after(Some(last));
        for turn in 1..=turns {
            let (id, said) = (format!("t{turn}"), words(turn, 260));
            let accepted = talk.stage.try_post(&id, &said, OnBusy::Queue, Default::default());
            for _ in 0..12 {
                talk.stage.tick(ms(100));
            }
            if talk.stage.store.commits() >= last {
                talk.stage.crash();
                talk.stage.store.die_after(None);
                talk.stage.wake();
            }
            if accepted.is_err() {
                talk.stage.post(&id, &said);
            }
            talk.stage.settle();
            talk.stage.live(ms(10_000));
        }
        if talk.stage.store.commits() >= last {
            talk.stage.crash();
            talk.stage.store.die_after(None);
            talk.stage.wake();
        }
        talk.stage.settle();
        talk.turn("last", "and now?");
        let mut found = facts(&all_text(&talk.asked()));
        found.sort();
        let expected: Vec<String> = (1..=turns).map(|fact| format!("fact{fact}")).collect();
        assert_eq!(found, expected, "crashed after {last} commits");
        talk.stage.check();
    }
}

#[test]
fn each_message_is_covered_once_whenever_the_session_is_evicted() {
    // From before the fourth turn until after its follow-ups.
    for moment in 0..40 {
        let talk = Talk::new(small(), |_| say("Hm."));
        play(&talk, 3);
        talk.stage.post("t4", &words(4, 900));
        for _ in 0..moment {
            talk.stage.tick(ms(25));
        }
        talk.stage.crash();
        talk.stage.wake();
        talk.stage.settle();
        talk.stage.live(ms(10_000));
        talk.turn("last", "and now?");
        let mut found = facts(&all_text(&talk.asked()));
        found.sort();
        assert_eq!(found, ["fact1", "fact2", "fact3", "fact4"], "evicted after {moment} moments");
        talk.stage.check();
    }
}

#[test]
fn concurrent_observations_cover_each_message_once() {
    let talk = Talk::new(small(), |_| say("Hm."));
    talk.stage.post("t1", &words(1, 900));
    talk.stage.settle();
    // Notes are taken after the reply while the next turn passes the threshold.
    talk.stage.post("t2", &words(2, 900));
    talk.stage.settle();
    talk.turn("t3", "fact3");
    let mut found = facts(&all_text(&talk.asked()));
    found.sort();
    assert_eq!(found, ["fact1", "fact2", "fact3"]);
    talk.stage.check();
}

#[test]
fn recall_reads_messages_outside_the_window() {
    let args = Rc::new(RefCell::new(json!({})));
    let next = Rc::clone(&args);
    let talk = Talk::new(small(), move |request| match step_of(request) {
        0 if request.messages.last().is_some_and(|m| m.text().contains("recall")) => {
            answer(vec![call("c", "recall", next.borrow().clone())])
        }
        _ => say("Hm."),
    });
    talk.turn("t1", &words(1, 1_200));
    let recall = |turn: &str, what: Value| {
        args.replace(what);
        talk.stage.post(turn, "recall it");
        talk.stage.settle();
        let own = talk.stage.records().into_iter().rfind(|record| record["type"] == "tool.completed");
        let own = own.expect("a call");
        own["result"].as_str().or(own["reason"].as_str()).expect("a text").to_owned()
    };
    let whole = recall("t2", json!({ "message": 2 }));
    assert!(
        whole.starts_with("messages 2-2, characters 0-60") && whole.contains("user: fact1 word"),
        "{whole:.200}"
    );
    let several = recall("t3", json!({ "from": 1, "to": 99, "offset": 6_000 }));
    assert!(
        several.contains("assistant: Hm.") && several.contains("[calls recall: {\"message\":2}]"),
        "{several}"
    );
    assert!(several.contains("[result of recall: messages 2-2") && several.chars().count() < 10_000);
    let all = recall("t3b", json!({ "from": 1 }));
    assert!(
        all.lines().next().is_some_and(|first| first.ends_with("; continue with offset 9000")),
        "{all:.200}"
    );
    assert!(recall("t4", json!({ "message": 9_999 })).contains("no message from"));
    assert!(recall("t5", json!({})).contains("set `message`"));
    assert!(
        recall("t6", json!({ "message": 2, "offset": 900_000 })).contains("offset 900000 is past the end")
    );
}

#[test]
fn follow_ups_process_messages_before_they_leave() {
    // A follow-up that never completes does not block forever.
    struct Never;
    #[async_trait::async_trait(?Send)]
    impl edge_harness::agent::FollowUp for Never {
        fn name(&self) -> &'static str {
            "never"
        }
        fn before_drop(&self) -> bool {
            true
        }
        async fn run(
            &self,
            _cx: &edge_harness::agent::follow_up::FollowUpContext,
        ) -> Result<edge_harness::agent::follow_up::Progress, BoxError> {
            future::pending().await
        }
    }
    let (stage, models) = Stage::scripted(
        |request| if is_observer(request) { noted("* 🔴 noted") } else { say("Hm.") },
        |builder| builder.follow_up(Never),
    );
    stage.context.replace(ContextSettings::Observation(small()));
    stage.crash();
    stage.post("t1", &words(1, 1_500));
    stage.settle();
    assert_eq!(stage.end("t1").status, TurnStatus::Completed);
    assert!(stage.kinds().contains(&"observation.completed".to_owned()) && models.requests().len() == 2);
}
