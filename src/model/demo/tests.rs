#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::testkit::{self, FakeClock, Outcome, message, ok, result, spec, user};
use crate::types::{Message, Role, ToolOutcome};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::Duration;

fn run(messages: Vec<Rc<Message>>) -> Outcome {
    let tools = vec![spec("memory_save")].into();
    testkit::call(
        &Demo::new(Rc::new(FakeClock::default())),
        ModelRequest { messages, tools, ..ModelRequest::default() },
    )
}

fn say(text: &str) -> Outcome {
    run(vec![user(text)])
}

fn assistant(parts: Vec<Part>) -> Rc<Message> {
    message(Role::Assistant, parts)
}

#[test]
fn plain_text_is_echoed_with_the_previous_message() {
    let first = say("Hello\nthere");
    assert_eq!(
        first.text,
        "I am demo/echo, a rule-based stand-in for a language model. You said: \"Hello\nthere\". I see 1 message of this conversation. For a real model, set the secret OPENAI_API_KEY or ANTHROPIC_API_KEY, or DEFAULT_MODEL."
    );
    let response = first.end.unwrap();
    assert_eq!((response.parts, response.finish), (vec![Part::text(first.text)], FinishReason::Stop));
    assert_eq!(response.usage.input_tokens, 3);
    let second = run(vec![user("Hello"), assistant(vec![Part::text("…")]), user("Again")]);
    assert!(second.text.contains("You said: \"Again\". Before that you said: \"Hello\". I see 3 messages"));
}

#[test]
fn calls_of_one_step() {
    let outcome =
        say("please\n/tool echo {\"text\":\"a\"}\n/tool now\n/tool echo {oops\n/think let me\n/say on it");
    assert_eq!((outcome.thinking.as_str(), outcome.text.as_str()), ("let me", "on it"));
    let response = outcome.end.unwrap();
    assert_eq!(response.finish, FinishReason::ToolCalls);
    let mut parts = response.parts.into_iter().skip(2);
    assert_eq!(parts.next(), Some(testkit::tool_call("call_1_0", "echo", json!({"text":"a"}))));
    assert_eq!(parts.next(), Some(testkit::tool_call("call_1_1", "now", json!({}))));
    let Some(Part::ToolCall(bad)) = parts.next() else { panic!("no third call") };
    assert_eq!((bad.args, bad.invalid.is_some()), (json!({"_raw":"{oops"}), true));
}

#[test]
fn steps_run_in_order_and_results_are_listed() {
    let script = "/tool echo {}\n/then /tool now\n/tool now\n/then all done";
    let step = |n: usize| {
        let mut messages = vec![user("before"), user(script)];
        for i in 0..n {
            messages.push(assistant(vec![testkit::tool_call(&format!("c{i}"), "echo", json!({}))]));
            messages.push(result(&format!("c{i}"), "echo", ok("hi")));
        }
        run(messages)
    };
    assert_eq!(step(0).end.unwrap().parts.len(), 1);
    assert_eq!(step(1).end.unwrap().parts.len(), 2);
    assert_eq!((step(2).text.as_str(), step(2).end.unwrap().finish), ("all done", FinishReason::Stop));
    assert_eq!(step(3).text, "echo → hi\necho → hi\necho → hi");

    let failed = run(vec![
        user("/tool x"),
        assistant(vec![]),
        result("c", "x", ToolOutcome::failure("y".repeat(600))),
    ]);
    assert_eq!(failed.text.chars().count(), "x → ".chars().count() + 501);
}

#[test]
fn a_step_without_calls_pauses_when_another_follows() {
    let script = user("/say a\n/say b\n/then /say c");
    let first = run(vec![script.clone()]);
    assert_eq!((first.text.as_str(), first.end.unwrap().finish), ("a\nb", FinishReason::Pause));
    let second = run(vec![script.clone(), assistant(vec![Part::text("a\nb")])]);
    assert_eq!((second.text.as_str(), second.end.unwrap().finish), ("c", FinishReason::Stop));
    let third = run(vec![script, assistant(vec![]), assistant(vec![])]);
    assert_eq!(third.text, "Done.");
    // A pause without output would make the harness repeat the request forever.
    assert_eq!(say("/say\n/then /say x").end.unwrap().finish, FinishReason::Stop);
}

#[test]
fn without_tools_the_reply_is_text() {
    let off = |script: &str, results: usize| {
        let mut messages = vec![user(script)];
        for i in 0..results {
            messages.push(assistant(vec![testkit::tool_call(&format!("c{i}"), "echo", json!({}))]));
            messages.push(result(&format!("c{i}"), "echo", ok("hi")));
        }
        let request = ModelRequest { messages, tools_off: true, ..ModelRequest::default() };
        let outcome = testkit::call(&Demo::new(Rc::new(FakeClock::default())), request);
        (outcome.text, outcome.end.unwrap().finish)
    };
    assert_eq!(off("/tool echo {}\n/then /tool echo {}", 1), ("echo → hi".into(), FinishReason::Stop));
    assert_eq!(off("/tool echo {}", 0), ("Done.".into(), FinishReason::Stop));
    assert_eq!(off("/say a\n/tool echo {}\n/then b", 0), ("a".into(), FinishReason::Stop));
}

