//! What rules and people permit: invariants 14 to 17.

use super::rules::{Rulebook, Verdict, is_applied};
use super::view::{Call, Entry, Turn, View};
use super::{calls::runs_of, subagents};
use crate::{
    caller::Caller,
    ledger::{Ledger, Run},
    witness::{Patch, Submission, Witness},
    world::{Node, World},
};
use edge_harness::types::{BackgroundTasks, SessionPermissions};
use std::rc::Rc;

/// How soon the changed rules of a parent reach a subagent, in milliseconds, in addition to the network's delay.
const CHANGED_MS: u64 = 100;

/// How long the record of a change may wait for the end of a message, in milliseconds: until the deadline of the turn.
const DEFERRED_MS: u64 = 25_000;

/// A call that starts: a tool runs, or the call begins to wait for an answer or for a subagent.
struct Start<'a> {
    call: &'a Call,
    at: u64,
    moment: u64,
}

/// Checks a session, and a subagent also against its parent, the session of `sender`.
pub fn check(
    world: &World,
    view: &View,
    book: &Rulebook,
    node: &Node,
    sender: Option<&(Rc<Node>, View)>,
    witness: &Witness,
) {
    let ledger = &world.ledger;
    let runs = ledger.runs.borrow();
    for turn in &view.turns {
        let runs: Vec<&Run> = runs_of(&runs, view, turn).collect();
        for start in starts(view, turn, &runs) {
            started(ledger, view, book, &start);
        }
        for call in &turn.calls {
            decided(ledger, view, book, call, witness, &node.user(world));
        }
        if let Some(sender) = sender {
            propagated(world, view, node, (sender, book), &starts(view, turn, &runs));
        }
    }
    if let Some(sender) = sender {
        sent(world, view, node, sender);
    }
    submissions(ledger, view, book, &witness.submissions);
    patches(ledger, node, witness);
    stored(world, node, book);
}

fn starts<'a>(view: &View, turn: &'a Turn, runs: &[&Run]) -> Vec<Start<'a>> {
    let call_of = |id: &str| turn.calls.iter().find(|call| call.id == id);
    let ran = runs.iter().filter(|run| run.answer.is_none());
    let ran =
        ran.filter_map(|run| Some(Start { call: call_of(&run.call_id)?, at: run.at, moment: run.began }));
    let waits = turn.records.iter().map(|place| &view.entries[*place]);
    let waits = waits.filter(|entry| matches!(entry.kind.as_str(), "tool.suspended" | "subagent.started"));
    let waits = waits.filter_map(|entry| {
        let call = call_of(entry.value["call_id"].as_str()?)?;
        Some(Start { call, at: entry.at, moment: entry.moment })
    });
    ran.chain(waits).collect()
}

/// 14: no call starts that the rules in force deny: the session's own, and the newest version of the tenant's that the
/// session has received. 15: a call about which they ask has been approved by a caller who may approve it.
fn started(ledger: &Ledger, view: &View, book: &Rulebook, start: &Start) {
    let Start { call, at, moment } = *start;
    let (least, _) = book.verdicts(&call.name, at, at);
    if least == Verdict::Denied {
        return ledger.find(
            14,
            format!("{} of {} started although the rules forbid `{}`", call.id, view.name, call.name),
        );
    }
    let approved =
        of(view, call, "approval.decided").filter(|entry| approves(entry) && entry.moment < moment);
    let by = approved.map(|entry| &entry.value["by"]);
    let suffices = match least {
        Verdict::AsksApprover => by == Some(&Caller::Approver.by("")),
        Verdict::Asks => by.is_some(),
        Verdict::Runs | Verdict::Denied => true,
    };
    if !suffices {
        let what = format!("the rules ask about `{}` ({least:?}), and it was approved by {by:?}", call.name);
        ledger.find(15, format!("{} of {} started: {what}", call.id, view.name));
    }
}

/// 15: a caller approves only what it may approve. 16: `by` is the identity that decided or answered.
fn decided(ledger: &Ledger, view: &View, book: &Rulebook, call: &Call, witness: &Witness, user: &str) {
    let kinds = ["approval.decided", "answer.given"];
    for decided in kinds.into_iter().filter_map(|kind| of(view, call, kind)) {
        let by = &decided.value["by"];
        if by.is_null() {
            continue;
        }
        let is_answer = decided.kind == "answer.given";
        let decides = |own: &&Submission| {
            let declines = decided.value["decision"] == "decline";
            let is_own = own.call_id == call.id && own.answers == is_answer && own.declines() == declines;
            // A grant also approves the other calls of the tool or category.
            let is_grant =
                own.body["decision"].as_str().is_some_and(|decision| decision.starts_with("always"));
            own.at.0 <= decided.at && !own.wrong && (is_own || (is_grant && !is_answer && !declines))
        };
        let mut submissions = witness.submissions.iter().filter(decides);
        if !submissions.any(|own| own.caller.may_chat() && own.caller.by(user) == *by) {
            ledger.find(
                16,
                format!("no caller with this identity has decided this in {}: {}", view.name, decided.json),
            );
        }
        let Some(asked) = of(view, call, "tool.approval_required") else { continue };
        if is_answer || !approves(decided) || *by == Caller::Approver.by("") {
            continue;
        }
        let asks_approver = |at: u64| {
            let (least, most) = book.verdicts(&call.name, at, at);
            least == Verdict::AsksApprover && most == least
        };
        if asks_approver(asked.at) || asks_approver(decided.at) {
            ledger
                .find(15, format!("approved in {} without the scope `approve`: {}", view.name, decided.json));
        }
    }
}

