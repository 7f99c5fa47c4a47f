//! What the archive of a run has besides its state, events and files. It follows from the log alone.

use super::call::Purpose;
use super::fold::{KINDS, Run, StepState, excerpt};
use super::plan::{REPORT, StepType};
use crate::types::{CallId, EventKind, Record, SessionId, Timestamp, ToolOutcome, json::record_type};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Maximum length of the arguments and outcomes that an archive holds, in bytes. The events have all of them.
const MAX_BYTES: usize = 4 << 20;
/// Length of the excerpt of others, in characters.
const EXCERPT: usize = 500;
/// Maximum number of calls. A run makes far fewer, unless it is retried again and again.
const MAX_CALLS: usize = 2_000;

/// Reads the log of a run.
pub struct Archive {
    run: Run,
    /// The calls of steps, in the order in which they began.
    calls: Vec<Call>,
    /// How many more bytes of arguments and outcomes have room.
    room: usize,
}

/// A call of a step, and what came out of it.
#[derive(Serialize)]
struct Call {
    call_id: CallId,
    tool: String,
    args: Value,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// The fields of the outcome.
    #[serde(flatten)]
    outcome: Map<String, Value>,
}

/// A step that writes no file of its own, with its calls: more than one after a retry.
#[derive(Serialize)]
struct StepCalls<'a> {
    id: &'a str,
    r#type: StepType,
    calls: Vec<&'a Call>,
}

impl Archive {
    /// Creates the archive of a run whose log is to be read.
    pub fn new(id: SessionId) -> Self {
        Self { run: Run::new(id), calls: Vec::new(), room: MAX_BYTES }
    }

    /// Reads the next record of the log, as JSON.
    pub fn read(&mut self, json: &[u8]) {
        let read = || serde_json::from_slice(json).ok();
        if let Some(record) = record_type(json).filter(|kind| KINDS.contains(kind)).and_then(|_| read()) {
            self.record(record);
        }
    }

    fn record(&mut self, Record { at, kind, .. }: Record) {
        match &kind {
            EventKind::ToolStarted { call_id, name, args, .. } => {
                let is_step = matches!(Purpose::of(call_id), Some(Purpose::Step(_)));
                if is_step && self.calls.len() < MAX_CALLS {
                    let (call_id, tool, args) = (call_id.clone(), name.clone(), self.fitted(args));
                    let call =
                        Call { call_id, tool, args, started_at: at, ended_at: None, outcome: Map::new() };
                    self.calls.push(call);
                }
            }
            EventKind::ToolCompleted { call_id, outcome, ran_with, .. } => {
                self.completed(at, call_id, outcome, ran_with.as_ref());
            }
            _ => {}
        }
        self.run.apply(kind);
    }

    /// Adds the outcome of a call, and the arguments that a person has edited.
    fn completed(&mut self, at: Timestamp, id: &CallId, outcome: &ToolOutcome, edited: Option<&Value>) {
        let Some(place) = self.calls.iter().position(|call| call.call_id == *id) else { return };
        let edited = edited.map(|args| self.fitted(args));
        let Value::Object(fields) = json!(outcome) else { return };
        let fields = fields.into_iter().map(|(name, value)| (name, self.fitted(&value))).collect();
        if let Some(call) = self.calls.get_mut(place) {
            (call.ended_at, call.outcome) = (Some(at), fields);
            call.args = edited.unwrap_or_else(|| call.args.take());
        }
    }

    /// Returns a value, or an excerpt of it if there is no more room.
    fn fitted(&mut self, value: &Value) -> Value {
        let text = value.to_string();
        match self.room.checked_sub(text.len()) {
            Some(room) => {
                self.room = room;
                value.clone()
            }
            None => excerpt(&text, EXCERPT).into(),
        }
    }

