#![allow(clippy::unwrap_used)]

use super::*;
use crate::{model::testkit::FakeClock, platform::in_memory::ScriptedHttp};
use futures::FutureExt;
use pretty_assertions::assert_eq;

fn media(status: u16, response: impl Into<Bytes>) -> (MediaApi, Rc<ScriptedHttp>) {
    let http = Rc::new(ScriptedHttp::default());
    http.respond(status, response);
    let endpoint = Endpoint { base_url: "https://host/v1/".into(), key: Some("sk-secret".into()) };
    let errors = ErrorFormatter { provider: "openai".into(), key: Some("sk-secret".into()) };
    (MediaApi { endpoint, http: http.clone(), clock: Rc::<FakeClock>::default(), errors }, http)
}

fn image(original: Option<MediaFile>) -> ImageRequest {
    ImageRequest {
        model: "gpt-image-1".into(),
        prompt: "a cat".into(),
        size: Some("1024x1024".into()),
        original,
    }
}

#[test]
fn an_image_is_generated() {
    let usage = r#"{"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}"#;
    let (media, http) = media(
        200,
        format!(r#"{{"data": [{{"b64_json": "eA=="}}], "output_format": "webp", "usage": {usage}}}"#),
    );
    let response = media.image(image(None)).now_or_never().unwrap().unwrap();
    assert_eq!(
        response.result,
        GeneratedFile { mime_type: "image/webp".into(), bytes: Bytes::from_static(b"x") }
    );
    assert_eq!((response.usage.input_tokens, response.usage.total_tokens), (5, 12));
    let sent = &http.requests()[0];
    assert_eq!(sent.url, "https://host/v1/images/generations");
    assert!(sent.headers.contains(&("authorization".into(), "Bearer sk-secret".into())));
    let body: Value = serde_json::from_slice(sent.body.as_ref().unwrap()).unwrap();
    assert_eq!(body, json!({"model": "gpt-image-1", "prompt": "a cat", "n": 1, "size": "1024x1024"}));
}

#[test]
fn an_image_is_edited_with_a_form_that_names_cannot_alter() {
    let (media, http) = media(200, r#"{"data": [{"b64_json": "eA=="}]}"#);
    let name = "a\"\r\nx-evil: 1.png".to_owned();
    let original = MediaFile { name, mime_type: "image/png\r\n".into(), bytes: Bytes::from_static(b"old") };
    media.image(image(Some(original))).now_or_never().unwrap().unwrap();
    let sent = &http.requests()[0];
    assert_eq!(sent.url, "https://host/v1/images/edits");
    let kind = &sent.headers.iter().find(|(name, _)| name == "content-type").unwrap().1;
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let body = String::from_utf8(sent.body.clone().unwrap().to_vec()).unwrap();
    let fields: Vec<_> = body.split(&format!("--{boundary}\r\n")).skip(1).collect();
    assert_eq!(fields.len(), 4);
    let file =
        "content-disposition: form-data; name=\"image\"; filename=\"axevil1.png\"\r\ncontent-type: image/png";
    assert!(fields[2].replace('-', "").starts_with(&file.replace('-', "")), "{}", fields[2]);
    assert!(body.ends_with(&format!("--{boundary}--\r\n")));
}

#[test]
fn a_recording_is_transcribed_and_its_duration_counted() {
    let (media, http) = media(200, r#"{"text": "Hello.", "usage": {"type": "duration", "seconds": 90}}"#);
    let recording =
        MediaFile { name: "a.wav".into(), mime_type: "audio/wav".into(), bytes: Bytes::from_static(b"RIFF") };
    let response = media.transcribe("whisper-1", recording, Some("en")).now_or_never().unwrap().unwrap();
    assert_eq!(
        response,
        MediaResponse { result: "Hello.".into(), usage: Usage::default(), seconds: Some(90.0) }
    );
    let body = String::from_utf8(http.requests()[0].body.clone().unwrap().to_vec()).unwrap();
    assert!(body.contains("name=\"language\"\r\n\r\nen\r\n"), "{body}");
}

#[test]
fn a_text_is_spoken() {
    let (media, http) = media(200, "mp3");
    let request = SpeechRequest { model: "tts-1".into(), text: "Hello.".into(), voice: None };
    let response = media.speak(request).now_or_never().unwrap().unwrap();
    assert_eq!(
        response.result,
        GeneratedFile { mime_type: "audio/mpeg".into(), bytes: Bytes::from_static(b"mp3") }
    );
    let body: Value = serde_json::from_slice(http.requests()[0].body.as_ref().unwrap()).unwrap();
    assert_eq!(body["voice"], "alloy");
}

#[test]
fn errors_are_classified_and_keys_redacted() {
    let error = r#"{"error": {"code": "invalid_api_key", "message": "bad key sk-secret"}}"#;
    let (media, _) = media(401, error);
    let error = media.image(image(None)).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Auth);
    assert!(!error.for_log().contains("sk-secret"), "{}", error.for_log());
    let (other, _) = self::media(200, r#"{"data": []}"#);
    let error = other.image(image(None)).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.message, "openai: returned a malformed response");
}
