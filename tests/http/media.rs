//! Images, PDFs and audio: in messages, as providers receive them, and as tools generate them.

use crate::support::{Chat, PROVIDER_KEY, Script, World};
use base64::{Engine, prelude::BASE64_STANDARD};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The start of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const PDF: &[u8] = b"%PDF-1.7\n";

/// The shared server. Each test uses its own models.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

/// Uploads a file. Returns its part of a message.
#[track_caller]
fn file(chat: &Chat, name: &str, mime_type: &str, bytes: &[u8]) -> Value {
    let client = chat.client.with_header("content-type", mime_type);
    let stored = client.send("POST", &chat.path(&format!("/attachments?name={name}")), bytes).expect(201);
    json!({"type": "file", "ref": stored["ref"]})
}

/// Creates a session and uploads a picture to it.
#[track_caller]
fn with_picture(model: &str) -> (Chat, Value) {
    let chat = world().chat(model);
    let picture = file(&chat, "cat.png", "image/png", PNG);
    (chat, picture)
}

#[track_caller]
fn send(chat: &Chat, parts: Value) -> Value {
    chat.client.post(&chat.path("/messages"), json!({ "parts": parts })).expect(200)
}

/// Returns the blocks of the last user message in the last request to a model.
fn blocks(model: &str) -> Vec<Value> {
    let body = world().received(model).last().unwrap().body.clone();
    let messages = body["messages"].as_array().unwrap();
    let user = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
    user["content"].as_array().cloned().unwrap_or_else(|| vec![user["content"].clone()])
}

#[test]
fn images_and_pdfs_reach_the_model_on_each_wire() {
    let png = BASE64_STANDARD.encode(PNG);
    let pdf = BASE64_STANDARD.encode(PDF);
    let openai = [
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{png}")}}),
        json!({"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")}}),
    ];
    let source = |kind: &str, data: &str| json!({"type": "base64", "media_type": kind, "data": data});
    let anthropic = [
        json!({"type": "image", "source": source("image/png", &png)}),
        json!({"type": "document", "source": source("application/pdf", &pdf), "cache_control": {"type": "ephemeral"}}),
    ];
    for (id, expected) in [("openai/gpt-4o-media", openai), ("anthropic/claude-media", anthropic)] {
        let model = id.split_once('/').unwrap().1;
        let (chat, picture) = with_picture(id);
        let document = file(&chat, "a.pdf", "application/pdf", PDF);
        world().model.script(model, Script::text(["A cat."]));
        let answer = send(&chat, json!([{"type": "text", "text": "What is it?"}, picture, document]));
        assert_eq!(answer["reply"]["text"], "A cat.");
        let blocks = blocks(model);
        let contents: Vec<_> = blocks.iter().filter(|block| block["type"] != "text").collect();
        assert_eq!(contents, expected.iter().collect::<Vec<_>>());
        let texts: Vec<_> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        assert!(texts.iter().any(|text| text.starts_with("[file \"cat.png\", image/png")), "{texts:?}");

        // The model sees the files in later turns, too.
        world().model.script(model, Script::text(["Still a cat."]));
        chat.say("and now?");
        let body = world().received(model).last().unwrap().body.to_string();
        assert!(body.contains(&png) && body.contains(&pdf), "{body}");
        assert!(!chat.log_types().contains(&"turn.sub_step_failed".to_owned()));
    }
}

#[test]
fn audio_reaches_models_that_take_it() {
    let model = "gpt-4o-audio-media";
    let (chat, picture) = with_picture(&format!("openai/{model}"));
    let speech = file(&chat, "a.wav", "audio/x-wav", b"RIFF");
    world().model.script(model, Script::text(["Hello."]));
    send(&chat, json!([speech, picture]));
    let blocks = blocks(model);
    let heard = json!({"type": "input_audio", "input_audio": {"data": BASE64_STANDARD.encode(b"RIFF"), "format": "wav"}});
    assert!(blocks.contains(&heard), "{blocks:?}");
    assert!(blocks.iter().all(|block| block["type"] != "image_url"), "{blocks:?}");
}

#[test]
fn a_model_without_eyes_and_the_user_are_told() {
    let model = "text-only-media";
    let (chat, picture) = with_picture(&format!("openai/{model}"));
    world().model.script(model, Script::text(["I cannot see it."]));
    send(&chat, json!([{"type": "text", "text": "What is it?"}, picture]));
    let body = world().received(model).last().unwrap().body.to_string();
    assert!(body.contains("you cannot see its content: this model takes no images"), "{body}");
    let log = chat.log();
    let told = log.iter().find(|record| record["type"] == "turn.sub_step_failed").unwrap();
    assert_eq!(
        (&told["step"], &told["reason"]),
        (&json!("media"), &json!("the model got only the name of \"cat.png\": this model takes no images"))
    );
}

#[test]
fn a_file_that_the_provider_refuses_does_not_end_the_session() {
    for id in ["openai/gpt-4o-refuses", "anthropic/claude-refuses"] {
        let model = id.split_once('/').unwrap().1;
        let (chat, picture) = with_picture(id);
        let error = json!({"error": {"type": "invalid_request_error", "message": "Could not process image"}});
        world().model.script(model, Script::error(400, error));
        world().model.script(model, Script::text(["I could not open it."]));
        let answer = send(&chat, json!([picture]));
        assert_eq!(answer["reply"]["text"], "I could not open it.");
        let body = world().received(model).last().unwrap().body.to_string();
        assert!(!body.contains(&BASE64_STANDARD.encode(PNG)), "{body}");
        let log = chat.log();
        let told = log.iter().find(|record| record["type"] == "turn.sub_step_failed").unwrap();
        assert!(told["reason"].as_str().unwrap().contains("the provider has refused"), "{told}");
        assert!(!told.to_string().contains(PROVIDER_KEY));
    }
}

