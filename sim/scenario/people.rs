//! People: the permission rules that they set, and when they decide on calls.

use super::{Act, CallScript, SessionScenario};
use crate::dice::Dice;
use edge_harness::types::{Category, Grants, Policy, Rules, SessionPermissions, TenantId};
use std::collections::BTreeMap;

/// The tools that rules are written for.
pub const RULED: &[&str] = &["look", "fetch", "put", "put", "send", "send", "destroy", "echo", "lend"];

/// The policies of a tenant in the order of their versions, which start at 1, each with the time when the operator sets
/// it, in milliseconds from the start.
pub type Policies = Vec<(u64, Rules)>;

/// The settings shared by all sessions of a world.
#[derive(Clone, Default)]
pub struct PeopleScenario {
    /// The agent's permission rules.
    pub rules: Rules,
    /// The policies of tenants, if the operator sets any.
    pub tenants: BTreeMap<TenantId, Policies>,
    /// Time to answer in seconds, or the agent's default.
    pub ttl_s: Option<u64>,
}

/// Adds people to some sessions.
pub fn add_people(dice: &mut Dice, quiet: bool, sessions: &mut [SessionScenario]) -> PeopleScenario {
    let mut people = PeopleScenario::default();
    if !dice.chance(if quiet { 50 } else { 60 }) {
        return people;
    }
    if dice.chance(15) {
        people.rules.tools.insert(dice.pick(RULED).into(), dice.pick(&[Policy::Ask, Policy::Deny]));
    }
    people.ttl_s = (!quiet && dice.chance(40)).then(|| dice.pick(&[1, 3, 15]));
    for session in sessions.iter_mut() {
        if dice.chance(10) && people.rules.tools.is_empty() {
            continue;
        }
        session.rules = Some(rules(dice));
        session.restarts = dice.chance(80);
        session.leaves = people.ttl_s.is_some() && dice.chance(40);
        let calls =
            session.turns.iter_mut().flat_map(|turn| &mut turn.steps).flat_map(|step| &mut step.calls);
        for call in calls {
            // A client that reconnects identifies a call by its id.
            call.named |= quiet;
            if dice.chance(12) {
                *call = CallScript { tool: dice.pick(&["ask", "lend"]), ..call.clone() };
            }
        }
        let last = session.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        for _ in 0..if quiet { 0 } else { dice.within(1, 6) } {
            session.acts.push((dice.below(last + 4_000), Act::Decide));
        }
        for _ in 0..if quiet { 0 } else { dice.below(2) } {
            session.acts.push((dice.below(last + 4_000), dice.pick(&[Act::Abort, Act::Fork, Act::Look])));
        }
    }
    people
}

fn rules(dice: &mut Dice) -> SessionPermissions {
    let mut rules = SessionPermissions::default();
    for _ in 0..dice.within(1, 4) {
        rules.tools.insert(dice.pick(RULED).into(), Policy::Ask);
    }
    if dice.chance(25) {
        rules.tools.insert(dice.pick(RULED).into(), Policy::Deny);
    }
    if dice.chance(20) {
        let category = dice.pick(&[Category::Read, Category::Edit, Category::Other]);
        rules.categories.insert(category, dice.pick(&[Policy::Ask, Policy::Ask, Policy::Deny]));
    }
    if dice.chance(10) {
        rules.grants = Grants { tools: [dice.pick(RULED).to_owned()].into(), ..Grants::default() };
    }
    rules.yolo = dice.chance(8);
    rules
}
