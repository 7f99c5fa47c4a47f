//! Decisions by people: invariant 11.

use super::view::{Call, Entry, Turn, View, ends_task};
use super::{
    calls::runs_of,
    ends::RECOVERY_MS,
    rules::{Rulebook, Verdict},
};
use crate::{
    ledger::{Ledger, Run},
    witness::Witness,
    world::{Node, World},
};
use edge_harness::types::Timestamp;
use serde_json::Value;

/// The records allowed between the suspension of a turn and its resumption.
const BETWEEN: [&str; 7] = [
    "approval.decided",
    "answer.given",
    "subagent.completed",
    "task.started",
    // The usage of the subagent.
    "usage.updated",
    "turn.waiting",
    "tool.late_result",
];
/// Default expiry of a suspension, in seconds.
const TTL_S: u64 = 7 * 24 * 3_600;

/// 11: a suspended call runs once, with the approved arguments or the given answer, and not earlier; nor does
/// any call of its step. A call that was declined, expired or interrupted never runs.
pub fn asked(ledger: &Ledger, view: &View, node: &Node, book: &Rulebook) {
    let runs = ledger.runs.borrow();
    for turn in &view.turns {
        let runs: Vec<&Run> = runs_of(&runs, view, turn).collect();
        waited(ledger, view, turn, &runs, node, book);
        for call in &turn.calls {
            let runs: Vec<&Run> = runs.iter().filter(|run| run.call_id == call.id).copied().collect();
            consented(ledger, view, call, &runs);
            answered(ledger, view, call, &runs);
            let undisturbed = node.crashed_at.get() == 0 && node.disk.refused_at.get() == 0;
            if undisturbed && !call.suspended.is_empty() && runs.len() > 1 {
                ledger.find(11, format!("{} was suspended once and ran {} times", call.id, runs.len()));
            }
        }
    }
}

