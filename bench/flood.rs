//! A flood of one tenant, and what another tenant notices of it.

use crate::load::percentile;
use crate::report::Report;
use crate::support::{ADMIN_KEY, ModelServer, Server, http};
use crate::target::{PACED, Target};
use serde_json::{Value, json};
use std::{
    io,
    net::SocketAddr,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Number of connections of the flood.
const CONNECTIONS: usize = 500;
/// How long the flood lasts, and everything that it is compared with.
const LENGTH: Duration = Duration::from_mins(1);
/// The turns that the flooding tenant may run at the same time.
const CONCURRENT_TURNS: usize = 4;
/// Longest pause between two turns of the other tenant.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Highest accepted ratio of the times to the first token, 95th percentile.
const GOAL: f64 = 2.0;

/// Clients of a tenant, and the responses to their requests, by status.
#[derive(Default)]
struct Flood {
    /// How long the clients wait at most, whatever `retry-after` says.
    patience: Option<Duration>,
    accepted: AtomicUsize,
    refused: AtomicUsize,
    failed: AtomicUsize,
}

/// Measures the first token of a tenant alone, and while another tenant floods the server from [`CONNECTIONS`]
/// connections. First each waits as long as `retry-after` says, as client libraries do. Then the flood is repeated, and
/// each waits for a second at most.
///
/// Further measurements show what of this is not due to the flood: the turns that the other tenant may run, and what
/// the clients and their connections cost on a machine that also runs the server.
pub fn all(model: &ModelServer, report: &mut Report) {
    eprintln!("a flood of {CONNECTIONS} connections");
    let ours = Target::with(model, &json!({ "ADMIN_KEY": ADMIN_KEY }));
    let trivial = Target::refusing(model);
    let (Some(server), Some(refusing)) = (ours.server(), trivial.server()) else { return };
    let limits = json!({ "requests_per_min": 600, "concurrent_turns": CONCURRENT_TURNS });
    let [quiet, busy, flooding] = [("quiet", json!({})), ("busy", json!({})), ("flooding", limits)]
        .map(|(id, limits)| key(server, id, limits));
    let measure = |length| first_tokens(&ours, &quiet, length);
    // The first turn creates the session.
    measure(Duration::from_secs(1));
    let alone = p95(report, "alone", &measure(LENGTH));
    let each_second = Some(Duration::from_secs(1));
    for (what, connections, address, key, patience) in [
        ("turns of another one", CONCURRENT_TURNS, server.address(), &busy, None),
        ("connections to a server that refuses all", CONNECTIONS, refusing.address(), &flooding, None),
        ("connections that retry there each second", CONNECTIONS, refusing.address(), &flooding, each_second),
    ] {
        let flood = Flood { patience, ..Flood::default() };
        let first = flood.beside(connections, address, key, || measure(LENGTH));
        let ratio = p95(report, &format!("beside {connections} {what}"), &first) / alone;
        report.value("… p95 divided by that alone", ratio, "");
    }
    for (when, patience) in
        [("during a flood", None), ("during a flood with retries each second", each_second)]
    {
        let flood = Flood { patience, ..Flood::default() };
        let first = flood.beside(CONNECTIONS, server.address(), &flooding, || measure(LENGTH));
        let ratio = p95(report, when, &first) / alone;
        for (name, count) in
            [("accepted", &flood.accepted), ("refused", &flood.refused), ("failed", &flood.failed)]
        {
            report.value(&format!("{name} requests {when}"), count.load(Relaxed) as f64, "");
        }
        report.goal(&format!("first token of another tenant, p95, {when}"), ratio, GOAL);
    }
}

/// Creates a tenant. Returns its key.
fn key(server: &Server, id: &str, limits: Value) -> String {
    let admin = server.admin();
    admin.post("/v1/admin/tenants", json!({ "id": id, "limits": limits })).expect(201);
    let key = admin.post(&format!("/v1/admin/tenants/{id}/keys"), json!({})).expect(201);
    key["key"].as_str().unwrap_or_default().to_owned()
}

/// Returns the times to the first token of turns that run one after the other, with pauses in between.
///
/// All turns take equally long. Without pauses, each turn would start in the instant in which those of the flood end and
/// the next ones start, for as long as the flood lasts.
fn first_tokens(ours: &Target, key: &str, length: Duration) -> Vec<Duration> {
    let (start, mut first) = (Instant::now(), Vec::new());
    while start.elapsed() < length {
        match ours.turn_with(key, "quiet", PACED) {
            Ok(timing) => first.push(timing.first),
            Err(error) => eprintln!("a turn of the other tenant failed: {error}"),
        }
        // Multiples of the golden ratio are spread evenly.
        thread::sleep(MAX_PAUSE.mul_f64((first.len() as f64 * 0.618_034).fract()));
    }
    first
}

/// Reports times to the first token. Returns the 95th percentile, in milliseconds.
fn p95(report: &mut Report, when: &str, first: &[Duration]) -> f64 {
    let quantile = |quantile| percentile(first.iter().copied(), quantile);
    let p95 = quantile(0.95);
    for (rank, value) in [("p50", quantile(0.5)), ("p95", p95), ("longest", quantile(1.0))] {
        report.value(&format!("first token of a tenant {when}, {rank}"), value, "ms");
    }
    p95
}

impl Flood {
    /// Runs `work` beside this number of clients.
    fn beside<T>(&self, connections: usize, address: SocketAddr, key: &str, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let client = |number| {
                let (ends, ended) = mpsc::channel();
                scope.spawn(move || self.client(address, key, number, &ended));
                ends
            };
            let ends: Vec<_> = (0..connections).map(client).collect();
            let done = work();
            drop(ends);
            done
        })
    }

    /// Sends requests one after the other, until the sender of `ended` is dropped.
    fn client(&self, address: SocketAddr, key: &str, number: usize, ended: &Receiver<()>) {
        let path = format!("/v1/sessions/flood-{number}/messages");
        let headers =
            [("authorization", format!("Bearer {key}")), ("content-type", "application/json".into())]
                .map(|(name, value)| (name.to_owned(), value));
        let body = json!({ "content": PACED }).to_string();
        let send = || -> io::Result<(u16, u64)> {
            let incoming = http::send(address, "POST", &path, &headers, body.as_bytes())?;
            let response = incoming.finish()?;
            let wait = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
            Ok((response.status, wait.unwrap_or(0)))
        };
        loop {
            let (count, wait) = match send() {
                Ok((200..=299, wait)) => (&self.accepted, wait),
                Ok((429, wait)) => (&self.refused, wait),
                Ok(_) | Err(_) => (&self.failed, 1),
            };
            count.fetch_add(1, Relaxed);
            let wait = Duration::from_secs(wait).min(self.patience.unwrap_or(Duration::MAX));
            if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
