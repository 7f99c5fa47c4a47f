//! Worlds whose session is a run: a plan, runners that may be killed, and people who approve, cancel and retry.
//!
//! | file | contents |
//! |---|---|
//! | `scenario` | derives such a world from a seed |
//! | `clients` | the client that starts the run, its runners and its people |
//! | `check` | invariant 23 |
//!
//! These worlds come beside the others: a seed that has one plays both.

mod check;
mod clients;
mod scenario;

use crate::{client, invariants, ledger::Ledger, run, world::World};
use std::rc::Rc;

/// One in this many seeds has a world with a run.
const EVERY: u64 = 8;

/// Plays the run of a seed, and checks it. `None` if the seed has none.
pub fn play(seed: u64, traced: bool) -> Option<Rc<Ledger>> {
    if !seed.is_multiple_of(EVERY) {
        return None;
    }
    let mut scenario = scenario::of(seed);
    let world = World::new(&mut scenario, traced);
    let witness = clients::start(&world, &mut scenario.dice);
    client::inbox::start(&world);
    run::end(&world);
    clients::look(&world, &witness);
    invariants::check_run(&world);
    check::check(&world, &witness);
    world.dismantle();
    Some(Rc::clone(&world.ledger))
}
