//! Responses of a model that are not a plain answer, and errors of providers as users see them.

use crate::support::{Chat, Script, World, log, log::of_type, outcomes, tail_text};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The shared server. Each test uses its own models.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::with(json!({"MEMORY_FLUSH": "never"})))
}

/// Creates a session whose model gives these responses.
fn chat_of(model: &str, answers: impl IntoIterator<Item = Script>) -> Chat {
    let chat = world().chat(&format!("openai/{model}"));
    answers.into_iter().for_each(|answer| world().model.script(model, answer));
    chat
}

fn ended(answer: &Value) -> Value {
    json!([answer["status"], answer["stop_reason"], answer["reply"]["text"]])
}

#[test]
fn an_incomplete_response_says_so() {
    for (finish, reason, instead) in [
        ("length", "length", "My answer was cut off before its first word"),
        ("content_filter", "content_filter", "The model's provider withheld the answer."),
    ] {
        let model = format!("half-{reason}");
        let chat = chat_of(&model, [Script::text(["Half of"]).finish(finish)]);
        let answer = chat.say("go");
        assert_eq!(ended(&answer), json!(["completed", reason, "Half of"]));
        assert_eq!(chat.turn(&answer)["stop_reason"], reason);
        assert_eq!(of_type(&chat.log(), "turn.completed")[0]["stop_reason"], reason);

        // A call may be cut off in its arguments even if they are valid JSON, so it never runs.
        let call = Script::new().tool("c", "echo", json!({"text": "x"})).finish(finish);
        world().model.script(&model, call);
        let answer = chat.say("call");
        assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!(reason)));
        assert!(answer["reply"]["text"].as_str().unwrap().starts_with(instead), "{answer}");
        assert_eq!(outcomes(&chat.turn(&answer)), Vec::<String>::new());
        world().model.script(&model, Script::text(["Whole."]));
        assert_eq!(ended(&chat.say("again")), json!(["completed", "end", "Whole."]));
        log::check(&chat.log());
    }
}

#[test]
fn an_empty_response_is_repeated() {
    let empty = || Script::new().think("Hm.").usage(10, 0, 5);
    let chat = chat_of("empty", [empty(), Script::text([" \n"]), Script::text(["At last."])]);
    let answer = chat.say("go");
    assert_eq!(ended(&answer), json!(["completed", "end", "At last."]));
    let reminded = world()
        .received("empty")
        .iter()
        .map(|request| tail_text(request).contains("no text"))
        .collect::<Vec<_>>();
    assert_eq!(reminded, [false, true, true]);
    assert_eq!(chat.transcript(), ["user: go", "assistant: At last."]);
    log::check(&chat.log());

    // Two reminders at most.
    (0..3).for_each(|_| world().model.script("empty", empty()));
    let answer = chat.say("and?");
    assert_eq!((&answer["status"], &answer["error"]["code"]), (&json!("failed"), &json!("empty_answer")));
    assert_eq!(chat.turn(&answer)["usage"]["total_tokens"], 45);
    world().model.script("empty", Script::text(["Fine."]));
    assert_eq!(ended(&chat.say("now?")), json!(["completed", "end", "Fine."]));
}

#[test]
fn the_words_of_a_provider_reach_the_operator_only() {
    let said = "Incorrect API key provided: sk-other. You asked about ferrets.";
    let refused =
        json!({"error": {"message": said, "type": "authentication_error", "code": "invalid_api_key"}});
    let chat = chat_of("words", [Script::error(401, refused)]);
    let answer = chat.say("go");
    let error = &answer["error"];
    assert_eq!(error["code"], "provider_auth");
    assert_eq!(
        error["message"],
        "openai returned 401: the server's key was refused; the operator has to check it"
    );
    assert!(!json!(chat.log()).to_string().contains("ferrets"));
    assert!(!chat.turn(&answer).to_string().contains("ferrets"));
    world().server.expect_log("ferrets");
}
