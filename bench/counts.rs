//! What a turn asks of the platform, counted by the meters of `bench/meter`.

use crate::load::SETTLE;
use crate::report::Report;
use crate::support::ModelServer;
use crate::target::{Target, USE_A_TOOL};
use serde_json::Value;
use std::thread;

/// The turns of a session whose counts are averaged.
const TURNS: u32 = 10;

/// Counts ten plain turns, and ten turns with a tool call, each in a new session and with the work behind the replies.
pub fn turns(model: &ModelServer, report: &mut Report) {
    eprintln!("counts of a turn");
    let target = match Target::metered(model) {
        Ok(target) => target,
        Err(error) => return report.note("ours", format!("the metered Worker did not start: {error}")),
    };
    // The first session also opens what all sessions share.
    for (session, name, text) in [
        ("first", None, "hello"),
        ("plain", Some("plain turn"), "hello"),
        ("tool", Some("tool turn"), USE_A_TOOL),
    ] {
        for _ in 0..TURNS {
            if let Err(error) = target.turn(session, text) {
                return report.note("ours", format!("a turn of the metered Worker failed: {error}"));
            }
        }
        thread::sleep(SETTLE);
        let counts = take(&target);
        let Some(name) = name else { continue };
        for (what, count) in counts.as_object().into_iter().flatten() {
            report.value(
                &format!("{name}: {what}"),
                count.as_f64().unwrap_or(f64::NAN) / f64::from(TURNS),
                "",
            );
        }
        report.value(&format!("{name}: rows written in all"), written(&counts) / f64::from(TURNS), "");
    }
}

/// Returns the counts since the last call.
fn take(target: &Target) -> Value {
    target.server().map(|server| server.client().get("/meter").json()["counts"].take()).unwrap_or_default()
}

/// Returns the rows that the platform bills as written. An alarm is billed as one.
fn written(counts: &Value) -> f64 {
    let rows = ["object rows written", "D1 rows written", "alarms set"];
    rows.iter().filter_map(|name| counts[name].as_f64()).sum()
}