#[test]
fn large_files_are_left_out_and_newer_ones_come_first() {
    let model = "gpt-4o-large-media";
    let (chat, picture) = with_picture(&format!("openai/{model}"));
    let large = file(&chat, "large.png", "image/png", &vec![7; 3 << 20]);
    let larger = file(&chat, "larger.png", "image/png", &vec![8; 3 << 20]);
    world().model.script(model, Script::text(["Two."]));
    send(&chat, json!([large, picture, larger]));
    let blocks = blocks(model);
    let images = blocks.iter().filter(|block| block["type"] == "image_url").count();
    assert_eq!(images, 2);
    let left_out = blocks.iter().filter_map(|block| block["text"].as_str());
    let left_out: Vec<_> = left_out.filter(|text| text.contains("you cannot see")).collect();
    assert!(left_out.len() == 1 && left_out[0].contains("\"large.png\""), "{left_out:?}");
}

/// Starts a server with the tools for images and audio. Not shared: all sessions use the same models, so one test would
/// get what another has scripted.
fn generator() -> World {
    World::with(json!({
        "IMAGE_MODEL": "openai/painter",
        "TRANSCRIPTION_MODEL": "openai/listener",
        "SPEECH_MODEL": "openai/speaker",
        "MODEL_PRICES": r#"{"openai/painter": {"input": 0, "output": 10000}}"#,
        "MEDIA_PRICES": r#"{"openai/listener": {"minute": 0.5}, "openai/speaker": {"million_characters": 100000}}"#,
    }))
}

/// Makes the model call a tool. Returns the log of the turn.
#[track_caller]
fn call(world: &World, chat: &Chat, model: &str, tool: &str, args: Value) -> Vec<Value> {
    let before = chat.log().len();
    world.model.script(model, Script::new().tool("c1", tool, args));
    world.model.script(model, Script::text(["Done."]));
    chat.say("go");
    chat.log().split_off(before)
}

#[track_caller]
fn find<'a>(log: &'a [Value], kind: &str) -> &'a Value {
    log.iter().find(|record| record["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {log:?}"))
}

#[test]
fn tools_generate_images_and_speech_and_transcribe_recordings() {
    let model = "gpt-4o-generator";
    let world = generator();
    let chat = world.chat(&format!("openai/{model}"));
    let image = json!({"data": [{"b64_json": BASE64_STANDARD.encode(PNG)}],
        "usage": {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}});
    world.model.script("painter", Script::error(200, image.clone()));
    let log = call(&world, &chat, model, "generate_image", json!({"prompt": "a cat", "shape": "landscape"}));
    let file = &find(&log, "tool.completed")["result"]["file"];
    assert_eq!((&file["mime_type"], &file["name"]), (&json!("image/png"), &json!("image.png")));
    assert_eq!(find(&log, "artifact.stored")["ref"], file["ref"]);
    let other = find(&log, "usage.other");
    assert_eq!((&other["purpose"], &other["model"]), (&json!("generate_image"), &json!("openai/painter")));
    assert_eq!((&other["usage"]["total_tokens"], &other["cost_usd"]), (&json!(30), &json!(0.2)));
    let sent = world.received("painter").pop().unwrap();
    assert_eq!((&sent.body["prompt"], &sent.body["size"]), (&json!("a cat"), &json!("1536x1024")));
    let path = chat.path(&format!("/artifacts/{}", file["ref"].as_str().unwrap()));
    assert_eq!(chat.client.get(&path).body, PNG);

    world.model.script("painter", Script::error(200, image));
    let log = call(&world, &chat, model, "edit_image", json!({"ref": file["ref"], "prompt": "a dog"}));
    assert_ne!(find(&log, "tool.completed")["result"]["file"]["ref"], file["ref"]);

    let speech = chat.client.with_header("content-type", "audio/wav");
    let speech = speech.send("POST", &chat.path("/attachments?name=a.wav"), b"RIFF").expect(201);
    let said = json!({"text": "Tea at five.", "usage": {"type": "duration", "seconds": 90}});
    world.model.script("listener", Script::error(200, said));
    let log = call(&world, &chat, model, "transcribe", json!({"ref": speech["ref"]}));
    assert_eq!(find(&log, "tool.completed")["result"]["untrusted_text"], "Tea at five.");
    assert_eq!(find(&log, "usage.other")["cost_usd"], 0.75);

    world.model.script("speaker", Script::error(200, json!("sound")));
    let log = call(&world, &chat, model, "speak", json!({"text": "Hello."}));
    assert_eq!(find(&log, "tool.completed")["result"]["file"]["mime_type"], "audio/mpeg");
    assert_eq!(find(&log, "usage.other")["cost_usd"], 0.6);
}

#[test]
fn the_model_reads_our_words_about_a_failed_provider_and_a_wrong_file() {
    let model = "gpt-4o-unlucky";
    let world = generator();
    let chat = world.chat(&format!("openai/{model}"));
    let error = json!({"error": {"type": "server_error", "message": "account 42 is broken"}});
    world.model.script("painter", Script::error(500, error));
    let log = call(&world, &chat, model, "generate_image", json!({"prompt": "a cat"}));
    let outcome = find(&log, "tool.completed");
    assert_eq!(outcome["outcome"], "failure");
    assert!(!outcome.to_string().contains("account 42"), "{outcome}");
    let note = file(&chat, "a.txt", "text/plain", b"x");
    let log = call(&world, &chat, model, "transcribe", json!({"ref": note["ref"]}));
    let reason = find(&log, "tool.completed")["reason"].as_str().unwrap().to_owned();
    assert!(reason.ends_with("is text/plain, not audio/…"), "{reason}");
}
