//! A flood of one tenant, and what another tenant notices of it.

use crate::load::percentile;
use crate::report::Report;
use crate::support::{ADMIN_KEY, ModelServer, http};
use crate::target::{PACED, Target};
use serde_json::{Value, json};
use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Number of connections of the flood.
const CONNECTIONS: usize = 500;
/// How long the flood lasts.
const FLOOD: Duration = Duration::from_mins(1);
/// How long the other tenant is measured before the flood.
const QUIET: Duration = Duration::from_secs(30);
/// Highest accepted ratio of the times to the first token, 95th percentile.
const GOAL: f64 = 2.0;

/// The responses to the requests of the flood, by status.
#[derive(Default)]
struct Responses {
    accepted: AtomicUsize,
    refused: AtomicUsize,
    failed: AtomicUsize,
}

/// Measures the first token of a tenant alone, and while another tenant floods the server from [`CONNECTIONS`]
/// connections. Each waits as long as `retry-after` says, as client libraries do.
pub fn all(model: &ModelServer, report: &mut Report) {
    eprintln!("a flood of {CONNECTIONS} connections");
    let ours = Target::with(model, &json!({ "ADMIN_KEY": ADMIN_KEY }));
    let Some(server) = ours.server() else { return };
    let key = |id: &str, limits: Value| {
        let admin = server.admin();
        admin.post("/v1/admin/tenants", json!({ "id": id, "limits": limits })).expect(201);
        let key = admin.post(&format!("/v1/admin/tenants/{id}/keys"), json!({})).expect(201);
        key["key"].as_str().unwrap_or_default().to_owned()
    };
    let quiet_key = key("quiet", json!({}));
    let flooding_key = key("flooding", json!({ "requests_per_min": 600, "concurrent_turns": 4 }));
    let measure = |length: Duration| {
        let (start, mut first) = (Instant::now(), Vec::new());
        while start.elapsed() < length {
            match ours.turn_with(&quiet_key, "quiet", PACED) {
                Ok(timing) => first.push(timing.first),
                Err(error) => eprintln!("a turn of the other tenant failed: {error}"),
            }
        }
        first
    };
    // The first turn creates the session.
    measure(Duration::from_secs(1));
    let quiet = measure(QUIET);
    let (responses, ends) = (Responses::default(), AtomicBool::new(false));
    let flooded = thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let (responses, ends, key) = (&responses, &ends, &flooding_key);
            scope.spawn(move || flood(server.address(), key, number, responses, ends));
        }
        let flooded = measure(FLOOD);
        ends.store(true, Relaxed);
        flooded
    });
    let p95 = [&quiet, &flooded].map(|first| percentile(first.iter().copied(), 0.95));
    for (name, times) in [("alone", &quiet), ("during the flood", &flooded)] {
        for (rank, quantile) in [("p50", 0.5), ("p95", 0.95)] {
            let value = percentile(times.iter().copied(), quantile);
            report.value(&format!("first token of another tenant {name}, {rank}"), value, "ms");
        }
    }
    report.value("flood: accepted requests", responses.accepted.load(Relaxed) as f64, "");
    report.value("flood: refused requests", responses.refused.load(Relaxed) as f64, "");
    report.value("flood: failed requests", responses.failed.load(Relaxed) as f64, "");
    report.goal("first token of another tenant, p95, during a flood", p95[1] / p95[0], GOAL);
}

/// Sends requests one after the other, until `ends`.
fn flood(address: SocketAddr, key: &str, number: usize, responses: &Responses, ends: &AtomicBool) {
    let path = format!("/v1/sessions/flood-{number}/messages");
    let headers = [("authorization", format!("Bearer {key}")), ("content-type", "application/json".into())]
        .map(|(name, value)| (name.to_owned(), value));
    let body = json!({ "content": PACED }).to_string();
    let send = || -> io::Result<(u16, u64)> {
        let incoming = http::send(address, "POST", &path, &headers, body.as_bytes())?;
        let response = incoming.finish()?;
        let wait = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
        Ok((response.status, wait.unwrap_or(0)))
    };
    while !ends.load(Relaxed) {
        let wait = match send() {
            Ok((200..=299, wait)) => {
                responses.accepted.fetch_add(1, Relaxed);
                wait
            }
            Ok((429, wait)) => {
                responses.refused.fetch_add(1, Relaxed);
                wait
            }
            Ok(_) | Err(_) => {
                responses.failed.fetch_add(1, Relaxed);
                1
            }
        };
        let until = Instant::now() + Duration::from_secs(wait);
        while Instant::now() < until && !ends.load(Relaxed) {
            thread::sleep(Duration::from_millis(50));
        }
    }
}
