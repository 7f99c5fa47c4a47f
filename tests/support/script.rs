//! Scripted model responses, independent of the wire format.

use super::PATIENCE;
use serde_json::{Value, json};
use std::{
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// One response of a model, built step by step:
/// `Script::text(["Hel", "lo"])`, `Script::new().tool("call_1", "read_file", json!({...}))`.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// The complete body of an error.
    pub(super) body: Option<Value>,
    pub(super) steps: Vec<Step>,
    pub(super) finish: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) crlf: bool,
    pub(super) byte_by_byte: bool,
    tools: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Text(String),
    Reasoning(String),
    Tool { index: usize, id: String, name: String },
    Arguments { index: usize, piece: String },
    Hold(Gate),
    Pause(Duration),
    Error(Value),
    Raw(String),
    Cut,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
}

impl Script {
    /// Creates an empty response.
    pub fn new() -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            body: None,
            steps: Vec::new(),
            finish: None,
            usage: Some(Usage { input: 10, output: 5, cached: 0 }),
            crlf: false,
            byte_by_byte: false,
            tools: 0,
        }
    }

    /// Creates a response of these pieces, each sent separately.
    pub fn text<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Self {
        pieces.into_iter().fold(Self::new(), Self::say)
    }

    /// Creates an error response with this status and body.
    pub fn error(status: u16, body: Value) -> Self {
        Self { status, body: Some(body), ..Self::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a piece of text.
    pub fn say(self, piece: &str) -> Self {
        self.step(Step::Text(piece.into()))
    }

    /// Adds a piece of reasoning.
    pub fn think(self, piece: &str) -> Self {
        self.step(Step::Reasoning(piece.into()))
    }

    /// Adds a tool call, with its arguments in pieces.
    pub fn tool(self, id: &str, name: &str, arguments: Value) -> Self {
        self.tools([(id, name, arguments)])
    }

    /// Adds parallel tool calls, with their pieces interleaved.
    pub fn tools<'a>(mut self, calls: impl IntoIterator<Item = (&'a str, &'a str, Value)>) -> Self {
        let mut rests = Vec::new();
        for (id, name, arguments) in calls {
            let index = self.tools;
            self.tools += 1;
            self.steps.push(Step::Tool { index, id: id.into(), name: name.into() });
            // The pieces are short, so that escapes and multi-byte characters are split as well.
            let text: Vec<char> = arguments.to_string().chars().collect();
            rests.push((index, text.chunks(7).map(String::from_iter).collect::<Vec<_>>()));
        }
        let longest = rests.iter().map(|(_, pieces)| pieces.len()).max().unwrap_or(0);
        for at in 0..longest {
            for (index, pieces) in &rests {
                if let Some(piece) = pieces.get(at) {
                    self.steps.push(Step::Arguments { index: *index, piece: piece.clone() });
                }
            }
        }
        self
    }

    /// Adds a tool call whose arguments are this text, JSON or not.
    pub fn tool_text(mut self, id: &str, name: &str, arguments: &str) -> Self {
        let index = self.tools;
        self.tools += 1;
        self.step(Step::Tool { index, id: id.into(), name: name.into() })
            .step(Step::Arguments { index, piece: arguments.into() })
    }

    /// Pauses until the gate opens. A gate that never opens simulates a stall.
    pub fn hold(self, gate: &Gate) -> Self {
        self.step(Step::Hold(gate.clone()))
    }

    /// Pauses for a time. For measurements; tests use [`Script::hold`].
    pub fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }

    /// Ends the stream with an error event. `body` is the wire's error object.
    pub fn error_event(self, body: Value) -> Self {
        self.step(Step::Error(body))
    }

    /// Breaks the connection.
    pub fn cut(self) -> Self {
        self.step(Step::Cut)
    }

    /// Adds raw bytes, such as a comment or an unknown event.
    pub fn raw(self, bytes: &str) -> Self {
        self.step(Step::Raw(bytes.into()))
    }

    /// Sets the finish or stop reason in the wire's own terms.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.into());
        self
    }

    /// Sets the token counts: all input including cached, cached input, and output.
    pub fn usage(mut self, input: u64, cached: u64, output: u64) -> Self {
        self.usage = Some(Usage { input, output, cached });
        self
    }

    pub fn no_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Ends lines with CR LF.
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Sends every byte separately.
    pub fn byte_by_byte(mut self) -> Self {
        self.byte_by_byte = true;
        self
    }

    pub(super) fn has_tools(&self) -> bool {
        self.tools > 0
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

/// Error bodies of real providers.
impl Script {
    pub fn rate_limited(retry_after_s: u32) -> Self {
        let error =
            json!({"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"});
        Self::error(429, json!({ "error": error })).header("retry-after", &retry_after_s.to_string())
    }

    pub fn overflow() -> Self {
        let message = "This model's maximum context length is 8192 tokens.";
        let error =
            json!({"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"});
        Self::error(400, json!({ "error": error }))
    }
}

/// Pauses a script until the test opens the gate, and lets the test wait for the script to get there.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    /// Number of scripts that have reached the gate.
    reached: usize,
    open: bool,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    /// Waits until a script has reached the gate.
    #[track_caller]
    pub fn reached(&self) {
        self.reached_by(1);
    }

    /// Waits until this many scripts have reached the gate.
    #[track_caller]
    pub fn reached_by(&self, scripts: usize) {
        let state = self.0.0.lock().unwrap();
        let (state, _) =
            self.0.1.wait_timeout_while(state, PATIENCE, |state| state.reached < scripts).unwrap();
        assert!(state.reached >= scripts, "{} of {scripts} scripts reached the gate", state.reached);
    }

    /// Waits for the gate. Returns `false` if `gone` reports that the client has disconnected.
    pub(super) fn pass(&self, gone: impl Fn() -> bool) -> bool {
        let mut state = self.0.0.lock().unwrap();
        state.reached += 1;
        self.0.1.notify_all();
        let deadline = Instant::now() + 10 * PATIENCE;
        while !state.open {
            if gone() || Instant::now() > deadline {
                return false;
            }
            state = self.0.1.wait_timeout(state, Duration::from_millis(10)).unwrap().0;
        }
        true
    }
}