    /// Returns the names and contents of the entries: the report, and the calls of each step that writes no file of its own.
    pub fn entries(&mut self) -> impl Iterator<Item = (String, String)> {
        self.run.settle();
        let report = (REPORT.to_owned(), self.run.report());
        let calls = self.run.steps.iter().filter_map(|own| self.calls_of(own));
        std::iter::once(report).chain(calls)
    }

    fn calls_of(&self, own: &StepState) -> Option<(String, String)> {
        let step = &own.step;
        let is_own =
            |call: &&Call| matches!(Purpose::of(&call.call_id), Some(Purpose::Step(id)) if id == step.id);
        let calls: Vec<&Call> = self.calls.iter().filter(is_own).collect();
        if calls.is_empty() || step.file().is_some() {
            return None;
        }
        let calls = serde_json::to_string(&StepCalls { id: &step.id, r#type: step.kind, calls }).ok()?;
        Some((format!("artifacts/{}.json", step.id), calls))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    const RUN: &str = "run_00000000000000000000000000000001";

    /// Returns the entries for a log.
    fn entries(log: &[Value]) -> Vec<(String, String)> {
        let mut archive = Archive::new(RUN.into());
        log.iter().for_each(|record| archive.read(record.to_string().as_bytes()));
        archive.entries().collect()
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
        let [(name, report)] = &entries(&log)[..] else { panic!("more than a report") };
        assert_eq!(name, "report.md");
        for part in ["limit of \"max_tool_calls\"", "Reach it.", "## Left\n\n- a"] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }

    #[test]
    fn long_calls_are_shortened_once_there_are_many() {
        let mut log = planned(&json!([{"id": "a", "type": "command", "command": "make"}]));
        let text = "x".repeat(1_000_000);
        log.extend((0..20).map(|n| call(&format!("step.{n}.a"), "local_shell", &json!({"command": text}))));
        let [_, (_, calls)] = &entries(&log)[..] else { panic!("not one step") };
        assert!((MAX_BYTES - 1_000_000..MAX_BYTES + 100_000).contains(&calls.len()), "{}", calls.len());
        assert!(calls.contains("characters left out"));
    }

    #[test]
    fn a_step_that_writes_no_file_has_its_calls() {
        let step = |id: &str, command: &str| json!({"id": id, "type": "command", "command": command});
        let note = json!({"id": "note", "type": "note", "content": "x"});
        let mut log = planned(&json!([step("build", "make"), note, step("later", "ls")]));
        let completed = |purpose: &str, outcome: Value| {
            let mut fields = json!({"call_id": format!("{RUN}.{purpose}"), "name": "x", "elapsed_ms": 5});
            fields.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
            record("tool.completed", fields)
        };
        let args = json!({"command": "make"});
        log.extend([
            call("step.2.build", "local_shell", &args),
            call("step.3.note", "run_artifact", &json!({"content": "x"})),
            completed("step.2.build", json!({"outcome": "failure", "reason": "exit code 2"})),
            completed("step.3.note", json!({"outcome": "result", "result": "wrote"})),
            call("step.4.build", "local_shell", &args),
            completed(
                "step.4.build",
                json!({"outcome": "result", "result": "ok", "ran_with": {"command": "make -k"}}),
            ),
            call("verify.5", "local_verify", &json!({})),
        ]);
        let [_, (name, build)] = &entries(&log)[..] else { panic!("not one step") };
        let at = "2026-01-01T00:00:00.000Z";
        let call = |n: u32, command: &str, outcome: Value| {
            let mut call = json!({
                "call_id": format!("{RUN}.step.{n}.build"), "tool": "local_shell", "args": {"command": command},
                "started_at": at, "ended_at": at,
            });
            call.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
            call
        };
        let expected = json!({"id": "build", "type": "command", "calls": [
            call(2, "make", json!({"outcome": "failure", "reason": "exit code 2", "retryable": true})),
            call(4, "make -k", json!({"outcome": "result", "result": "ok"})),
        ]});
        assert_eq!(
            (name.as_str(), serde_json::from_str::<Value>(build).unwrap()),
            ("artifacts/build.json", expected)
        );
    }
}
