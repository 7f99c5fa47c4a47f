//! A turn that a kill interrupts: what it takes from the restart to its end.

use crate::load::{SETTLE, percentile};
use crate::report::Report;
use crate::support::{Gate, ModelServer, Script, log};
use crate::target::Target;
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

const ROUNDS: usize = 7;

pub fn turns(report: &mut Report) {
    eprintln!("recovery of a turn");
    let model = model_server();
    let mut targets = Target::versions(&model, &json!({}));
    let mut figures: Vec<_> = targets.iter().map(|_| (Vec::new(), Vec::new())).collect();
    for round in 0..ROUNDS {
        for (target, (times, cpu)) in targets.iter_mut().zip(&mut figures) {
            let (time, used) = recover(target, &model, &format!("recovery-{round}")).unzip();
            times.extend(time);
            cpu.extend(used);
        }
    }
    let median = |times: Vec<Duration>| percentile(times.into_iter(), 0.5);
    for (target, (times, cpu)) in targets.iter().zip(figures) {
        report.value(&target.label("recovery: restart to the end of the turn"), median(times), "ms");
        report.value(&target.label("recovery: CPU, with the work afterwards"), median(cpu), "ms");
    }
}

/// Starts a model server that does not end each second response, beginning with the first one.
fn model_server() -> ModelServer {
    let (model, requests) = (ModelServer::start(), AtomicUsize::new(0));
    model.choose(move |_| {
        let stalls = requests.fetch_add(1, Ordering::Relaxed) % 2 == 0;
        let token = Script::text(["token "]);
        Some(if stalls { Script::new().say("token ").hold(&Gate::new()) } else { token })
    });
    model
}

/// Kills the Worker while the model responds, and starts it again. Returns the time until the turn has ended, and the CPU
/// time of that and of the work afterwards; `None` for a target that is not restarted.
fn recover(target: &mut Target, model: &ModelServer, session: &str) -> Option<(Duration, Duration)> {
    let server = target.server_mut()?;
    let earlier = model.received().len();
    log::post_async(&server.client(), session, "hello");
    model.wait_for(earlier + 1);
    server.restart();
    let (start, cpu) = (Instant::now(), server.cpu());
    log::wait_idle(&server.client(), session);
    let time = start.elapsed();
    thread::sleep(SETTLE);
    Some((time, server.cpu() - cpu))
}
