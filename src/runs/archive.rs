//! What the archive of a run has besides its state, events and files. It follows from the log alone.

use super::fold::{KINDS, REPORT, Run};
use crate::types::{Record, SessionId};
use serde::Deserialize;

/// Reads the log of a run, as lines of JSON.
pub struct Archive {
    run: Run,
    /// The start of the line that is not complete.
    line: Vec<u8>,
}

impl Archive {
    /// Creates the archive of a run whose log is to be read.
    pub fn new(id: SessionId) -> Self {
        Self { run: Run::new(id), line: Vec::new() }
    }

    /// Reads the next piece of the log.
    pub fn read(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                if let Some(record) = record(&self.line) {
                    self.run.apply(record.kind);
                }
                self.line.clear();
            }
        }
    }

    /// Returns the names and contents of the entries.
    pub fn entries(mut self) -> Vec<(String, String)> {
        self.run.settle();
        vec![(REPORT.to_owned(), self.run.report())]
    }
}

/// Parses a record that the run depends on.
fn record(line: &[u8]) -> Option<Record> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        r#type: &'a str,
    }
    let Kind { r#type } = serde_json::from_slice(line).ok()?;
    KINDS.contains(&r#type).then(|| serde_json::from_slice(line).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    const RUN: &str = "run_00000000000000000000000000000001";

    /// Returns the entries for a log.
    fn entries(log: &[Value], size: usize) -> Vec<(String, String)> {
        let mut archive = Archive::new(RUN.into());
        let lines: String = log.iter().map(|line| format!("{line}\n")).collect();
        lines.as_bytes().chunks(size).for_each(|piece| archive.read(piece));
        archive.entries()
    }

    /// A record of a log.
    fn record(kind: &str, mut fields: Value) -> Value {
        for (name, value) in
            [("seq", json!(1)), ("at", json!("2026-01-01T00:00:00.000Z")), ("type", json!(kind))]
        {
            fields[name] = value;
        }
        fields
    }

    fn call(purpose: &str, name: &str, args: &Value) -> Value {
        let call = format!("{RUN}.{purpose}");
        let fields =
            json!({"message": "m", "call_id": call, "name": name, "args": args, "effect": "network"});
        record("tool.started", fields)
    }

    /// The log of a run with these steps, up to its plan.
    fn planned(steps: &Value) -> Vec<Value> {
        let message = json!({"id": "m", "seq": 1, "role": "user", "parts": [{"type": "text", "text": "Reach it."}],
            "created_at": "2026-01-01T00:00:00.000Z", "turn": "t"});
        vec![
            record("turn.started", json!({ "message": message })),
            record("run.requested", json!({"kind": "start", "approvals": "plan", "on_decline": "skip"})),
            call("plan.1", "run_plan", &json!({"source": "model", "steps": steps})),
            json!({"seq": "no record"}),
        ]
    }

    #[test]
    fn a_run_that_has_reached_a_limit_has_a_report() {
        let mut log = planned(&json!([{"id": "a", "type": "command", "command": "make"}]));
        log.push(record(
            "turn.completed",
            json!({"status": "completed", "stop_reason": "max_tool_calls", "steps": 1, "tool_calls": 1, "usage": {}}),
        ));
        for size in [1, 7, 100_000] {
            let [(name, report)] = &entries(&log, size)[..] else { panic!("more than a report") };
            assert_eq!(name, "report.md");
            for part in ["limit of \"max_tool_calls\"", "Reach it.", "## Left\n\n- a"] {
                assert!(report.contains(part), "{part}: {report}");
            }
        }
    }
}