#[test]
fn self_critique_and_grading_requests_get_scripted_responses() {
    let respond = |script: &str, tail: &str, system: &str| {
        let request = ModelRequest {
            messages: vec![user(script)],
            tail: tail.into(),
            system: system.into(),
            tools_off: true,
            ..ModelRequest::default()
        };
        testkit::call(&Demo::new(Rc::new(FakeClock::default())), request).text
    };
    let (back, grade) = ("Today.\n\nLook back at the last step before", "Answer with JSON {\"score\": 0..1}");
    assert!(respond("/tool echo {}", back, "").starts_with("CONTINUE"));
    assert_eq!(respond("/tool echo {}\n/reflect STOP here", back, ""), "STOP here");
    let score = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap()["score"].clone();
    assert_eq!(score(respond("User: hello", "", grade)), json!(1));
    assert_eq!(score(respond("User:\n/judge {\"score\": 0.25}", grade, "")), json!(0.25));
    assert_eq!(say("/reflect STOP\n/say x").text, "x");
    let (plan, repair) =
        ("Plan how to reach this goal in steps.\n", "The project's checks fail after the steps below.\n");
    let script = "\nFix it.\n/plan {\"steps\": []}\n/repair {}";
    assert_eq!(respond(&format!("{plan}{script}"), "", ""), "{\"steps\": []}");
    assert_eq!(respond(&format!("{repair}{script}"), "", ""), "{}");
    assert!(respond(plan, "", "").contains("\"note\"") && respond(repair, "", "").contains("cannot repair"));
}

#[test]
fn the_next_step_repairs_a_schema_violation() {
    let script = user("/say {}\n/then /say {\"a\":1}");
    let run = |messages: Vec<Rc<Message>>| {
        let tail = "It must conform to this JSON Schema: {}".into();
        let request = ModelRequest { messages, tail, ..ModelRequest::default() };
        let outcome = testkit::call(&Demo::new(Rc::new(FakeClock::default())), request);
        (outcome.text, outcome.end.unwrap().finish)
    };
    assert_eq!(run(vec![script.clone()]), ("{}".into(), FinishReason::Stop));
    let repaired = run(vec![script, assistant(vec![Part::text("{}")])]);
    assert_eq!(repaired, ("{\"a\":1}".into(), FinishReason::Stop));
}

#[test]
fn slow_words_are_delayed() {
    let clock = Rc::new(FakeClock::default());
    let request = ModelRequest { messages: vec![user("/say go\n/slow 40 3")], ..ModelRequest::default() };
    let outcome = testkit::call(&Demo::new(clock.clone()), request);
    assert_eq!(outcome.text, "go\nword1 word2 word3");
    assert_eq!(*clock.sleeps.borrow(), [Duration::from_millis(40); 3]);
    assert_eq!(say("/slow x").text, "/slow needs two numbers: /slow MS N");
}

#[test]
fn failures() {
    use ModelErrorKind::*;
    let table = [
        ("429", RateLimited),
        ("500", Unavailable),
        ("overflow", Overflow),
        ("cut", Cut),
        ("stall", Stalled),
        ("billing", Billing),
        ("auth", Auth),
        ("else", Invalid),
    ];
    for (word, kind) in table {
        assert_eq!(say(&format!("/fail {word}")).end.unwrap_err().kind, kind, "{word}");
    }
    assert_eq!(say("/fail cut").text, "This response is cut off in the ");
    assert_eq!(say("/say a b\n/fail cut").text, "a b");
}

#[test]
fn remember_and_recall_need_memory_tools() {
    let saved = say("Remember that I like tea").end.unwrap();
    assert_eq!(
        saved.parts,
        vec![testkit::tool_call("call_1_0", "memory_save", json!({"what":"I like tea"}))]
    );
    assert!(say("recall tea").text.contains("memory tools are not available"));
    assert!(say("recall").text.contains("demo/echo"));
}

#[test]
fn words_stream_one_by_one() {
    let events = timed_events(
        Step { actions: vec![Action::Say("a b c".into())], has_more: false },
        &ModelRequest::default(),
    );
    let words: Vec<_> = events.into_iter().map(|timed| timed.event).take(3).collect();
    assert_eq!(words, ["a ", "b ", "c"].map(|w| Ok(ModelEvent::Text(w.into()))));
}
