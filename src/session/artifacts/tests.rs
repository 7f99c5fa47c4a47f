use super::*;
use crate::platform::in_memory::{ManualClock, MemoryBlobs, MemorySessionStore};
use crate::ports::{BlobResult, SessionStore};
use crate::session::{hub::Hub, window::Bounds};
use crate::types::{Owner, SessionMeta, SessionState, ToolOutcome, session::Background};
use async_trait::async_trait;
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: Timestamp = Timestamp(1_795_176_000_000);
const HOUR: Duration = Duration::from_hours(1);

struct Stage {
    store: Rc<MemorySessionStore>,
    session: Rc<Session>,
    blobs: Rc<MemoryBlobs>,
    clock: ManualClock,
    artifacts: Artifacts,
}

impl Stage {
    fn new() -> Self {
        let (store, blobs) = (Rc::new(MemorySessionStore::default()), Rc::new(MemoryBlobs::default()));
        let clock = ManualClock::at(NOW);
        let session = Session::create(store.clone(), state(), Bounds::messages(10), Hub::new(None));
        session.commit(NOW, |draft| draft.created(None)).expect("a store that works");
        let session = Rc::new(session);
        let artifacts = Artifacts::new(session.clone(), blobs.clone(), Rc::new(clock.clone()));
        Self { store, session, blobs, clock, artifacts }
    }

    /// Stores an output as a turn does; returns the outcome that the model reads.
    fn keep(&self, id: &str, result: Value) -> ToolOutcome {
        let outcome = ToolOutcome::Result { result };
        let (outcome, stored) = block_on(store_if_large(&self.artifacts, id.into(), outcome, HOUR));
        let drafted = |draft: &mut Draft| stored.into_iter().for_each(|s| s.draft(Some(&"t".into()), draft));
        self.session.commit(self.clock.now(), drafted).expect("a store that works");
        outcome
    }

    fn purge(&self) -> Option<Timestamp> {
        block_on(self.artifacts.purge()).expect("stores that work");
        self.artifacts.next_expiry().expect("a store that works")
    }

    fn objects(&self) -> Vec<String> {
        self.blobs.objects.borrow().keys().cloned().collect()
    }
}

fn state() -> SessionState {
    let owner = Owner { tenant: "t".into(), agent: "default".into(), user: "u".into() };
    let meta = SessionMeta::new("s".into(), owner, NOW);
    let background = Rc::new(Background { listed_at: NOW, ..Background::default() });
    SessionState { background, ..SessionState::new(meta) }
}

fn file(bytes: &'static [u8]) -> Content {
    Content { bytes: Bytes::from_static(bytes), mime_type: "image/png".into(), name: Some("a.png".into()) }
}