/// Between the suspension of a turn and its resumption or end there are only decisions, answers and reports
/// of subagents.
fn waited(ledger: &Ledger, view: &View, turn: &Turn, runs: &[&Run], node: &Node, book: &Rulebook) {
    let end = turn.ends.first().map(|end| &view.entries[*end]);
    for (place, over) in &turn.waits {
        let wait = &view.entries[*place];
        let Some(over) = over.map(|over| &view.entries[over]) else {
            ledger.find(11, format!("{} waits forever: {}", turn.id, wait.json));
            continue;
        };
        let asked = turn.records.iter().map(|place| &view.entries[*place]);
        let asked = asked.filter(|entry| entry.seq >= wait.seq && entry.seq < over.seq);
        let pending: Vec<&Value> =
            asked.clone().filter_map(|entry| entry.value["pending"].as_array()).flatten().collect();
        let sent: Vec<&Value> =
            asked.filter(|entry| entry.kind == "subagent.started").map(|entry| &entry.value).collect();
        let ids: Vec<&str> =
            pending.iter().chain(&sent).copied().filter_map(|asked| asked["call_id"].as_str()).collect();
        let message =
            turn.calls.iter().find(|call| ids.contains(&call.id.as_str())).map(|call| &call.message);
        // Whether the rules may not have asked about the calls, or may have denied them, when an earlier part of the
        // step ran.
        let step = turn.records.iter().map(|place| &view.entries[*place]);
        let mut step = step.filter(|entry| entry.kind == "tool.started");
        let step = step.find(|entry| entry.value["message"].as_str() == message.map(String::as_str));
        let began = step.map_or(wait.at, |entry| entry.at);
        let changed = |at: u64| {
            let mut asked = turn.calls.iter().filter(|call| ids.contains(&call.id.as_str()));
            asked.all(|call| {
                let asked = call.suspended.last().map(|place| &view.entries[*place]);
                let is_approval = asked.is_some_and(|asked| asked.kind == "tool.approval_required");
                let (least, most) = book.verdicts(&call.name, began.min(at), at);
                most == Verdict::Denied || (is_approval && least == Verdict::Runs)
            })
        };
        // Whether the calls are subagents', for which the turn may have had nothing left until a background task ended.
        let returned = |at: u64| {
            let mut between = view.entries.iter().filter(|entry| entry.at >= at && entry.seq < wait.seq);
            pending.is_empty() && between.any(|entry| ends_task(&entry.kind))
        };
        for call in turn.calls.iter().filter(|call| Some(&call.message) == message) {
            let early = |moment: u64, at: u64| {
                moment < over.moment && !(moment < wait.moment && (changed(at) || returned(at)))
            };
            if runs.iter().any(|run| run.call_id == call.id && early(run.began, run.at)) {
                ledger.find(11, format!("{} ran before its step was resolved", call.id));
            }
            if view.outcome(call).is_some_and(|outcome| early(outcome.moment, outcome.at)) {
                ledger.find(11, format!("{} ended before its step was resolved", call.id));
            }
        }
        let between = turn.records.iter().map(|place| &view.entries[*place]);
        let between = between.filter(|entry| entry.seq > wait.seq && entry.seq < over.seq);
        let besides = between.clone().filter(|entry| entry.moment != wait.moment);
        for entry in besides.filter(|entry| !BETWEEN.contains(&entry.kind.as_str())) {
            if end.is_none_or(|end| end.moment != entry.moment) {
                ledger.find(11, format!("{} continued while it waits: {}", turn.id, entry.json));
            }
        }
        if over.kind == "turn.resumed" {
            let said: Vec<&str> = between.filter_map(|entry| entry.value["call_id"].as_str()).collect();
            if let Some(open) = ids.iter().find(|id| !said.contains(*id)) {
                ledger.find(11, format!("{} continued although {open} is suspended: {}", turn.id, over.json));
            }
        }
        let late = pending.iter().filter_map(|pending| time(&pending["expires_at"])).max();
        let late = late.unwrap_or(wait.at + ledger.scenario.people.ttl_s.unwrap_or(TTL_S) * 1_000);
        let disturbed = node.crashed_at.get().max(node.disk.refused_at.get()).max(late);
        // While the disk refuses, the delay of the next attempt doubles: it is about as long as all attempts before it.
        let recovery = RECOVERY_MS.max(disturbed.saturating_sub(late) + RECOVERY_MS / 10);
        // A subagent ends by its own budget.
        if sent.is_empty() && over.at > disturbed + recovery {
            ledger.find(11, format!("{} still waits after its suspensions expired: {}", turn.id, wait.json));
        }
    }
    // Waiting does not count toward the turn's deadline.
    let (Some(start), Some(end)) = (turn.started.first(), end) else { return };
    let Some((_, script)) = ledger.scenario.turn(&turn.said) else { return };
    let Some(timeout) = script.budget.timeout_s else { return };
    let spent = (end.at - view.entries[*start].at).saturating_sub(turn.waited_ms(view));
    if end.value["stop_reason"] == "deadline"
        && spent + super::ends::MIN_REMAINING_MS < u64::from(timeout) * 1_000
    {
        ledger.find(11, format!("{} ended by its deadline after {spent} ms of {timeout} s", turn.id));
    }
}

/// The record that suspended a call and the record that resolved it, of these two kinds.
fn asked_and_said<'a>(
    ledger: &Ledger,
    view: &'a View,
    call: &Call,
    kinds: [&str; 2],
) -> (Option<&'a Entry>, Option<&'a Entry>) {
    let of = |places: &[usize], kind: &str| {
        let mut found = places.iter().map(|place| &view.entries[*place]).filter(|entry| entry.kind == kind);
        let (first, second) = (found.next(), found.next());
        if let Some(second) = second {
            ledger.find(11, format!("a second record of the same call: {}", second.json));
        }
        first
    };
    let (asked, said) = (of(&call.suspended, kinds[0]), of(&call.said, kinds[1]));
    if let Some(said) = said.filter(|said| asked.is_none_or(|asked| asked.seq > said.seq)) {
        ledger.find(11, format!("resolved but not suspended: {}", said.json));
    }
    if let (Some(asked), Some(said)) = (asked, said) {
        let expires = time(&asked.value["expires_at"]).unwrap_or(u64::MAX);
        let by_person = !said.value["by"].is_null();
        if by_person && said.at >= expires {
            ledger.find(11, format!("resolved after its expiry: {}", said.json));
        }
        let end = view.turns.iter().find(|turn| Some(&turn.id) == said.turn.as_ref());
        let end = end.and_then(|turn| turn.ends.first()).map(|end| view.entries[*end].moment);
        // A runner that has claimed the call of the external tool has not answered in time.
        let is_unknown = |outcome: &Entry| outcome.value["outcome"] == "unknown";
        let is_lost = call.name == "lend" && view.outcome(call).is_some_and(is_unknown);
        if !by_person && said.at < expires && end != Some(said.moment) && !is_lost {
            ledger.find(11, format!("resolved by nothing before its expiry: {}", said.json));
        }
    }
    (asked, said)
}

