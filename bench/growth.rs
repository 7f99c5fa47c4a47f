//! Whether memory grows with the number of turns: wasm's memory, JavaScript's heap, and the whole process. An isolate may
//! have 128 MB for the first two. The process also has the databases and the runtime's own memory, and its size is shown
//! beside the floor's.

use crate::load::SETTLE;
use crate::report::Report;
use crate::support::ModelServer;
use crate::target::{BRIEFLY, Target};
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

const TURNS: usize = 10_000;
/// Number of concurrent clients.
const CLIENTS: usize = 8;
/// Numbers of sessions that share the turns.
const SESSIONS: [usize; 2] = [CLIENTS, 1_000];

pub fn all(model: &ModelServer, report: &mut Report) {
    for sessions in SESSIONS {
        eprintln!("memory after {TURNS} turns in {sessions} sessions");
        let floor = Target::floor(model);
        let measured = Target::metered(model).and_then(|ours| grow(&ours, &floor, sessions, report));
        if let Err(error) = measured {
            report.note("ours", format!("memory in {sessions} sessions: {error}"));
        }
    }
}

fn grow(ours: &Target, floor: &Target, sessions: usize, report: &mut Report) -> io::Result<()> {
    for (from, until) in [(0, CLIENTS), (CLIENTS, TURNS / 2), (TURNS / 2, TURNS)] {
        for target in [ours, floor] {
            run(target, sessions, from, until)?;
        }
        thread::sleep(SETTLE);
        let (Some(server), Some(least)) = (ours.server(), floor.server()) else { continue };
        let wasm = server.client().get("/meter").json()["wasm"].as_f64().unwrap_or(f64::NAN);
        let values = [
            ("wasm", wasm),
            ("JavaScript heap", server.heap() as f64),
            ("process", server.rss() as f64),
            ("floor's process", least.rss() as f64),
        ];
        for (what, bytes) in values {
            report.value(&format!("{what} after {until} turns, {sessions} sessions"), bytes / 1e6, "MB");
        }
    }
    Ok(())
}

/// Runs the turns `from..until`, each in the next session.
fn run(target: &Target, sessions: usize, from: usize, until: usize) -> io::Result<()> {
    let next = AtomicUsize::new(from);
    let client = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= until {
                return Ok(());
            }
            target.turn(&format!("growth-{}", turn % sessions), BRIEFLY)?;
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| Err(io::Error::other("panicked"))))
    })
}
