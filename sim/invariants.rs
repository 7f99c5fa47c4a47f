//! The invariants of the core. They are checked against the actual runs of tools, requests to models, bytes
//! received by clients and messages posted by users, never against the core's own view.
//!
//! | file | invariants |
//! |---|---|
//! | `calls` | 1 one outcome per call, in order · 5 waves · 6 nothing runs twice |
//! | `context` | 10 messages that leave the window are summarized, indexed and flushed |
//! | `fallback` | 19 the model that takes over is asked until the turn ends, and only then |
//! | `ends` | 2 nothing after the seal · 3 complete ends · 4 budgets and deadlines |
//! | `readers` | 8 sequence numbers, ends, streams · 7 no text of other sessions · 10 no message is lost |
//! | `people` | 11 a call that needs a decision runs as decided, or not at all |
//! | `recovery` | 9 a crash changes nothing except unknown outcomes |
//! | `subagents` | 12 a task is done once, and its result is the call's |
//! | `background` | 20 each background task ends once, and its result is shown |
//! | `accounts` | 13 usage and slots of tenants do not drift, and slots are within the limit · 18 the audit trail has each decision once |
//! | `client::inbox` | 21 the inbox has the calls that wait, and its readers know them |
//! | `claims` | 22 a call that a runner has claimed is its own |
//! | `runs::check` | 23 a run ends, and its log, its view, its files and what its runners have done agree |
//! | `permits`, `rules` | 14 no denied call starts · 15 no unapproved call starts · 16 `by` is who decided · 17 newer rules stay |
//!
//! Some conditions can only be checked during the run: overlapping calls in `tools`, requests in `model`,
//! text of other sessions in `client`.

mod accounts;
mod background;
mod calls;
mod claims;
mod context;
mod ends;
mod fallback;
mod people;
mod permits;
mod readers;
mod recovery;
mod rules;
mod subagents;
mod view;

use super::{
    client,
    ledger::Ledger,
    world::{Node, World},
};
use std::rc::Rc;

pub use accounts::has_reported;
pub use recovery::same;
use rules::Rulebook;
pub use view::{Entry, View};

/// Checks the final state of a world with a run, as far as its invariants are those of each session.
pub fn check_run(world: &World) {
    let (ledger, node): (&Ledger, _) = (&world.ledger, world.node(0));
    let view = View::of(&node);
    readers::log(ledger, &view);
    calls::outcomes(ledger, &view);
    ends::sealed(ledger, &view, &node);
    client::inbox::check(world);
}

/// Checks the final state of a finished world.
pub fn check(world: &World) {
    let ledger: &Ledger = &world.ledger;
    let views: Vec<(Rc<Node>, View)> =
        world.nodes().into_iter().map(|node| (Rc::clone(&node), View::of(&node))).collect();
    subagents::check(world, &views);
    background::check(world, &views);
    accounts::check(world, &views);
    client::inbox::check(world);
    for (node, view) in &views {
        let scenario = ledger.scenario.sessions.get(node.place);
        if scenario.is_some_and(|scenario| scenario.erased) && world.witnesses.borrow()[node.place].erased {
            readers::erased(world, node);
            continue;
        }
        // An alarm deletes the records of a fork whose session could not be stored.
        if node.disk.documents.borrow().is_empty() && !view.entries.is_empty() {
            if node.alarm.get().is_none() {
                ledger.find(2, format!("{} has records without a session, which stay", node.disk.name));
            }
            continue;
        }
        readers::log(ledger, view);
        calls::outcomes(ledger, view);
        let parent = node.parent();
        if scenario.is_none() && parent.is_none() {
            continue;
        }
        // The copied part of a fork is checked in its origin.
        let own = node.first_task().map(|task| View::of(node).since(&task));
        let sender = parent.and_then(|parent| subagents::session(&views, &node.tenant, &parent.session));
        let view = own.as_ref().unwrap_or(view);
        calls::order(ledger, view);
        calls::replay(ledger, view);
        context::cuts(ledger, view);
        ends::sealed(ledger, view, node);
        ends::whole(ledger, view, node);
        ends::bounds(ledger, view, node);
        fallback::taken_over(ledger, view);
        recovery::unknown(ledger, view);
        let book = Rulebook::of(world, node, view);
        people::asked(ledger, view, node, &book);
        readers::artifacts(world, view, node);
        let witnesses = world.witnesses.borrow();
        let witness = &witnesses[node.place];
        readers::streams(ledger, view, witness);
        people::submissions(world, view, witness, node);
        claims::check(world, view, witness, node);
        permits::check(world, view, &book, node, sender, witness);
        if let Some(scenario) = scenario {
            context::indexed(ledger, view, node);
            context::owed(ledger, view, node, scenario);
            readers::posts(ledger, view, witness, node.place);
        }
    }
}