#[test]
fn only_large_outputs_become_artifacts() {
    let stage = Stage::new();
    // The limit counts characters, not bytes.
    let fits = "é".repeat(MAX_CHARS);
    assert_eq!(stage.keep("art_0", json!(fits)), ToolOutcome::Result { result: json!(fits) });
    assert_eq!(stage.objects(), Vec::<String>::new());

    let large = format!("{}\r\né", "é\n".repeat(MAX_CHARS / 2));
    let ToolOutcome::Artifact { result } = stage.keep("art_1", json!(large)) else { panic!("kept apart") };
    assert_eq!(
        (result.r#ref.as_str(), result.bytes, result.mime_type.as_str(), result.expires_at),
        ("art_1", large.len() as u64, "text/plain; charset=utf-8", Some(NOW + HOUR))
    );
    assert_eq!(result.preview, "é ".repeat(100));
    assert_eq!(stage.objects(), ["t/sessions/s/artifacts/art_1"]);
    let record: Value =
        serde_json::from_str(&stage.store.log().last().expect("a record").json).expect("JSON");
    assert_eq!(
        record,
        json!({"seq": 2, "at": NOW, "turn": "t", "type": "artifact.stored", "ref": "art_1",
            "bytes": large.len(), "mime_type": "text/plain; charset=utf-8", "expires_at": NOW + HOUR})
    );
    let pointer = stage.artifacts.find(&"art_1".into()).expect("it is there");
    let read = |range| block_on(stage.artifacts.read(&pointer, range));
    assert_eq!(read(None).expect("bytes"), large.as_bytes());
    assert_eq!(read(Some(1..7)).expect("bytes"), large.as_bytes()[1..7]);
    let past_end = pointer.bytes + 1;
    for range in [5..5, 0..past_end, past_end..past_end + 1] {
        assert_eq!(read(Some(range)), Err(ArtifactError::Range(pointer.bytes)));
    }
}

#[test]
fn structured_outputs_are_stored_as_json() {
    let stage = Stage::new();
    let list: Value = (0..5_000).collect();
    let ToolOutcome::Artifact { result } = stage.keep("art_1", list.clone()) else { panic!("kept apart") };
    assert_eq!(result.mime_type, "application/json");
    let pointer = stage.artifacts.find(&"art_1".into()).expect("it is there");
    let bytes = block_on(stage.artifacts.read(&pointer, None)).expect("bytes");
    assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON"), list);
}

#[test]
fn if_the_store_fails_or_hangs_the_output_is_truncated_with_a_note() {
    let stage = Stage::new();
    stage.blobs.down.set(true);
    let large = format!("{}éé", "a".repeat(MAX_CHARS));
    let cut = format!(
        "{}\n[2 of 12002 characters are left out: the output could not be stored]",
        "a".repeat(MAX_CHARS)
    );
    let expected = ToolOutcome::Result { result: json!(cut) };
    assert_eq!(stage.keep("art_1", json!(large)), expected);
    assert_eq!(stage.artifacts.find(&"art_1".into()), Err(ArtifactError::NotFound));

    let artifacts = Artifacts::new(stage.session.clone(), Rc::new(Hanging), Rc::new(stage.clock.clone()));
    let outcome = ToolOutcome::Result { result: json!(large) };
    let mut kept = Box::pin(store_if_large(&artifacts, "art_2".into(), outcome, HOUR));
    assert!(kept.as_mut().now_or_never().is_none());
    stage.clock.advance(STORE_TIMEOUT);
    let (outcome, stored) = kept.now_or_never().expect("an end of patience");
    assert_eq!((outcome, stored.is_none()), (expected, true));
}

#[test]
fn a_long_failure_reason_is_truncated_and_stays_a_failure() {
    let stage = Stage::new();
    let outcome = ToolOutcome::failure("x".repeat(MAX_CHARS + 5));
    let (outcome, stored) = block_on(store_if_large(&stage.artifacts, "art_1".into(), outcome, HOUR));
    let reason = format!("{}\n[5 of 12005 characters are left out: too long]", "x".repeat(MAX_CHARS));
    assert_eq!((outcome, stored.is_none()), (ToolOutcome::failure(reason), true));
}

#[test]
fn an_output_above_the_maximum_size_is_stored_truncated() {
    let stage = Stage::new();
    let huge: Value = (0..MAX_BYTES / 1_000).map(|_| "é".repeat(600)).collect();
    let ToolOutcome::Artifact { result } = stage.keep("art_1", huge) else { panic!("kept apart") };
    assert!(
        result.bytes as usize <= MAX_BYTES && result.bytes as usize > MAX_BYTES - 400,
        "{}",
        result.bytes
    );
    assert_eq!(result.mime_type, "text/plain; charset=utf-8");
    let pointer = stage.artifacts.find(&"art_1".into()).expect("it is there");
    let bytes = block_on(stage.artifacts.read(&pointer, None)).expect("bytes");
    assert!(
        std::str::from_utf8(&bytes).expect("text").ends_with("bytes are left out: too large to be kept]")
    );
}

#[test]
fn an_expired_artifact_reports_its_expiry_and_loses_its_bytes() {
    let stage = Stage::new();
    let large = json!("x".repeat(MAX_CHARS + 1));
    stage.keep("art_1", large.clone());
    stage.clock.advance(Duration::from_secs(1));
    // The same content again: the expiry of one artifact does not affect the other.
    stage.keep("art_2", large);
    assert_eq!(stage.purge(), Some(NOW + HOUR));
    stage.clock.advance(HOUR - Duration::from_millis(1_001));
    stage.artifacts.find(&"art_1".into()).expect("a millisecond is left");
    stage.clock.advance(Duration::from_millis(1));
    let expired = Err(ArtifactError::Expired(NOW + HOUR));
    assert_eq!(stage.artifacts.find(&"art_1".into()), expired);
    stage.blobs.down.set(true);
    assert!(block_on(stage.artifacts.purge()).is_err());
    stage.blobs.down.set(false);
    assert_eq!(stage.purge(), Some(NOW + HOUR + Duration::from_secs(1)));
    assert_eq!(stage.objects(), ["t/sessions/s/artifacts/art_2"]);
    assert_eq!(stage.artifacts.find(&"art_1".into()), expired);
    stage.artifacts.find(&"art_2".into()).expect("it is there");
    stage.clock.advance(Duration::from_secs(1));
    assert_eq!((stage.purge(), stage.objects()), (None, Vec::new()));
    assert_eq!(stage.store.list("artifact-expiry/").expect("a list"), Vec::new());
    assert_eq!(stage.store.list("artifact/").expect("a list").len(), 2);
}

#[test]
fn a_purge_is_bounded_and_the_next_one_continues() {
    let stage = Stage::new();
    let large = json!("x".repeat(MAX_CHARS + 1));
    (0..150).for_each(|n| drop(stage.keep(&format!("art_{n:03}"), large.clone())));
    stage.clock.advance(HOUR);
    assert_eq!((stage.purge(), stage.objects().len()), (Some(NOW + HOUR), 50));
    assert_eq!((stage.purge(), stage.objects().len()), (None, 0));
}

#[test]
fn attaching_again_under_the_same_id_returns_the_first_file() {
    let stage = Stage::new();
    let attach = |bytes| block_on(stage.artifacts.attach("art_1".into(), file(bytes)));
    let first = attach(b"\x89PNG").expect("stored");
    assert_eq!((first.bytes, first.expires_at, first.name.as_deref()), (4, None, Some("a.png")));
    assert_eq!(attach(b"\x89PNG").expect("the first"), first);
    assert_eq!(stage.store.log().iter().filter(|record| record.kind == "artifact.stored").count(), 1);
    stage.clock.advance(1_000 * HOUR);
    assert_eq!((stage.purge(), stage.artifacts.find(&"art_1".into())), (None, Ok(first)));
}

#[test]
fn a_file_whose_pointer_cannot_be_stored_leaves_no_bytes() {
    let stage = Stage::new();
    stage.session.retire();
    let refused = block_on(stage.artifacts.attach("art_1".into(), file(b"x")));
    assert!(matches!(refused, Err(ArtifactError::Store(_))), "{refused:?}");
    assert_eq!(stage.objects(), Vec::<String>::new());
}

/// A store that never responds.
struct Hanging;

#[async_trait(?Send)]
impl BlobStore for Hanging {
    async fn put(&self, _: &str, _: Bytes, _: &str) -> BlobResult<()> {
        std::future::pending().await
    }

    async fn get(&self, _: &str, _: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
        std::future::pending().await
    }

    async fn delete(&self, _: &[String]) -> BlobResult<()> {
        std::future::pending().await
    }

    async fn delete_prefix(&self, _: &str) -> BlobResult<()> {
        std::future::pending().await
    }
}
