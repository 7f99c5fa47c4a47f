//! Plays a scenario to its end.

use super::{
    client, invariants,
    scenario::Scenario,
    world::{Node, World},
};
use std::rc::Rc;

/// Maximum duration of the clients' actions, in milliseconds.
const MAX_ACTIONS_MS: u64 = 3_600_000;
/// Maximum duration of turns after all failures have ended, in milliseconds.
const SETTLE_MS: u64 = 1_800_000;
/// How long canceled tools may keep running, plus a margin, in milliseconds.
const LATE_MS: u64 = 40_000;

/// Plays a scenario to its end, and returns its world.
pub fn run(scenario: &Scenario, traced: bool) -> Rc<World> {
    let mut scenario = scenario.clone();
    let world = World::new(&mut scenario, traced);
    client::start(&world, &mut scenario.dice);
    client::inbox::start(&world);
    end(&world);
    world
}

/// Runs until all clients are done, all failures have ended, and the world has settled.
pub fn end(world: &Rc<World>) {
    if !world.run(MAX_ACTIONS_MS, |world| world.busy.get() == 0) {
        world.ledger.find(4, "a client waits forever");
    }
    world.nodes().iter().for_each(|node| node.disk.heal());
    if !world.run(SETTLE_MS, |world| world.all_nodes(|node| !node.disk.busy.get())) {
        world.ledger.find(4, "a turn never ends");
    }
    if !world
        .run(SETTLE_MS, |world| world.all_nodes(|node| !node.disk.busy.get() && !node.disk.has_tasks.get()))
    {
        world.ledger.find(20, "a background task never ends");
    }
    // Late tools may still try to write; followers disconnect.
    world.closing.set(true);
    world.run(LATE_MS, |_| false);
    // Also the disks of subagents that were spawned since then.
    world.nodes().iter().for_each(|node| node.disk.heal());
    // A late follow-up may use a model while a session leaves the inbox, so both have to hold at once.
    let settled = |node: &Node| invariants::has_reported(node) && client::inbox::has_left(node);
    if !world.run(SETTLE_MS, |world| world.all_nodes(settled)) {
        if !world.all_nodes(invariants::has_reported) {
            world.ledger.find(13, "a session never reports its usage");
        }
        if !world.all_nodes(client::inbox::has_left) {
            world.ledger.find(21, "a session never leaves the inbox");
        }
    }
    world.nodes().iter().for_each(|node| node.crash(world));
    client::read_remaining(world);
    if !world.run(LATE_MS, |world| world.busy.get() == 0) {
        world.ledger.find(8, "a reader waits forever");
    }
}
