//! A conversation with one session, with its Worker and model server.

use super::{Client, ModelServer, Received, Response, Server, Sse};
use serde_json::{Value, json};

/// The key that the Worker sends to the model server.
pub const PROVIDER_KEY: &str = "sk-the-provider-key-of-the-tests";

/// A Worker and a scripted model server that serves its `openai/…` and `anthropic/…` models.
pub struct World {
    pub server: Server,
    pub model: ModelServer,
}

impl World {
    /// Starts a world in which only turns call models.
    pub fn start() -> Self {
        Self::with(json!({ "MEMORY_FLUSH": "never" }))
    }

    /// Starts a world with additional variables.
    pub fn with(more: Value) -> Self {
        let model = ModelServer::start();
        let mut bindings = json!({
            "OPENAI_API_KEY": PROVIDER_KEY, "OPENAI_BASE_URL": model.base_url(),
            "ANTHROPIC_API_KEY": PROVIDER_KEY, "ANTHROPIC_BASE_URL": model.base_url(),
            "DEFAULT_MODEL": "openai/m",
        });
        for (name, value) in more.as_object().expect("an object of bindings") {
            bindings[name] = value.clone();
        }
        Self { server: Server::start(bindings), model }
    }

    /// Creates a session with this model, such as `openai/m`. Tests that share a world must use distinct
    /// models.
    #[track_caller]
    pub fn chat(&self, model: &str) -> Chat {
        let client = self.server.client();
        let session = client.post("/v1/sessions", json!({ "model": model })).expect(201);
        Chat::new(client, session["id"].as_str().unwrap())
    }

    /// Returns the requests for this model, named without its provider.
    pub fn received(&self, model: &str) -> Vec<Received> {
        self.model.received().into_iter().filter(|r| r.model() == model).collect()
    }

    /// Waits until the Worker has closed the connection of this model's first request.
    #[track_caller]
    pub fn wait_for_abort(&self, model: &str) {
        let index = self.model.received().iter().position(|r| r.model() == model);
        self.model.wait_for_abort(index.expect("a request for this model"));
    }
}

/// One session with a client.
#[derive(Clone)]
pub struct Chat {
    pub client: Client,
    pub id: String,
}

impl Chat {
    pub fn new(client: Client, id: &str) -> Self {
        Self { client, id: id.to_owned() }
    }

    /// Returns a path below the session, such as `/messages`.
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    /// Posts a message and waits for the reply.
    #[track_caller]
    pub fn ask(&self, body: Value) -> Value {
        self.post("/messages", body).expect(200)
    }

    #[track_caller]
    pub fn say(&self, content: &str) -> Value {
        self.ask(json!({ "content": content }))
    }

    /// Posts a message and streams its turn.
    #[track_caller]
    pub fn stream(&self, body: Value) -> Sse {
        self.client.post_stream(&self.path("/messages"), body)
    }

    /// Posts a message without waiting. Returns the turn's id.
    #[track_caller]
    pub fn begin(&self, body: Value) -> String {
        let client = self.client.with_header("prefer", "respond-async");
        let receipt = client.post(&self.path("/messages"), body).expect(202);
        receipt["turn_id"].as_str().expect("a turn").to_owned()
    }

    #[track_caller]
    pub fn post(&self, rest: &str, body: Value) -> Response {
        self.client.post(&self.path(rest), body)
    }

    #[track_caller]
    pub fn get(&self, rest: &str) -> Value {
        self.client.get(&self.path(rest)).expect(200)
    }

    /// Returns the turn of this reply.
    #[track_caller]
    pub fn turn(&self, answer: &Value) -> Value {
        self.get(&format!("/turns/{}", answer["turn_id"].as_str().expect("a turn")))
    }

    /// Waits until a record of this type is stored. Returns the first one.
    #[track_caller]
    pub fn until_logged(&self, kind: &str) -> Value {
        let mut events = self.client.stream(&self.path("/events"));
        events.until_type(kind).pop().expect("the last one").json()
    }

    /// Waits until no turn is running or queued.
    #[track_caller]
    pub fn until_idle(&self) {
        let mut events = self.client.stream(&self.path("/events?until=idle"));
        events.by_ref().for_each(drop);
        assert!(!events.cut);
    }

    /// Returns the stored records, oldest first.
    #[track_caller]
    pub fn log(&self) -> Vec<Value> {
        let client = self.client.with_header("accept", "application/x-ndjson");
        let answer = client.get(&self.path("/events"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the types of the stored records, and checks that the sequence numbers are contiguous from 1.
    #[track_caller]
    pub fn log_types(&self) -> Vec<String> {
        let log = self.log();
        let numbers: Vec<_> = log.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
        log.iter().map(|record| record["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the messages as `role: text`, with tool results as `tool call_id: outcome`.
    #[track_caller]
    pub fn transcript(&self) -> Vec<String> {
        let messages = self.get("/messages?limit=200");
        messages["data"].as_array().unwrap().iter().map(line).collect()
    }
}

/// Returns the outcomes of a turn's calls: `c1 result`, or `c2 denied duplicate`.
pub fn outcomes(turn: &Value) -> Vec<String> {
    let calls = turn["calls"].as_array().expect("a turn's calls").iter();
    let line = |call: &Value| {
        let words = ["call_id", "outcome", "denied"].map(|field| call[field].as_str());
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    calls.map(line).collect()
}

/// Returns the result of a call as sent to an OpenAI-compatible provider.
#[track_caller]
pub fn result_text(request: &Received, call_id: &str) -> String {
    let messages = request.body["messages"].as_array().expect("messages");
    let line = messages.iter().find(|line| line["tool_call_id"] == call_id).expect("the call's result");
    line["content"].as_str().expect("text").to_owned()
}

/// Returns the system text sent to an OpenAI-compatible provider.
pub fn system_text(request: &Received) -> String {
    let messages = request.body["messages"].as_array().expect("messages").iter();
    let system = messages.filter(|line| line["role"] == "system").map(|line| line["content"].as_str());
    system.flatten().collect::<Vec<_>>().join("\n")
}

/// Parses a time as milliseconds since 1970.
#[track_caller]
pub fn millis(at: &Value) -> i64 {
    let text = at.as_str().unwrap_or_else(|| panic!("not a time: {at}"));
    chrono::DateTime::parse_from_rfc3339(text).expect("a time").timestamp_millis()
}

fn line(message: &Value) -> String {
    let role = message["role"].as_str().unwrap();
    let part = |part: &Value| match part["type"].as_str().unwrap() {
        "text" => part["text"].as_str().unwrap().to_owned(),
        "tool_call" => format!("[{}]", part["call_id"].as_str().unwrap()),
        "tool_result" => {
            format!("{}={}", part["call_id"].as_str().unwrap(), part["outcome"].as_str().unwrap())
        }
        other => format!("<{other}>"),
    };
    let parts: Vec<String> = message["parts"].as_array().unwrap().iter().map(part).collect();
    format!("{role}: {}", parts.join(" "))
}

/// Returns the last message of a request, from the user or the harness.
#[track_caller]
pub fn tail_text(request: &Received) -> String {
    let last = request.body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "user", "{last}");
    last["content"].to_string()
}
