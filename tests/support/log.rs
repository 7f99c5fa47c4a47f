//! Checks that hold for every session's log.

use super::{Client, Event};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the stored records of a session.
#[track_caller]
pub fn records(client: &Client, session: &str) -> Vec<Value> {
    lines(client, &format!("/v1/sessions/{session}/events"))
}

/// Returns the lines of an NDJSON response.
#[track_caller]
pub fn lines(client: &Client, path: &str) -> Vec<Value> {
    let answer = client.with_header("accept", "application/x-ndjson").get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns all messages of a session.
#[track_caller]
pub fn messages(client: &Client, session: &str) -> Vec<Value> {
    let (mut cursor, mut all) = (String::new(), Vec::new());
    loop {
        let page = client.get(&format!("/v1/sessions/{session}/messages?limit=200{cursor}")).expect(200);
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Posts a message without waiting. Returns the turn's id.
#[track_caller]
pub fn post_async(client: &Client, session: &str, content: &str) -> String {
    let path = format!("/v1/sessions/{session}/messages");
    let client = client.with_header("prefer", "respond-async");
    let receipt = client.post(&path, json!({ "content": content })).expect(202);
    receipt["turn_id"].as_str().unwrap().to_owned()
}

/// Reads the session's events until it is idle, which also starts a recovery if one is needed.
#[track_caller]
pub fn wait_idle(client: &Client, session: &str) -> Vec<Event> {
    let mut stream = client.stream(&format!("/v1/sessions/{session}/events?until=idle"));
    let events: Vec<Event> = stream.by_ref().collect();
    assert!(!stream.cut, "the stream was cut off");
    events
}

/// Returns the records of one type.
pub fn of_type<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["type"] == kind).collect()
}

/// Returns the text of a message.
pub fn text(message: &Value) -> String {
    let parts = message["parts"].as_array().unwrap();
    parts.iter().filter(|part| part["type"] == "text").map(|part| part["text"].as_str().unwrap()).collect()
}

/// Returns the texts of the user's messages, in order.
pub fn said_by_user(messages: &[Value]) -> Vec<String> {
    messages.iter().filter(|message| message["role"] == "user").map(text).collect()
}

/// Checks that sequence numbers are contiguous from 1, that every accepted turn has exactly one terminal
/// record and nothing after it, and that every call has exactly one outcome, in call order, before its turn's
/// end.
#[track_caller]
pub fn check(records: &[Value]) {
    let mut ended: BTreeMap<&str, bool> = BTreeMap::new();
    let mut calls: BTreeMap<&str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for (record, number) in records.iter().zip(1_u64..) {
        assert_eq!(record["seq"], number, "sequence numbers have a gap: {records:#?}");
        let (Some(turn), Some(kind)) = (record["turn"].as_str(), record["type"].as_str()) else { continue };
        // These records may follow the end of their turn.
        if matches!(kind, "tool.late_result" | "judge.completed" | "usage.other" | "turn.sub_step_failed") {
            continue;
        }
        assert_ne!(ended.get(turn), Some(&true), "record {number} follows the end of its turn");
        let end = matches!(kind, "turn.completed" | "turn.failed" | "turn.canceled");
        ended.insert(turn, end);
        let call = record["call_id"].as_str();
        let (asked, answered) = calls.entry(turn).or_default();
        match (kind, call) {
            ("tool.started", Some(call)) => asked.push(call),
            ("tool.completed", Some(call)) => answered.push(call),
            _ => {}
        }
        assert!(!end || asked == answered, "{turn} called {asked:?} and has outcomes for {answered:?}");
    }
    let open: Vec<_> = ended.iter().filter(|(_, ended)| !**ended).collect();
    assert!(open.is_empty(), "turns without an end: {open:?} in {records:#?}");
}

/// Checks that every call is followed by exactly one result, in call order, as clients and models see a
/// conversation. Each line is a pair of the calls it makes and the call whose result it is.
#[track_caller]
fn check_paired(lines: impl IntoIterator<Item = (Vec<String>, Option<String>)>, context: &Value) {
    let mut open: Vec<String> = Vec::new();
    for (calls, answers) in lines {
        match answers {
            Some(id) => {
                assert_eq!(open.first(), Some(&id), "a result without its call in {context:#}");
                open.remove(0);
            }
            None => {
                assert!(open.is_empty(), "calls {open:?} without a result in {context:#}");
                open = calls;
            }
        }
    }
    assert!(open.is_empty(), "calls {open:?} without a result in {context:#}");
}

/// Checks the response of `GET …/messages` with [`check_paired`].
#[track_caller]
pub fn check_messages(messages: &[Value]) {
    let ids = |message: &Value, kind: &str| -> Vec<String> {
        let parts = message["parts"].as_array().unwrap();
        let found = parts.iter().filter(|part| part["type"] == kind);
        found.map(|part| part["call_id"].as_str().unwrap().to_owned()).collect()
    };
    let lines = messages.iter().map(|m| (ids(m, "tool_call"), ids(m, "tool_result").pop()));
    check_paired(lines, &json!(messages));
}

/// Checks a request to an OpenAI-compatible provider with [`check_paired`].
#[track_caller]
pub fn check_request(request: &Value) {
    let lines = request["messages"].as_array().unwrap().iter().filter(|line| line["role"] != "system");
    let lines = lines.map(|line| {
        let calls = line["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
        (calls, line["tool_call_id"].as_str().map(str::to_owned))
    });
    check_paired(lines, request);
}

/// What a reader of the event stream has received: records, and text by the sequence number of its message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    pub records: Vec<Value>,
    pub texts: BTreeMap<u64, String>,
    pub last_id: Option<String>,
}

impl Transcript {
    /// Adds an event; panics if a record or a byte of text is missing or duplicate.
    #[track_caller]
    pub fn take(&mut self, event: &Event) {
        let data = event.json();
        let Some(id) = &event.id else {
            assert!(matches!(event.event.as_str(), "reasoning.delta" | "tool.input_delta"), "{event:?}");
            return;
        };
        assert_eq!(data["type"], event.event.as_str());
        match id.split_once('.') {
            None => {
                let number = self.records.len() as u64 + 1;
                assert_eq!(
                    (id, &data["seq"]),
                    (&number.to_string(), &json!(number)),
                    "after {:?}",
                    self.last_id
                );
                self.records.push(data);
            }
            Some((seq, offset)) => {
                assert_eq!(event.event, "message.delta");
                let seq: u64 = seq.parse().unwrap();
                assert_eq!(seq, self.records.len() as u64 + 1, "text of a message other than the next one");
                let text = self.texts.entry(seq).or_default();
                text.push_str(data["delta"].as_str().unwrap());
                assert_eq!(offset, text.len().to_string(), "missing or duplicate bytes: {event:?}");
            }
        }
        self.last_id = Some(id.clone());
    }

    /// Checks that the streamed text equals the text of the completed messages.
    #[track_caller]
    pub fn check(&self) {
        check(&self.records);
        let completed = of_type(&self.records, "message.completed").into_iter();
        let spoken: BTreeMap<u64, String> = completed
            .map(|record| (record["seq"].as_u64().unwrap(), text(&record["message"])))
            .filter(|(_, text)| !text.is_empty())
            .collect();
        assert_eq!(self.texts, spoken);
    }
}

/// Returns the transcript of these events, from the start of the log.
#[track_caller]
pub fn transcript<'a>(events: impl IntoIterator<Item = &'a Event>) -> Transcript {
    let mut transcript = Transcript::default();
    events.into_iter().for_each(|event| transcript.take(event));
    transcript
}

/// Reproducible random numbers. The seed is printed, and read from `SEED` if set.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or(u64::from(now.subsec_nanos()));
        eprintln!("chance: SEED={seed}");
        Self::seeded(seed)
    }

    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
