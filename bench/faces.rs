//! What a turn costs in the protocols of other servers, compared with the native stream.

use crate::load::Sample;
use crate::report::Report;
use crate::support::{DEV_API_KEY, ModelServer};
use crate::target::{Exchange, Target, exchange};
use serde_json::json;

/// Number of rounds: more than for other parts, because the differences are smaller than those between two rounds.
const ROUNDS: usize = 15;
/// Number of turns per round. CPU time is measured in steps of 10 ms.
const TURNS: usize = 120;
/// Highest accepted ratio of CPU time to the native stream.
const GOAL: f64 = 1.1;

/// The version of MCP whose requests name everything that they need.
const MCP_VERSION: &str = "2026-07-28";

/// A protocol: its name, and a turn in a session.
type Face = (&'static str, fn(&str) -> Exchange);

const FACES: [Face; 7] = [
    ("native", |session| Exchange {
        path: format!("/v1/sessions/{session}/messages"),
        body: json!({"content": "hello"}),
        headers: Vec::new(),
        first: "event: message.delta",
        last: "event: turn.completed",
    }),
    ("chat completions", |session| Exchange {
        path: "/v1/chat/completions".into(),
        body: json!({"model": "default", "stream": true, "messages": [{"role": "user", "content": "hello"}]}),
        headers: vec![("x-session-id", session.into())],
        first: "token",
        last: "data: [DONE]",
    }),
    ("responses", |session| Exchange {
        path: "/v1/responses".into(),
        body: json!({"model": "default", "stream": true, "input": "hello", "conversation": session}),
        headers: Vec::new(),
        first: "response.output_text.delta",
        last: "event: response.completed",
    }),
    ("AI SDK", |session| Exchange {
        path: "/api/chat".into(),
        body: json!({"id": session, "message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}),
        headers: Vec::new(),
        first: "text-delta",
        last: "data: [DONE]",
    }),
    ("AG-UI", |session| Exchange {
        path: "/ag-ui".into(),
        body: json!({"threadId": session, "runId": "r", "messages": [{"role": "user", "content": "hello"}]}),
        headers: Vec::new(),
        first: "TEXT_MESSAGE_CONTENT",
        last: "RUN_FINISHED",
    }),
    ("MCP", |session| Exchange {
        path: "/mcp".into(),
        body: json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "ask_agent", "arguments": {"message": "hello", "session": session},
            "_meta": {
                "progressToken": 1,
                "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }}),
        headers: vec![
            ("mcp-protocol-version", MCP_VERSION.into()),
            ("mcp-method", "tools/call".into()),
            ("mcp-name", "ask_agent".into()),
        ],
        first: "notifications/progress",
        last: "structuredContent",
    }),
    ("A2A", |session| Exchange {
        path: "/a2a".into(),
        body: json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": {
            "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{"text": "hello"}],
        }}}),
        headers: vec![("a2a-version", "1.0".into())],
        first: "artifactUpdate",
        last: "TASK_STATE_COMPLETED",
    }),
];

/// Measures plain turns of one client in each protocol, which take turns in each round.
pub fn all(model: &ModelServer, report: &mut Report) {
    eprintln!("turns in {} protocols", FACES.len());
    let target = Target::ours(model);
    let Some(server) = target.server() else { return };
    let mut samples = FACES.map(|_| Sample::default());
    for round in 0..=ROUNDS {
        // Each round begins with another protocol, because a sample may pay for garbage of the one before.
        for index in (0..FACES.len()).map(|place| (place + round) % FACES.len()) {
            let ((name, asked), mut warm_up) = (&FACES[index], Sample::default());
            let sample = if round == 0 { &mut warm_up } else { &mut samples[index] };
            let run = |session: &str| exchange(server.address(), DEV_API_KEY, &asked(session));
            sample.add_with(&target, &name.replace(' ', "-"), 1, TURNS, &run);
        }
    }
    let native = &samples[0];
    for ((name, _), sample) in FACES.iter().zip(&samples) {
        if let Some(error) = sample.errors.first() {
            report.note("ours", format!("{name}: {error}"));
        }
        report.value(&format!("CPU of a turn, {name}"), sample.cpu_per_turn().median, "ms");
        report.value(&format!("first token, {name}, p50"), sample.first(0.5), "ms");
        let ratio = sample.cpu_to(native);
        report.goal(&format!("CPU of a turn, {name} to native"), ratio.median, GOAL);
        report.note("ours", format!("{name} to native: {:.2} to {:.2}", ratio.low, ratio.high));
    }
}