/// A call that needs approval runs with it, and with the approved arguments.
fn consented(ledger: &Ledger, view: &View, call: &Call, runs: &[&Run]) {
    let (asked, decided) = asked_and_said(ledger, view, call, ["tool.approval_required", "approval.decided"]);
    let Some(asked) = asked else { return };
    let approved = decided.filter(|decided| decided.value["decision"] != "decline");
    // Before an eviction, the rules may not have asked about it.
    for run in runs.iter().filter(|run| run.began > asked.moment) {
        let Some(approved) = approved.filter(|approved| approved.moment < run.began) else {
            let decided = decided.map_or("nothing was decided", |entry| entry.json.as_str());
            ledger.find(11, format!("{} ran without approval: {decided}", call.id));
            continue;
        };
        let args =
            if approved.value["args"].is_null() { &asked.value["args"] } else { &approved.value["args"] };
        if run.args != *args {
            ledger.find(11, format!("{} ran with {} instead of {args}", call.id, run.args));
        }
    }
}

/// A call that waits for an answer runs with it.
fn answered(ledger: &Ledger, view: &View, call: &Call, runs: &[&Run]) {
    let (asked, answered) = asked_and_said(ledger, view, call, ["tool.suspended", "answer.given"]);
    let suspends = matches!(call.name.as_str(), "ask" | "lend");
    if asked.is_none() && !suspends {
        return;
    }
    for run in runs {
        // A failure of an external tool is reported as text.
        let answer = answered.filter(|answered| answered.value["answer"].is_object());
        let answer =
            answer.filter(|answered| answered.moment < run.began).map(|entry| &entry.value["answer"]);
        if answer.is_none() || run.answer.as_ref() != answer {
            ledger.find(11, format!("{} ran with the answer {:?}, not {answer:?}", call.id, run.answer));
        }
    }
}

/// The responses that people received agree with the log.
pub fn submissions(world: &World, view: &View, witness: &Witness, node: &Node) {
    let (ledger, limited) = (&world.ledger, world.limits().quota().needs_slots());
    // A subagent asks its parent before it continues, which may be unreachable. The ledger refuses a message that another one
    // of the session has overtaken.
    let stumbles = limited || node.disk.refused_at.get() > 0;
    for submission in &witness.submissions {
        let Some(status) = submission.status else { continue };
        let fits = matches!(status, 200 | 202 | 403 | 404 | 409 | 422)
            || (status == 429 && limited)
            || (status >= 500 && stumbles);
        if !fits {
            ledger.find(11, format!("status {status} for {submission:?}"));
        }
        if !matches!(status, 200 | 202) {
            continue;
        }
        if submission.wrong {
            ledger.find(11, format!("accepted although invalid: {submission:?}"));
        }
        let kind = if submission.answers { "answer.given" } else { "approval.decided" };
        let own = view
            .entries
            .iter()
            .find(|entry| entry.kind == kind && entry.value["call_id"] == *submission.call_id);
        let fits = |entry: &Entry| {
            let body = &submission.body;
            let same = if submission.answers {
                entry.value["answer"] == *body.get("answer").unwrap_or(&body["error"])
            } else {
                let args = body.get("args").filter(|_| !submission.declines());
                (entry.value["decision"] == "decline") == submission.declines()
                    && args.is_none_or(|args| entry.value["args"] == *args)
            };
            same && !entry.value["by"].is_null()
        };
        if !own.is_some_and(fits) {
            ledger.find(11, format!("accepted: {submission:?}, but stored: {:?}", own.map(|e| &e.json)));
        }
    }
    for (id, answer) in witness.answers.iter().filter(|(_, answer)| answer["status"] == "waiting") {
        let turn = view.turns.iter().find(|turn| turn.id == *id);
        let pending = answer["pending"].as_array().is_some_and(|pending| !pending.is_empty());
        if !pending || turn.is_none_or(|turn| turn.waits.is_empty()) {
            ledger.find(11, format!("{id} is reported as waiting: {answer}"));
        }
    }
}

fn time(value: &Value) -> Option<u64> {
    serde_json::from_value::<Timestamp>(value.clone()).ok().map(|time| time.0)
}
