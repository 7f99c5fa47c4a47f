//! Rules that change while turns run: the operator sets policies of tenants, and clients patch the permissions of
//! sessions.

use super::{
    Act, SUBAGENT, SessionScenario,
    people::{PeopleScenario, Policies, RULED},
};
use crate::dice::Dice;
use edge_harness::types::{Category, Policy, Rules};
use serde_json::{Value, json};

const CATEGORIES: [Category; 3] = [Category::Read, Category::Edit, Category::Other];
const POLICIES: [Policy; 6] =
    [Policy::Allow, Policy::AskUser, Policy::Ask, Policy::Ask, Policy::Deny, Policy::Deny];

/// Gives some worlds policies of tenants. In a quiet world they do not change, so that its turns end as they would
/// without disturbances.
pub fn add_rules(
    dice: &mut Dice,
    quiet: bool,
    sessions: &mut [SessionScenario],
    people: &mut PeopleScenario,
) {
    if !dice.chance(if quiet { 15 } else { 35 }) {
        return;
    }
    if dice.chance(20) {
        let category = dice.pick(&CATEGORIES);
        people.rules.categories.insert(category, dice.pick(&[Policy::AskUser, Policy::Ask, Policy::Deny]));
    }
    for session in sessions.iter_mut() {
        let last = session.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        let policies = people.tenants.entry(session.tenant.clone());
        let policies = policies.or_insert_with(|| policies_of(dice, quiet, last + 6_000));
        if session.rules.is_none() {
            session.rules = Some(Default::default());
            session.restarts = dice.chance(80);
        }
        let calls =
            session.turns.iter_mut().flat_map(|turn| &mut turn.steps).flat_map(|step| &mut step.calls);
        // A client that reconnects identifies a call by its id.
        calls.for_each(|call| call.named |= quiet);
        if quiet {
            continue;
        }
        session.slow = dice.chance(60);
        // Soon after a change, a request that carries it.
        let looks: Vec<u64> = policies.iter().map(|(at, _)| at + dice.below(200)).collect();
        session.acts.extend(looks.into_iter().map(|at| (at, Act::Look)));
        for _ in 0..dice.below(4) {
            session.acts.push((dice.below(last + 4_000), Act::Permit(patch(dice))));
        }
        for _ in 0..dice.within(2, 6) {
            session.acts.push((dice.below(last + 4_000), Act::Decide));
        }
    }
}

fn policies_of(dice: &mut Dice, quiet: bool, until: u64) -> Policies {
    let mut times = vec![0];
    times.extend((0..if quiet { 0 } else { dice.within(1, 5) }).map(|_| dice.below(until)));
    times.sort_unstable();
    // Some changes lift all rules.
    times.into_iter().map(|at| (at, if dice.chance(25) { Rules::default() } else { rules(dice) })).collect()
}

fn rules(dice: &mut Dice) -> Rules {
    let mut rules = Rules::default();
    for _ in 0..dice.below(4) {
        let tool = if dice.chance(10) { SUBAGENT } else { dice.pick(RULED) };
        rules.tools.insert(tool.into(), dice.pick(&POLICIES));
    }
    if dice.chance(25) {
        rules.categories.insert(dice.pick(&CATEGORIES), dice.pick(&POLICIES));
    }
    rules.default = dice.chance(10).then(|| dice.pick(&POLICIES));
    rules
}

/// Returns a patch that denies many calls.
pub fn denial(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => json!({ "default": "deny" }),
        _ => json!({ "categories": { (dice.pick(&CATEGORIES).name()): "deny" } }),
    }
}

/// Returns a patch of a session's permissions.
fn patch(dice: &mut Dice) -> Value {
    let policy = dice.pick(&[json!("allow"), json!("ask"), json!("ask"), json!("deny"), Value::Null]);
    let tool = if dice.chance(10) { SUBAGENT } else { dice.pick(RULED) };
    match dice.below(8) {
        0 => json!({ "categories": { (dice.pick(&CATEGORIES).name()): policy } }),
        1 => json!({ "yolo": dice.chance(50) }),
        2 => json!({ "grants": { "tools": [tool] } }),
        3 => json!({ "default": policy }),
        _ => json!({ "tools": { (tool): policy } }),
    }
}
