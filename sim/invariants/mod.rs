//! The ten invariants of DESIGN.md and what must hold where people decide and where subagents are sent out, checked
//! against what tools really did, what models were really asked, what clients really saw and what users posted:
//! never against the core's own opinion.
//!
//! | file | invariants |
//! |---|---|
//! | `calls` | 1 one outcome a call, in order · 5 waves · 6 nothing runs twice |
//! | `context` | 10 what leaves the context is summed up, findable, and flushed |
//! | `ends` | 2 nothing after the seal · 3 the end is whole · 4 budgets and deadlines |
//! | `readers` | 8 numbers, ends, streams · 7 nobody else's words · 10 nothing said is lost |
//! | `people` | 11 what somebody is asked about runs as it was decided, or not at all |
//! | `recovery` | 9 a crash changes nothing but what is unknown |
//! | `subagents` | 12 an errand is done once, under the rules of who sent it out, and comes to what was said |
//!
//! What can only be seen while it happens is looked at there: overlapping runs in `tools`, what a
//! model reads in `model`, foreign words in `client`.

mod calls;
mod context;
mod ends;
mod people;
mod readers;
mod recovery;
mod subagents;
mod view;

use super::{ledger::Ledger, node::Node, world::World};
use std::rc::Rc;

pub use recovery::same;
pub use view::View;

/// Looks at everything that is left of a world that was played.
pub fn check(world: &World) {
    let ledger: &Ledger = &world.ledger;
    let views: Vec<(Rc<Node>, View)> =
        world.nodes().into_iter().map(|node| (Rc::clone(&node), View::of(&node))).collect();
    subagents::check(world, &views);
    for (node, view) in &views {
        let scenario = ledger.scenario.sessions.get(node.place);
        if scenario.is_some_and(|scenario| scenario.erased) && world.witnesses.borrow()[node.place].erased {
            readers::erased(world, node);
            continue;
        }
        readers::log(ledger, view);
        calls::outcomes(ledger, view);
        let parent = node.parent();
        if scenario.is_none() && parent.is_none() {
            continue;
        }
        // What a subagent began as a copy of is looked at where it was said.
        let own = parent.as_ref().map(|parent| View::of(node).only(&parent.task_turn));
        let sender = parent.and_then(|parent| subagents::session(&views, &node.tenant, &parent.session));
        let view = own.as_ref().unwrap_or(view);
        calls::order(ledger, view);
        calls::replay(ledger, view);
        context::cuts(ledger, view);
        ends::sealed(ledger, view, node);
        ends::whole(ledger, view, node);
        ends::bounds(ledger, view, node);
        recovery::unknown(ledger, view);
        people::asked(ledger, view, node, sender.map(|(_, view)| view));
        readers::artifacts(world, view, node);
        let witnesses = world.witnesses.borrow();
        let witness = &witnesses[node.place];
        readers::streams(ledger, view, witness);
        people::told(ledger, view, witness, node);
        if scenario.is_some() {
            readers::posts(ledger, view, witness, node.place);
        }
    }
}
