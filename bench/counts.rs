//! What a turn asks of the platform, counted by the meters of `bench/meter`.

use crate::load::SETTLE;
use crate::report::Report;
use crate::support::ModelServer;
use crate::target::{Target, USE_A_TOOL};
use serde_json::Value;
use std::thread;

/// The turns of a session whose counts are averaged.
const TURNS: u32 = 10;

/// The platform's prices in dollars per million, of the paid plan, without what the plan includes; developers.cloudflare.com
/// in November 2026. A request of the Worker is also one of the object.
const REQUEST: f64 = 0.30 + 0.15;
/// Rows of objects and of D1 cost the same. An alarm is billed as a row written.
const ROW_WRITTEN: f64 = 1.00;
const ROW_READ: f64 = 0.001;

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
        let rows = |names: &[&str]| names.iter().filter_map(|name| counts[*name].as_f64()).sum::<f64>();
        let written = rows(&["object rows written", "D1 rows written", "alarms set"]) / f64::from(TURNS);
        let read = rows(&["object rows read", "D1 rows read"]) / f64::from(TURNS);
        report.value(&format!("{name}: rows written in all"), written, "");
        let dollars = REQUEST + written * ROW_WRITTEN + read * ROW_READ;
        report.value(&format!("{name}: dollars per million, requests and rows"), dollars, "$");
    }
}

/// Returns the counts since the last call.
fn take(target: &Target) -> Value {
    target.server().map(|server| server.client().get("/meter").json()["counts"].take()).unwrap_or_default()
}