fn approves(decided: &Entry) -> bool {
    decided.value["decision"] != "decline"
}

/// Returns the first record of this kind that is about a suspension of the call.
fn of<'a>(view: &'a View, call: &Call, kind: &str) -> Option<&'a Entry> {
    let places = call.suspended.iter().chain(&call.said);
    places.map(|place| &view.entries[*place]).find(|entry| entry.kind == kind)
}

/// 14: a subagent starts no call that the rules of its parent have denied for so long that they must have arrived.
fn propagated(
    world: &World,
    view: &View,
    node: &Node,
    ((parent, theirs), own): (&(Rc<Node>, View), &Rulebook),
    starts: &[Start],
) {
    let scenario = &world.ledger.scenario.subagents;
    if !scenario.is_reliable() || !subagents::is_undisturbed(node) || !subagents::is_undisturbed(parent) {
        return;
    }
    let over = theirs
        .entries
        .iter()
        .find(|entry| entry.kind == "subagent.completed" && entry.value["session"] == *node.session);
    let book = Rulebook::of(world, parent, theirs).with_grants_of(own);
    for start in starts.iter().filter(|start| over.is_none_or(|over| start.at < over.at)) {
        let newest = |node: &Node| {
            let received = node.received.borrow();
            received.iter().filter(|own| own.sent <= start.at).map(|own| own.version).max()
        };
        if newest(node) > newest(parent) {
            // A request to the subagent has brought it rules of the tenant that its parent does not have yet.
            continue;
        }
        let since = start.at.saturating_sub(CHANGED_MS + 4 * scenario.pace);
        if book.verdicts(&start.call.name, since, start.at).0 == Verdict::Denied {
            let what =
                format!("{} started although the parent's rules forbid `{}`", start.call.id, start.call.name);
            world.ledger.find(14, format!("{}: {what}", view.name));
        }
    }
}

/// 17: a parent sends its subagent the rules that it had at that time.
fn sent(world: &World, view: &View, node: &Node, (parent, theirs): &(Rc<Node>, View)) {
    let book = Rulebook::of(world, parent, theirs);
    let started = theirs
        .entries
        .iter()
        .find(|entry| entry.kind == "subagent.started" && entry.value["session"] == *node.session);
    let Some(started) = started else { return };
    // While a subagent works in the background, its parent may stream a message: the record of a change is then written
    // when the message is complete.
    let in_background = world.ledger.scenario.subagents.background != BackgroundTasks::Off;
    let deferred = if in_background { DEFERRED_MS } else { 0 };
    for received in node.received.borrow().iter().filter(|received| received.parents.is_some()) {
        if !book.may_have(received, started.at, received.sent + deferred) {
            let (version, parents) = (received.version, &received.parents);
            world.ledger.find(17, format!("{} was sent version {version} and {parents:?}", view.name));
        }
    }
}

/// 15: exactly the callers without the scopes are refused.
fn submissions(ledger: &Ledger, view: &View, book: &Rulebook, submissions: &[Submission]) {
    for own in submissions {
        if !own.caller.may_chat() {
            if own.status.is_some_and(|status| status != 403) {
                ledger.find(15, format!("decides without the scope `chat`: {own:?}"));
            }
            continue;
        }
        if own.status != Some(403) {
            continue;
        }
        let call = view.turns.iter().flat_map(|turn| &turn.calls).find(|call| call.id == own.call_id);
        let asked = call.and_then(|call| Some((call, of(view, call, "tool.approval_required")?)));
        let may_ask_approver = asked.is_some_and(|(call, asked)| {
            let (_, most) = book.verdicts(&call.name, asked.at, own.at.1);
            most >= Verdict::AsksApprover
        });
        if own.answers || own.declines() || own.caller.may_approve() || !may_ask_approver {
            ledger.find(15, format!("refused, although no rule of the operator asks: {own:?}"));
        }
    }
}

/// 17: an acknowledged patch is in force, and one without the scope is refused.
fn patches(ledger: &Ledger, node: &Node, witness: &Witness) {
    for patch in &witness.patches {
        let fits = match patch.status {
            None => true,
            Some(403) => !patch.caller.may_chat(),
            Some(200) => patch.caller.may_chat() && is_applied(&patch.body, &patch.permissions),
            Some(status) => patch.caller.may_chat() && (status == 404 || status >= 500),
        };
        if !fits {
            let Patch { body, caller, status, .. } = patch;
            ledger.find(17, format!("{}: {status:?} for the patch {body} of {caller:?}", node.disk.name));
        }
    }
}

/// 17: the session stores the newest rules that it has received.
fn stored(world: &World, node: &Node, book: &Rulebook) {
    let now = world.sched.now();
    let version = node.document("state/guidance")["tenant_rules"]["version"].as_u64().unwrap_or_default();
    if version < book.version(now) {
        let what = format!("version {version} of the policy, but has received {}", book.version(now));
        world.ledger.find(17, format!("{} has {what}", node.disk.name));
    }
    let permissions: Result<SessionPermissions, _> =
        serde_json::from_value(node.meta()["permissions"].clone());
    let permissions = permissions.unwrap_or_default();
    let possible = book.permissions(now, now);
    if !possible.contains(&permissions) {
        world.ledger.find(17, format!("{} has the rules {permissions:?}, not {possible:?}", node.disk.name));
    }
}
