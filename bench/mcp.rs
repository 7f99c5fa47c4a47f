//! What the tools of MCP servers cost in each turn, compared with the same agent without them.

use crate::ROUNDS;
use crate::load::Sample;
use crate::report::Report;
use crate::support::{
    DEV_API_KEY, ModelServer,
    http::{Request, receive, respond},
};
use crate::target::{Exchange, Target, exchange};
use serde_json::{Map, Value, json};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Number of servers of the agent.
const SERVERS: usize = 3;
/// Number of tools of each server.
const TOOLS: usize = 20;
/// Number of turns per round. CPU time is measured in steps of 10 ms.
const TURNS: usize = 120;
/// Highest accepted ratio of CPU time to the agent without servers.
const GOAL: f64 = 1.1;
/// The agents, without and with servers.
const AGENTS: [&str; 2] = ["alone", "with-servers"];

/// Measures plain turns of one client with both agents, which take turns in each round. The lists of the tools are read in
/// the round that warms up.
pub fn all(model: &ModelServer, report: &mut Report) {
    eprintln!("turns of an agent with {SERVERS} MCP servers of {TOOLS} tools each");
    let asked = Arc::new(AtomicU64::new(0));
    let address = match serve(Arc::clone(&asked)) {
        Ok(address) => address,
        Err(error) => return report.note("ours", format!("the MCP servers did not start: {error}")),
    };
    let target = Target::with(model, &json!({ "MCP_ALLOW": address.to_string() }));
    let Some(server) = target.server() else { return };
    let of = |place: usize| (format!("s{place}"), json!({"url": format!("http://{address}/{place}")}));
    let servers: Map<String, Value> = (0..SERVERS).map(of).collect();
    for (agent, servers) in AGENTS.iter().zip([Map::new(), servers]) {
        server.client().put(&format!("/v1/agents/{agent}"), json!({ "mcp_servers": servers })).expect(201);
    }
    let mut samples = AGENTS.map(|_| Sample::default());
    let mut asked_before = 0;
    for round in 0..=ROUNDS {
        for (agent, sample) in AGENTS.iter().zip(&mut samples) {
            let mut warm_up = Sample::default();
            let sample = if round == 0 { &mut warm_up } else { sample };
            let run = |session: &str| {
                let turn = Exchange {
                    path: format!("/v1/sessions/{session}/messages?agent={agent}"),
                    body: json!({"content": "hello"}),
                    headers: Vec::new(),
                    first: "event: message.delta",
                    last: "event: turn.completed",
                };
                exchange(server.address(), DEV_API_KEY, &turn)
            };
            sample.add_with(&target, agent, 1, TURNS, &run);
        }
        if round == 0 {
            asked_before = asked.load(Ordering::Relaxed);
        }
    }
    for (agent, sample) in AGENTS.iter().zip(&samples) {
        if let Some(error) = sample.errors.first() {
            report.note("ours", format!("{agent}: {error}"));
        }
        report.value(&format!("CPU of a turn, agent {agent}"), sample.cpu_per_turn().median, "ms");
        report.value(&format!("first token, agent {agent}, p50"), sample.first(0.5), "ms");
    }
    if asked_before == 0 {
        report.note("ours", "the agent has not listed the tools of its servers".into());
    }
    let [alone, with_servers] = &samples;
    let ratio = with_servers.cpu_to(alone);
    report.goal("CPU of a turn, with MCP servers to without", ratio.median, GOAL);
    report.note("ours", format!("with MCP servers to without: {:.2} to {:.2}", ratio.low, ratio.high));
    let further = asked.load(Ordering::Relaxed) - asked_before;
    report.goal("requests to MCP servers in all of these turns", further as f64, 0.0);
}

/// Starts the servers, on the paths of one address. Counts the requests.
fn serve(asked: Arc<AtomicU64>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = Arc::clone(&asked);
            thread::spawn(move || {
                asked.fetch_add(1, Ordering::Relaxed);
                // A client that disconnects needs no answer.
                drop(answer(stream));
            });
        }
    });
    Ok(address)
}

fn answer(stream: TcpStream) -> io::Result<()> {
    let Request { body, mut stream, .. } = receive(stream)?;
    let request: Value = serde_json::from_slice(&body)?;
    let result = match request["method"].as_str() {
        Some("server/discover") => {
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        }
        Some("tools/list") => json!({"tools": (0..TOOLS).map(tool).collect::<Vec<_>>(), "ttlMs": 3_600_000}),
        _ => json!({}),
    };
    respond(&mut stream, 200, &[], &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// Returns a tool with a schema of usual size.
fn tool(number: usize) -> Value {
    json!({
        "name": format!("find_{number}"),
        "description": "Finds the records of a customer by name, region and status, the newest first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words of the name."},
                "region": {"type": "string", "enum": ["eu", "us", "apac"]},
                "status": {"type": "array", "items": {"type": "string"}},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            },
            "required": ["query"],
        },
    })
}
