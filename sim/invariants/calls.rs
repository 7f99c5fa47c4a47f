//! Outcomes and runs of tool calls: invariants 1, 5 and 6.

use super::view::{Call, Entry, Turn, View};
use crate::{
    ledger::{Ledger, Run},
    scenario::CallScript,
};
use std::collections::BTreeMap;

/// 1: each call of a response has one outcome, in the order of the calls, and is the call that the model
/// made.
pub fn outcomes(ledger: &Ledger, view: &View) {
    for turn in view.turns.iter().filter(|turn| !turn.ends.is_empty()) {
        let calls: Vec<&String> = turn.calls.iter().map(|call| &call.id).collect();
        let outcomes: Vec<&String> = turn.outcomes.iter().collect();
        if calls != outcomes {
            ledger.find(1, format!("{}: calls {calls:?}, outcomes {outcomes:?}", turn.id));
        }
        let mut ids = calls.clone();
        ids.sort();
        ids.dedup();
        if ids.len() != calls.len() {
            ledger.find(1, format!("{}: ids of calls are not unique: {calls:?}", turn.id));
        }
        let Some((_, script)) = ledger.scenario.turn(&turn.said) else { continue };
        for (step, message) in turn.answers.iter().enumerate() {
            let script = script.steps.get(step).map(|step| step.calls.as_slice()).unwrap_or_default();
            let made: Vec<&Call> = turn.calls.iter().filter(|call| call.message == *message).collect();
            let fits = |(call, script): (&&Call, &CallScript)| {
                call.name == script.tool && (script.invalid || call.args == script.args)
            };
            if !made.is_empty() && (made.len() != script.len() || !made.iter().zip(script).all(fits)) {
                ledger.find(1, format!("{} step {step}: the log's calls are not the model's", turn.id));
            }
        }
    }
}

pub fn runs_of<'a>(runs: &'a [Run], view: &'a View, turn: &'a Turn) -> impl Iterator<Item = &'a Run> {
    runs.iter().filter(move |run| run.turn == turn.id && run.session == view.name)
}

/// 5: of two calls that use the same resource, or of which one writes, the first has its outcome before the
/// second starts.
pub fn order(ledger: &Ledger, view: &View) {
    let runs = ledger.runs.borrow();
    let tenant = view.name.split('/').next().unwrap_or_default();
    let rules_change = ledger.scenario.people.tenants.get(tenant).is_some_and(|policies| policies.len() > 1);
    for turn in &view.turns {
        // An approval may change the arguments of a call that has run before and was interrupted: then its first and its
        // last run touch different resources.
        let (mut first_runs, mut last_runs) = (BTreeMap::<&str, &Run>::new(), BTreeMap::<&str, &Run>::new());
        for run in runs_of(&runs, view, turn) {
            first_runs.entry(&run.call_id).or_insert(run);
            last_runs.insert(&run.call_id, run);
        }
        for (place, second) in turn.calls.iter().enumerate() {
            let Some(second_run) = first_runs.get(second.id.as_str()) else { continue };
            let begins = second_run.began;
            for first in turn.calls[..place].iter().filter(|first| first.message == second.message) {
                let Some(first_run) = first_runs.get(first.id.as_str()) else { continue };
                let runs_of_first = [Some(first_run), last_runs.get(first.id.as_str())];
                let touches_same =
                    runs_of_first.into_iter().flatten().all(|run| run.touches == second_run.touches);
                let conflict = !first.reads || !second.reads || touches_same;
                // A call that was interrupted, and that new rules deny, does not run again.
                let over =
                    view.outcome(first).is_some_and(|own| own.moment < begins || outcome(own) == "denied");
                // Rules denied the first call, the denial was lost with the copy of the session that ran the second one, and
                // newer rules allow it.
                let is_allowed_later = rules_change
                    && runs_of(&runs, view, turn).filter(|run| run.call_id == first.id).any(|later| {
                        let resumed = |entry: &Entry| (begins..later.began).contains(&entry.moment);
                        let mut entries = turn.records.iter().map(|place| &view.entries[*place]);
                        entries.any(|entry| entry.kind == "turn.resumed" && resumed(entry))
                    });
                if conflict && !over && !is_allowed_later {
                    ledger.find(5, format!("{} started before {} ended", second.id, first.id));
                }
            }
        }
    }
}

/// 6: a call that succeeded does not run again, and one that is not idempotent never runs twice. A blocked
/// tool stays blocked. A message with an idempotency key starts one turn.
pub fn replay(ledger: &Ledger, view: &View) {
    let runs = ledger.runs.borrow();
    for turn in &view.turns {
        let mut once: Vec<&str> = Vec::new();
        for run in runs_of(&runs, view, turn) {
            if !run.idempotent && once.contains(&run.call_id.as_str()) {
                ledger.find(6, format!("{} is not idempotent and ran twice: {}", run.call_id, run.key));
            }
            once.push(&run.call_id);
            if let Some(before) = succeeded_before(view, turn, run) {
                ledger.find(6, format!("{} ran after {} had succeeded: {}", run.call_id, before.id, run.key));
            }
            // An answer that arrives after the tool was blocked still becomes a result.
            if run.answer.is_none() && blocked_before(view, turn, run.tool, run.began) {
                ledger.find(6, format!("{} ran although `{}` was blocked", run.call_id, run.tool));
            }
        }
        for call in &turn.calls {
            let asked = call.suspended.first().map(|place| view.entries[*place].moment);
            if asked.is_some_and(|moment| blocked_before(view, turn, &call.name, moment)) {
                ledger.find(6, format!("{} was suspended although `{}` was blocked", call.id, call.name));
            }
        }
    }
}

/// Returns the outcomes of a turn before a moment, oldest first.
fn before<'a>(
    view: &'a View,
    turn: &'a Turn,
    moment: u64,
) -> impl DoubleEndedIterator<Item = (&'a Call, &'a Entry)> {
    let done = turn.calls.iter().filter_map(|call| Some((call, view.outcome(call)?)));
    let mut done: Vec<_> = done.filter(|(_, entry)| entry.moment < moment).collect();
    done.sort_by_key(|(_, entry)| entry.seq);
    done.into_iter()
}

fn outcome(entry: &Entry) -> &str {
    entry.value["outcome"].as_str().unwrap_or_default()
}

fn succeeded_before<'a>(view: &'a View, turn: &'a Turn, run: &Run) -> Option<&'a Call> {
    let mut known: Option<&Call> = None;
    for (call, entry) in before(view, turn, run.began) {
        if outcome(entry) != "denied" && !call.reads {
            // Later reads may return something else.
            known = None;
        }
        let same = call.id == run.call_id || (run.idempotent && call.key == run.key);
        if same && matches!(outcome(entry), "result" | "artifact") {
            known = Some(call);
        }
    }
    known
}

fn blocked_before(view: &View, turn: &Turn, tool: &str, moment: u64) -> bool {
    let (mut blocked, mut unfit) = (false, 0);
    for (_, entry) in before(view, turn, moment).filter(|(call, _)| call.name == tool) {
        match outcome(entry) {
            "failure" | "timeout" => blocked |= entry.value["retryable"] == false,
            "denied" if entry.value["denied"] == "validation" => unfit += 1,
            "result" | "artifact" => unfit = 0,
            _ => {}
        }
        blocked |= unfit >= 3;
    }
    blocked
}
