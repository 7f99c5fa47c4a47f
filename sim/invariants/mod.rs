//! The ten invariants of DESIGN.md and what must hold where people decide, checked against what tools really did, what models were really
//! asked, what clients really saw and what users posted: never against the core's own opinion.
//!
//! | file | invariants |
//! |---|---|
//! | `calls` | 1 one outcome a call, in order · 5 waves · 6 nothing runs twice |
//! | `context` | 10 what leaves the context is summed up, findable, and flushed |
//! | `ends` | 2 nothing after the seal · 3 the end is whole · 4 budgets and deadlines |
//! | `readers` | 8 numbers, ends, streams · 7 nobody else's words · 10 nothing said is lost |
//! | `people` | 11 what somebody is asked about runs as it was decided, or not at all |
//! | `recovery` | 9 a crash changes nothing but what is unknown |
//!
//! What can only be seen while it happens is looked at there: overlapping runs in `tools`, what a
//! model reads in `model`, foreign words in `client`.

mod calls;
mod context;
mod ends;
mod people;
mod readers;
mod recovery;
mod view;

use super::{outside::Outside, world::World};

pub use recovery::same;
pub use view::View;

/// Looks at everything that is left of a world that was played.
pub fn check(world: &World) {
    let outside: &Outside = &world.outside;
    for node in world.nodes() {
        let view = View::of(&node);
        let planned = outside.plan.sessions.get(node.place);
        if planned.is_some_and(|plan| plan.erased) && world.witnesses.borrow()[node.place].erased {
            readers::erased(world, &node);
            continue;
        }
        readers::log(outside, &view);
        calls::outcomes(outside, &view);
        if planned.is_none() {
            continue;
        }
        calls::order(outside, &view);
        calls::replay(outside, &view);
        context::cuts(outside, &view);
        ends::sealed(outside, &view, &node);
        ends::whole(outside, &view, &node);
        ends::bounds(outside, &view, &node);
        recovery::unknown(outside, &view);
        people::asked(outside, &view, &node);
        readers::artifacts(world, &view, &node);
        let witnesses = world.witnesses.borrow();
        let witness = &witnesses[node.place];
        readers::streams(outside, &view, witness);
        people::told(outside, &view, witness, &node);
        readers::posts(outside, &view, witness, node.place);
    }
}
